"""PyTorch: operators, kernels, memory, modules and the DataLoader, through torch.profiler and without touching user code."""

import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.captures import Capture, Column
from stepscope.collect import _torch_events, _torch_older
from stepscope.collect import _torch_npu as npu
from stepscope.collect._nvml import Sampler
from stepscope.collect._torch_clock import Session
from stepscope.collect._torch_loader import Watch
from stepscope.collect._torch_modules import Ranges
from stepscope.collect.options import AicoreMetrics, Options, ProfilerActivity, ProfilerLevel

FALLBACK = "kineto.json"  # Kineto's own file, where its events could not be taken over
_FASTEST = 1_000_000  # events in a second: no program makes more
_HELD = 4_000_000  # events that may wait in memory, about 1 KB each; more are written out between two steps


class Collector:
    """From start to stop: one session of torch.profiler or, where that would hold too much in memory, several from step to step."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.profiler: Any = None  # torch's own, of the latest session
        self.keep_events = (
            options.with_stack or options.with_flops
        )  # whether torch can be asked for its own summary; stop takes longer then
        self.full = False  # the bound on events was reached
        self._recording = False
        self.events = 0  # written down so far
        self._extras: list[Any] = []

    def start(self, capture: Capture) -> None:
        import torch

        self._capture, self._thread = capture, threading.get_ident()
        self._marker: Any = None
        self._step: int | None = None
        self._first_number = self._last_number = 0  # what the numbers of this session are counted from, and the largest
        self._steps = 0  # of this session
        self._per_step: float | None = None  # events, as the session before had them
        capture.header |= {"base": "torch", "framework": "pytorch"}
        capture.header["versions"] = capture.header.get("versions", {}) | _versions()
        for what in _without_effect(self._options):
            capture.notice(what)
        if npu.present() and ProfilerActivity.NPU in self._options.activities:
            self.profiler = npu.start(self._options, capture)
            return
        _watch_for_others()
        _collecting.append(self)
        self._begin()
        self._extras = [Watch(capture)]
        if self._options.with_modules:
            self._extras.append(Ranges())
        if torch.cuda.is_available() and self._options.host_interval_ms and ProfilerActivity.GPU in self._options.activities:
            self._extras.append(Sampler(capture, self._options))
        for extra in list(self._extras):
            try:
                extra.start()
            except (ImportError, AttributeError, OSError, RuntimeError) as error:  # another release, no driver: the rest is recorded
                self._extras.remove(extra)
                capture.notice(f"{extra.WHAT} not recorded: {error}")

    def _begin(self) -> None:
        import torch
        from torch._C._profiler import _ExperimentalConfig

        options = self._options
        wanted = {
            "expose_kineto_event_metadata": True,
            "trace_only": not self.keep_events,
            "enable_cuda_sync_events": options.profiler_level in (ProfilerLevel.Level1, ProfilerLevel.Level2),
        }
        config: Any = _ExperimentalConfig
        known = config.__init__.__doc__ or ""  # names what this release takes
        self.profiler = torch.profiler.profile(
            activities=_activities(options.activities),
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            experimental_config=config(**{name: value for name, value in wanted.items() if name in known}),
        )
        self._session = Session(self._capture)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch 2.11 warns that a second session would forget the first, whether or not there is one
            self.profiler.start()
        self._since, self._recording = time.monotonic(), True

    def step(self, number: int) -> None:
        import torch

        if not self._recording:
            if npu.present() and self.profiler is not None and self._step is not None:
                self.profiler.step()
            self._step = number
            return
        if self._marker:
            self._marker.__exit__(None, None, None)
            self._marker = None
            self._steps += 1
            if self._may_be_too_many():
                self._end_session()
                if self.events >= self._options.max_events:
                    self.full = True
                    self._capture.notice(f"recording ended early, at step {number}: max_events={self._options.max_events:,} was reached")
                if self.full:
                    return
                self._begin()
        self._step, self._marker = number, torch.profiler.record_function(f"ProfilerStep#{number}")
        self._session.enter(self._marker, f"ProfilerStep#{number}")

    def _may_be_too_many(self) -> bool:
        """Torch cannot say how many events it holds before its session ends: the first is judged by time, the next by the one before."""
        if self._session.clock_was_set:
            return True  # what PyTorch records from here on will have true timestamps again
        room = self._options.max_events - self.events
        if self._per_step is None:
            return (time.monotonic() - self._since) * _FASTEST >= room
        return (self._steps + 1) * self._per_step > min(room, _HELD)

    def stop(self) -> None:
        if self in _collecting:
            _collecting.remove(self)
        for extra in self._extras:
            extra.stop()
        if self._recording:
            self._end_in_step()
        elif npu.present() and self.profiler is not None:
            self.profiler.stop()
        self._capture.header["torch"] = _surroundings(self._options)
        if (job := _job()) is not None:
            self._capture.header |= job

    def give_way(self) -> None:
        """A profiler of the program's own begins, and PyTorch would forget this session for it, without a word."""
        if self._recording:
            self._capture.notice("PyTorch is recorded up to where the program's own torch.profiler began: there is one at a time")
            self._end_in_step()

    def _end_in_step(self) -> None:
        """The step that is not over is no step."""
        if self._marker:
            self._marker.__exit__(None, None, None)
            self._marker = None
            self._capture.header["open_step"] = self._step
        self._end_session()

    def _end_session(self) -> None:
        """Stop torch's profiler and write down what it saw."""
        if threading.get_ident() != self._thread:
            self._capture.notice("stopped by another thread than the one that started recording: what PyTorch did is lost")
        self._recording = False
        self._session.close()
        self.profiler.stop()
        count = 0
        try:
            results = self.profiler.profiler.kineto_results
            source = _torch_events if hasattr(results, "trace_activities") else _torch_older
            for table, piece in self._session.corrected(source.pieces(results, self._options)):
                self._capture.append(table, self._renumbered(piece))
                count += len(piece["start_ns"])
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # private to PyTorch: another release may do otherwise
            self._fall_back(f"{type(error).__name__}: {error}")
        self.events += count
        self._per_step, self._steps = count / max(self._steps, 1), 0
        self._first_number = self._last_number

    def _renumbered(self, piece: Mapping[str, Column]) -> dict[str, Column]:
        """Numbers that tie events together start again in each session; in the capture they must not."""
        columns = dict(piece)
        for name in columns.keys() & {"correlation", "external", "flow"}:
            values = np.asarray(columns[name])
            self._last_number = max(self._last_number, self._first_number + int(values.max(initial=0)))
            if self._first_number:
                columns[name] = np.where(values > 0, values + np.int64(self._first_number), values)
        return columns

    def _fall_back(self, why: str) -> None:
        if self.events:
            self.full = True
            self._capture.notice(f"recording ended early: PyTorch's events could not be taken over ({why})", lost=1)
            return
        self.profiler.export_chrome_trace(str(self._capture.folder / FALLBACK))
        self._capture.notice(f"PyTorch's events could not be taken over ({why}): they were written as JSON, which takes longer to read")


