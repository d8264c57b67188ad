"""A run of Chrome trace events, from JSON text to columns: the part of the Chrome reader that several processes share.

Python objects per event are what reading a trace costs. So the text is decoded straight into typed records, the records at once
into columns, and the columns go to disk; the process that asked for it only ever sees the columns.
"""

import gc
import json
import re
import struct
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw, Struct, field

from stepscope.readers._chrome_text import bracketed
from stepscope.readers._documents import whole_characters

NAN = float("nan")
_Number = int | float | str


class Hint(Struct, gc=False):
    """What our own exporter adds to an event of another source: what a reader of this format could not know."""

    kind: str = ""
    type: str | None = None
    scope: str | None = None
    category: str | None = None
    beside: bool = False  # on a track of annotations beside its thread or stream


class Event(Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: _Number = NAN
    dur: _Number = NAN
    id: int | str = ""
    bp: str = ""
    args: Raw = Raw(b"{}")
    stepscope: Hint | None = None


class _ExactEvent(Event, gc=False):
    """The same with times as text: beyond 2^43 microseconds a float no longer holds nanoseconds."""

    ts: Raw = Raw(b"")  # type: ignore[assignment]
    dur: Raw = Raw(b"")  # type: ignore[assignment]


class Args(Struct, gc=False):
    """What of the arguments becomes a column of its own."""

    external: int = field(name="External id", default=-1)
    old_external: int = field(name="external id", default=-1)
    correlation: int = -1
    shapes: Raw = field(name="Input Dims", default=Raw(b""))
    dtypes: Raw = field(name="Input type", default=Raw(b""))
    flops: int = -1
    bytes: int = -1
    module: str = field(name="Module Hierarchy", default="")


class _Memory(Struct, gc=False):
    """The arguments of a [memory] instant."""

    address: int = field(name="Addr", default=0)
    bytes: int = field(name="Bytes", default=0)
    device_type: int = field(name="Device Type", default=0)
    device_id: int = field(name="Device Id", default=-1)
    device: str = field(name="stepscope device", default="")
    allocated: int = field(name="Total Allocated", default=-1)
    reserved: int = field(name="Total Reserved", default=-1)


class Report(Struct):
    """What a run of events came to: the small things, sent back beside the columns on disk."""

    events: int = 0
    tracks: list[tuple[int | str, int | str, str]] = []  # pid, tid, and what sets it apart from the thread of that number
    metadata: list[tuple[str, int | str, int | str, Any]] = []  # name, pid, tid, arguments
    problems: dict[str, tuple[int, int]] = {}  # what -> how many events, the number of the first one
    behind: bytes | None = None  # what the text still holds behind the closing bracket of the array of events
    malformed: str = ""  # why the text could not be decoded; then nothing else here counts


def decode(text: bytes) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of a JSON array of events; what follows the array is left alone."""
    report = Report()
    events: list[Event] | None = None
    try:
        events = _EVENTS.decode(text)
    except (msgspec.ValidationError, UnicodeDecodeError):
        pass  # well-formed, but not as events should be: taken one by one below
    except msgspec.DecodeError as error:
        if (behind := re.search(r"trailing characters \(byte (\d+)\)", str(error))) is None:
            if (mended := _mended(text, str(error))) is not None:
                report, parts = decode(mended)
                report.problems |= (
                    {} if report.malformed else {"JSON slips mended: trailing commas, bare NaN or control characters": (0, 0)}
                )
                return report, parts
            report.malformed = str(error)
            return report, {}
        end = int(behind[1]) - 1
        report, parts = decode(text[:end])
        report.behind = text[end:]
        return report, parts
    except RecursionError:
        report.malformed = _TOO_DEEP
        return report, {}
    try:
        arguments = None if events is None else _ARGS.decode(b"[" + b",".join([bytes(event.args) for event in events]) + b"]")
    except (msgspec.ValidationError, UnicodeDecodeError):
        arguments = None
    if arguments is None:
        try:
            events, arguments = _one_by_one(text, report)
        except (msgspec.DecodeError, RecursionError) as error:
            report.malformed = _TOO_DEEP if isinstance(error, RecursionError) else str(error)
            return report, {}
    assert events is not None
    report.events = len(events)
    return report, _columns(text, events, arguments, report)


_TOO_DEEP = "nested too deeply"


def _mended(text: bytes, why: str) -> bytes | None:
    """The same text without the commonest slips of tools that write JSON by hand; None where there are none."""
    if comma := re.search(r"trailing comma in array \(byte (\d+)\)", why):
        at = text.rindex(b",", 0, int(comma[1]))
        return text[:at] + b" " + text[at + 1 :]
    mended = _BARE_WORD.sub(rb"\1null", text.translate(_PRINTABLE))
    return mended if mended != text else None


_BARE_WORD = re.compile(rb"([:\[,]\s*)-?(?:nan|inf|infinity)(?=\s*[,\]}])", re.IGNORECASE)
_PRINTABLE = bytes(32 if code < 32 and code not in b"\t\r\n" else code for code in range(256))


_EVENTS = msgspec.json.Decoder(list[Event])
_ARGS = msgspec.json.Decoder(list[Args])
_MEMORY = msgspec.json.Decoder(list[_Memory])
_EXACT = msgspec.json.Decoder(list[_ExactEvent])
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_PLAIN = json.JSONDecoder(parse_float=Decimal)

_INSTANTS = ["i", "I", "R", "n"]
_PAIRED = ["B", "E", "b", "e", "S", "F"]
_ASYNC = frozenset("bneSTFp")
_FLOWS = ["s", "t", "f"]
# Ranges that someone marked need not nest with what runs: an annotation begins inside the Python call that begins it, and those of a
# stream overlap its kernels. They get a track of their own beside the thread or stream.
_APART = {"gpu_user_annotation": "annotation", "user_annotation": "annotation"}


def _columns(text: bytes, events: list[Event], arguments: list[Args], report: Report) -> dict[str, pl.DataFrame]:
    """The columns of decoded events, by what becomes of them: spans, halves of spans, flows, memory, counters."""
    start, length = _times(text, events)
    nothing = [b""] * len(events)  # columns of which the text says nothing cost no look at each event
    hinted = [(row, event.stepscope) for row, event in enumerate(events) if event.stepscope] if b'"stepscope"' in text else []
    lanes, lane = _tracks(events, bool(hinted))
    frame = pl.DataFrame(
        {
            "phase": pl.Series([event.ph for event in events], dtype=pl.String),
            "category": pl.Series([event.cat for event in events], dtype=pl.Categorical),
            "name": pl.Series([event.name for event in events], dtype=pl.Categorical),
            "track": pl.Series(lane, dtype=pl.Int32),
            "flow": pl.Series([str(event.id) for event in events] if b'"id"' in text else [""] * len(events), dtype=pl.String),
            "start_ns": start,
            "dur_ns": length,
            "correlation": _integers([args.correlation for args in arguments]),
            "external": _integers(
                [max(args.external, args.old_external) for args in arguments]
                if b'"external id"' in text
                else [args.external for args in arguments]
            ),
            "flops": _integers([args.flops for args in arguments]),
            "bytes": _integers([args.bytes for args in arguments]),
            "shapes": _texts([bytes(args.shapes) for args in arguments] if b'"Input Dims"' in text else nothing).cast(pl.Categorical),
            "dtypes": _texts([bytes(args.dtypes) for args in arguments] if b'"Input type"' in text else nothing).cast(pl.Categorical),
            "module": pl.Series([args.module or None for args in arguments], dtype=pl.Categorical),
            "args": _texts([bytes(event.args) for event in events]),
        }
    )
    frame = _with_hints(frame, hinted)
    phase, timed = pl.col("phase"), pl.col("start_ns") != MISSING
    memory = (pl.col("name") == "[memory]") & (phase == "i")
    whole, apart = phase == "X", phase.is_in(["M", "C", *_PAIRED, *_FLOWS])
    _note(report, frame, ~timed & (phase != "M"), "events without a usable time")
    _note(report, frame, whole & (pl.col("dur_ns") == MISSING), "complete events without a usable duration")
    _note(report, frame, whole & (pl.col("dur_ns") != MISSING) & (pl.col("dur_ns") < 0), "events of negative duration")
    spans = frame.filter(timed & ((whole & (pl.col("dur_ns") >= 0)) | ~(whole | apart | memory)))
    report.metadata = [
        (event.name, event.pid, event.tid, _said(bytes(event.args))) for event in (events[row] for row in frame["phase"].eq("M").arg_true())
    ]
    report.tracks = lanes
    parts = {
        "spans": spans.with_columns(
            dur_ns=pl.when(whole).then("dur_ns").otherwise(0),
            instant=phase.is_in(_INSTANTS),
            known=whole | phase.is_in(_INSTANTS),
        ).drop("phase", "flow"),
        "pairs": frame.filter(timed & phase.is_in(_PAIRED)).drop("dur_ns"),
        "flows": frame.filter(timed & phase.is_in(_FLOWS)).select("phase", "category", "flow", "track", at_ns="start_ns"),
        "memory": _memory(frame.filter(timed & memory)),
        "counters": _counters(frame.filter(timed & (phase == "C")), report),
    }
    return {name: part for name, part in parts.items() if part.height or name == "spans"}


def _said(args: bytes) -> Any:
    try:
        return msgspec.json.decode(args)
    except UnicodeDecodeError:
        return msgspec.json.decode(args.decode("utf-8", "replace"))


def _with_hints(frame: pl.DataFrame, hinted: list[tuple[int, Hint]]) -> pl.DataFrame:
    said = {name: pl.Series(name, [None], dtype=pl.String).new_from_index(0, frame.height) for name in ("said_kind", "said_type")}
    if not hinted:
        return frame.with_columns(*said.values())
    rows, hints = [row for row, _ in hinted], [hint for _, hint in hinted]
    said["said_kind"] = said["said_kind"].scatter(rows, [hint.kind for hint in hints])
    said["said_type"] = said["said_type"].scatter(rows, [hint.type for hint in hints])
    scope = frame["module"].cast(pl.String).scatter(rows, [hint.scope for hint in hints])
    category = frame["category"].cast(pl.String).scatter(rows, [hint.category for hint in hints])
    return frame.with_columns(*said.values(), module=scope.cast(pl.Categorical), category=category.cast(pl.Categorical))


def _tracks(events: list[Event], hinted: bool) -> tuple[list[tuple[int | str, int | str, str]], list[int]]:
    """The lanes there are, and the lane of each event."""
    lanes: dict[tuple[int | str, int | str, str], int] = {}
    if hinted or {event.ph for event in events} & _ASYNC:
        lane = [lanes.setdefault(_track(event), len(lanes)) for event in events]
        return list(lanes), lane
    keys = [(event.pid, event.tid, event.cat) for event in events]  # the common case, without a call per event
    of = {key: lanes.setdefault((key[0], key[1], _APART.get(key[2], "")), len(lanes)) for key in dict.fromkeys(keys)}
    return list(lanes), [of[key] for key in keys]


def _track(event: Event) -> tuple[int | str, int | str, str]:
    if event.ph in _ASYNC:  # an async range belongs to no thread; those of one category share a lane and stack up where they overlap
        return event.pid, "", "async " + (event.cat or event.name)
    if event.stepscope:
        return event.pid, event.tid, "annotation" if event.stepscope.beside else ""
    return event.pid, event.tid, _APART.get(event.cat, "")


def _integers(values: list[int]) -> pl.Series:
    """-1 is null."""
    numbers = pl.Series(values, dtype=pl.Int64)
    return numbers.set(numbers == -1, None)


def _texts(values: list[bytes]) -> pl.Series:
    """The empty text is null. Arguments that nobody looked into may hold bytes that are no text."""
    try:
        text = pl.Series(values, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        text = pl.Series([value.decode("utf-8", "replace") for value in values], dtype=pl.String)
    return text.set(text == "", None)


def _note(report: Report, frame: pl.DataFrame, wrong: pl.Expr, what: str) -> None:
    rows = frame.select(wrong.arg_true()).to_series()
    if len(rows):
        report.problems[what] = (len(rows), int(rows[0]))


def _memory(rows: pl.DataFrame) -> pl.DataFrame:
    return allocations(rows, ("[" + ",".join(rows["args"].to_list()) + "]").encode())


def allocations(rows: pl.DataFrame, text: bytes) -> pl.DataFrame:
    """The track and time of memory events, and a JSON array of their arguments, as columns."""
    blocks = _MEMORY.decode(text)
    return rows.select("track", at_ns="start_ns").with_columns(
        pl.Series("address", [block.address for block in blocks], dtype=pl.UInt64),
        pl.Series("bytes", [block.bytes for block in blocks], dtype=pl.Int64),
        pl.Series("device_type", [block.device_type for block in blocks], dtype=pl.Int32),
        pl.Series("device_id", [block.device_id for block in blocks], dtype=pl.Int32),
        pl.Series("device", [block.device or None for block in blocks], dtype=pl.String),
        _integers([block.allocated for block in blocks]).alias("allocated"),
        _integers([block.reserved for block in blocks]).alias("reserved"),
    )


def _counters(rows: pl.DataFrame, report: Report) -> pl.DataFrame:
    """One row per number in the arguments of a counter event."""
    found = []
    for row, (track, name, flow, at, args) in enumerate(rows.select("track", "name", "flow", "start_ns", "args").iter_rows()):
        for key, value in msgspec.json.decode(args).items():
            if isinstance(value, (int, float)):
                found.append((track, f"{name}[{flow}] {key}" if flow else f"{name} {key}", at, float(value)))
            else:
                count, first = report.problems.get("values of counters that are not numbers", (0, row))
                report.problems["values of counters that are not numbers"] = (count + 1, first)
    columns = {"track": pl.Int32, "name": pl.Categorical, "at_ns": pl.Int64, "value": pl.Float64}
    return pl.DataFrame(found, schema=columns, orient="row")


# Times are microseconds in the text, integers of nanoseconds here.
MISSING = -(2**63)


def _times(text: bytes, events: list[Event]) -> tuple[pl.Series, pl.Series]:
    start, length = _nanoseconds([event.ts for event in events]), _nanoseconds([event.dur for event in events])
    if start is None or length is None:
        try:
            exact = _EXACT.decode(text)
            starts, lengths = [bytes(event.ts).decode() for event in exact], [bytes(event.dur).decode() for event in exact]
        except (msgspec.ValidationError, UnicodeDecodeError):  # events that were taken one by one hold their times as exact text
            starts, lengths = [str(event.ts) for event in events], [str(event.dur) for event in events]
        start, length = _from_text(starts), _from_text(lengths)
    # Times beyond this (the year 2043 and as long before 1970) are noise, and their sums would not fit.
    return start.set(start.abs() >= 2**61, MISSING), length.set(length.abs() >= 2**61, MISSING)


def _nanoseconds(values: list[int | float | str]) -> pl.Series | None:
    """None where a float would not hold the nanoseconds."""
    try:
        numbers = np.array(values, np.float64)
    except (ValueError, OverflowError):
        return None
    missing = np.isnan(numbers)
    if missing.all():
        return pl.Series(np.full(len(numbers), MISSING))
    if np.abs(numbers[~missing]).max() < 2**43:
        whole = np.floor(numbers)
        with np.errstate(invalid="ignore"):
            exact = whole.astype(np.int64) * 1000 + np.rint((numbers - whole) * 1000).astype(np.int64)
        return pl.Series(np.where(missing, MISSING, exact))
    integers = np.array(values)
    if integers.dtype == np.int64 and np.abs(integers).max() < 2**53:
        return pl.Series(integers * 1000)
    return None


def _from_text(values: list[str]) -> pl.Series:
    text = pl.Series(values, dtype=pl.String).str.strip_chars('"')
    parts = text.str.extract_groups(r"^(-?)(\d{1,16})(?:\.(\d+))?$").struct.unnest()
    sign, whole, fraction = (parts.to_series(index) for index in range(3))
    digits = fraction.fill_null("").str.pad_end(4, "0")
    whole_ns = whole.cast(pl.Int64) * 1000 + digits.str.slice(0, 3).cast(pl.Int64) + (digits.str.slice(3, 1) >= "5").cast(pl.Int64)
    signed = whole_ns * (1 - 2 * (sign == "-").cast(pl.Int64))
    odd = signed.is_null() & (text != "") & (text != "nan")
    if odd.any():  # 1.5e3 and the like
        signed = signed.scatter(odd.arg_true(), [_decimal(value) for value in text.filter(odd)])
    return signed.fill_null(MISSING)


def _decimal(text: str) -> int | None:
    try:
        value = Decimal(text) * 1000
        return int(value.to_integral_value()) if abs(value) < 2**62 else None
    except (InvalidOperation, ValueError):
        return None


def _one_by_one(text: bytes, report: Report) -> tuple[list[Event], list[Args]]:
    """Events that are not typed as they should be, each taken for what it is; what cannot be an event is reported."""
    try:
        decoded = whole_characters(text).decode()
    except UnicodeDecodeError:
        decoded = text.decode(errors="replace")
        report.problems["names that are not UTF-8, shown with a replacement mark"] = (0, 0)
    events, arguments = [], []
    try:
        items, end = _PLAIN.raw_decode(decoded)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(decoded.rstrip()) or "Unterminated" in error.msg
        raise msgspec.DecodeError(
            "Input data was truncated" if cut else f"{error.msg} (byte {len(decoded[: error.pos].encode())})"
        ) from error
    report.behind = decoded[end:].encode() if decoded[end:].strip() else None
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            count, first = report.problems.get("entries that are not events", (0, number))
            report.problems["entries that are not events"] = (count + 1, first)
            continue
        args = item.get("args") if isinstance(item.get("args"), dict) else {"args": item["args"]} if "args" in item else {}
        numbers = {key: item[key] for key in ("ts", "dur") if isinstance(item.get(key), (int, str, Decimal)) and item[key] is not True}
        texts = {key: _text(item[key]) for key in ("ph", "name", "cat", "bp") if item.get(key) is not None}
        ids = {key: item[key] if isinstance(item[key], int) else _text(item[key]) for key in ("pid", "tid", "id") if key in item}
        times = {key: str(value) for key, value in numbers.items()}
        events.append(msgspec.convert(texts | ids | times, Event))
        events[-1].args = Raw(_ENCODER.encode(args))
        try:
            arguments.append(_ARGS.decode(b"[" + bytes(events[-1].args) + b"]")[0])
        except msgspec.ValidationError:
            arguments.append(Args())
    return events, arguments


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _ENCODER.encode(value).decode()


def main() -> None:
    """Serve one reader: pieces come on standard input, reports go to standard output, columns to files in a folder."""
    gc.disable()
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    with path.open("rb") as file:
        while header := source.read(REQUEST.size):
            number, offset, size, in_file, last = REQUEST.unpack(header)
            if in_file:
                file.seek(offset)
            report, parts = decode(bracketed((file if in_file else source).read(size), last))
            write(parts, folder, number)
            answer = msgspec.json.encode(report)
            answers.write(ANSWER.pack(len(answer)) + answer)
            answers.flush()


# A request: the piece's number, where it is and how long, whether it is to be read from the file, whether it is the last.
REQUEST, ANSWER = struct.Struct("<QQQ??"), struct.Struct("<Q")


def write(parts: dict[str, pl.DataFrame], folder: Path, number: int) -> None:
    for name, part in parts.items():
        part.write_ipc(folder / f"{name}.{number:06d}.arrow", compression="lz4")
