"""Recorder: counts the steps of this process and records those that the command line, `stepscope attach` or a configuration asks for."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import units
from stepscope.endings import on_main_thread, undisturbed
from stepscope.errors import StepscopeError
from stepscope.step_clock import StepClock
from stepscope.telling import say, told

if TYPE_CHECKING:
    from stepscope.windows import Window


@dataclass(eq=False)
class Request:
    """Steps `first` to `first + count - 1`, or so many seconds. None is: from now on, and until the program ends."""

    first: int | None = None
    count: int | None = None
    seconds: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    bound: bool = False  # an end that nobody asked for: reaching it is said
    notice: str | None = None  # something that a row of `problems` should say
    convert: str | None = None  # make the run folder at once: "sync" or "async"; else whoever opens the capture does
    capture: Path | None = None  # or the run folder, after convert
    steps: int = 0  # whole steps recorded
    problem: str | None = None
    incomplete: str | None = None  # why part of it could not be written
    over: threading.Event = field(default_factory=threading.Event)


class Recorder:
    """One per process. A step's border costs an addition while nothing is to be recorded."""

    def __init__(
        self, *, first_step: int = 0, told: Callable[[Request], None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self.step = self._first_step = first_step  # the step that runs now
        self.at = time.monotonic()  # when it began
        self._began: float | None = None  # the end of the first step: from there on steps have a usual length
        self._told = told  # who hears that a recording is over
        self._options = options or {}  # what is likely to be asked for
        self._noted = ""
        self._waiting: list[Request] = []
        self._now: Request | None = None
        self._window: Window | None = None
        self._last: Window | None = None  # that is over
        self.clock = StepClock()
        self._worker: int | None = None  # the thread that is at work here
        self._pid = os.getpid()

    @property
    def state(self) -> str:
        return "recording" if self._now else "waiting" if self._waiting else "idle"

    @property
    def busy(self) -> bool:
        """Whether it is we who do what happens now on this thread."""
        return self._worker == threading.get_ident()

    @property
    def current(self) -> Request | None:
        """What is being recorded."""
        return self._now

    @property
    def step_seconds(self) -> float | None:
        """How long a step takes, on average since the first."""
        steps = self.step - self._first_step - 1
        return (self.at - self._began) / steps if self._began is not None and steps > 0 else None

    def prepare(self) -> None:
        """Ask the framework for what it must know before it compiles or reads data: a recording may be wanted later."""
        from stepscope import sources
        from stepscope.collect.options import parse

        sources.prepare(parse(self._options))

    def border(self) -> None:
        """A step is over and the next begins."""
        if (self._now or self._waiting) and self._after_backward():
            return
        self.clock.border(self.step)
        self.step += 1
        self.at = time.monotonic()
        if self._began is None:
            self._began = self.at
        if self._now or self._waiting:
            try:
                with self._at_work():
                    self._turn()
            except Exception as error:  # noqa: BLE001  the job is not ours to end
                say(f"step {self.step}: {told(error)}")

    def _after_backward(self) -> bool:
        from stepscope import sources

        return sources.after_backward(self.border)

    def begin(self, number: int) -> None:
        """Step `number` begins only now: its border was before a pause, or was not told."""
        with self._at_work():
            self.step = number
            request, window = self._now, self._window
            if request is not None and window is not None and not request.steps and request.first == number:
                self._now = self._window = None
                window.discard()
                self._start(request)
            elif self._waiting:
                self._start_what_waits()

    def note(self, what: str) -> None:
        """Something to know about the steps: a row of `problems` in what is recorded now, else in what is recorded next."""
        if self._window:
            self._window.capture.notice(what)
        else:
            self._noted = what

    def ask(self, request: Request, *, at_border: bool = False) -> None:
        """Record this: at once when it names no step, else when its step begins. Refused when that has begun."""
        with self._at_work():
            begun = self.step - (at_border or self.step == self._first_step)
            if request.first is not None and request.first <= begun:
                raise StepscopeError(f"step {request.first} has begun already: step {self.step} runs now")
            self._waiting.append(request)
            self._waiting.sort(key=lambda one: -1 if one.first is None else one.first)
            if request.first is None or request.first == self.step:
                self._start_what_waits()

    def withdraw(self, request: Request) -> None:
        """Not wanted any more: forgotten, or ended now."""
        with self._at_work():
            if request in self._waiting:
                self._waiting.remove(request)
                self._end(request, "withdrawn")
            elif request is self._now:
                self.stop("withdrawn")

    def stop(self, problem: str | None = None) -> None:
        """End the recording that runs, if any; what it saw is kept."""
        with self._at_work():
            request, window = self._now, self._window
            if request is None or window is None or os.getpid() != self._pid:
                return
            self._now, self._window, self._last = None, None, window
            request.problem = problem
            try:
                window.stop()
                request.incomplete = window.incomplete
                if request.convert is not None:
                    request.capture = window.convert(wait=request.convert == "sync")
            except Exception as error:  # noqa: BLE001  the job is not ours to end
                request.problem = say(f"the recording could not be finished: {told(error)}")
            self._end(request, request.problem)
            self.prepare()  # for the next

    def discard(self, request: Request) -> None:
        """Forget what was recorded of it."""
        with self._at_work():
            window = self._window
            if request is self._now and window is not None:
                self._now = self._window = None
                window.discard()
                request.over.set()
            elif request.capture is not None:
                shutil.rmtree(request.capture, ignore_errors=True)

    def give_way(self) -> None:
        """Somebody else wants to record: end what runs. What nobody asked for, or has no whole step, is not kept."""
        with self._at_work():
            if self._now and self._window and (self._now.bound or not self._now.steps):
                request, window = self._now, self._window
                self._now = self._window = None
                window.discard()
                request.over.set()
            else:
                self.stop(f"recording ended in step {self.step}: the program's own profiler took over")

    def finish(self) -> None:
        """The program ends: so does the recording, and what still waited will not come."""
        with self._at_work():
            if os.getpid() != self._pid:
                return
            self.stop()
            self._write_unprofiled_steps()
            for request in self._waiting:
                self._end(request, f"the program ended in step {self.step}, before step {request.first}")
            self._waiting.clear()

    def forked(self) -> None:
        """In the child: the recording is the parent's, steps and requests begin anew."""
        self._worker = None
        self._pid = os.getpid()
        self._now = self._window = self._last = None
        self._waiting.clear()
        self.step, self._began = self._first_step, None
        self.clock = StepClock()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with undisturbed:
            before, self._worker = self._worker, threading.get_ident()
            try:
                yield
            finally:
                self._worker = before

    def _turn(self) -> None:
        if self._now and self._window:
            request, window = self._now, self._window
            request.steps += 1
            try:
                goes_on = window.step(self.step)  # also after the last: it ends there
            except Exception as error:  # noqa: BLE001  the job is not ours to end
                goes_on = False
                say(f"recording ended in step {self.step}: {told(error)}")
            if request.count is not None and request.steps >= request.count:
                if request.bound:
                    window.capture.notice(f"recording ended after {units.count(request.count, 'step')}: --steps asks for others")
                goes_on = False
            if not goes_on:
                self.stop()
        self._start_what_waits()

    def _start_what_waits(self) -> None:
        while not self._now and self._waiting and (self._waiting[0].first is None or self._waiting[0].first <= self.step):
            self._start(self._waiting.pop(0))

    def _start(self, request: Request) -> None:
        from stepscope import sources
        from stepscope.collect.options import parse
        from stepscope.windows import Window

        if obstacle := sources.obstacle():
            self._end(request, f"nothing is recorded from step {self.step} on: {obstacle}")
            return
        self._write_unprofiled_steps()
        try:
            self._window = Window(parse(request.options), step=self.step, clock=self.clock)
        except Exception as error:  # noqa: BLE001  the job is not ours to end
            self._window = None
            self._end(request, say(f"nothing is recorded: {told(error)}"))
            return
        self._now, request.capture = request, self._window.capture.folder
        if request.notice:
            self._window.capture.notice(request.notice)
        if self._noted:
            self._window.capture.notice(self._noted)
        if request.seconds is not None:
            timer = threading.Timer(request.seconds, on_main_thread, [lambda: self._time_is_up(request)])
            timer.daemon = True
            timer.start()

    def _write_unprofiled_steps(self) -> None:
        """The steps since the last window belong to its capture, too."""
        window, self._last = self._last, None
        if window is not None:
            window.write_unprofiled_steps()

    def _time_is_up(self, request: Request) -> None:
        if request is self._now:
            self.stop()

    def _end(self, request: Request, problem: str | None) -> None:
        request.problem = problem
        if self._told:
            self._told(request)
        request.over.set()
