"""A process of a job that `stepscope run` started: which of its steps are recorded, and what it reports to the command line."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.process.notices import error_line, say
from stepscope.recording.hooks import timed_start
from stepscope.recording.process.runtime import runtime
from stepscope.recording.process.signals import run_on_main_thread
from stepscope.recording.recorder import Recorder, Request

# Default limit without --steps and --seconds: a longer recording shows nothing more, but costs memory.
MOST_STEPS = 1000


class Process:
    """This process of the job. There is one, `this_process()`, where stepscope started the job."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.job: str = settings["job"]
        self.frameworks: set[str] = set()  # that the program imported
        self.recorder = Recorder(on_end=self._report, options=settings["options"])
        self._agent: Any = None
        self.removed = False  # by uninstall(): functions that other libraries hold may still call this
        self._ended = False
        self._yielded = self._is_fork = False
        self._step_watch: Any = None  # a Watch of --step-on
        self._request = self._first_request()  # until the work begins
        self._early_request: Request | None = None  # recorded with --seconds until the work begins
        self._early_frameworks: tuple[str, ...] | None = None

    def begin_work(self) -> None:
        """Training may begin now: the first module is called, the first dataset iterated, the first step over."""
        if self.recorder.busy or self.removed:
            return
        self.listen()
        request, self._request = self._request, None
        if request is not None:
            self._discard_early()
            if request.first == 0 and self.recorder.step > 0:
                request.first = None  # the start of the loop was not seen: record from the second step on
            self._try(lambda: self.recorder.request(request))

    def set_step_choice(self, choice: str) -> None:
        """Only what the user named ends a step."""
        from stepscope.recording.steps import user_steps

        self._step_watch = user_steps.Watch(user_steps.parse(choice, "--step-on"), self._end_step, self.begin_work, later=True)

    def end_step(self) -> None:
        """A step is over, as far as the framework shows."""
        if self._step_watch is None:
            self._end_step()

    def _end_step(self) -> None:
        if self.recorder.busy or self.removed:  # our own markers end no step
            return
        self.recorder.end_step()
        if self._request or self._agent is None:
            self.begin_work()

    def start_timed(self) -> None:
        """With --seconds: record also a program without a sign of training, but not the processes that it starts: data workers,
        compilers."""
        if self.settings.get("seconds") and self.settings["first"] == os.getpid():
            timed_start.poll(self._check_early)

    def _check_early(self) -> bool:
        if self._request is None or self._ended:
            return False
        if not timed_start.importing() and (frameworks := timed_start.frameworks_in_use()) != self._early_frameworks:
            run_on_main_thread(lambda: self._begin_early(frameworks))
        return True

    def _begin_early(self, frameworks: tuple[str, ...]) -> None:
        request = self._first_request()
        if request is None or self._request is None or self._ended or self.recorder.busy or timed_start.importing():
            return
        from stepscope.recording.collectors.options import parse
        from stepscope.recording.windows import sources

        self._discard_early()
        self._early_request, self._early_frameworks = request, frameworks
        framework = sources.present(parse(request.options))
        if framework and framework not in frameworks:
            request.options["framework"] = "python"
            request.notice = f"{framework} is not recorded: it was imported, but had not used its device"
        self._try(lambda: self.recorder.request(request))

    def _discard_early(self) -> None:
        request, self._early_request = self._early_request, None
        if request is not None:
            self._try(lambda: self.recorder.discard(request))

    def own_profiler(self) -> None:
        """The program has its own profiler: it takes precedence, and two would disturb each other."""
        if not self.recorder.busy and not self.removed:
            if not self._yielded:
                self._yielded = True
                self._write({"pid": os.getpid(), "yielded": True})
            self._request = None
            self.recorder.stop_step_clock()
            self.recorder.give_way()

    def refused(self) -> None:
        """Nothing is recorded, and the user has been informed why."""
        self._request = None
        self._write({"pid": os.getpid(), "refused": True})

    def own_window(self, capture: Path, steps: int, incomplete: str | None = None) -> None:
        """A recording of the program's own profiler."""
        self._write({"pid": os.getpid(), "capture": str(capture), "problem": None, "whole_steps": steps, "incomplete": incomplete})

    def steps_so_far(self) -> int:
        return self.recorder.step

    def listen(self) -> None:
        if self._agent is None:
            from stepscope.recording.attach import jobs

            self._agent = self._try(lambda: jobs.listen(self.recorder, self.settings)) or False

    def finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._try(self.recorder.finish)
        if self._agent:
            self._agent.close()
        if self.recorder.step or not self._is_fork:  # not for every process that loads data
            line = {"pid": os.getpid(), "steps": self.recorder.step, "seen": sorted(self.frameworks)}
            if self._step_watch and not self._step_watch.seen and self.frameworks:
                line["unnamed"] = self._step_watch.why_nothing()
            self._write(line)

    def forked(self) -> None:
        """A child that trains is a process like any other; one that loads data never ends a step."""
        self.recorder.forked()
        if self._agent:
            self._agent.close()
        self._agent, self._ended, self._is_fork, self._early_request = None, False, True, None
        self._request = self._first_request()

    def _first_request(self) -> Request | None:
        settings = self.settings
        if settings.get("idle"):
            return None
        options = {**settings["options"], "output_path": Path(settings["out"])}
        if settings.get("steps"):
            first, last = settings["steps"]
            return Request(first=first, count=last - first + 1, options=options)
        if settings.get("seconds"):
            return Request(seconds=settings["seconds"], options=options)
        count = MOST_STEPS if options.get("keep_slow") is None else None
        return Request(first=0, count=count, options=options, is_default=True)

    def _report(self, request: Request) -> None:
        """The command line prints where the recording is when the job ends."""
        self._write(
            {
                "pid": os.getpid(),
                "capture": str(request.capture) if request.capture else None,
                "problem": request.problem,
                "whole_steps": request.steps,
                "unprompted": request is self._early_request,
                "incomplete": request.incomplete,
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), open(self.settings["journal"], "a") as journal:  # noqa: PTH123  one write, whole lines
            journal.write(json.dumps(line) + "\n")

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001  the job must not end
            say(error_line(error))
            return None


def this_process() -> Process:
    assert _installed, "install() comes first"
    return _installed[0]


def is_installed() -> bool:
    return bool(_installed) and not _installed[0].removed


def install(settings: dict[str, Any]) -> Process:
    _installed[:] = [Process(settings)]
    return _installed[0]


def uninstall() -> None:
    for process in _installed:
        process.finish()
        process.removed = True


def _forked() -> None:
    for process in _installed:
        process.forked()


_installed: list[Process] = []
runtime.on_fork(_forked)
