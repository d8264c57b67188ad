"""Chrome trace JSON: what torch.profiler (Kineto) writes, and any other tool that speaks this format; plain or gzip."""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope import units
from stepscope.errors import DataError, StepscopeError
from stepscope.readers import Options, _ascend_lanes, _ascend_layers
from stepscope.readers import _chrome_events as events
from stepscope.readers import _chrome_text as texts
from stepscope.readers._kineto import Problem, assemble
from stepscope.trace import Trace

_SNIFFED = 8 << 20
FORMAT = "PyTorch/Chrome JSON (.json, .json.gz)"


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        packed = file.read(1 << 16)
        head = _unpacked(packed)
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            return re.match(rb"\[\s*\{", start) is not None and b'"ph"' in head
        if not start.startswith(b"{"):
            return False
        # The header of a job with thousands of process groups is long.
        return b'"traceEvents"' in head or b'"traceEvents"' in _unpacked(packed + file.read(_SNIFFED))


def read(path: Path, options: Options) -> Trace:
    found = decoded(path, options)
    if "stepscope" not in found.header and _ascend_lanes.claims(found.reports):  # what we exported ourselves says what is what
        return _ascend_layers.assemble(path, found.reports, found.problems, options, format="chrome")
    return assemble(path, found.header, found.reports, found.problems, options)


def rank(path: Path) -> int | None:
    """As Kineto's header says of a distributed job."""
    with path.open("rb") as file:
        head = _unpacked(file.read(1 << 16))
    found = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\s*[,}]', head)
    return int(found[1]) if found else None


class Decoded(NamedTuple):
    """A file whose events' columns lie in the scratch folder."""

    header: dict[str, Any]
    reports: list[events.Report]
    problems: list[Problem]


def decoded(path: Path, options: Options) -> Decoded:
    try:
        return _read(path, options, exact=False)
    except _MisjudgedError:
        return _read(path, options, exact=True)


class _MisjudgedError(Exception):
    """The look of the text misled us about where an event ends."""


def _read(path: Path, options: Options, exact: bool) -> Decoded:
    text = texts.Text(path, partial=options.partial)
    reports: list[events.Report] = []
    problems: list[Problem] = []
    try:
        opening = texts.opening(text)
        with contextlib.closing(_decoded(text, texts.pieces(text, opening, exact=exact), options)) as results:
            for piece, first_report in results:
                count, report = sum(done.events for done in reports), first_report
                if report.malformed:
                    if not exact and not (piece.last and "truncated" in report.malformed):
                        raise _MisjudgedError
                    array = _array(text, piece)
                    report, problem = _salvage(piece, array, report.malformed, count, bare=opening.bare, path=path, options=options)
                    problems.append(problem)
                elif piece.last and report.behind is None and not opening.bare:
                    texts.closing(path, b"", partial=options.partial)
                reports.append(report)
                if report.behind is not None:
                    break
        if report.behind is not None:
            _drop_pieces(options.scratch, len(reports))
            behind = report.behind if piece.last else _behind(path, piece, _array(text, piece), report.behind, options)
            problems += _read_behind(path, behind, opening, reports, options)
    finally:
        text.close()
    if text.cut:
        problems.append(Problem("", text.cut, 0))
    return Decoded(opening.header, reports, [*problems, *_noted(path, reports)])


def _behind(path: Path, piece: texts.Piece, array: bytes, behind: bytes, options: Options) -> bytes:
    """The rest of the file behind the array of events, which ends in this piece."""
    end = events.array_end(array) or len(array) - len(behind)
    return texts.rest(path, piece.offset + end - 1, partial=options.partial)


