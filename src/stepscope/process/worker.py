"""Worker processes: a Python process that runs one function of this package, answers requests, and ends with its parent.

A message is a MessagePack value and, behind it, content of any size. A worker answers a request with "reply" or "error",
and may send any number of "progress" messages before that.
"""

import contextlib
import io
import os
import queue
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeVar, cast

import msgspec

from stepscope.errors import DataError, StepscopeError, first_line
from stepscope.process import heap

Progress = Callable[[int, int], None]

_SIZES = struct.Struct("<QQ")
_PIPE_BYTES = 1 << 20
_POLL_S = 0.1  # how often the parent checks whether it still wants the answer
_PROGRESS_S = 0.05
_EXIT_S = 10.0  # a process that closed its pipe ends within this time
_is_worker = False
_Started = TypeVar("_Started", bound="Worker")


class WorkerEndedError(StepscopeError):
    """The worker process ended before it answered; `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"signal {-status}; did memory run out?" if status < 0 else f"status {status}")


class Worker:
    """A process that runs `function` ("module:name") with `args`, which need an exact repr: numbers, texts, None.

    Nothing is imported from the current directory, and the user's script does not run again, as it would with multiprocessing.
    """

    def __init__(self, function: str, *args: object, env: Mapping[str, str] | None = None, stderr: int | IO[bytes] | None = None) -> None:
        module, _, name = function.partition(":")
        code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {name}; {name}(*{args!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
            bufsize=0,
            pipesize=_PIPE_BYTES if sys.platform == "linux" else -1,
            # In a session of its own, the terminal's Ctrl-C reaches only the parent, and `kill` also ends what the worker started.
            # The workers of a worker stay in its session.
            start_new_session=not _is_worker,
        )
        to, back = (cast(io.RawIOBase, pipe) for pipe in (self._process.stdin, self._process.stdout))
        self._requests = io.BufferedWriter(to)
        self._answers = io.BufferedReader(back, 1)  # never reads ahead, so that `select` sees all that is left

    def __enter__(self: _Started) -> _Started:
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def resident(self) -> int:
        """Bytes of memory that the process holds; 0 where the system does not report them."""
        return heap.resident(self.pid) or 0

    def ask(self, message: Any, content: bytes | memoryview = b"", on_progress: Progress | None = None) -> tuple[Any, bytes]:
        """The reply to a message, and its content. An error of the worker is raised here."""
        self.send(message, content)
        return self.receive(on_progress)

    def send(self, message: Any, content: bytes | memoryview = b"") -> None:
        """Send a message without waiting for a reply."""
        try:
            _write(self._requests, message, content)
        except (OSError, ValueError):
            raise self._ended() from None

    def receive(self, on_progress: Progress | None = None) -> tuple[Any, bytes]:
        """The next reply. `on_progress` is also called while nothing arrives; an exception that it raises kills the worker."""
        answered = False
        done = total = 0
        try:
            while True:
                try:
                    # Not a plain read: after Polars has set its handler of SIGINT, a read continues, and Ctrl-C would wait for the worker.
                    while not _is_readable(self._answers):
                        if on_progress is not None:
                            on_progress(done, total)
                    (kind, *values), content = _read(self._answers)
                except (OSError, EOFError, ValueError, msgspec.DecodeError):
                    raise self._ended() from None
                if kind == "progress":
                    done, total = values
                    if on_progress is not None:
                        on_progress(done, total)
                    continue
                answered = True
                if kind == "reply":
                    return values[0], content
                raise _error(*values)
        finally:
            if not answered:
                self.kill()

    def kill(self) -> None:
        """End the process and all processes that it started."""
        if self._process.returncode is None:  # not waited for yet, so no other process has this id
            if not _is_worker:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()

    def _ended(self) -> WorkerEndedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        status = self._process.poll()
        self.kill()
        return WorkerEndedError(self._process.returncode if status is None else status)


class Parent:
    """The process that started this worker. Created once, at the start of the worker's function."""

    def __init__(self) -> None:
        global _is_worker  # noqa: PLW0603
        _is_worker = True
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("1000")  # when memory runs out, the kernel ends this process and not its parent
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # text that a library prints is no answer
        self._reported_s = 0.0

    def requests(self, idle_s: float | None = None) -> Iterator[tuple[Any, bytes]]:
        """Messages and their contents, until the parent ends or, with `idle_s`, sends nothing for that time. Then this process ends."""
        received: queue.Queue[tuple[Any, bytes]] = queue.Queue(1)
        threading.Thread(target=_listen, args=(received,), daemon=True).start()
        while True:
            try:
                yield received.get(timeout=idle_s)
            except queue.Empty:
                os._exit(0)

    def reply(self, value: Any = None, content: bytes | memoryview = b"") -> None:
        _write(self._answers, ("reply", value), content)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, which is raised in the parent."""
        _write(self._answers, ("error", *_error_parts(error)))

    def progress(self, done: int, total: int) -> None:
        if time.monotonic() - self._reported_s > _PROGRESS_S:
            self._reported_s = time.monotonic()
            _write(self._answers, ("progress", done, total))


def _listen(received: "queue.Queue[tuple[Any, bytes]]") -> None:
    """Hand on messages. A closed pipe means that the parent has ended or needs no more answers: this process ends at once."""
    with contextlib.suppress(EOFError):
        while True:
            received.put(_read(sys.stdin.buffer))
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(OSError):  # a locked process may not send signals
            os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _write(pipe: IO[bytes], message: Any, content: bytes | memoryview = b"") -> None:
    head = msgspec.msgpack.encode(message)
    pipe.write(_SIZES.pack(len(head), len(content)) + head)
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[Any, bytes]:
    head, content = _SIZES.unpack(_read_exactly(pipe, _SIZES.size))
    return msgspec.msgpack.decode(_read_exactly(pipe, head)), _read_exactly(pipe, content)


def _read_exactly(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _is_readable(pipe: IO[bytes]) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(_POLL_S))


def _error_parts(error: BaseException) -> tuple[str, ...]:
    import polars as pl

    if isinstance(error, DataError):
        return type(error).__name__, error.path, error.what, error.where
    if isinstance(error, StepscopeError):
        return type(error).__name__, str(error)
    if isinstance(error, MemoryError):
        return ("MemoryError",)
    if isinstance(error, pl.exceptions.PolarsError):
        return "PolarsError", first_line(error)
    return "Exception", f"{type(error).__name__}: {first_line(error)}", "".join(traceback.format_exception(error))


def _error(kind: str, *parts: str) -> Exception:
    """The error that a worker reported."""
    for class_ in _error_classes(StepscopeError):
        if class_.__name__ == kind:
            return class_(*parts)
    if kind == "MemoryError":
        return MemoryError()
    if kind == "PolarsError":
        import polars as pl

        return pl.exceptions.ComputeError(parts[0])
    error = RuntimeError(parts[0])
    error.__cause__ = RuntimeError(parts[1])  # the worker's traceback, for --debug
    return error


def _error_classes(base: type[StepscopeError]) -> Iterator[type[StepscopeError]]:
    yield base
    for class_ in base.__subclasses__():
        yield from _error_classes(class_)
