"""Profiler: records a training job, window by window, into run folders. Its API is that of mindspore.Profiler."""

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from stepscope import captures
from stepscope.collect import Collector
from stepscope.collect import plain as plain_ranges
from stepscope.collect.options import Options
from stepscope.errors import StepscopeError


class Window:
    """One recording: from start to stop, one capture folder, then one run folder."""

    def __init__(self, options: Options, collectors: list[Collector], *, step: int) -> None:
        self._collectors = collectors
        name = f"rank{rank()}_{socket.gethostname()}_{os.getpid()}_{time.strftime('%Y%m%d%H%M%S')}{time.time_ns() // 1_000_000 % 1000:03d}"
        header = {
            "rank": rank(),
            "world_size": world_size(),
            "pid": os.getpid(),
            "framework": options.framework or "",
            "options": _plain(options),
            "metadata": options.metadata,
        }
        self.capture = captures.Capture(options.output_path / f"{name}{captures.SUFFIX}", header)
        self.run: Path | None = None
        self._steps: list[tuple[int, int]] = []
        for collector in collectors:
            collector.start(self.capture)
        self.step(step)

    def step(self, number: int) -> None:
        """Step `number` begins."""
        self._steps.append((number, time.time_ns()))
        for collector in self._collectors:
            collector.step(number)

    def stop(self) -> None:
        for collector in reversed(self._collectors):
            collector.stop()
        if len(self._steps) > 1:
            # The step that the last call of step() began is not over: it is no step.
            numbers, starts = zip(*self._steps[:-1], strict=True)
            ends = [start for _, start in self._steps[1:]]
            self.capture.append(
                "steps",
                {"step": np.array(numbers, np.int32), "start_ns": np.array(starts, np.int64), "end_ns": np.array(ends, np.int64)},
            )
        self.capture.finish()

    def convert(self) -> Path:
        """The run folder: made here where polars is installed, else the capture itself, which becomes one when it is first opened."""
        if self.run is None:
            self.run = _converted(self.capture.folder)
        return self.run


def _converted(folder: Path) -> Path:
    try:
        from stepscope import opening, store
    except ImportError:  # a sealed training image: numpy and the framework are all there is
        return folder
    run = folder.with_name(folder.name.removesuffix(captures.SUFFIX))
    store.write(opening.open(folder, cache=False), run)
    shutil.rmtree(folder, ignore_errors=True)
    return run


def rank() -> int:
    """This process's rank, as launchers say it."""
    return _first_number(("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"), 0)


def world_size() -> int:
    return _first_number(("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"), 1)


def _first_number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def _plain(options: Options) -> dict[str, Any]:
    return {key: getattr(value, "value", value) for key, value in vars(options).items()}


class Profiler:
    """First cut: start, stop, step, analyse."""

    def __init__(self, *, start_profile: bool = True, on_trace_ready: Callable[["Profiler"], None] | None = None, **choices: Any) -> None:
        self.options = Options(**choices)
        self._on_trace_ready = on_trace_ready
        self._window: Window | None = None
        self._windows: list[Window] = []
        self.step_num = 0
        if start_profile:
            self.start()

    def start(self) -> None:
        if self._window:
            raise StepscopeError("the profiler has been started already")
        self._window = Window(self.options, collectors(self.options), step=self.step_num)

    def step(self) -> None:
        self.step_num += 1
        if self._window:
            self._window.step(self.step_num)

    def stop(self) -> None:
        if not self._window:
            raise StepscopeError("stop before start")
        window, self._window = self._window, None
        window.stop()
        self._windows.append(window)
        if self._on_trace_ready:
            self._on_trace_ready(self)

    def analyse(self) -> list[Path]:
        if self._window:
            self.stop()
        return [window.convert() for window in self._windows]

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._window:
            self.stop()


def collectors(options: Options) -> list[Collector]:
    """What will record: the framework in use, the ranges users name, the host."""
    return [plain_ranges.Collector()]
