"""Recorder: counts the steps of this process and records those requested by the command line, `stepscope attach` or a configuration."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError
from stepscope.model import units
from stepscope.process.notices import error_line, say
from stepscope.recording.process.signals import critical_section, run_on_main_thread
from stepscope.recording.windows.window_sequence import WindowSequence

if TYPE_CHECKING:
    from stepscope.recording.windows.window import Window


@dataclass(eq=False)
class Request:
    """Steps `first` to `first + count - 1`, or a number of seconds. None means: from now on, and until the program ends."""

    first: int | None = None
    count: int | None = None
    seconds: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    is_default: bool = False  # nothing was requested, and `count` is the default limit: a notice reports that it was reached
    notice: str | None = None  # becomes a row of `problems`
    convert: str | None = None  # write the run folder at once: "sync" or "async"; else the first reader of the capture does
    capture: Path | None = None  # or the run folder, after convert
    steps: int = 0  # complete steps recorded
    problem: str | None = None
    incomplete: str | None = None  # why part of it could not be written
    over: threading.Event = field(default_factory=threading.Event)


class Recorder:
    """One per process. The end of a step costs an addition while no recording runs or is pending."""

    def __init__(
        self, *, first_step: int = 0, on_end: Callable[[Request], None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self.step = self._first_step = first_step  # the step that runs now
        self.step_start = time.monotonic()
        self._first_end: float | None = None  # of the first step, which takes longer than the others
        self._on_end = on_end  # called when a request is over
        self._options = options or {}  # that requests will probably have
        self._notice = ""
        self._pending: list[Request] = []
        self.current: Request | None = None  # that is being recorded
        self._windows = WindowSequence()
        self._thread: int | None = None  # that works in this object
        self._pid = os.getpid()

    @property
    def state(self) -> str:
        return "recording" if self.current else "waiting" if self._pending else "idle"

    @property
    def busy(self) -> bool:
        """Whether the current thread is inside this object, so that what happens is not done by the program."""
        return self._thread == threading.get_ident()

    @property
    def step_seconds(self) -> float | None:
        """Mean duration of a step, without the first."""
        steps = self.step - self._first_step - 1
        return (self.step_start - self._first_end) / steps if self._first_end is not None and steps > 0 else None

    def prepare(self) -> None:
        """Request from the framework what it must know before it compiles or reads data: a recording may be requested later."""
        from stepscope.recording.collectors.options import parse
        from stepscope.recording.windows import sources

        sources.prepare(parse(self._options))

    def end_step(self) -> None:
        """A step is over and the next begins."""
        if (self.current or self._pending) and self._deferred():
            return
        self._windows.step_clock.end_step(self.step)
        self.step += 1
        self.step_start = time.monotonic()
        if self._first_end is None:
            self._first_end = self.step_start
        if self.current or self._pending:
            try:
                with self._working():
                    self._next_step()
            except Exception as error:  # noqa: BLE001  the job must not end
                say(f"step {self.step}: {error_line(error)}")

    def _deferred(self) -> bool:
        from stepscope.recording.windows import sources

        return sources.after_backward(self.end_step)

    def begin_step(self, number: int) -> None:
        """Step `number` begins only now: the end of the one before it was followed by a pause, or was not reported."""
        with self._working():
            self.step = number
            request = self.current
            if request is not None and self._windows.current is not None and not request.steps and request.first == number:
                self.current = None
                self._windows.discard()
                self._start(request)
            elif self._pending:
                self._start_pending()

    def add_notice(self, text: str) -> None:
        """A row of `problems` about the steps, in the current recording or else in the next."""
        if self._windows.current:
            self._windows.current.capture.notice(text)
        else:
            self._notice = text

    def request(self, request: Request, *, at_border: bool = False) -> None:
        """Record this: at once when it names no step, else when its step begins. Raises where that step has begun."""
        with self._working():
            begun = self.step - (at_border or self.step == self._first_step)
            if request.first is not None and request.first <= begun:
                raise StepscopeError(f"step {request.first} has begun already: step {self.step} runs now")
            self._pending.append(request)
            self._pending.sort(key=lambda pending: -1 if pending.first is None else pending.first)
            if request.first is None or request.first == self.step:
                self._start_pending()

    def withdraw(self, request: Request) -> None:
        """Remove a request that is pending, or end its recording now."""
        with self._working():
            if request in self._pending:
                self._pending.remove(request)
                self._end(request, "withdrawn")
            elif request is self.current:
                self.stop("withdrawn")

    def stop(self, problem: str | None = None) -> None:
        """End the current recording, if any, and keep it."""
        from stepscope.recording.windows import sources

        with self._working():
            request = self.current
            if request is None or os.getpid() != self._pid:
                return
            self.current = None
            request.problem = problem
            try:
                window = self._windows.close()
                if (summary := self._windows.slow_summary()) is not None:
                    request.capture = window.capture.folder if window is not None else None
                    request.problem = f"rank {sources.rank()}: {summary}" if sources.world_size() > 1 else summary
                if window is not None:
                    request.incomplete = window.incomplete
                    if request.convert is not None:
                        request.capture = window.convert(wait=request.convert == "sync")
            except Exception as error:  # noqa: BLE001  the job must not end
                request.problem = say(f"the recording could not be completed: {error_line(error)}")
            self._end(request, request.problem)
            self.prepare()  # for the next

    def discard(self, request: Request) -> None:
        """Delete the recording of this request."""
        with self._working():
            if request is self.current:
                self.current = None
                self._windows.discard()
                request.over.set()
            elif request.capture is not None:
                shutil.rmtree(request.capture, ignore_errors=True)

    def give_way(self) -> None:
        """End the current recording for another profiler. It is deleted where it was not requested or has no complete step."""
        with self._working():
            if self.current and (self.current.is_default or not self.current.steps):
                self.discard(self.current)
            else:
                self.stop(f"recording ended in step {self.step}: the program's own profiler took over")

    def stop_step_clock(self) -> None:
        """Measure no further steps: another profiler may be running."""
        self._windows.step_clock.stop()

    def finish(self) -> None:
        """The program ends: end the current recording, and report the requests that are pending."""
        with self._working():
            if os.getpid() != self._pid:
                return
            self.stop()
            self._windows.write_unprofiled_steps()
            for request in self._pending:
                self._end(request, f"the program ended in step {self.step}, before step {request.first}")
            self._pending.clear()

    def forked(self) -> None:
        """The recording belongs to the parent; the child starts without requests and counts its own steps."""
        self._thread = None
        self._pid = os.getpid()
        self.current = None
        self._windows.forked()
        self._pending.clear()
        self.step, self._first_end = self._first_step, None

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with critical_section:
            before, self._thread = self._thread, threading.get_ident()
            try:
                yield
            finally:
                self._thread = before

    def _next_step(self) -> None:
        request, window = self.current, self._windows.current
        if request is not None and window is not None:
            request.steps += 1
            is_last = False
            try:
                continues = self._windows.step(self.step)  # also after the last step, which ends here
            except Exception as error:  # noqa: BLE001  the job must not end
                continues = False
                say(f"recording ended in step {self.step}: {error_line(error)}")
            if request.count is not None and request.steps >= request.count:
                if request.is_default:
                    window.capture.notice(f"recording ended after {units.count(request.count, 'step')}; --steps records others")
                is_last = True
            if is_last or not (continues or self._windows.slow_steps):
                self.stop()
            elif not continues:
                self._roll(request)
        self._start_pending()

    def _roll(self, request: Request) -> None:
        """End the window, which is kept if it has a slow step, and open the next."""
        from stepscope.recording.collectors.options import parse

        window = self._windows.close()
        if window is not None:
            self._report_kept(window)
        try:
            self._windows.open(parse(request.options), self.step)
        except Exception as error:  # noqa: BLE001  the job must not end
            say(f"nothing is recorded from step {self.step} on: {error_line(error)}")
            self.stop()

    def _report_kept(self, window: "Window") -> None:
        if self._on_end:
            self._on_end(Request(capture=window.capture.folder, steps=window.steps, incomplete=window.incomplete))

    def _start_pending(self) -> None:
        while not self.current and self._pending and (self._pending[0].first is None or self._pending[0].first <= self.step):
            self._start(self._pending.pop(0))

    def _start(self, request: Request) -> None:
        from stepscope.recording.collectors.options import parse
        from stepscope.recording.windows import sources

        if obstacle := sources.obstacle():
            self._end(request, f"nothing is recorded from step {self.step} on: {obstacle}")
            return
        try:
            window = self._windows.open(parse(request.options), self.step)
        except Exception as error:  # noqa: BLE001  the job must not end
            self._end(request, say(f"nothing is recorded: {error_line(error)}"))
            return
        self.current, request.capture = request, window.capture.folder
        for notice in (request.notice, self._notice):
            if notice:
                window.capture.notice(notice)
        if request.seconds is not None:
            timer = threading.Timer(request.seconds, run_on_main_thread, [lambda: self._end_timed(request)])
            timer.daemon = True
            timer.start()

    def _end_timed(self, request: Request) -> None:
        if request is self.current:
            self.stop()

    def _end(self, request: Request, problem: str | None) -> None:
        request.problem = problem
        if self._on_end:
            self._on_end(request)
        request.over.set()
