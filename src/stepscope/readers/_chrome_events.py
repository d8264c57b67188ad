"""A run of Chrome trace events, from JSON text to columns: the part of the Chrome reader that several processes share.

Python objects per event are what reading a trace costs. So the text is decoded straight into typed records, the records at once
into columns, and the columns go to disk; the process that asked for it only ever sees the columns.
"""

import gc
import math
import re
import struct
import sys
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw, Struct, field

from stepscope import units
from stepscope.readers._chrome_text import JSON, bracketed
from stepscope.readers._documents import whole_characters

NAN = float("nan")
_T = TypeVar("_T", bound=Struct)
_Number = int | float | str
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Larger than any real ones, and a column still holds sums of them. -1 is null.
_Count = Annotated[int, msgspec.Meta(ge=-1, le=2**60)]
_Size = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


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

    external: _Int64 = field(name="External id", default=-1)
    old_external: _Int64 = field(name="external id", default=-1)
    correlation: _Int64 = -1
    shapes: Raw = field(name="Input Dims", default=Raw(b""))
    dtypes: Raw = field(name="Input type", default=Raw(b""))
    flops: _Count = -1
    bytes: _Count = -1
    module: str = field(name="Module Hierarchy", default="")


class _Memory(Struct, gc=False):
    """The arguments of a [memory] instant."""

    address: int = field(name="Addr", default=0)  # Kineto prints pointers as signed numbers: those above 2^63 are negative
    bytes: _Size = field(name="Bytes", default=0)
    device_type: _Int32 = field(name="Device Type", default=0)
    device_id: _Int32 = field(name="Device Id", default=-1)
    device: str = field(name="stepscope device", default="")
    allocated: _Size = field(name="Total Allocated", default=-1)
    reserved: _Size = field(name="Total Reserved", default=-1)


# Without one of these a block of memory has no place.
_BLOCK = {"address", "bytes", "device_type", "device_id"}


_ONE = {
    "entries that are not events": "entry that is not an event",
    "values of counters that are not numbers": "value of a counter that is not a number",
}


def counted(count: int, what: str) -> str:
    """3 entries that are not events"""
    return units.count(count, _ONE.get(what) or what.replace("events", "event", 1), what)


class Noted(NamedTuple):
    """Events, or values in them, that could not be read."""

    many: int
    lost: int  # rows that the tables lack because of it
    first: int  # number of the first event
    example: str = ""


class Report(Struct):
    """What a run of events came to: the small things, sent back beside the columns on disk."""

    events: int = 0
    entries: int = 0  # of the array: events and what is none
    rows: int = 0  # of the columns on disk
    tracks: list[tuple[int | str, int | str, str]] = []  # pid, tid, and what sets it apart from the thread of that number
    metadata: list[tuple[str, int | str, int | str, Any]] = []  # name, pid, tid, arguments
    problems: dict[str, Noted] = {}  # by what they are
    behind: bytes | None = None  # what the text still holds behind the closing bracket of the array of events
    malformed: str = ""  # why the text could not be decoded; then nothing else here counts
    odd_times: dict[int, str] = {}  # of events, by number, while they are decoded

    def note(self, what: str, first: int, example: str | bytes = "", *, count: int = 1, lost: int = 0) -> None:
        before = self.problems.get(what)
        if before:
            self.problems[what] = before._replace(many=before.many + count, lost=before.lost + lost)
        else:
            self.problems[what] = Noted(count, lost, first, _shown(example))


