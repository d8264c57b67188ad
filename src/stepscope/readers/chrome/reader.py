"""Chrome trace JSON: the files of torch.profiler (Kineto), and of any other tool that writes this format; plain, gzip or zstd."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.errors import DataError
from stepscope.model import units
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.common import layers, tracks
from stepscope.readers.ascend.common.step_sums import ALWAYS, NO_SUMS
from stepscope.readers.chrome import text as texts
from stepscope.readers.chrome.columns import array_end, decode
from stepscope.readers.chrome.compression import head_text
from stepscope.readers.chrome.kineto.trace import assemble
from stepscope.readers.chrome.parts import piece_number, write_parts
from stepscope.readers.chrome.records import Oddity, Report, count_oddity
from stepscope.readers.chrome.workers import decode_pieces
from stepscope.readers.common.problems import Problem

_SNIFFED = 8 << 20
_NOT_READ = "bytes behind the array of events are not read"
FORMAT = "PyTorch/Chrome JSON (.json, .json.gz)"


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        packed = file.read(1 << 16)
        head = head_text(packed, _SNIFFED)
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            return re.match(rb"\[\s*\{", start) is not None and b'"ph"' in head
        if not start.startswith(b"{"):
            return False
        # The header of a job with thousands of process groups is long.
        return b'"traceEvents"' in head or b'"traceEvents"' in head_text(packed + file.read(_SNIFFED), _SNIFFED)


def read(path: Path, options: Options) -> Trace:
    file = decode_file(path, options)
    if "stepscope" not in file.header and tracks.claims(file.reports):  # stepscope's own files state the kind of each event
        sums = NO_SUMS._replace(gaps=ALWAYS) if file.cut else NO_SUMS
        return layers.assemble(path, file.reports, file.problems, options, format="chrome", sums=sums)
    trace = assemble(path, file.header, file.reports, file.problems, options)
    if not file.cut:
        return trace
    # Events are not in the order of time: what is missing may be of any step.
    return trace.with_tables(steps=trace.table("steps").with_columns(device_work_lost=pl.lit(True)))


def rank(path: Path) -> int | None:
    """The rank in Kineto's header of a distributed job."""
    with path.open("rb") as file:
        head = head_text(file.read(1 << 16), _SNIFFED)
    match = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\s*[,}]', head)
    return int(match[1]) if match else None


def first_step(path: Path) -> int | None:
    """The first number that torch.profiler gives to a step, if it is in the first part of the file."""
    with path.open("rb") as file:
        head = head_text(file.read(_SNIFFED), _SNIFFED)
    match = re.search(rb'"name"\s*:\s*"ProfilerStep#(\d{1,9})"', head)
    return int(match[1]) if match else None


class DecodedFile(NamedTuple):
    """A file whose events are columns in the scratch folder."""

    header: dict[str, Any]
    reports: list[Report]
    problems: list[Problem]
    cut: bool = False  # the end of the file is missing


def decode_file(path: Path, options: Options) -> DecodedFile:
    try:
        return _decode_file(path, options, exact=False)
    except _WrongBoundaryError:
        _remove_pieces(options.scratch, 0)
        return _decode_file(path, options, exact=True)


class _WrongBoundaryError(Exception):
    """A piece does not end where an event ends."""


def _decode_file(path: Path, options: Options, *, exact: bool) -> DecodedFile:
    reports: list[Report] = []
    problems: list[Problem] = []
    with texts.Text(path, partial=options.partial) as text:
        opening = texts.read_opening(text)
        with contextlib.closing(decode_pieces(text, texts.split_pieces(text, opening, exact=exact), options)) as results:
            for piece, decoded in results:
                report = decoded
                if report.malformed:
                    if not exact and not (piece.last and "truncated" in report.malformed):
                        raise _WrongBoundaryError
                    count = sum(previous.events for previous in reports)
                    report, problem = _salvage(piece, text.event_array(piece), report.malformed, count, opening.bare, path, options)
                    problems.append(problem)
                elif piece.last and report.rest is None and not opening.bare:
                    texts.parse_closing(path, b"", partial=options.partial)
                reports.append(report)
                if report.rest is not None:
                    break
        if report.rest is not None:
            _remove_pieces(options.scratch, len(reports))
            rest = report.rest
            if not piece.last:  # the array ends before the last piece
                array = text.event_array(piece)
                end = array_end(array) or len(array) - len(rest)
                rest = texts.read_rest(path, piece.offset + end - 1, partial=options.partial)
            problems += _decode_rest(path, rest, opening, reports, options)
    if text.damage:
        problems.append(Problem("", text.damage, 0))
    cut = bool(text.damage) or any(problem.lost for problem in problems if not problem.what.endswith(_NOT_READ))
    return DecodedFile(opening.header, reports, [*problems, *_oddity_problems(path, reports)], cut)


