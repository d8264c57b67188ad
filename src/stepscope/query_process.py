"""The process that answers SQL, as seen from outside: it is started, sent messages and ended."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
from typing import IO, Any

import msgspec

from stepscope import heap
from stepscope.errors import StepscopeError, UsageError

MEMORY = 2 * 10**9  # bytes that a query may use, and bytes of the tables that it reads
_SIZES = struct.Struct("<QQ")
_PIPE = 1 << 20


class QueryProcess:
    """A locked process that answers one query after another (`query_engine`); it reads no file and is sent the tables it needs."""

    def __init__(self, memory: int = MEMORY, cpu_s: float | None = None) -> None:
        self.memory = memory
        # As readers/chrome.py does: nothing is imported from the current directory, and no script of the user's is run again.
        engine = f"try:\n from stepscope.query_engine import serve\nexcept ImportError:\n sys.exit({_NO_ENGINE})\n"
        code = f"import sys; sys.path[:] = {sys.path!r}\n{engine}serve({memory!r}, {cpu_s!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"POLARS_MAX_THREADS": "4"},  # it only unpacks and packs there, and each thread takes memory
            pipesize=_PIPE if sys.platform == "linux" else -1,
        )

    def __enter__(self) -> "QueryProcess":
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    def send(self, verb: str, *values: Any, content: bytes | memoryview = b"") -> None:
        """A message that is not replied to, with `content` of any size."""
        assert self._process.stdin is not None
        try:
            put(self._process.stdin, (verb, *values), content)
        except (OSError, ValueError):
            raise self._failure() from None

    def ask(self, verb: str, *values: Any) -> Any:
        """The reply to a message."""
        self.send(verb, *values)
        assert self._process.stdout is not None
        try:
            (kind, reply), content = get(self._process.stdout)
        except (OSError, EOFError, ValueError, msgspec.DecodeError):
            raise self._failure() from None
        if kind == "usage":
            raise UsageError(reply)
        if kind != "reply":
            raise StepscopeError(reply)
        return (reply, content) if content else reply

    @property
    def resident(self) -> int:
        """Bytes of memory that it holds; 0 where that cannot be seen."""
        return heap.resident(self._process.pid) or 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _failure(self) -> StepscopeError:
        """Why the process does not answer any more."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        self.kill()
        if code == -signal.SIGABRT:  # how the libraries end when an allocation fails
            return UsageError(too_large(self.memory))
        if code == -signal.SIGXCPU:
            return UsageError("the query used up its processor time; ask for fewer rows, or ask `stepscope query`")
        if code == _NO_ENGINE:
            return StepscopeError("SQL needs DuckDB, which cannot be imported: pip install duckdb")
        return StepscopeError("the query process ended; did it run out of memory? ask for fewer rows")


_NO_ENGINE = 77
_MORE = "`stepscope query --memory`"


def too_large(memory: int) -> str:
    """The line for a query that does not fit."""
    return f"the query needed more than {gigabytes(memory)} of memory; ask for fewer rows or columns, or allow more with {_MORE}"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def put(pipe: IO[bytes], message: tuple[Any, ...], content: bytes | memoryview = b"") -> None:
    head = msgspec.msgpack.encode(message)
    pipe.write(_SIZES.pack(len(head), len(content)) + head)
    pipe.write(content)
    pipe.flush()


def get(pipe: IO[bytes]) -> tuple[Any, bytes]:
    """A message and its content."""
    head, content = _SIZES.unpack(_exactly(pipe, _SIZES.size))
    return msgspec.msgpack.decode(_exactly(pipe, head)), _exactly(pipe, content)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content
