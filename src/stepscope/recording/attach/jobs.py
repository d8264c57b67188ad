"""The jobs that run on this machine: the state of each of their processes, and how all ranks of a job agree which steps to record."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError, UsageError
from stepscope.process.notices import say
from stepscope.recording.attach import sockets
from stepscope.recording.process.signals import run_on_main_thread
from stepscope.recording.recorder import Recorder, Request

_LONGEST_WAIT = 1.0  # how long one answer to "wait" may take
_ATTEMPTS = 6


def listen(recorder: Recorder, settings: dict[str, Any]) -> sockets.Agent:
    """Answer requests to this process. `settings`: job, root (the process that started it), out (the folder of recordings)."""
    from stepscope.recording.collectors.options import parse, refuse_keep_slow
    from stepscope.recording.windows import sources

    requests: dict[str, Request] = {}
    start = time.time()

    def state(message: dict[str, Any]) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "job": settings["job"],
            "root": settings.get("root"),
            "rank": sources.rank(),
            "world_size": sources.world_size(),
            "program": Path(sys.argv[0]).name if sys.argv else "",
            "folder": str(Path.cwd()),
            "out": str(settings["out"]),
            "began": start,
            "step": recorder.step,
            "step_s": recorder.step_seconds,
            "quiet_s": time.monotonic() - recorder.step_start,
            "state": recorder.state,
        }

    def record(message: dict[str, Any]) -> dict[str, Any]:
        options = {**message.get("options", {}), "output_path": message["out"]}
        refuse_keep_slow(options)
        parse(options)  # wrong options are refused now
        request = Request(first=message.get("first"), count=message.get("count"), seconds=message.get("seconds"), options=options)
        if request.first is not None:
            recorder.request(request)
        else:
            run_on_main_thread(lambda: recorder.request(request))
        requests[message["id"]] = request
        return {"step": recorder.step}

    def wait(message: dict[str, Any]) -> dict[str, Any]:
        request = requests[message["id"]]
        over = request.over.wait(_LONGEST_WAIT)
        capture = str(request.capture) if request.capture else None
        return {"over": over, "capture": capture, "problem": request.problem, "steps": request.steps, "step": recorder.step}

    def withdraw(message: dict[str, Any]) -> dict[str, Any]:
        request = requests[message["id"]]
        run_on_main_thread(lambda: recorder.withdraw(request))
        return {}

    answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"state": state, "record": record, "wait": wait, "withdraw": withdraw}
    return sockets.Agent(lambda message: answers[message["ask"]](message))


@dataclass(frozen=True)
class Member:
    """A process that listens."""

    socket: Path
    state: dict[str, Any]

    @property
    def pid(self) -> int:
        return int(self.state["pid"])


def members() -> Iterator[Member]:
    """Every process of this user that listens on this machine, by job and rank."""
    processes = []
    for socket in sockets.listening():
        try:
            state = sockets.ask(socket, {"ask": "state"})
        except TimeoutError:
            say(_busy(sockets.owner(socket)))
            continue
        except (OSError, ValueError):
            continue  # it has just ended
        if _is_process_state(state):
            processes.append(Member(socket, state))
    yield from sorted(processes, key=lambda member: (member.state["job"], member.state["rank"], member.pid))


def _is_process_state(state: Any) -> bool:
    """Whether an answer is that of a job: any program may listen on a socket, and answer anything."""
    if not isinstance(state, dict) or "error" in state:
        return False
    integers, number = dict.fromkeys(("pid", "rank", "world_size", "step"), int), (int, float)
    kinds: dict[str, Any] = dict.fromkeys(("job", "out", "program", "folder", "state"), str) | integers | {"began": number}
    return all(isinstance(state.get(name), kind) for name, kind in kinds.items()) and isinstance(state.get("step_s"), (*number, type(None)))


def members_of_job(name: str) -> list[Member]:
    """The processes of the job with this name, or of the job to which the process with this number belongs."""
    processes = list(members())
    for process in processes:
        job = process.state["job"]
        if name in (job, str(process.pid), str(process.state.get("root"))):
            return [member for member in processes if member.state["job"] == job]
    raise UsageError(_why_not(name))


def record(
    ranks: list[Member], *, count: int | None, seconds: float | None, first: int | None, options: dict[str, Any], out: str | None
) -> "Agreed":
    """Request the same steps from every rank. Where a rank has begun the first of them already, later steps are requested."""
    margin, problem = 2, ""
    for _ in range(_ATTEMPTS):
        steps = [int(_ask(rank, {"ask": "state"})["step"]) for rank in ranks]
        agreed = Agreed(uuid.uuid4().hex, ranks, first if first is not None else None if seconds else max(steps) + margin, count)
        # A separate folder with each rank once, which opens as one run.
        folder = (Path(out).absolute() if out else Path(ranks[0].state["out"]).parent) / agreed.name
        request = {"first": agreed.first, "count": count, "seconds": seconds, "options": options, "out": str(folder)}
        refused = ""
        for rank in ranks:
            answer = _ask(rank, {"ask": "record", "id": agreed.id, **request})
            if "error" in answer:
                refused = answer["error"]
                break
            agreed.accepted.append(rank)
        if not refused:
            return agreed
        agreed.withdraw()
        problem, margin = refused, margin * 4
        if first is not None or "has begun" not in refused:
            break
    raise StepscopeError(problem)


def _ask(rank: Member, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return sockets.ask(rank.socket, message)
    except TimeoutError as error:
        raise StepscopeError(_busy(rank.pid)) from error
    except (OSError, ValueError) as error:
        raise StepscopeError(f"process {rank.pid} ended") from error


def _busy(pid: int) -> str:
    return f"process {pid} listens but does not answer: it is busy, for example compiling a graph; try again"


class Agreed:
    """A recording that every rank has accepted."""

    def __init__(self, id_: str, ranks: list[Member], first: int | None, count: int | None) -> None:
        self.id, self.ranks, self.first, self.count = id_, ranks, first, count
        self.accepted: list[Member] = []
        job = ranks[0].state["job"]
        self.name = f"{job}-step{first}" if first is not None else f"{job}-at-{time.strftime('%H%M%S')}"

    def wait(self, progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """Wait for each rank: their answers, in order of rank. A rank whose process ends before is a problem."""
        answers = []
        for rank in self.ranks:
            while True:
                try:
                    answer = sockets.ask(rank.socket, {"ask": "wait", "id": self.id}, timeout=30)
                except (OSError, ValueError):
                    answer = {"over": True, "capture": None, "problem": f"process {rank.pid} ended", "steps": 0}
                if answer.get("over", True):
                    break
                is_pending = self.first and answer["step"] < self.first
                progress(f"step {answer['step']}, {f'from step {self.first}' if is_pending else 'recording'}")
            answers.append({"pid": rank.pid, "rank": rank.state["rank"], **answer})
        return answers

    def withdraw(self) -> None:
        for rank in self.accepted:
            try:
                sockets.ask(rank.socket, {"ask": "withdraw", "id": self.id})
            except (OSError, ValueError):
                continue  # ended


def _why_not(name: str) -> str:
    if not name.isdigit():
        return f"no job '{name}' listens here; `stepscope jobs` lists the jobs that do"
    pid = int(name)
    if any(sockets.owner(socket) == pid for socket in sockets.listening()):
        return _busy(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return f"there is no process {pid} here; `stepscope jobs` lists the processes that can be recorded"
    except PermissionError:
        return f"process {pid} belongs to another user"
    return (
        f"process {pid} was not started by `stepscope run` and has no DynamicProfilerMonitor: start it next time with"
        " `stepscope run --idle SCRIPT ...`, which costs nothing until you attach."
        f" For its Python stacks now: py-spy record -p {pid} -o stacks.svg"
    )