def _decode_rest(path: Path, rest: bytes, opening: texts.Opening, reports: list[Report], options: Options) -> Iterator[Problem]:
    """Read the text behind the array of events: the rest of the header, and the further arrays that some files have."""
    if opening.bare:
        if rest.strip():
            yield Problem("", f"{len(rest):,} {_NOT_READ}", 1)
        return
    arrays = 1
    while True:
        closing = texts.parse_closing(path, rest, partial=options.partial)
        opening.header.update(closing.header)
        if closing.events is None:
            break
        arrays += 1
        report, parts = decode(closing.events)
        if report.malformed:
            count = sum(previous.events for previous in reports)
            piece = texts.Piece(len(reports), 0, len(closing.events), True, closing.events[1:])
            report, problem = _salvage(piece, closing.events, report.malformed, count, False, path, options)
            yield problem._replace(where=f"array of events {arrays}")
        else:
            write_parts(parts, options.scratch, len(reports))
        reports.append(report)
        rest = report.rest or b""
    if arrays > 1:
        yield Problem("", f"the file has {arrays} arrays of events: all of them are read", 0)


def _remove_pieces(folder: Path, number: int) -> None:
    """Remove the columns of pieces from this number on, which are not events of the array."""
    for file in folder.glob("*.arrow"):
        if piece_number(file) >= number:
            file.unlink()


def _oddity_problems(path: Path, reports: list[Report]) -> list[Problem]:
    """One problem per kind of oddity. A file without any usable event is an error."""
    oddities: dict[str, Oddity] = {}
    count = 0
    for report in reports:
        for kind, oddity in report.oddities.items():
            before = oddities.get(kind) or Oddity(0, 0, count + oddity.first, oddity.example)
            oddities[kind] = before._replace(occurrences=before.occurrences + oddity.occurrences, lost=before.lost + oddity.lost)
        count += report.entries
    problems = []
    for kind, oddity in oddities.items():
        example = f", for example {oddity.example}" if oddity.example else ""
        problems.append(
            Problem(
                f"event {oddity.first:,}", (count_oddity(oddity.occurrences, kind) if oddity.occurrences else kind) + example, oddity.lost
            )
        )
    lost = next((f": {problem.what}" for problem in problems if problem.lost), "")
    if not any(report.events for report in reports) or (lost and not any(report.rows for report in reports)):
        raise DataError(path, f"the trace holds no events{lost}")
    return problems


def _salvage(piece: texts.Piece, array: bytes, error: str, count: int, bare: bool, path: Path, options: Options) -> tuple[Report, Problem]:
    """The whole events before the place where the text breaks off: all, where only the optional closing bracket is missing."""
    place = re.search(r"\(byte (\d+)\)", error)
    end = texts.intact_length(array, int(place[1]) if place else None)
    lost, where = array[end:], f"byte {piece.offset + end - 1:,}"
    report, parts = decode(array[:end] + b"]")
    if report.malformed:  # the text before the break is damaged as well
        raise DataError(path, report.malformed, f"after event {count:,}")
    if bare and not lost.strip(b" ,\t\r\n"):
        problem = Problem(where, "the array of events has no closing bracket", 0)
    else:
        reason = f"malformed ({error})" if place else "the file is cut off" if "truncated" in error else error
        if not options.partial:
            raise DataError(path, f"{reason} after event {count + report.events:,}; --partial reads the whole events", where)
        # An event that cannot be read can still be counted: each has one phase.
        events_lost = max(lost.count(b'"ph"'), 1)
        problem = Problem(where, f"{reason}: at least {units.count(events_lost, 'event is', 'events are')} lost", events_lost)
    write_parts(parts, options.scratch, piece.number)
    return report, problem
