"""Conversion of a recording into a run folder: in this process, or in a worker process that can be stopped at any time."""

import contextlib
import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope import readers
from stepscope.errors import DataError, NoRoomError, StepscopeError
from stepscope.io import store
from stepscope.model.steps import step_choice
from stepscope.model.trace import Trace
from stepscope.process.compiled.choice import chosen_library
from stepscope.process.worker import Parent, Progress, Worker, WorkerEndedError
from stepscope.readers.chrome.compression import GZIP, ZSTD

LARGE = 16 << 20  # bytes: below this, starting a process costs as much as reading, and no library call takes a second
LARGE_SCANNED = 256 << 20  # the same for Chrome traces that the compiled scanner reads
_REUSE_LIMIT = 256 << 20  # bytes: a worker that has read more holds much memory and is not used again
_COMPRESSION_RATIO = 16
_TURN_S = 0.1  # how often a caller that waits for a worker checks whether it is still wanted
_IDLE_S = 30.0  # a worker without requests ends after this time and frees its memory
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class Task(msgspec.Struct, frozen=True):
    """The recording at `path`, its format, and the folder in which `run` is written."""

    path: str
    format: str
    room: str
    partial: bool
    rank: int | None

    @property
    def run(self) -> Path:
        return Path(self.room, "run")


Read = Callable[[Task, Progress], None]


@contextlib.contextmanager
def decode(path: Path, format: str, scratch: Path | None = None, **options: Any) -> Iterator[Trace]:
    """The trace as its reader decodes it, to be written once. Its tables may be in scratch files, which exist inside the block only."""
    if scratch is not None:
        scratch.mkdir()
    folder = Path(tempfile.mkdtemp(prefix="stepscope.")) if scratch is None else scratch
    try:
        # No name keeps the tables: a caller that has copied them frees them.
        yield step_choice.with_advice(readers.read(path, format, readers.Options(scratch=folder, **options)).with_meta(source=str(path)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_here(task: Task, progress: Progress) -> None:
    """Convert in this process and thread. `progress` is called now and then; an exception that it raises stops the conversion."""
    with errors_of(task), decode_task(task, progress) as trace:
        store.write(trace, task.run)


def decode_task(task: Task, progress: Progress) -> contextlib.AbstractContextManager[Trace]:
    scratch = Path(task.room, "scratch")
    return decode(Path(task.path), task.format, scratch, partial=task.partial, rank=task.rank, progress=progress)


@contextlib.contextmanager
def errors_of(task: Task) -> Iterator[None]:
    """Errors of reading and writing, as those of this package."""
    try:
        yield
    except (OSError, StepscopeError, RuntimeError) as error:  # Polars may report a full disk as a RuntimeError
        number = _error_number(error)
        if number in _DISK_FULL:
            raise NoRoomError(task.run, f"could not be written ({os.strerror(number)})") from error
        if isinstance(error, OSError):
            raise DataError(error.filename if isinstance(error.filename, str) else task.path, error.strerror or str(error)) from error
        raise


@contextlib.contextmanager
def large_apart() -> Iterator[Read]:
    """A `read` for `stepscope.open` that converts large files in a worker process, so that an interrupt stops it at once."""
    workers = Workers()
    try:
        yield lambda task, progress: (workers.read if is_large(task) else read_here)(task, progress)
    finally:
        workers.close()


def is_large(task: Task) -> bool:
    """Whether a process of its own reads the recording."""
    return size(Path(task.path)) >= (LARGE_SCANNED if task.format == "chrome" and chosen_library() else LARGE)


class Workers:
    """Worker processes that convert recordings: one that hangs or runs out of memory does not affect the others.

    `at_once` conversions run at the same time. A conversion that takes longer than `patience_s` no longer counts, up to `most`.
    """

    def __init__(self, at_once: int = 2, most: int = 8, patience_s: float = 10.0) -> None:
        self._at_once, self._most, self._patience_s = at_once, most, patience_s
        self._lock = threading.Lock()
        self._busy_since: dict[Worker, float] = {}
        self._idle: list[Worker] = []
        self._closed = False

    def read(self, task: Task, progress: Progress) -> None:
        while True:
            worker = self._wait_for_worker(progress)
            try:
                return read_in(worker, task, progress)
            except WorkerEndedError:  # its idle time was over just before the request: another one converts
                continue
            finally:
                self._put_back(worker, Path(task.path))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()

    def _put_back(self, worker: Worker, path: Path) -> None:
        small = size(path) < _REUSE_LIMIT
        with self._lock:
            del self._busy_since[worker]
            reuse = small and worker.is_alive and not self._closed and len(self._idle) < self._at_once
            if reuse:
                self._idle.append(worker)
        if not reuse:
            worker.kill()

    def _wait_for_worker(self, progress: Progress) -> Worker:
        while True:
            with self._lock:
                now = time.monotonic()
                recent = sum(now - since < self._patience_s for since in self._busy_since.values())
                if recent < self._at_once and len(self._busy_since) < self._most:
                    while self._idle and not self._idle[-1].is_alive:
                        self._idle.pop().kill()  # closes its pipes
                    worker = self._idle.pop() if self._idle else start_worker()
                    self._busy_since[worker] = now
                    return worker
            progress(0, 0)
            time.sleep(_TURN_S)


def start_worker() -> Worker:
    return Worker(f"{__name__}:serve")


def read_in(worker: Worker, task: Task, progress: Progress) -> None:
    try:
        worker.ask(msgspec.to_builtins(task), on_progress=progress)
    except WorkerEndedError as error:
        if error.status:
            raise DataError(task.path, f"the process that read it ended ({error})") from None
        raise


def serve() -> None:
    """In the worker: one task after the other."""
    parent = Parent()
    os.umask(0o077)
    for message, _ in parent.requests(_IDLE_S):
        try:
            read_here(msgspec.convert(message, Task), parent.progress)
        except Exception as error:  # noqa: BLE001 - raised again in the parent
            parent.fail(error)
        else:
            parent.reply()


def _error_number(error: BaseException | None) -> int:
    """The system's error number, from the error or its causes; other libraries report it as text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        for number in _DISK_FULL:
            if os.strerror(number) in str(error) or f"os error {number}" in str(error):
                return number
        error = error.__cause__
    return 0


def size(path: Path) -> int:
    """Bytes of a recording; a compressed file counts with its estimated uncompressed size."""
    try:
        if not path.is_file():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        with path.open("rb") as file:
            compressed = file.read(4).startswith((GZIP, ZSTD))
        return path.stat().st_size * (_COMPRESSION_RATIO if compressed else 1)
    except OSError:
        return 0