def _read_behind(path: Path, behind: bytes, opening: texts.Opening, reports: list[events.Report], options: Options) -> Iterator[Problem]:
    """Read on behind the array of events: the header goes on there, and some files have more than one array."""
    if opening.bare:
        if behind.strip():
            yield Problem("", f"{len(behind):,} bytes behind the array of events are not read", 1)
        return
    arrays = 1
    while True:
        closing = texts.closing(path, behind, partial=options.partial)
        opening.header.update(closing.header)
        if closing.events is None:
            break
        arrays += 1
        report, parts = events.decode(closing.events)
        if report.malformed:
            count = sum(done.events for done in reports)
            piece = texts.Piece(len(reports), 0, len(closing.events), True, closing.events[1:])
            report, problem = _salvage(piece, closing.events, report.malformed, count, bare=False, path=path, options=options)
            yield problem._replace(where=f"array of events {arrays}")
        else:
            events.write(parts, options.scratch, len(reports))
        reports.append(report)
        behind = report.behind or b""
    if arrays > 1:
        yield Problem("", f"the file has {arrays} arrays of events: all of them are read", 0)


def _drop_pieces(folder: Path, number: int) -> None:
    """Remove what processes made of pieces from this number on, which are not events of the array."""
    for file in folder.glob("*.arrow"):
        if int(file.suffixes[0][1:]) >= number:
            file.unlink()


def _noted(path: Path, reports: list[events.Report]) -> list[Problem]:
    """What could not be read of events, one row for each kind of oddity; a file of which nothing is left is refused."""
    problems: dict[str, events.Noted] = {}
    count = 0
    for report in reports:
        for what, noted in report.problems.items():
            before = problems.get(what, events.Noted(0, 0, count + noted.first, noted.example))
            problems[what] = before._replace(many=before.many + noted.many, lost=before.lost + noted.lost)
        count += report.entries
    lost = sum(noted.lost for noted in problems.values())
    rows = [
        Problem(
            f"event {noted.first:,}",
            (events.counted(noted.many, what) if noted.many else what) + (f", for example {noted.example}" if noted.example else ""),
            noted.lost,
        )
        for what, noted in problems.items()
    ]
    if not any(report.events for report in reports) or (lost and not any(report.rows for report in reports)):
        why = next((f": {row.what}" for row in rows if row.lost), "")
        raise DataError(path, f"the trace holds no events{why}")
    return rows


def _array(text: texts.Text, piece: texts.Piece) -> bytes:
    body = piece.body if piece.body is not None else text.between(piece.offset, piece.size)
    return texts.bracketed(body, piece.last)


def _salvage(
    piece: texts.Piece, array: bytes, why: str, count: int, *, bare: bool, path: Path, options: Options
) -> tuple[events.Report, Problem]:
    """The whole events before the place where the text breaks: all of them, where only the optional closing bracket is missing."""
    broken = re.search(r"\(byte (\d+)\)", why)
    end = texts.whole_events(array, int(broken[1]) if broken else None)
    lost = array[end:]
    where = f"byte {piece.offset + end - 1:,}"
    report, parts = events.decode(array[:end] + b"]")
    if report.malformed:  # also what stands before the break cannot be read: then nothing of this piece can
        raise DataError(path, report.malformed, f"after event {count:,}")
    if bare and not lost.strip(b" ,\t\r\n"):
        problem = Problem(where, "the array of events has no closing bracket", 0)
    else:
        what = f"malformed ({why})" if broken else "the file is cut off" if "truncated" in why else why
        if not options.partial:
            raise DataError(path, f"{what} after event {count + report.events:,}; --partial reads the whole events", where)
        # An event that cannot be read can still be counted: each says its phase once.
        events_lost = max(lost.count(b'"ph"'), 1)
        problem = Problem(where, f"{what}: at least {units.count(events_lost, 'event is', 'events are')} lost", events_lost)
    events.write(parts, options.scratch, piece.number)
    return report, problem