def _shown(example: str | bytes) -> str:
    """An example as one short line."""
    text = example.decode("utf-8", "replace") if isinstance(example, bytes) else example
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:200]).split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def decode(text: bytes) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of a JSON array of events; what follows the array is left alone."""
    report = Report()
    numbers: list[int] | None = None
    try:
        try:
            events = _EVENTS.decode(text)
        except msgspec.ValidationError:  # well-formed, but some are not as events should be
            text, numbers = _with_plain_events(text, report)
            events = _EVENTS.decode(text)
        arguments = _arguments(events, report, numbers)
    except UnicodeDecodeError:
        report, parts = decode(text.decode(errors="replace").encode())
        if not report.malformed:
            report.note("names that are not UTF-8, shown with a replacement mark", 0, count=0)
        return report, parts
    except RecursionError:
        report.malformed = _TOO_DEEP
        return report, {}
    except msgspec.DecodeError as error:
        if (behind := re.search(r"trailing characters \(byte (\d+)\)", str(error))) is None:
            if (mended := _mended(text, str(error))) is not None:
                report, parts = decode(mended)
                if not report.malformed:
                    report.note("JSON slips mended: trailing commas, bare NaN, control characters or halves of characters", 0, count=0)
                return report, parts
            report.malformed = str(error)
            return report, {}
        end = int(behind[1]) - 1
        report, parts = decode(text[:end])
        report.behind = text[end:]
        return report, parts
    report.events = len(events)
    report.entries = report.entries or len(events)
    parts = _columns(text, events, arguments, report, numbers)
    report.rows = sum(part.height for part in parts.values())
    return report, parts


_TOO_DEEP = "nested too deeply"


def array_end(text: bytes) -> int | None:
    """Where an array ends that more text follows; None where that cannot be told."""
    try:
        _RAW_LIST.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        behind = re.search(r"trailing characters \(byte (\d+)\)", str(error))
        return int(behind[1]) - 1 if behind else None
    return None


def _mended(text: bytes, why: str) -> bytes | None:
    """The same text without the commonest slips of tools that write JSON by hand; None where there are none."""
    if comma := re.search(r"trailing comma in array \(byte (\d+)\)", why):
        at = text.rindex(b",", 0, int(comma[1]))
        return text[:at] + b" " + text[at + 1 :]
    mended = _BARE_WORD.sub(rb"\1null", whole_characters(text).translate(_PRINTABLE))
    return mended if mended != text else None


_BARE_WORD = re.compile(rb"([:\[,]\s*)-?(?:nan|inf|infinity)(?=\s*[,\]}])", re.IGNORECASE)
_PRINTABLE = bytes(32 if code < 32 and code not in b"\t\r\n" else code for code in range(256))


_EVENTS = msgspec.json.Decoder(list[Event])
_ARGS = msgspec.json.Decoder(list[Args])
_MEMORY = msgspec.json.Decoder(list[_Memory])
_EXACT = msgspec.json.Decoder(list[_ExactEvent])
_RAW_LIST = msgspec.json.Decoder(list[Raw])

_INSTANTS = ["i", "I", "R", "n"]
_PAIRED = ["B", "E", "b", "e", "S", "F"]
_ASYNC = frozenset("bneSTFp")
_FLOWS = ["s", "t", "f"]
# Ranges that someone marked need not nest with what runs: an annotation begins inside the Python call that begins it, and those of a
# stream overlap its kernels. They get a track of their own beside the thread or stream.
_APART = {"gpu_user_annotation": "annotation", "user_annotation": "annotation"}


class _OneByOne(Generic[_T]):
    """Decodes objects of one type of which some values are not as they should be."""

    def __init__(self, kind: type[_T]) -> None:
        self.whole = msgspec.json.Decoder(kind)
        fields = msgspec.structs.fields(kind)
        raw = [(one.name, Raw, msgspec.field(name=one.encode_name, default=Raw(b""))) for one in fields]
        self._raw = msgspec.json.Decoder(msgspec.defstruct(f"Raw{kind.__name__}", raw))
        self._fields = {one.name: (one.encode_name, msgspec.json.Decoder(one.type)) for one in fields}
        self._numbers = {one.name for one in fields if isinstance(one.default, int)}

    def values(self, text: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The values that are as they should be, and the texts of the others, by field."""
        found, odd = {}, {}
        raw = self._raw.decode(text)
        for name, (_, decoder) in self._fields.items():
            value = bytes(getattr(raw, name))
            if value:
                try:
                    found[name] = decoder.decode(_NUMBER_AS_TEXT.sub(rb"\1", value) if name in self._numbers else value)
                except msgspec.ValidationError:
                    odd[name] = value
        return found, odd

    def texts(self, text: bytes) -> dict[str, bytes]:
        """The JSON text of each field that is there."""
        raw = self._raw.decode(text)
        return {name: value for name in self._fields if (value := bytes(getattr(raw, name)))}

    def name(self, field: str) -> str:
        """What the file calls a field."""
        return self._fields[field][0]


# Kineto of ROCm writes `"bytes": "60"`; some tools write whole numbers as 60.0.
_NUMBER_AS_TEXT = re.compile(rb'^"?(-?(?:0|[1-9]\d{0,19}))(?:\.0+)?"?$')
_EVENT, _ARG, _BLOCKS = _OneByOne(Event), _OneByOne(Args), _OneByOne(_Memory)


def _with_plain_events(text: bytes, report: Report) -> tuple[bytes, list[int] | None]:
    """The array with every event typed as it should be, and the numbers of those that are kept where some are not events at all.

    Events that are as they should be keep their text to the byte, so that nothing becomes of them but what would without the others.
    """
    kept, numbers = [], []
    items = _RAW_LIST.decode(text)
    report.entries = len(items)
    for number, item in enumerate(items):
        event = bytes(item)
        if not event.startswith(b"{"):
            report.note("entries that are not events", number, event, lost=1)
            continue
        try:
            _EVENT.whole.decode(event)
        except msgspec.ValidationError:
            event = _plain_event(event, number, report)
        kept.append(event)
        numbers.append(number)
    return b"[" + b",".join(kept) + b"]", numbers if len(numbers) < len(items) else None


