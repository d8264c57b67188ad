"""Decoding of a large file in several processes: pieces of text go in, reports come back, columns go to files in a folder."""

import gc
import itertools
import os
import queue
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from stepscope.errors import DataError
from stepscope.process.worker import Parent, Worker, WorkerEndedError
from stepscope.readers import Options
from stepscope.readers.chrome.columns import decode
from stepscope.readers.chrome.parts import write_parts
from stepscope.readers.chrome.records import Report
from stepscope.readers.chrome.text import Piece, Text, event_array

# Each worker computes with one thread, as there are several workers. Each piece needs as much memory as the one before it: returning it
# to the system in between costs a tenth of the time.
_ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 31),
    "MALLOC_TOP_PAD_": str(1 << 25),
}


def decode_pieces(text: Text, pieces: Iterator[Piece], options: Options) -> Generator[tuple[Piece, Report], None, None]:
    """The pieces with their reports, in order; by then their columns are on disk. A file of one piece is decoded in this process."""
    first = next(pieces)
    if first.last:
        report, parts = decode(text.event_array(first))
        write_parts(parts, options.scratch, first.number)
        yield first, report
        return
    count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    function = f"{__name__}:serve"
    workers = [Worker(function, str(text.path), str(options.scratch), env=os.environ | _ENVIRONMENT) for _ in range(count)]
    idle = queue.SimpleQueue[Worker]()
    for worker in workers:
        idle.put(worker)
    pool = ThreadPoolExecutor(count)
    pending = deque[tuple[Piece, Future[Report]]]()
    try:
        for piece in itertools.chain([first], pieces):
            options.progress(text.position() if text.packed else piece.offset, text.size)
            pending.append((piece, pool.submit(_decode_in_worker, idle, piece, text.path)))
            if len(pending) > count + 1:
                yield _finish(*pending.popleft())
        for item in pending:
            yield _finish(*item)
    finally:
        for worker in workers:
            worker.kill()
        pool.shutdown(cancel_futures=True)


def _finish(piece: Piece, result: Future[Report]) -> tuple[Piece, Report]:
    return piece, result.result()


def _decode_in_worker(idle: "queue.SimpleQueue[Worker]", piece: Piece, path: Path) -> Report:
    worker = idle.get()
    try:
        _, report = worker.ask((piece.number, piece.offset, piece.size, piece.body is None, piece.last), piece.body or b"")
    except WorkerEndedError as error:
        raise DataError(path, f"a process that decoded it ended ({error})") from None
    finally:
        idle.put(worker)
    return msgspec.json.decode(report, type=Report)


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