_collecting: list[Collector] = []


def _watch_for_others() -> None:
    """Every profiler of PyTorch begins here."""
    import torch

    kind: Any = torch.autograd.profiler.profile
    begin = getattr(kind, "_prepare_trace", None)
    if begin is None or hasattr(begin, "_watched"):
        return

    @wraps(begin)
    def prepare_trace(profiler: Any) -> Any:
        for collector in list(_collecting):
            try:
                collector.give_way()
            except Exception as error:  # noqa: BLE001 - the program's profiler begins, whatever becomes of ours
                collector._capture.notice(f"what PyTorch did is lost: {type(error).__name__}: {error}")
        return begin(profiler)

    prepare_trace._watched = True  # type: ignore[attr-defined]
    kind._prepare_trace = prepare_trace


def _activities(wanted: tuple[ProfilerActivity, ...]) -> list[Any]:
    import torch

    profiler: Any = torch.profiler
    there = profiler.supported_activities()
    names = {ProfilerActivity.CPU: ("CPU",), ProfilerActivity.GPU: ("CUDA", "XPU"), ProfilerActivity.NPU: ("PrivateUse1", "MTIA", "HPU")}
    found = [activity for one in wanted for name in names[one] if (activity := getattr(profiler.ProfilerActivity, name, None)) in there]
    # Where none of the devices that were asked for is there, the host is what can be seen.
    return found or [profiler.ProfilerActivity.CPU]


def _versions() -> dict[str, str]:
    import torch

    return {"torch": str(torch.__version__)} | ({"cuda": str(torch.version.cuda)} if torch.version.cuda else {})


def _without_effect(options: Options) -> Iterator[str]:
    """What was asked for and cannot be had here."""
    import torch

    if npu.present():
        return
    if options.aic_metrics is not AicoreMetrics.AiCoreNone:
        yield f"aic_metrics={options.aic_metrics.name}: only Ascend chips count these"
    if options.l2_cache:
        yield "l2_cache: only Ascend chips count this"
    for name in ("hbm_ddr", "pcie"):
        if getattr(options, name) and not torch.cuda.is_available():
            yield f"{name}: there is no GPU"


def _surroundings(options: Options) -> dict[str, Any]:
    """What Kineto writes at the head of its file, and the names of the threads."""
    import torch

    cuda: Any = torch.cuda
    chips = [cuda.get_device_properties(number) for number in range(cuda.device_count())] if cuda.is_initialized() else []
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    threads = {task.name: _text(task / "comm") for task in Path("/proc/self/task").glob("*")}
    return {
        "header": {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": number,
                    "name": chip.name,
                    "totalGlobalMem": chip.total_memory,
                    "computeMajor": chip.major,
                    "computeMinor": chip.minor,
                    "numSms": chip.multi_processor_count,
                }
                for number, chip in enumerate(chips)
            ],
            **{flag: int(getattr(options, flag)) for flag in flags},
        },
        "threads": threads,
    }


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the thread has ended
        return ""


def _job() -> dict[str, Any] | None:
    """Rank and world as the process group has them; launchers may not say."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return {
        "rank": torch.distributed.get_rank(),
        "world_size": torch.distributed.get_world_size(),
        "backend": torch.distributed.get_backend(),
    }
