"""SQL from a page, answered by processes of their own: a question that takes too long, or too much memory, is ended without harm."""

import asyncio
import contextlib
import io
import os
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import IO, Any

import msgspec
import polars as pl

from stepscope import parameters, queries, tables
from stepscope.errors import StepscopeError, UsageError
from stepscope.trace import Meta, Trace

_PROCESSES = 2
_LARGEST = 1 << 29
_LOOKED_S = 0.2
_SIZE = struct.Struct("<Q")


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    rank: int | None = None
    steps: str | None = None


class _Task(msgspec.Struct):
    """What goes to a process."""

    frames: dict[str, bytes]  # where each table is to be read from, or the rows themselves
    meta: Meta
    sql: str
    rank: int | None
    steps: tuple[int, int] | None


class Asker:
    """Processes that wait for questions: started when first needed, two at most."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._turns = asyncio.Semaphore(_PROCESSES)

    async def ask(self, trace: Trace, said: Any, left: Callable[[], Awaitable[bool]]) -> tuple[bytes, int]:
        """The answer as Arrow, and how many rows it has. `left` says whether the one who asked has gone."""
        try:
            asked = msgspec.convert(said, Question)
        except msgspec.ValidationError as error:
            raise UsageError(f'{error}; expected {{"sql": "select ...", "rank": null, "steps": null}}') from error
        queries.checked(asked.sql)
        steps = parameters.steps(asked.steps) if asked.steps else None
        frames = {name: frame.serialize() for name, frame in trace.tables.items()}
        content = msgspec.msgpack.encode(_Task(frames, trace.meta, asked.sql, asked.rank, steps))
        async with self._turns:
            process = self._idle.pop() if self._idle else _Process()
            self._all.add(process)
            answer = asyncio.ensure_future(asyncio.to_thread(process.ask, content))
            try:
                begun = asyncio.get_running_loop().time()
                while not (await asyncio.wait([answer], timeout=_LOOKED_S))[0]:
                    if asyncio.get_running_loop().time() - begun > self._limit_s:
                        raise UsageError(f"took longer than {self._limit_s:g} s and was ended; ask for fewer rows, or in `stepscope query`")
                    if await left():
                        raise UsageError("nobody waits for the answer any more")
                kind, rows, found = answer.result()
            except BaseException:
                process.kill()
                self._all.discard(process)
                await asyncio.gather(answer, return_exceptions=True)  # the thread is told by the pipe's end
                raise
            self._idle.append(process)
        if kind == "usage":
            raise UsageError(found.decode())
        if kind != "rows":
            raise StepscopeError(found.decode())
        return found, rows

    def close(self) -> None:
        for process in self._all:
            process.kill()


class _Process:
    def __init__(self) -> None:
        # As readers/chrome.py does: nothing is imported from the current directory, and no script of the user's is run again.
        code = f"import sys; sys.path[:] = {sys.path!r}; from stepscope.web.queries import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def ask(self, content: bytes) -> tuple[str, int, bytes]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        try:
            _put(to, content)
            kind, rows = msgspec.json.decode(_get(back), type=tuple[str, int])
            return kind, rows, _get(back)
        except (OSError, EOFError, ValueError):
            self.kill()
            raise StepscopeError("the process that answers ended; did it run out of memory? ask for fewer rows") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def main() -> None:
    """In the process: one question after the other."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # when memory ends, it is this process that goes
    source, target = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whatever a library prints is no answer
    while True:
        try:
            content = _get(source)
        except EOFError:
            return
        kind, rows, answer = _answered(content)
        _put(target, msgspec.json.encode((kind, rows)))
        _put(target, answer)


def _answered(content: bytes) -> tuple[str, int, bytes]:
    task = msgspec.msgpack.decode(content, type=_Task)
    try:
        trace = Trace({name: pl.LazyFrame.deserialize(io.BytesIO(frame)) for name, frame in task.frames.items()}, task.meta)
        trace = trace if task.rank is None else trace.of_rank(task.rank)
        trace = trace if task.steps is None else trace.of_steps(*task.steps)
        frame = queries.answer(trace, task.sql)
        if (size := frame.estimated_size()) > _LARGEST:
            return "usage", 0, f"the answer has {frame.height:,} rows, {size / 1e9:.1f} GB: add a LIMIT".encode()
        return "rows", frame.height, tables.arrow(frame)
    except UsageError as error:
        return "usage", 0, str(error).encode()
    except (StepscopeError, OSError, MemoryError, pl.exceptions.PolarsError) as error:
        return "data", 0, (str(error).strip().splitlines() or [type(error).__name__])[0].encode()
    except pl.exceptions.PanicException as error:
        return "usage", 0, f"Polars cannot answer this ({(str(error).splitlines() or [''])[0]})".encode()


def _put(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_SIZE.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _get(pipe: IO[bytes]) -> bytes:
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    content = pipe.read(_SIZE.unpack(head)[0])
    if len(content) < _SIZE.unpack(head)[0]:
        raise EOFError
    return content
