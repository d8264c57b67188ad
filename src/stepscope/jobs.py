"""The jobs that run on this machine: what each process of theirs says of itself, and how all ranks of one agree what to record."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope import agents
from stepscope.endings import on_main_thread
from stepscope.errors import StepscopeError, UsageError
from stepscope.recorder import Recorder, Request
from stepscope.telling import say

_LONGEST_WAIT = 1.0  # how long one answer to "wait" may take
_ATTEMPTS = 6


def listen(recorder: Recorder, settings: dict[str, Any]) -> agents.Agent:
    """Answer questions about this process. `settings`: job, root (the process that started it), out (where recordings go)."""
    from stepscope import sources
    from stepscope.collect.options import parse

    requests: dict[str, Request] = {}
    began = time.time()

    def state(asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "job": settings["job"],
            "root": settings.get("root"),
            "rank": sources.rank(),
            "world_size": sources.world_size(),
            "program": Path(sys.argv[0]).name if sys.argv else "",
            "folder": str(Path.cwd()),
            "out": str(settings["out"]),
            "began": began,
            "step": recorder.step,
            "step_s": recorder.step_seconds,
            "quiet_s": time.monotonic() - recorder.at,
            "state": recorder.state,
        }

    def record(asked: dict[str, Any]) -> dict[str, Any]:
        options = {**asked.get("options", {}), "output_path": asked["out"]}
        parse(options)  # wrong words are refused now
        request = Request(first=asked.get("first"), count=asked.get("count"), seconds=asked.get("seconds"), options=options)
        if request.first is not None:
            recorder.ask(request)
        else:
            on_main_thread(lambda: recorder.ask(request))
        requests[asked["id"]] = request
        return {"step": recorder.step}

    def wait(asked: dict[str, Any]) -> dict[str, Any]:
        request = requests[asked["id"]]
        over = request.over.wait(_LONGEST_WAIT)
        capture = str(request.capture) if request.capture else None
        return {"over": over, "capture": capture, "problem": request.problem, "steps": request.steps, "step": recorder.step}

    def withdraw(asked: dict[str, Any]) -> dict[str, Any]:
        request = requests[asked["id"]]
        on_main_thread(lambda: recorder.withdraw(request))
        return {}

    answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"state": state, "record": record, "wait": wait, "withdraw": withdraw}
    return agents.Agent(lambda asked: answers[asked["ask"]](asked))


@dataclass(frozen=True)
class Member:
    """A process that listens, and what it said."""

    socket: Path
    said: dict[str, Any]

    @property
    def pid(self) -> int:
        return int(self.said["pid"])


def members() -> Iterator[Member]:
    """Every process of this user that listens here, by job and rank."""
    found = []
    for socket in agents.listening():
        try:
            said = agents.ask(socket, {"ask": "state"})
        except TimeoutError:
            say(_busy(agents.owner(socket)))
            continue
        except (OSError, ValueError):
            continue  # ended a moment ago
        if _describes_process(said):
            found.append(Member(socket, said))
    yield from sorted(found, key=lambda one: (one.said["job"], one.said["rank"], one.pid))


def _describes_process(said: Any) -> bool:
    """Whether an answer is that of a job: anything may listen on a socket, and answer anything."""
    if not isinstance(said, dict) or "error" in said:
        return False
    whole, number = dict.fromkeys(("pid", "rank", "world_size", "step"), int), (int, float)
    kinds: dict[str, Any] = dict.fromkeys(("job", "out", "program", "folder", "state"), str) | whole | {"began": number}
    return all(isinstance(said.get(name), kind) for name, kind in kinds.items()) and isinstance(said.get("step_s"), (*number, type(None)))


def of(name: str) -> list[Member]:
    """The processes of the job that has this name, or to which the process of this number belongs."""
    all_of_them = list(members())
    if job := next((one.said["job"] for one in all_of_them if name in (one.said["job"], str(one.pid), str(one.said.get("root")))), None):
        return [one for one in all_of_them if one.said["job"] == job]
    raise UsageError(_why_not(name))


def record(
    ranks: list[Member], *, count: int | None, seconds: float | None, first: int | None, options: dict[str, Any], out: str | None
) -> "Agreed":
    """Ask every rank for the same steps. A step that one of them has begun already is no use: then a later one is asked for."""
    margin, problem = 2, ""
    for _ in range(_ATTEMPTS):
        steps = [int(_asked(one, {"ask": "state"})["step"]) for one in ranks]
        agreed = Agreed(uuid.uuid4().hex, ranks, first if first is not None else None if seconds else max(steps) + margin, count)
        # A folder of its own, that holds each rank once: it opens as one.
        place = Path(out).absolute() if out else Path(ranks[0].said["out"]).parent
        refused = ""
        for one in ranks:
            wanted = {"first": agreed.first, "count": count, "seconds": seconds, "options": options, "out": str(place / agreed.name)}
            said = _asked(one, {"ask": "record", "id": agreed.id, **wanted})
            if "error" in said:
                refused = said["error"]
                break
            agreed.asked.append(one)
        if not refused:
            return agreed
        agreed.withdraw()
        problem, margin = refused, margin * 4
        if first is not None or "has begun" not in refused:
            break
    raise StepscopeError(problem)


def _asked(one: Member, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return agents.ask(one.socket, question)
    except TimeoutError as error:
        raise StepscopeError(_busy(one.pid)) from error
    except (OSError, ValueError) as error:
        raise StepscopeError(f"process {one.pid} ended") from error


def _busy(pid: int) -> str:
    return f"process {pid} listens but does not answer: it is busy, as while it compiles a graph; ask again"


class Agreed:
    """What every rank has promised to record."""

    def __init__(self, id_: str, ranks: list[Member], first: int | None, count: int | None) -> None:
        self.id, self.ranks, self.first, self.count = id_, ranks, first, count
        self.asked: list[Member] = []
        job = ranks[0].said["job"]
        self.name = f"{job}-step{first}" if first is not None else f"{job}-at-{time.strftime('%H%M%S')}"

    def wait(self, progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """Until each rank is done: what each said, in order of rank. A rank that ends before is a problem."""
        answers = []
        for one in self.ranks:
            while True:
                try:
                    said = agents.ask(one.socket, {"ask": "wait", "id": self.id}, timeout=30)
                except (OSError, ValueError):
                    said = {"over": True, "capture": None, "problem": f"process {one.pid} ended", "steps": 0}
                if said.get("over", True):
                    break
                progress(
                    f"step {said['step']}" + (f", from step {self.first}" if self.first and said["step"] < self.first else ", recording")
                )
            answers.append({"pid": one.pid, "rank": one.said["rank"], **said})
        return answers

    def withdraw(self) -> None:
        for one in self.asked:
            try:
                agents.ask(one.socket, {"ask": "withdraw", "id": self.id})
            except (OSError, ValueError):
                continue  # ended


def _why_not(name: str) -> str:
    if not name.isdigit():
        return f"no job '{name}' listens here; `stepscope jobs` lists those that do"
    pid = int(name)
    if any(agents.owner(socket) == pid for socket in agents.listening()):
        return _busy(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return f"there is no process {pid} here; `stepscope jobs` lists those that can be recorded"
    except PermissionError:
        return f"process {pid} belongs to another user"
    return (
        f"process {pid} was not started by `stepscope run` and carries no DynamicProfilerMonitor: start it next time with"
        " `stepscope run --idle SCRIPT ...`, which costs nothing until you attach."
        f" For its Python stacks now: py-spy record -p {pid} -o stacks.svg"
    )