def _plain_event(text: bytes, number: int, report: Report) -> bytes:
    """An event without the values that cannot be; what can be shown as text is."""
    values = _EVENT.texts(text)
    for name, value in _EVENT.values(text)[1].items():
        if name in ("ts", "dur"):  # said of all events without a time
            del values[name]
            report.odd_times.setdefault(number, f'"{name}": {_shown(value)}')
            continue
        said = f'"{name}": {_shown(value)}'
        if value == b"null" or name == "stepscope":
            del values[name]
            report.note(f"events with an unusable '{name}' (ignored)", number, said)
        else:
            values[name] = msgspec.json.encode(value.decode("utf-8", "replace"))
            report.note(f"events with an unusable '{name}' (shown as text)", number, said)
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in values.items()) + b"}"


def _arguments(events: list[Event], report: Report, numbers: list[int] | None) -> list[Args]:
    """What of each event's arguments becomes a column; values that cannot be are null."""
    try:
        return _ARGS.decode(b"[" + b",".join([bytes(event.args) for event in events]) + b"]")
    except msgspec.ValidationError:
        pass
    found = []
    for row, event in enumerate(events):
        args = bytes(event.args)
        try:
            found.append(_ARG.whole.decode(args))
        except msgspec.ValidationError:
            number = row if numbers is None else numbers[row]
            if not args.startswith(b"{"):  # Raw takes anything
                event.args = Raw(b"{}" if args == b"null" else b'{"args":' + args + b"}")
                found.append(Args())
                report.note("events whose 'args' are not an object", number, b'"args": ' + args)
                continue
            values, odd = _ARG.values(args)
            for name, value in odd.items():
                report.note(f"events with an unusable '{_ARG.name(name)}' (taken as unknown)", number, value)
            found.append(Args(**values))
    return found


def _columns(
    text: bytes, events: list[Event], arguments: list[Args], report: Report, numbers: Sequence[int] | None = None
) -> dict[str, pl.DataFrame]:
    """The columns of decoded events, by what becomes of them: spans, halves of spans, flows, memory, counters."""
    start, length = _times(text, events)
    nothing = [b""] * len(events)  # columns of which the text says nothing cost no look at each event
    hinted = (
        [(row, event.stepscope) for row, event in enumerate(events) if event.stepscope and event.stepscope.kind]
        if b'"stepscope"' in text
        else []
    )
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
    numbers = numbers or range(len(events))
    length_known = pl.col("dur_ns") != MISSING
    for what, name, wrong in (
        ("events without a usable time", "ts", ~timed & (phase != "M")),
        ("complete events without a usable duration", "dur", timed & whole & ~length_known),
        ("events of negative duration", "dur", timed & whole & length_known & (pl.col("dur_ns") < 0)),
    ):
        rows = frame.select(wrong.arg_true()).to_series()
        if len(rows):
            first = numbers[rows[0]]
            value = getattr(events[rows[0]], name)
            usual = "" if isinstance(value, float) and math.isnan(value) else f'"{name}": {msgspec.json.encode(value).decode()}'
            report.note(what, first, report.odd_times.get(first, usual), count=len(rows), lost=len(rows))
    report.odd_times = {}
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
        "memory": _memory(frame, timed & memory, report, numbers),
        "counters": _counters(frame, timed & (phase == "C"), report, numbers),
    }
    return {name: part for name, part in parts.items() if part.height or name == "spans"}


def _said(args: bytes) -> Any:
    try:
        return msgspec.json.decode(args)
    except (UnicodeDecodeError, msgspec.ValidationError):  # bytes that are no text, numbers that no column holds
        return JSON.decode(args.decode("utf-8", "replace"))
    except RecursionError:
        return {}


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


def _memory(frame: pl.DataFrame, which: pl.Expr, report: Report, numbers: Sequence[int]) -> pl.DataFrame:
    rows = frame.filter(which)
    at = frame.select(which.arg_true()).to_series().to_list() if rows.height else []
    return allocations(rows, ("[" + ",".join(rows["args"].to_list()) + "]").encode(), report, [numbers[row] for row in at])


