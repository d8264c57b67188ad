"""A recording read into a run folder: in this process, or in one of its own, which can be ended at any moment and leaves nothing behind."""

import contextlib
import errno
import os
import queue
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import polars as pl

from stepscope import readers, step_choice, store
from stepscope.errors import DataError, StepscopeError, UnknownFormatError, UsageError

LARGE = 16 << 20  # bytes: of less, no single call into a library takes a second, and starting a process costs as much as reading
_REUSED = 256 << 20  # bytes: after more, a process is not asked again
_PACKED = 16  # times as much, when unpacked
_LOOKED_S = 0.1  # how often a process that reads is asked whether it is still wanted
_TOLD_S = 0.05
_IDLE_S = 30.0  # after which a process that nobody asks gives its memory back
# What a disk says that takes no more, or never took anything.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class Task(msgspec.Struct, frozen=True):
    """What to read, how, and the folder in which `run` is to be written."""

    path: str
    format: str
    room: str
    partial: bool
    rank: int | None

    @property
    def run(self) -> Path:
        return Path(self.room, "run")


Progress = Callable[[int, int], None]
Read = Callable[[Task, Progress], None]


class NoRoomError(DataError):
    """The place where the run folder is to be written takes no more."""


def read_here(task: Task, progress: Progress) -> None:
    """In this process and thread. `progress` is called now and then; what it raises ends the reading."""
    path, scratch = Path(task.path), Path(task.room, "scratch")
    try:
        scratch.mkdir()
        options = readers.Options(scratch=scratch, partial=task.partial, rank=task.rank, progress=progress)
        trace = readers.read(path, task.format, options)
        trace.meta.source = task.path
        store.write(step_choice.with_advice(trace), task.run)
    except (OSError, StepscopeError) as error:
        number = _number(error)
        if number in _NO_ROOM:
            raise NoRoomError(task.run, f"could not be written ({os.strerror(number)})") from error
        if isinstance(error, OSError):
            raise DataError(error.filename if isinstance(error.filename, str) else path, error.strerror or str(error)) from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def large_apart() -> Iterator[Read]:
    """How to read so that an interrupt ends it at once: what is large in a process of its own, the rest here."""
    workers = Workers()
    try:
        yield lambda task, progress: (read_here if _bytes(Path(task.path)) < LARGE else workers.read)(task, progress)
    finally:
        workers.close()


class Workers:
    """Processes that read for a server: what hangs, or takes all memory, hurts nobody else.

    A few read at the same time. One that has taken long no longer counts, so that others are not kept waiting, up to a bound.
    """

    def __init__(self, at_once: int = 2, most: int = 8, patience_s: float = 10.0) -> None:
        self._at_once, self._most, self._patience_s = at_once, most, patience_s
        self._lock = threading.Lock()
        self._begun: dict[Process, float] = {}
        self._idle: list[Process] = []
        self._closed = False

    def read(self, task: Task, progress: Progress) -> None:
        while True:
            try:
                return self._read(task, progress)
            except _IdleError:  # it ended just as it was to be asked: another one reads
                continue

    def _read(self, task: Task, progress: Progress) -> None:
        process = self._process(progress)
        try:
            process.read(task, progress)
        finally:
            small = _bytes(Path(task.path)) < _REUSED  # one that has read much keeps the memory
            with self._lock:
                del self._begun[process]
                again = small and process.is_alive and not self._closed and len(self._idle) < self._at_once
                if again:
                    self._idle.append(process)
            if not again:
                process.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    def _process(self, progress: Progress) -> "Process":
        while True:
            with self._lock:
                now = time.monotonic()
                recent = sum(now - begun < self._patience_s for begun in self._begun.values())
                if recent < self._at_once and len(self._begun) < self._most:
                    while self._idle and not self._idle[-1].is_alive:
                        self._idle.pop().kill()  # closes what is left of it
                    process = self._idle.pop() if self._idle else Process()
                    self._begun[process] = now
                    return process
            progress(0, 0)
            time.sleep(_LOOKED_S)


class _IdleError(StepscopeError):
    """The process had waited for so long that it ended."""


