"""A process of a job that `stepscope run` started: which steps of it are recorded, and what the command line is told."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.endings import on_main_thread
from stepscope.recorder import Recorder, Request
from stepscope.running import unprompted
from stepscope.telling import say, told

# Where neither --steps nor --seconds says when to end: a longer run shows nothing more, but costs memory.
MOST_STEPS = 1000


class Process:
    """This process of the job. There is one, `here()`, when stepscope started the job."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.job: str = settings["job"]
        self.seen: set[str] = set()  # frameworks that the program imported
        self.recorder = Recorder(told=self._tell, options=settings["options"])
        self._agent: Any = None
        self._ended = False
        self._yielded = self._is_fork = False
        self._named: Any = None  # a Watch, of what the user named
        self._wanted = self._first_request()
        self._unprompted: Request | None = None  # recorded until there is a sign of work
        self._unprompted_frameworks: tuple[str, ...] | None = None

    def active(self) -> None:
        """Training may begin now: the first module called, the first dataset iterated, the first step."""
        if self.recorder.busy:
            return
        self.listen()
        request, self._wanted = self._wanted, None
        if request is not None:
            self._discard_unprompted()
            if request.first == 0 and self.recorder.step > 0:
                request.first = None  # a loop whose beginning could not be seen: from the second step on
            self._try(lambda: self.recorder.ask(request))

    def name_steps(self, choice: str) -> None:
        """Only what the user named ends a step."""
        from stepscope import step_on

        self._named = step_on.Watch(step_on.parse(choice, "--step-on"), self._border, self.active, later=True)

    def border(self) -> None:
        """A step is over, as far as the framework shows."""
        if self._named is None:
            self._border()

    def _border(self) -> None:
        if self.recorder.busy:  # our own marks are no steps
            return
        self.recorder.border()
        if self._wanted or self._agent is None:
            self.active()

    def watch(self) -> None:
        """With --seconds: record also a program that shows no sign of training. What it starts itself is not looked at: data workers,
        compilers."""
        if self.settings.get("seconds") and self.settings["first"] == os.getpid():
            unprompted.watch(self._look)

    def _look(self) -> bool:
        if self._wanted is None or self._ended:
            return False
        if not unprompted.importing() and (found := unprompted.frameworks_in_use()) != self._unprompted_frameworks:
            on_main_thread(lambda: self._begin_unprompted(found))
        return True

    def _begin_unprompted(self, frameworks: tuple[str, ...]) -> None:
        request = self._first_request()
        if request is None or self._wanted is None or self._ended or self.recorder.busy or unprompted.importing():
            return
        from stepscope import sources
        from stepscope.collect.options import parse

        self._discard_unprompted()
        self._unprompted, self._unprompted_frameworks = request, frameworks
        chosen = sources.present(parse(request.options))
        if chosen and chosen not in frameworks:
            request.options["framework"] = "python"
            request.notice = f"{chosen} is not recorded: it was imported, but had not used its device"
        self._try(lambda: self.recorder.ask(request))

    def _discard_unprompted(self) -> None:
        request, self._unprompted = self._unprompted, None
        if request is not None:
            self._try(lambda: self.recorder.discard(request))

    def own_profiler(self) -> None:
        """The script has a profiler of its own: it knows best, and two would disturb each other."""
        if not self.recorder.busy:
            if not self._yielded:
                self._yielded = True
                self._write({"pid": os.getpid(), "yielded": True})
            self._wanted = None
            self.recorder.clock.stop()
            self.recorder.give_way()

    def refused(self) -> None:
        """The user has been told why: nothing is recorded, and nothing more is said."""
        self._wanted = None
        self._write({"pid": os.getpid(), "refused": True})

    def own_window(self, capture: Path, steps: int, incomplete: str | None = None) -> None:
        """The script's own recordings are told of, too."""
        self._write({"pid": os.getpid(), "capture": str(capture), "problem": None, "whole_steps": steps, "incomplete": incomplete})

    def steps_so_far(self) -> int:
        return self.recorder.step

    def listen(self) -> None:
        if self._agent is None:
            from stepscope import jobs

            self._agent = self._try(lambda: jobs.listen(self.recorder, self.settings)) or False

    def finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._try(self.recorder.finish)
        if self._agent:
            self._agent.close()
        if self._wanted and self.recorder.step:
            self._wanted.problem = f"the program ended in step {self.recorder.step}"
        if self.recorder.step or not self._is_fork:  # not for every process that loads data
            line = {"pid": os.getpid(), "steps": self.recorder.step, "seen": sorted(self.seen)}
            if self._named and not self._named.seen and self.seen:
                line["unnamed"] = self._named.why_nothing()
            self._write(line)

    def forked(self) -> None:
        """A child that trains is a process like any other; one that loads data never makes a step."""
        self.recorder.forked()
        if self._agent:
            self._agent.close()
        self._agent, self._ended, self._is_fork, self._unprompted = None, False, True, None
        self._wanted = self._first_request()

    def _first_request(self) -> Request | None:
        said = self.settings
        if said.get("idle"):
            return None
        options = {**said["options"], "output_path": Path(said["out"])}
        if said.get("steps"):
            first, end = said["steps"]
            return Request(first=first, count=end - first, options=options)
        if said.get("seconds"):
            return Request(seconds=said["seconds"], options=options)
        return Request(first=0, count=MOST_STEPS, options=options, bound=True)

    def _tell(self, request: Request) -> None:
        """The command line prints where the recording is when the job ends."""
        self._write(
            {
                "pid": os.getpid(),
                "capture": str(request.capture) if request.capture else None,
                "problem": request.problem,
                "whole_steps": request.steps,
                "unprompted": request is self._unprompted,
                "incomplete": request.incomplete,
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), open(self.settings["journal"], "a") as journal:  # noqa: PTH123  one write, whole lines
            journal.write(json.dumps(line) + "\n")

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001  the job is not ours to end
            say(told(error))
            return None


def here() -> Process:
    assert _here, "install() comes first"
    return _here[0]


def begin(settings: dict[str, Any]) -> Process:
    _here[:] = [Process(settings)]
    return _here[0]


_here: list[Process] = []
