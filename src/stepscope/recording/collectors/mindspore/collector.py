"""MindSpore: operators, memory, graphs, input pipeline and steps, in graph and PyNative mode.

MindSpore's C++ profiler of the CPU writes text files when it is stopped. They stay in the capture unchanged, in a separate folder for each
piece of a window, and the reader reads them. On Ascend its own collection is used instead (`ascend`).
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.collectors.mindspore import ascend, loop
from stepscope.recording.collectors.mindspore import cells as mindspore_cells
from stepscope.recording.collectors.mindspore import graphs as mindspore_graphs
from stepscope.recording.collectors.mindspore import pipeline as mindspore_pipeline
from stepscope.recording.collectors.options import AicoreMetrics, Options, ProfilerActivity, ProfilerLevel

_PIECE_NS = 60_000_000_000  # the C++ profiler keeps all data in memory until it stops: after this time the next step restarts it


def prepare(options: Options) -> None:
    """As early as possible, long before a window opens: request what MindSpore must know before it compiles or reads data."""
    loop.install()
    if _needs_graphs(options):
        mindspore_graphs.request()
    if options.data_process:
        mindspore_pipeline.prepare()


class Collector:
    """One window."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profiler: Any = None
        self._ascend: ascend.Recording | None = None
        self._cells: mindspore_cells.Calls | None = None
        self._pipeline: mindspore_pipeline.Monitor | None = None
        self._marks: list[tuple[int, int, bool]] = []  # calls of Profiler.step(): number, time, whether at the end of a training call
        self.full = False  # a limit has been reached: the window ends
        self._pieces = self._events = self._bytes = self._piece_ns = self._clock_settings = 0
        self._operators_written = False
        prepare(options)

    def start(self, capture: Capture) -> None:
        import mindspore
        from mindspore import context

        self._capture = capture
        graph = context.get_context("mode") == context.GRAPH_MODE
        capture.describe(
            base="mindspore",
            framework="mindspore",
            versions=capture.header.get("versions", {}) | {"mindspore": mindspore.__version__},
            mode="graph" if graph else "pynative",
            main_tid=threading.main_thread().native_id,
            blocking=_launch_blocking(),
        )
        on_ascend = context.get_context("device_target") == "Ascend"
        _report_options_without_effect(self._options, capture, on_ascend, graph)
        if self._options.data_process:
            monitor = mindspore_pipeline.Monitor()
            if self._try("the input pipeline is not recorded", lambda: monitor.start(capture)):
                self._pipeline = monitor
        if self._options.with_modules and not graph:
            cells = mindspore_cells.Calls(self._options.max_events)
            self._try("calls of Cells are not recorded", cells.start)
            self._cells = cells
        if on_ascend:
            recording = ascend.Recording(self._options)
            if self._try("Ascend is not recorded", lambda: recording.start(capture)):
                self._ascend = recording
        elif ProfilerActivity.CPU in self._options.activities and self._options.profiler_level is not ProfilerLevel.LevelNone:
            # A compiled graph of a step before the recording may still run.
            self._try("operators of the step before may be among the first", _wait_for_launched)
            self._try("operators are not recorded", self._begin_piece)
        self._loop = loop.LoopRecord(self._end_step)
        loop.adopt_step()
        loop.active.append(self._loop)

    def step(self, number: int) -> None:
        self._end_step()
        self._marks.append((number, clock.now_ns(), loop.marks_training_calls))

    def stop(self) -> None:
        self._loop.close()
        capture, cells, pipeline = self._capture, self._cells, self._pipeline
        if self._loop.began_in_step:
            capture.notice("the first step starts where recording began, in its own callbacks: its wait for data is missing")
        if self._profiler:
            self._try("operators are lost", self._end_piece)
        if cells:
            self._try("calls of Cells are lost", lambda: cells.stop(capture))
        if pipeline and self._try("queues of the input pipeline are lost", lambda: pipeline.stop(capture, capture.folder / "minddata")):
            self._loop.operators = []  # MindSpore's own monitor records more
        self._pipeline = None
        if self._ascend:
            self._try("Ascend's data is lost", self._keep_ascend)
        if _needs_graphs(self._options):
            self._try("graphs are lost", lambda: mindspore_graphs.copy_to(capture.folder / "graphs"))
            mindspore_graphs.withdraw()
        self._append_loop()

    def _begin_piece(self) -> None:
        from mindspore._c_expression import Profiler

        folder = self._capture.folder.resolve() / "mindspore" / f"{self._pieces:06d}"
        folder.mkdir(parents=True)
        self._pieces += 1
        self._clock_settings = self._capture.begin_session()
        self._piece_ns = clock.now_ns()
        self._profiler = Profiler.get_instance("CPU")
        self._profiler.init(str(folder))
        self._profiler.step_profiling_enable(True)
        self._profiler.enable_op_time()
        if self._options.profile_memory:
            self._profiler.enable_profile_memory()

    def _end_piece(self) -> None:
        _wait_for_launched()
        self._profiler.stop()
        self._profiler = None
        for file in (self._capture.folder / "mindspore" / f"{self._pieces - 1:06d}").iterdir():
            self._bytes += file.stat().st_size
            if file.name.startswith("cpu_framework"):
                with file.open("rb") as lines:
                    self._events += sum(1 for _ in lines)

    def _check_bounds(self) -> None:
        for value, limit, unit in (
            (self._events, self._options.max_events, "operator calls"),
            (self._bytes, self._options.max_bytes, "bytes of operators"),
        ):
            if value >= limit:
                self._capture.notice(f"recording ended early: {limit:,} {unit} were reached")
                self.full = True

    def _end_step(self) -> bool:
        """A step is over when its kernels are: they run behind the Python code. Large data is written. Returns whether it waited."""
        if self._options.sync_enable:
            _wait_for_launched()
        self._capture.check_clock()
        # MindSpore uses the wall clock: once that has been set, another piece limits the ambiguous timestamps.
        clock_set = self._capture.clock_settings != self._clock_settings
        if self._profiler and (clock_set or clock.now_ns() - self._piece_ns > _PIECE_NS):
            self._try("operators are recorded up to here", self._next_piece)
        return self._options.sync_enable

    def _next_piece(self) -> None:
        self._end_piece()
        self._check_bounds()
        if not self.full:
            self._begin_piece()
        if self._cells:
            self._cells.flush(self._capture)
        self._append_loop()
        self._capture.describe()

    def _keep_ascend(self) -> None:
        assert self._ascend
        folders = [folder.name for folder in self._ascend.stop(self._capture)]
        self._capture.header["ascend"] = self._capture.header["keep"] = folders
        self._capture.notice(f"Ascend's data is kept as MindSpore wrote it: {', '.join(folders)}")

    def _append_loop(self) -> None:
        loop_record, capture = self._loop, self._capture
        if loop_record.steps:
            phases, numbers, counts, starts, ends = zip(*loop_record.steps, strict=True)
            capture.append(
                "mindspore_steps",
                {
                    "phase": phases,
                    "step": np.array(numbers, np.int32),
                    "iterations": np.array(counts, np.int32),
                    "start_ns": np.array(starts, np.int64),
                    "end_ns": np.array(ends, np.int64),
                },
            )
        if self._marks:
            numbers, times, inferred = zip(*self._marks, strict=True)
            columns: dict[str, Any] = {"step": np.array(numbers, np.int32), "at_ns": np.array(times, np.int64)}
            capture.append("mindspore_marks", columns | {"inferred": np.array(inferred, np.bool_)})
        if loop_record.updates:
            starts, ends, callers = zip(*loop_record.updates, strict=True)
            columns = {"start_ns": np.array(starts, np.int64), "end_ns": np.array(ends, np.int64)}
            capture.append("mindspore_updates", columns | {"caller": np.array(callers, np.int64)})
        if loop_record.graphs:
            functions, numbers, graphs, drained, starts, ends, threads = zip(*loop_record.graphs, strict=True)
            capture.append(
                "mindspore_graph_calls",
                {
                    "function": functions,
                    "caller": np.array(numbers, np.int64),
                    "graph": np.array(graphs, np.int32),
                    "drained": np.array(drained, np.bool_),  # no kernel of it ran after its end
                    "start_ns": np.array(starts, np.int64),
                    "end_ns": np.array(ends, np.int64),
                    "tid": np.array(threads, np.int64),
                },
            )
        if loop_record.ranges:
            kinds, names, starts, ends, threads = zip(*loop_record.ranges, strict=True)
            start = np.array(starts, np.int64)
            capture.append(
                "mindspore_ranges",
                {
                    "kind": kinds,
                    "name": names,
                    "start_ns": start,
                    "dur_ns": np.array(ends, np.int64) - start,
                    "tid": np.array(threads, np.int64),
                },
            )
        for rows in (loop_record.steps, loop_record.updates, loop_record.ranges, loop_record.graphs, self._marks):
            rows.clear()
        self._try("the input pipeline is lost", self._append_batches)

    def _append_batches(self) -> None:
        """The input pipeline as the loop sees it: its operators, and the wait for each batch."""
        from mindspore.dataset import config

        loop_record, capture = self._loop, self._capture
        if loop_record.operators and not self._operators_written and not self._pipeline:
            self._operators_written = True
            types, workers, parents = zip(*loop_record.operators, strict=True)
            columns: dict[str, Any] = {
                "op_id": np.arange(len(types), dtype=np.int32),
                "op_type": types,
                "workers": np.array(workers, np.int32),
                "queue_capacity": np.full(len(types), config.get_prefetch_size(), np.int32),
            }
            # The first reads from the others, and has no parent.
            capture.append("pipeline", {name: values[:1] for name, values in columns.items()})
            if len(types) > 1:
                inner = {name: values[1:] for name, values in columns.items()}
                capture.append("pipeline", inner | {"parent": np.array(parents[1:], np.int32)})
        if loop_record.batches:
            ends, waits = np.array(loop_record.batches, np.int64).T
            names = ["pipeline time iterator"] * len(ends)
            capture.append("counters", {"name": names, "at_ns": ends, "value": waits / 1e6, "unit": ["ms"] * len(ends)})
            loop_record.batches.clear()
            capture.header["waits"] = True
        if loop_record.pipeline_problem:
            capture.notice(f"the input pipeline is not recorded: {loop_record.pipeline_problem}")
        if loop_record.other_pipelines:
            capture.notice("several input pipelines were read: the first one is shown")

    def _try(self, consequence: str, action: Callable[[], Any]) -> Any:
        """The result of one part. Where it fails, None, and a notice reports the consequence; the other parts continue."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - training and the other parts continue
            self._capture.notice(f"{consequence}: {type(error).__name__}: {error}")
            sys.stderr.write(f"stepscope: {consequence}: {error}\n")
            return None


def _needs_graphs(options: Options) -> bool:
    return options.with_stack or options.record_shapes or options.with_flops or options.with_modules


def _wait_for_launched() -> None:
    from mindspore.graph.api import _pynative_executor

    _pynative_executor.sync()


def _launch_blocking() -> bool:
    try:
        from mindspore._c_expression import RuntimeConf

        return bool(RuntimeConf.get_instance().is_launch_blocking())
    except (ImportError, AttributeError):  # releases before 2.5
        return False


def _report_options_without_effect(options: Options, capture: Capture, on_ascend: bool, graph: bool) -> None:
    if not graph and not options.sync_enable:
        capture.notice(
            "sync_enable is off: in PyNative mode kernels run behind the Python code, and kernels at a step's end may count in the next"
        )
    if on_ascend:
        return
    chip_only = {
        "l2_cache": options.l2_cache,
        "hbm_ddr": options.hbm_ddr,
        "pcie": options.pcie,
        "parallel_strategy": options.parallel_strategy,
        "sys_io": options.sys_io,
        "sys_interconnection": options.sys_interconnection,
        "aic_metrics": options.aic_metrics is not AicoreMetrics.AiCoreNone,
        "profiler_level": options.profiler_level in (ProfilerLevel.Level1, ProfilerLevel.Level2),
    }
    if names := [name for name, is_set in chip_only.items() if is_set]:
        capture.notice(f"no effect with MindSpore on the CPU: {', '.join(names)}")
    if ProfilerActivity.CPU not in options.activities:
        capture.notice("no operators: MindSpore runs on the CPU, and activities does not contain CPU")