class Process:
    """A process that reads one recording after the other."""

    def __init__(self) -> None:
        # As readers/chrome.py does: nothing is imported from the current directory, and no script of the user's is run again.
        code = f"import sys; sys.path[:] = {sys.path!r}; from stepscope.reading import main; main()"
        # A session of its own: Ctrl-C is for us to pass on, and what it starts itself is ended with it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def read(self, task: Task, progress: Progress) -> None:
        answered = False
        try:
            for line in self._lines(task, progress):
                kind, *said = msgspec.json.decode(line, type=tuple[str, ...])
                answered = True
                if kind == "done":
                    return
                raise _error(kind, *said)
            status = self._process.wait()
            if status == 0:
                raise _IdleError("nobody had asked for long")
            why = f"signal {-status}; did memory run out?" if status < 0 else f"status {status}"
            raise DataError(task.path, f"the process that read it ended ({why})")
        finally:
            if not answered:  # it is of no more use: stopped, or gone
                self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:  # not waited for yet, so that the number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _lines(self, task: Task, progress: Progress) -> Iterator[bytes]:
        """What it says of the task, but how far it is: that goes to `progress`, which is called also while nothing is said."""
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        with contextlib.suppress(BrokenPipeError):
            to.write(msgspec.json.encode(task) + b"\n")
        done = total = 0
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(back, selectors.EVENT_READ)
            while True:
                if selector.select(_LOOKED_S):
                    more = os.read(back.fileno(), 1 << 16)
                    if not more:
                        return
                    *lines, text = (text + more).split(b"\n")
                    for line in lines:
                        if line.startswith(b"["):
                            yield line
                        else:
                            done, total = (int(number) for number in line.split())
                progress(done, total)


def main() -> None:
    """In the process: one task after the other, until nobody is there to ask."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # when memory ends, it is this process that goes
    os.umask(0o077)
    target = os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whatever a library prints is no answer
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        try:
            task = msgspec.json.decode(tasks.get(timeout=_IDLE_S), type=Task)
        except queue.Empty:
            os._exit(0)
        os.write(target, msgspec.json.encode(_outcome(task, target)) + b"\n")


def _listen(tasks: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    os.killpg(0, signal.SIGKILL)  # nobody waits any more: also what we started ends now


def _outcome(task: Task, target: int) -> tuple[str, ...]:
    told = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TOLD_S:
            told = time.monotonic()
            os.write(target, b"%d %d\n" % (done, total))

    try:
        read_here(task, progress)
    except DataError as error:
        return type(error).__name__, error.path, error.what, error.where
    except StepscopeError as error:
        return type(error).__name__, str(error)
    except MemoryError:
        return ("MemoryError",)
    except pl.exceptions.PolarsError as error:
        return "PolarsError", store.first_line(error)
    except Exception as error:  # noqa: BLE001  raised again where it is printed
        return "Exception", f"{type(error).__name__}: {store.first_line(error)}", "".join(traceback.format_exception(error))
    return ("done",)


_ERRORS: dict[str, type[StepscopeError]] = {
    kind.__name__: kind for kind in (DataError, UnknownFormatError, NoRoomError, UsageError, StepscopeError)
}


def _error(kind: str, *said: str) -> Exception:
    """The error that a process reported."""
    if kind in _ERRORS:
        return _ERRORS[kind](*said)
    if kind == "MemoryError":
        return MemoryError()
    if kind == "PolarsError":
        return pl.exceptions.ComputeError(said[0])
    error = RuntimeError(said[0])
    error.__cause__ = RuntimeError(said[1])  # where it happened, for --debug
    return error


def _number(error: BaseException | None) -> int:
    """What the system said of a file, anywhere among the causes; other libraries hand it on as text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        for number in _NO_ROOM:
            if os.strerror(number) in str(error) or f"os error {number}" in str(error):
                return number
        error = error.__cause__
    return 0


def _bytes(path: Path) -> int:
    """How large a recording is; what is packed counts as what it unpacks to."""
    try:
        if not path.is_file():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return path.stat().st_size * (_PACKED if packed else 1)
    except OSError:
        return 0
