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

from stepscope import __version__
from stepscope.errors import UsageError
from stepscope.model import captures
from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.process.notices import error_line, say
from stepscope.recording.collectors import Collector
from stepscope.recording.collectors import options as profiler_options
from stepscope.recording.collectors.options import Options
from stepscope.recording.process.runtime import runtime
from stepscope.recording.process.signals import critical_section
from stepscope.recording.steps.step_clock import StepClock
from stepscope.recording.windows import sources

_BATCH = 4096  # steps held in memory before they are written


class Window:
    """One at a time in a process. A failure in it is reported, never raised.

    `collectors` replace those chosen by `sources`. `step_clock` has the steps that are not recorded.
    """

    capture: Capture

    def __init__(
        self,
        options: Options,
        collectors: list[Collector] | None = None,
        *,
        step: int,
        hidden: bool = False,
        step_clock: StepClock | None = None,
    ) -> None:
        with critical_section:
            if runtime.window is not None:
                raise UsageError(f"another recording is running: {runtime.window.capture.folder}")
            self.options = options
            self.run: Path | None = None
            self.is_deleted = False  # after it was kept: other windows have slower steps
            self.steps = 0  # complete ones
            self._marks: list[tuple[int, int]] = []  # number and start of the steps that are not written; the last one is running
            self._pace = captures.Pace()
            self._running: list[Collector] = []
            self._failed: list[Collector] = []  # in step()
            self._awaits_framework = collectors is None and not sources.present(options)
            self.capture = _new_capture(options, hidden)
            self._step_clock, self._clock_rows = step_clock, 0  # durations written so far
            self.write_unprofiled_steps()
            try:
                runtime.opened(self)
                for collector in sources.collectors(options) if collectors is None else collectors:
                    self._start(collector)
                self.step(step)
            except BaseException:
                self.discard()  # else no other window could open
                raise

    @property
    def incomplete(self) -> str | None:
        """Why part of it could not be written."""
        reason: str | None = self.capture.header.get("incomplete")
        return reason

    @property
    def path(self) -> Path:
        """The run folder, or the capture as long as there is none."""
        return self.run or self.capture.folder

    def step(self, number: int) -> bool:
        """Step `number` begins. False when a limit of the recording has been reached."""
        with critical_section:
            self.steps += bool(self._marks)
            self._marks.append((number, clock.now_ns()))
            if self._awaits_framework and (framework := sources.present(self.options)):
                self._awaits_framework = False
                self.capture.notice(f"{framework} was imported after recording began: recorded from step {number} on")
                self.capture.header["framework"] = framework
                self._start(sources.collector(framework, self.options))
            for collector in self._running:
                if collector not in self._failed and not self._call(collector, "step", number):
                    self._failed.append(collector)
            if len(self._marks) % _BATCH == 0 or self._pace.due():
                self._write(self._write_steps)
            if self.capture.bytes > self.options.max_bytes:
                self.capture.notice(f"recording ended early, at step {number}: max_bytes={self.options.max_bytes:,} was reached")
                return False
            # A collector that counts its events stops by itself, adds a notice, and is full.
            return not any(getattr(collector, "full", False) for collector in self._running)

    def stop(self) -> None:
        """Stop, and leave a complete capture."""
        with critical_section:
            if runtime.window is not self:
                return
            runtime.signals.hold_interrupt()
            try:
                for collector in reversed(self._running):
                    self._call(collector, "stop")
                if self._awaits_framework:
                    self._report_missing_framework()
                self._write(lambda: self._write_steps(last=True))
                if not self._write(self.capture.finish):
                    self.capture.header.setdefault("incomplete", "its header could not be written")
            finally:
                self._clock_rows = self._step_clock.count if self._step_clock else 0
                runtime.closed()

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        self.capture.header["metadata"] = dict(metadata)
        if self.capture.header["whole"] and self.run is None:
            self._write(lambda: self.capture.finish(end_ns=self.capture.header["end_ns"]))

    def write_unprofiled_steps(self) -> None:
        """Add the durations of the steps before the window or, after it, of the steps since, as long as this is a capture."""
        if self._step_clock and self._step_clock.count > self._clock_rows and self.run is None and self.capture.folder.is_dir():
            columns = self._step_clock.columns(self._clock_rows)
            after = np.full(len(columns["step"]), bool(self.capture.header["whole"]))
            self._write(lambda: self.capture.append("unprofiled_steps", {**columns, "after": after}))
            self._clock_rows = self._step_clock.count

    def reveal(self) -> None:
        """Give the capture of a hidden window, which is complete, its name."""
        folder = self.capture.folder
        self.capture.folder = folder.rename(folder.with_name(folder.name.lstrip(".")))

    def discard(self) -> None:
        """Stop, and delete the capture."""
        for collector in self._running:
            if hasattr(collector, "unwanted"):
                collector.unwanted = True  # it need not write its data
        self.stop()
        shutil.rmtree(self.capture.folder, ignore_errors=True)

    def convert(self, *, steps: list[int] | None = None, wait: bool = True) -> Path:
        """The run folder where polars is installed, else the capture, which becomes a run folder when it is first opened."""
        if self.run is None and importlib.util.find_spec("polars") and importlib.util.find_spec("msgspec"):
            try:
                # While the interpreter shuts down, no library with threads can be imported.
                if wait and threading.main_thread().is_alive():
                    from stepscope.recording.conversion import convert

                    self.run = convert.convert(self.capture.folder, steps=steps, keep=not self.options.data_simplification)
                else:
                    process = _start_conversion(self.capture.folder, steps, not self.options.data_simplification)
                    self.run = self.capture.folder.with_suffix("")
                    if not wait:
                        runtime.conversions.append(process)
                    elif not _finish_conversion(process):
                        self.run = None
            except Exception as error:  # noqa: BLE001 - training continues; the capture can be opened
                self.run = None
                say(f"{self.capture.folder} stays a capture: {error_line(error)}")
        return self.path

    def _report_missing_framework(self) -> None:
        if framework := sources.present(self.options):
            self.capture.notice(f"{framework} was imported after recording began, and no step was marked since: it is not recorded")
        elif names := sources.framework_options(self.options):
            self.capture.notice(f"no effect without a framework: {', '.join(names)}")

    def _start(self, collector: Collector) -> None:
        if self._call(collector, "start", self.capture):
            self._running.append(collector)

    def _call(self, collector: Collector, method: str, *args: Any) -> bool:
        try:
            getattr(collector, method)(*args)
        except Exception as error:  # noqa: BLE001 - whatever a collector does, training and the other collectors continue
            source = type(collector).__module__.removeprefix("stepscope.recording.collectors.").partition(".")[0]
            self.capture.notice(say(f"{source}: {method} failed: {error_line(error)}"))
            return False
        return True

    def _write_steps(self, last: bool = False) -> None:
        """Write the complete steps. The one that the last call of step() began is not complete; rows that a full disk refuses stay here."""
        if len(self._marks) > 1:
            numbers, times = zip(*self._marks, strict=True)
            step, start = np.array(numbers, np.int32), np.array(times, np.int64)
            self.capture.append("steps", {"step": step[:-1], "start_ns": start[:-1], "end_ns": start[1:]}, again=not last)
            del self._marks[:-1]

    def _write(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a full disk does not end training
            say(f"{self.capture.folder} could not be completed: {error_line(error)}")
            return False
        return True


def _new_capture(options: Options, hidden: bool) -> Capture:
    header = {
        "rank": sources.rank(),
        "world_size": sources.world_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "framework": sources.chosen(options) or "",
        "versions": {"stepscope": __version__, "python": platform.python_version()},
        "options": profiler_options.plain(options),
        "metadata": options.metadata,
    }
    folder = options.output_path.absolute() / f"{'.' * hidden}{_capture_name(options)}{captures.SUFFIX}"
    return Capture(folder, header)


def _capture_name(options: Options) -> str:
    worker = (options.worker_name or f"{socket.gethostname()}_{os.getpid()}").replace(os.sep, "_")
    now = time.time_ns()
    return f"rank{sources.rank()}_{worker}_{time.strftime('%Y%m%d%H%M%S', time.localtime(now // 10**9))}{now // 1000 % 10**6:06d}"


def _start_conversion(folder: Path, steps: list[int] | None, keep: bool) -> subprocess.Popen[bytes]:
    """A separate process, so that the job continues; it inherits no variable that would start a recording in it."""
    package_root = str(Path(__file__).parents[3])
    environ = {name: value for name, value in os.environ.items() if name != "MS_PROFILER_OPTIONS" and not name.startswith("STEPSCOPE_")}
    environ["PYTHONPATH"] = os.pathsep.join([package_root, *filter(None, [environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "stepscope.recording.conversion.convert", json.dumps({"folder": str(folder), "steps": steps, "keep": keep})],
        cwd=folder.parent,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the job
    )


def _finish_conversion(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the process, and report a failure."""
    _, output = process.communicate()
    if process.returncode != 0:
        lines = output.decode("utf-8", "replace").strip().splitlines()
        say(f"a capture could not be converted, and stays: {lines[-1] if lines else process.returncode}")
    return process.returncode == 0


@atexit.register
def wait_for_conversions() -> None:
    """Frameworks and profilers have finished by now. A program that a signal ends does not wait: the processes continue alone."""
    for process in runtime.conversions:
        _finish_conversion(process)
    runtime.conversions.clear()
