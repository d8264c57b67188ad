"""Decoding of a large file in threads or processes: pieces of text go in, reports come back, columns go to files in a folder."""

import ctypes
import gc
import itertools
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.process.compiled.choice import chosen_library
from stepscope.process.worker import Parent, Worker, WorkerEndedError
from stepscope.readers import Options
from stepscope.readers.chrome.columns import decode
from stepscope.readers.chrome.parts import write_parts
from stepscope.readers.chrome.records import Report
from stepscope.readers.chrome.scanner import pieces as native
from stepscope.readers.chrome.text import Piece, Text, event_array

# Each worker computes with one thread, as there are several workers. Each piece needs as much memory as the one before it: returning it
# to the system in between costs a tenth of the time.
_ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 31),
    "MALLOC_TOP_PAD_": str(1 << 25),
}

_SPARE = 1 << 20  # pieces differ a little in size


def decode_pieces(text: Text, pieces: Iterator[Piece], options: Options) -> Generator[tuple[Piece, Report], None, None]:
    """The pieces with their reports, in order; by then their columns are on disk.

    The compiled scanner decodes in threads, and Python in processes: also the pieces that the scanner leaves to it. A file of one piece
    is decoded in this process and thread.
    """
    first = next(pieces)
    if first.last:
        report, parts = decode_text(text.event_array(first))
        write_parts(parts, options.scratch, first.number)
        yield first, report
        return
    count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    pool = ThreadPoolExecutor(count)
    pending = deque[tuple[Piece, Future[Report]]]()
    workers = _Workers(text.path, options.scratch)
    library = chosen_library()
    try:
        for piece in itertools.chain([first], pieces):
            options.progress(text.position() if text.packed else piece.offset, text.size)
            pending.append((piece, pool.submit(_decode_piece, library, text, piece, options.scratch, workers)))
            if len(pending) > count + 1:
                yield _finish(*pending.popleft())
        while pending:
            yield _finish(*pending.popleft())
    finally:
        workers.kill()
        pool.shutdown(cancel_futures=True)


def decode_text(text: bytes) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of a JSON array of events."""
    library = chosen_library()
    return (library and native.decode(library, text)) or decode(text)


def _finish(piece: Piece, result: Future[Report]) -> tuple[Piece, Report]:
    return piece, result.result()


def _decode_piece(library: ctypes.CDLL | None, text: Text, piece: Piece, folder: Path, workers: "_Workers") -> Report:
    decoded = native.decode(library, _event_array(text, piece)) if library else None
    if decoded is None:
        return workers.decode(piece)
    report, parts = decoded
    write_parts(parts, folder, piece.number)
    return report


_buffers = threading.local()


def _event_array(text: Text, piece: Piece) -> bytes | memoryview:
    """The events as an array. A piece that is read from the file is in the buffer of this thread, until the next one."""
    if piece.body is not None:
        return event_array(piece.body, piece.last)
    needed = piece.size + 2
    if len(getattr(_buffers, "text", b"")) < needed:
        _buffers.text = bytearray(needed + _SPARE)
    array = memoryview(_buffers.text)
    array[:1] = b"["
    end = 1 + text.read_into(array[1 : piece.size + 1], piece.offset)
    array[end : end + 1] = b"]"
    return array[: end if piece.last else end + 1]


class _Workers:
    """Processes that decode pieces in Python. Each thread that needs one has its own."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, folder
        self._thread = threading.local()
        self._all: list[Worker] = []
        self._lock = threading.Lock()
        self._closed = False

    def decode(self, piece: Piece) -> Report:
        try:
            if not hasattr(self._thread, "worker"):
                self._thread.worker = self._start()
            message = (piece.number, piece.offset, piece.size, piece.body is None, piece.last)
            _, report = self._thread.worker.ask(message, piece.body or b"")
        except WorkerEndedError as error:
            raise DataError(self._path, f"a process that decoded it ended ({error})") from None
        return msgspec.json.decode(report, type=Report)

    def kill(self) -> None:
        with self._lock:
            self._closed = True
        for worker in self._all:
            worker.kill()

    def _start(self) -> Worker:
        with self._lock:
            if self._closed:
                raise WorkerEndedError(0)
            worker = Worker(f"{__name__}:serve", str(self._path), str(self._folder), env=os.environ | _ENVIRONMENT)
            self._all.append(worker)
        return worker


def serve(path: str, folder: str) -> None:
    """In a worker: decode one piece after the other."""
    gc.disable()
    parent = Parent()
    with Path(path).open("rb") as file:
        for (number, offset, size, in_file, last), body in parent.requests():
            try:
                if in_file:
                    file.seek(offset)
                report, parts = decode(event_array(file.read(size) if in_file else body, last))
                write_parts(parts, Path(folder), number)
            except Exception as error:  # noqa: BLE001 - it is raised in the process that reads the file
                parent.fail(error)
            else:
                parent.reply(None, msgspec.json.encode(report))
