"""A window: one recording of one process, from start to stop. It is a capture folder, then a run folder."""

import atexit
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepscope import __version__, captures, clock, endings, sources
from stepscope.captures import Capture
from stepscope.collect import Collector
from stepscope.collect import options as choices_of
from stepscope.collect import plain as plain_ranges
from stepscope.collect.options import Options
from stepscope.endings import undisturbed
from stepscope.errors import UsageError
from stepscope.step_clock import StepClock, Windows
from stepscope.telling import say, told

_PIECE = 4096  # steps held in memory before they are written


class Window:
    """There is one at a time in a process. What fails in it is told, never raised.

    `given` are collectors in place of those that `sources` finds. `clock` has the steps that are not recorded.
    """

    capture: Capture

    def __init__(
        self, options: Options, given: list[Collector] | None = None, *, step: int, hidden: bool = False, clock: StepClock | None = None
    ) -> None:
        with undisturbed:
            if _Here.window is not None:
                raise UsageError(f"a recording is under way already: {_Here.window.capture.folder}")
            self.options = options
            self.run: Path | None = None
            self.steps = 0  # that are over
            self._marks: list[tuple[int, int]] = []  # of steps not written yet: number and start; the last one is under way
            self._pace = captures.Pace()
            self._running: list[Collector] = []
            self._stumbled: list[Collector] = []
            self._waits = given is None and not sources.present(options)  # for a framework that may still be imported
            self.capture = _capture(options, hidden)
            self._clock, self._clocked = clock, 0  # durations written so far
            self.write_unprofiled_steps()
            _Here.window = self
            Windows.opened()
            try:
                endings.catch_signals()
                for collector in sources.collectors(options) if given is None else given:
                    self._begin(collector)
                self.step(step)
            except BaseException:
                self.discard()  # or there could be no other
                raise

    @property
    def incomplete(self) -> str | None:
        """Why part of it could not be written."""
        reason: str | None = self.capture.header.get("incomplete")
        return reason

    @property
    def place(self) -> Path:
        return self.run or self.capture.folder

    def step(self, number: int) -> bool:
        """Step `number` begins. False when the bound on what may be recorded has been reached."""
        with undisturbed:
            self.steps += bool(self._marks)
            self._marks.append((number, clock.now_ns()))
            if self._waits and (late := sources.present(self.options)):
                self._waits = False
                self.capture.notice(f"{late} was imported after recording began: recorded from step {number} on")
                self.capture.header["framework"] = late
                self._begin(sources.collector(late, self.options))
            for collector in self._running:
                if collector not in self._stumbled and not self._tried(collector, "step", lambda one=collector: one.step(number)):  # type: ignore[misc]
                    self._stumbled.append(collector)
            if len(self._marks) % _PIECE == 0 or self._pace.due():
                self._write(self._write_steps)
            if self.capture.bytes > self.options.max_bytes:
                self.capture.notice(f"recording ended early, at step {number}: max_bytes={self.options.max_bytes:,} was reached")
                return False
            # A collector that counts its events ends its own recording, says so, and is full.
            return not any(getattr(one, "full", False) for one in self._running)

    def stop(self) -> None:
        """End, and leave a whole capture."""
        with undisturbed:
            if _Here.window is not self:
                return
            endings.hold_interrupt()
            try:
                for collector in reversed(self._running):
                    self._tried(collector, "stop", collector.stop)
                if self._waits:
                    self._say_what_was_missing()
                self._write(lambda: self._write_steps(last=True))
                if not self._write(self.capture.finish):
                    self.capture.header.setdefault("incomplete", "its header could not be written")
            finally:
                _Here.window = None
                Windows.closed()
                self._clocked = self._clock.count if self._clock else 0
                endings.release_signals()

    def describe(self, metadata: dict[str, Any]) -> None:
        """The metadata as it is now."""
        self.capture.header["metadata"] = dict(metadata)
        if self.capture.header["whole"] and self.run is None:
            self._write(lambda: self.capture.finish(end_ns=self.capture.header["end_ns"]))

    def write_unprofiled_steps(self) -> None:
        """Add the durations of the steps before the window or, after it, of those since, as long as this is a capture."""
        if self._clock and self._clock.count > self._clocked and self.run is None and self.capture.folder.is_dir():
            columns = self._clock.columns(self._clocked)
            after = np.full(len(columns["step"]), bool(self.capture.header["whole"]))
            self._write(lambda: self.capture.append("unprofiled_steps", {**columns, "after": after}))
            self._clocked = self._clock.count

    def discard(self) -> None:
        """Stop, and forget."""
        for collector in self._running:
            if hasattr(collector, "unwanted"):
                collector.unwanted = True  # or it would take its time to write what nobody will read
        self.stop()
        shutil.rmtree(self.capture.folder, ignore_errors=True)

    def convert(self, *, steps: list[int] | None = None, wait: bool = True) -> Path:
        """The run folder: made here where polars is installed, else the capture itself, which becomes one when it is first opened."""
        if self.run is None and importlib.util.find_spec("polars") and importlib.util.find_spec("msgspec"):
            try:
                # Once the interpreter goes down, neither polars nor anything else with threads can be imported into it.
                if wait and threading.main_thread().is_alive():
                    from stepscope import conversion

                    self.run = conversion.convert(self.capture.folder, steps=steps, keep=not self.options.data_simplification)
                else:
                    process = _in_background(self.capture.folder, steps, not self.options.data_simplification)
                    self.run = self.capture.folder.with_suffix("")
                    if not wait:
                        _Here.converting.append(process)
                    elif not _converted(process):
                        self.run = None
            except Exception as error:  # noqa: BLE001 - training goes on; the capture is there to be opened
                self.run = None
                say(f"{self.capture.folder} stays a capture: {told(error)}")
        return self.place

    def _say_what_was_missing(self) -> None:
        if late := sources.present(self.options):
            self.capture.notice(f"{late} was imported after recording began, and no step was marked since: it is not recorded")
        elif names := sources.without_framework(self.options):
            self.capture.notice(f"no effect without a framework: {', '.join(names)}")

    def _begin(self, collector: Collector) -> None:
        if self._tried(collector, "start", lambda: collector.start(self.capture)):
            self._running.append(collector)

    def _tried(self, collector: Collector, verb: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a collector does, training and the other collectors go on
            source = type(collector).__module__.rpartition(".")[2]
            self.capture.notice(say(f"{source}: {verb} failed: {told(error)}"))
            return False
        return True

    def _write_steps(self, last: bool = False) -> None:
        """Those that are over: what the last call of step() began is no step yet. What a full disk did not take comes with the next."""
        if len(self._marks) > 1:
            numbers, times = zip(*self._marks, strict=True)
            number, at = np.array(numbers, np.int32), np.array(times, np.int64)
            self.capture.append("steps", {"step": number[:-1], "start_ns": at[:-1], "end_ns": at[1:]}, again=not last)
            del self._marks[:-1]

    def _write(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a full disk does not end training
            say(f"{self.capture.folder} could not be finished: {told(error)}")
            return False
        return True


class _Here:
    """What there is once per process."""

    window: Window | None = None  # that is open
    converting: "list[subprocess.Popen[bytes]]" = []


def _capture(options: Options, hidden: bool) -> Capture:
    header = {
        "rank": sources.rank(),
        "world_size": sources.world_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "framework": sources.chosen(options) or "",
        "versions": {"stepscope": __version__, "python": platform.python_version()},
        "options": choices_of.plain(options),
        "metadata": options.metadata,
    }
    folder = options.output_path.absolute() / f"{'.' * hidden}{_name(options)}{captures.SUFFIX}"
    return Capture(folder, header)


def _name(options: Options) -> str:
    worker = (options.worker_name or f"{socket.gethostname()}_{os.getpid()}").replace(os.sep, "_")
    now = time.time_ns()
    return f"rank{sources.rank()}_{worker}_{time.strftime('%Y%m%d%H%M%S', time.localtime(now // 10**9))}{now // 1000 % 10**6:06d}"


def _in_background(folder: Path, steps: list[int] | None, keep: bool) -> subprocess.Popen[bytes]:
    """A process of its own, so that the job's interpreter is not held up; it inherits nothing that would make it record itself."""
    ours = str(Path(__file__).parent.parent)
    environ = {name: value for name, value in os.environ.items() if name != "MS_PROFILER_OPTIONS" and not name.startswith("STEPSCOPE_")}
    environ["PYTHONPATH"] = os.pathsep.join([ours, *filter(None, [environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "stepscope.conversion", json.dumps({"folder": str(folder), "steps": steps, "keep": keep})],
        cwd=folder.parent,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the job
    )


def _converted(process: subprocess.Popen[bytes]) -> bool:
    """Wait for it; a failure is told."""
    _, said = process.communicate()
    if process.returncode != 0:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        say(f"a capture could not be converted, and stays: {lines[-1] if lines else process.returncode}")
    return process.returncode == 0


@atexit.register
def wait_for_conversions() -> None:
    """Frameworks and profilers are through by now. Where a signal ends the program nobody waits: the processes are on their own."""
    for process in _Here.converting:
        _converted(process)
    _Here.converting.clear()


def _forked() -> None:
    """In a child nothing is being recorded, and nothing is left to finish."""
    _Here.window, _Here.converting = None, []
    Windows.closed()
    plain_ranges.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
