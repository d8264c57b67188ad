"""MindSpore: operators, memory, graphs, input pipeline and steps, in graph and PyNative mode.

MindSpore's C++ profiler of the CPU writes text files when it is stopped. They stay in the capture as they are, in a folder of
their own for each piece of a window, and the reader takes them over. On Ascend its own collection is driven instead (`_mindspore_ascend`).
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture
from stepscope.collect import _mindspore_ascend, _mindspore_cells, _mindspore_graphs, _mindspore_pipeline
from stepscope.collect import _mindspore_loop as loop
from stepscope.collect.options import AicoreMetrics, Options, ProfilerActivity, ProfilerLevel

_PIECE_NS = 60_000_000_000  # the C++ profiler keeps all in memory until it is stopped: at the next step after this it is, and goes on


def prepare(options: Options) -> None:
    """As early as possible, long before a window opens: ask MindSpore for what it must know before it compiles or reads data."""
    loop.install()
    if _wants_graphs(options):
        _mindspore_graphs.expect()
    if options.data_process:
        _mindspore_pipeline.expect()


class Collector:
    """One window."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profiler: Any = None
        self._ascend: _mindspore_ascend.Recording | None = None
        self._cells: _mindspore_cells.Calls | None = None
        self._pipeline: _mindspore_pipeline.Monitor | None = None
        self._marks: list[tuple[int, int, bool]] = []  # calls of Profiler.step(): number, when, whether made at the end of a training call
        self.full = False  # a bound has been reached: whoever drives the window ends it
        self._pieces = self._events = self._bytes = self._piece_ns = self._clock_settings = 0
        self._told_operators = False
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
        _say_what_has_no_effect(self._options, capture, on_ascend, graph)
        if self._options.data_process:
            monitor = _mindspore_pipeline.Monitor()
            if self._tried("the input pipeline is not recorded", lambda: monitor.start(capture)):
                self._pipeline = monitor
        if self._options.with_modules and not graph:
            cells = _mindspore_cells.Calls(self._options.max_events)
            self._tried("calls of Cells are not recorded", cells.start)
            self._cells = cells
        if on_ascend:
            recording = _mindspore_ascend.Recording(self._options)
            if self._tried("Ascend is not recorded", lambda: recording.start(capture)):
                self._ascend = recording
        elif ProfilerActivity.CPU in self._options.activities and self._options.profiler_level is not ProfilerLevel.LevelNone:
            # A compiled graph that was called before may still run: its operators belong to a step that is not recorded.
            self._tried("operators of the step before may be among the first", _wait_for_launched)
            self._tried("operators are not recorded", self._begin_piece)
        self._moments = loop.Moments(self._border)
        loop.adopt_step()
        loop.active.append(self._moments)

    def step(self, number: int) -> None:
        self._border()
        self._marks.append((number, clock.now_ns(), loop.marks_training_calls))

    def stop(self) -> None:
        self._moments.close()
        capture, cells, pipeline = self._capture, self._cells, self._pipeline
        if self._moments.began_within:
            capture.notice("the first step counts from where recording began, in its own callbacks: its wait for data is not in it")
        if self._profiler:
            self._tried("operators are lost", self._end_piece)
        if cells:
            self._tried("calls of Cells are lost", lambda: cells.stop(capture))
        if pipeline and self._tried("queues of the input pipeline are lost", lambda: pipeline.stop(capture, capture.folder / "minddata")):
            self._moments.operators = []  # MindSpore's own monitor tells more of them
        self._pipeline = None
        if self._ascend:
            self._tried("what Ascend recorded is lost", self._keep_ascend)
        if _wants_graphs(self._options):
            self._tried("graphs are lost", lambda: _mindspore_graphs.copy_to(capture.folder / "graphs"))
            _mindspore_graphs.enough()
        self._append_moments()

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
        for have, most, what in (
            (self._events, self._options.max_events, "operator calls"),
            (self._bytes, self._options.max_bytes, "bytes of operators"),
        ):
            if have >= most:
                self._capture.notice(f"recording ended early: {most:,} {what} were reached")
                self.full = True

    def _border(self) -> bool:
        """A step is over when its kernels are: they run behind the Python code. What has grown large goes to disk. Whether it waited."""
        if self._options.sync_enable:
            _wait_for_launched()
        self._capture.check_clock()
        # MindSpore takes its times from the wall clock: once that has been set, another piece limits what cannot be told apart.
        clock_set = self._capture.clock_settings != self._clock_settings
        if self._profiler and (clock_set or clock.now_ns() - self._piece_ns > _PIECE_NS):
            self._tried("operators are recorded up to here", self._next_piece)
        return self._options.sync_enable

    def _next_piece(self) -> None:
        self._end_piece()
        self._check_bounds()
        if not self.full:
            self._begin_piece()
        if self._cells:
            self._cells.flush(self._capture)
        self._append_moments()
        self._capture.describe()

    def _keep_ascend(self) -> None:
        assert self._ascend
        kept = [folder.name for folder in self._ascend.stop(self._capture)]
        self._capture.header["ascend"] = self._capture.header["keep"] = kept
        self._capture.notice(f"what Ascend recorded is kept as MindSpore wrote it: {', '.join(kept)}")

    def _append_moments(self) -> None:
        seen, capture = self._moments, self._capture
        if seen.steps:
            phases, numbers, counts, starts, ends = zip(*seen.steps, strict=True)
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
        if seen.updates:
            starts, ends, callers = zip(*seen.updates, strict=True)
            columns = {"start_ns": np.array(starts, np.int64), "end_ns": np.array(ends, np.int64)}
            capture.append("mindspore_updates", columns | {"caller": np.array(callers, np.int64)})
        if seen.graphs:
            functions, numbers, graphs, drained, starts, ends, threads = zip(*seen.graphs, strict=True)
            capture.append(
                "mindspore_graph_calls",
                {
                    "function": functions,
                    "caller": np.array(numbers, np.int64),
                    "graph": np.array(graphs, np.int32),
                    "drained": np.array(drained, np.bool_),  # nothing of it ran after its end
                    "start_ns": np.array(starts, np.int64),
                    "end_ns": np.array(ends, np.int64),
                    "tid": np.array(threads, np.int64),
                },
            )
        if seen.ranges:
            kinds, names, starts, ends, threads = zip(*seen.ranges, strict=True)
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
        for written in (seen.steps, seen.updates, seen.ranges, seen.graphs, self._marks):
            written.clear()
        self._tried("the input pipeline is lost", self._append_batches)

    def _append_batches(self) -> None:
        """What the loop itself sees of its input: the operators, and how long it waits for each batch."""
        from mindspore.dataset import config

        seen, capture = self._moments, self._capture
        if seen.operators and not self._told_operators and not self._pipeline:
            self._told_operators = True
            types, workers, parents = zip(*seen.operators, strict=True)
            columns: dict[str, Any] = {
                "op_id": np.arange(len(types), dtype=np.int32),
                "op_type": types,
                "workers": np.array(workers, np.int32),
                "queue_capacity": np.full(len(types), config.get_prefetch_size(), np.int32),
            }
            # The first takes from the others, and nobody from it.
            capture.append("pipeline", {name: values[:1] for name, values in columns.items()})
            if len(types) > 1:
                inner = {name: values[1:] for name, values in columns.items()}
                capture.append("pipeline", inner | {"parent": np.array(parents[1:], np.int32)})
        if seen.batches:
            ends, waits = np.array(seen.batches, np.int64).T
            names = ["pipeline time iterator"] * len(ends)
            capture.append("counters", {"name": names, "at_ns": ends, "value": waits / 1e6, "unit": ["ms"] * len(ends)})
            seen.batches.clear()
            capture.header["waits"] = True
        if seen.pipeline_problem:
            capture.notice(f"the input pipeline is not recorded: {seen.pipeline_problem}")
        if seen.other_pipelines:
            capture.notice("of several input pipelines the one that was read first is shown")

    def _tried(self, consequence: str, act: Callable[[], Any]) -> Any:
        """Do one part; should it fail, say so and go on with the others. What it returned, or None if it failed."""
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - a part that fails costs its data, but neither the training nor the other parts
            self._capture.notice(f"{consequence}: {type(error).__name__}: {error}")
            sys.stderr.write(f"stepscope: {consequence}: {error}\n")
            return None


def _wants_graphs(options: Options) -> bool:
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


def _say_what_has_no_effect(options: Options, capture: Capture, on_ascend: bool, graph: bool) -> None:
    if not graph and not options.sync_enable:
        capture.notice(
            "sync_enable is off: in PyNative mode kernels run behind the Python code, and those near a step's end may count in the next"
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
    if without := [name for name, asked in chip_only.items() if asked]:
        capture.notice(f"no effect with MindSpore on the CPU: {', '.join(without)}")
    if ProfilerActivity.CPU not in options.activities:
        capture.notice("no operators: MindSpore runs on the CPU, and activities leaves CPU out")