def allocations(rows: pl.DataFrame, text: bytes, report: Report, numbers: Sequence[int]) -> pl.DataFrame:
    """The track and time of memory events, and a JSON array of their arguments, as columns."""
    try:
        kept = _MEMORY.decode(text)
        plain = all(_LOWEST <= block.address <= _UNSIGNED for block in kept)
    except msgspec.ValidationError:
        plain = False
    if not plain:
        blocks = [_block(bytes(item), number, report) for item, number in zip(_RAW_LIST.decode(text), numbers, strict=True)]
        rows = rows.filter(pl.Series([block is not None for block in blocks], dtype=pl.Boolean))
        kept = [block for block in blocks if block is not None]
    return rows.select("track", at_ns="start_ns").with_columns(
        pl.Series("address", [block.address & _UNSIGNED for block in kept], dtype=pl.UInt64),
        pl.Series("bytes", [block.bytes for block in kept], dtype=pl.Int64),
        pl.Series("device_type", [block.device_type for block in kept], dtype=pl.Int32),
        pl.Series("device_id", [block.device_id for block in kept], dtype=pl.Int32),
        pl.Series("device", [block.device or None for block in kept], dtype=pl.String),
        _integers([block.allocated for block in kept]).alias("allocated"),
        _integers([block.reserved for block in kept]).alias("reserved"),
    )


_LOWEST, _UNSIGNED = -(2**63), 2**64 - 1  # of addresses


def _block(text: bytes, number: int, report: Report) -> _Memory | None:
    """A block of memory; None where nothing can be made of it."""
    values, odd = _BLOCKS.values(text)
    if not _LOWEST <= values.get("address", 0) <= _UNSIGNED:
        odd["address"] = _BLOCKS.texts(text)["address"]
    left_out = next((name for name in odd if name in _BLOCK), None)
    for name, value in odd.items():
        if left_out is None:
            report.note(f"memory events with an unusable '{_BLOCKS.name(name)}' (taken as unknown)", number, value)
        elif name == left_out:  # an event is lost once
            report.note(f"memory events left out for an unusable '{_BLOCKS.name(name)}'", number, value, lost=1)
    return None if left_out else _Memory(**values)


def _counters(frame: pl.DataFrame, which: pl.Expr, report: Report, numbers: Sequence[int]) -> pl.DataFrame:
    """One row per number in the arguments of a counter event."""
    found = []
    rows = frame.filter(which)
    at = frame.select(which.arg_true()).to_series().to_list() if rows.height else []
    for row, (track, name, flow, time, args) in enumerate(rows.select("track", "name", "flow", "start_ns", "args").iter_rows()):
        for key, value in _said((args or "{}").encode()).items():
            if (number := _sample(value)) is not None:
                found.append((track, f"{name}[{flow}] {key}" if flow else f"{name} {key}", time, number))
            else:
                report.note(
                    "values of counters that are not numbers",
                    numbers[at[row]],
                    f"{name} {key}: {msgspec.json.encode(value).decode()}",
                    lost=1,
                )
    columns = {"track": pl.Int32, "name": pl.Categorical, "at_ns": pl.Int64, "value": pl.Float64}
    return pl.DataFrame(found, schema=columns, orient="row")


def _sample(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# Times are microseconds in the text, integers of nanoseconds here.
MISSING = -(2**63)


# Times beyond this (the year 2043 and as long before 1970) are noise, and their sums would not fit.
_FAR_NS = 2**61


def _times(text: bytes, events: list[Event]) -> tuple[pl.Series, pl.Series]:
    start, length = _nanoseconds([event.ts for event in events]), _nanoseconds([event.dur for event in events])
    if start is None or length is None:
        exact = _EXACT.decode(text)
        start, length = (_from_text([bytes(getattr(event, name)).decode() for event in exact]) for name in ("ts", "dur"))
    return start.set(start.abs() >= _FAR_NS, MISSING), length.set(length.abs() >= _FAR_NS, MISSING)


def _nanoseconds(values: list[int | float | str]) -> pl.Series | None:
    """None where a float would not hold the nanoseconds."""
    try:
        numbers = np.array(values, np.float64)
    except (ValueError, OverflowError):
        numbers = np.array([_float(value) for value in values])
    missing = ~(np.abs(numbers) < _FAR_NS / 1000)  # also NaN: what is no time must not decide how the others are read
    if missing.all():
        return pl.Series(np.full(len(numbers), MISSING))
    if np.abs(numbers[~missing]).max() < 2**43:
        numbers[missing] = 0
        whole = np.floor(numbers)
        exact = whole.astype(np.int64) * 1000 + np.rint((numbers - whole) * 1000).astype(np.int64)
        return pl.Series(np.where(missing, MISSING, exact))
    integers = np.array(values)
    if integers.dtype == np.int64 and np.abs(integers).max() < 2**53:
        return pl.Series(integers * 1000)
    return None


def _float(value: int | float | str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return NAN


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
        value = Decimal(text)
        return int((value * 1000).to_integral_value()) if abs(value) < _FAR_NS // 1000 else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


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