def _decoded(text: texts.Text, pieces: Iterator[texts.Piece], options: Options) -> Generator[tuple[texts.Piece, events.Report], None, None]:
    """The pieces with their reports, in order; their columns are on disk then. Large files are shared among processes."""
    first = next(pieces)
    if first.last:
        report, parts = events.decode(_array(text, first))
        events.write(parts, options.scratch, first.number)
        yield first, report
        return
    feed = _Feed(first, pieces, text, options)
    workers = [threading.Thread(target=feed.work, daemon=True) for _ in range(_processors())]
    for worker in workers:
        worker.start()
    try:
        number = 0
        while (result := feed.result(number)) is not None:
            yield result
            number += 1
    finally:
        feed.stop()
        for worker in workers:
            worker.join()


class _Feed:
    """Hands pieces to processes and collects their reports. One thread per process asks for the next piece when its process is free."""

    def __init__(self, first: texts.Piece, pieces: Iterator[texts.Piece], text: texts.Text, options: Options) -> None:
        self._pieces, self._text, self._options = itertools.chain([first], pieces), text, options
        self._asking, self._arrived = threading.Lock(), threading.Condition()
        self._results: dict[int, tuple[texts.Piece, events.Report]] = {}
        self._working = _processors()
        self._error: BaseException | None = None
        self._stopped = False

    def work(self) -> None:
        try:
            with contextlib.closing(_Process(self._text.path, self._options.scratch)) as process:
                while (piece := self._next()) is not None:
                    report = process.ask(piece)
                    # Only a piece that must be looked at again keeps its text.
                    again = piece.last or report.malformed or report.behind is not None
                    with self._arrived:
                        self._results[piece.number] = (piece if again else piece._replace(body=b""), report)
                        self._arrived.notify_all()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that asked
            with self._arrived:
                self._error = self._error or error
        finally:
            with self._arrived:
                self._working -= 1
                self._arrived.notify_all()

    def result(self, number: int) -> tuple[texts.Piece, events.Report] | None:
        """The result of a piece, or None where there is no such piece."""
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._results or self._error or not self._working)
            if self._error and number not in self._results:
                raise self._error
            return self._results.pop(number, None)

    def stop(self) -> None:
        self._stopped = True

    def _next(self) -> texts.Piece | None:
        with self._asking:
            if self._stopped or self._error:
                return None
            piece = next(self._pieces, None)
            if piece:
                self._options.progress(self._text.done() if self._text.packed else piece.offset, self._text.size)
            return piece


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


# Each piece needs as much memory as the one before it: giving it back to the system in between costs a tenth of the time.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_THRESHOLD_": str(1 << 31), "MALLOC_TOP_PAD_": str(1 << 25)}


class _Process:
    """A process that turns pieces into columns in a folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        # Not multiprocessing: that would run the user's own script again. The module path is handed over so that nothing is
        # imported from the current directory, and each process computes with one thread, being one of several.
        code = f"import sys; sys.path[:] = {sys.path!r}; from stepscope.readers._chrome_events import main; main()"
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=os.environ | {"POLARS_MAX_THREADS": "1"} | _KEEP_MEMORY,
        )

    def ask(self, piece: texts.Piece) -> events.Report:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        try:
            to.write(events.REQUEST.pack(piece.number, piece.offset, piece.size, piece.body is None, piece.last) + (piece.body or b""))
            to.flush()
            header = back.read(events.ANSWER.size)
            if len(header) == events.ANSWER.size:
                return msgspec.json.decode(back.read(events.ANSWER.unpack(header)[0]), type=events.Report)
        except BrokenPipeError:
            pass
        status = self._process.wait()
        self._complaints.seek(0)
        last = self._complaints.read().decode(errors="replace").strip().splitlines()[-1:]
        raise StepscopeError(f"a process that reads the trace ended with status {status}: {' '.join(last) or 'was it killed?'}")

    def close(self) -> None:
        with self._complaints, self._process:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


def _unpacked(head: bytes) -> bytes:
    """The start of a file, unpacked if it is gzip, as far as that goes."""
    if not head.startswith(b"\x1f\x8b"):
        return head
    unpack, found = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    for start in range(0, len(head), 4096):
        try:
            found += unpack.decompress(head[start : start + 4096])
        except zlib.error:
            break
        if len(found) > _SNIFFED:
            break
    return found
