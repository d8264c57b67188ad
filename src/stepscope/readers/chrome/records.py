"""Chrome trace events as typed records, decoded from JSON text. A value of the wrong type is replaced or left out, and reported."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from stepscope.model import units

TrackKey = tuple[int | str, int | str, str]  # pid, tid, role: "", "annotation" or "async CATEGORY"

_T = TypeVar("_T", bound=Struct)
_Number = int | float | str
_NAN = float("nan")
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Larger than any real values, and a column still holds their sums. -1 is null.
_Count = Annotated[int, msgspec.Meta(ge=-1, le=2**60)]
_Size = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class Hint(Struct, gc=False):
    """What stepscope's exporter adds to an event of another source: values that this format has no place for."""

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
    ts: _Number = _NAN
    dur: _Number = _NAN
    id: int | str = ""
    bp: str = ""
    args: Raw = Raw(b"{}")
    stepscope: Hint | None = None


class ExactEvent(Event, gc=False):
    """An event with its times as text: beyond 2^43 microseconds a float no longer holds nanoseconds."""

    ts: Raw = Raw(b"")  # type: ignore[assignment]
    dur: Raw = Raw(b"")  # type: ignore[assignment]


class Args(Struct, gc=False):
    """The arguments that become columns."""

    external: _Int64 = field(name="External id", default=-1)
    old_external: _Int64 = field(name="external id", default=-1)
    correlation: _Int64 = -1
    shapes: Raw = field(name="Input Dims", default=Raw(b""))
    dtypes: Raw = field(name="Input type", default=Raw(b""))
    flops: _Count = -1
    bytes: _Count = -1
    module: str = field(name="Module Hierarchy", default="")


class Memory(Struct, gc=False):
    """The arguments of a [memory] instant."""

    address: int = field(name="Addr", default=0)  # Kineto prints pointers as signed numbers: those above 2^63 are negative
    bytes: _Size = field(name="Bytes", default=0)
    device_type: _Int32 = field(name="Device Type", default=0)
    device_id: _Int32 = field(name="Device Id", default=-1)
    device: str = field(name="stepscope device", default="")
    allocated: _Size = field(name="Total Allocated", default=-1)
    reserved: _Size = field(name="Total Reserved", default=-1)


class Oddity(NamedTuple):
    """Events, or values in them, that could not be read."""

    occurrences: int
    lost: int  # rows that the tables lack because of it
    first: int  # number of the first event
    example: str = ""


class Report(Struct):
    """The small results of decoding a piece; its columns are on disk."""

    events: int = 0
    entries: int = 0  # of the array: events and others
    rows: int = 0  # of the columns on disk
    tracks: list[TrackKey] = []
    metadata: list[tuple[str, int | str, int | str, Any]] = []  # name, pid, tid, arguments
    oddities: dict[str, Oddity] = {}  # by description
    rest: bytes | None = None  # the text behind the closing bracket of the array of events
    malformed: str = ""  # why the text could not be decoded; then nothing else here is valid

    def add_oddity(self, description: str, first: int, example: str | bytes = "", *, count: int = 1, lost: int = 0) -> None:
        before = self.oddities.get(description) or Oddity(0, 0, first, short_text(example))
        self.oddities[description] = before._replace(occurrences=before.occurrences + count, lost=before.lost + lost)


def short_text(example: str | bytes) -> str:
    """An example as one short line."""
    text = example.decode("utf-8", "replace") if isinstance(example, bytes) else example
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:200]).split())
    return line if len(line) <= 60 else f"{line[:59]}…"


_SINGULAR = {
    "entries that are not events": "entry that is not an event",
    "values of counters that are not numbers": "value of a counter that is not a number",
}


def count_oddity(count: int, description: str) -> str:
    """3 entries that are not events"""
    return units.count(count, _SINGULAR.get(description) or description.replace("events", "event", 1), description)


class Records(NamedTuple):
    text: bytes  # an array of these events
    events: list[Event]
    args: list[Args]
    numbers: Sequence[int]  # of each event in the array that was read, which may have other entries
    bad_times: dict[int, str]  # the text of unusable times, by number


_EVENTS = msgspec.json.Decoder(list[Event])
_ARGS = msgspec.json.Decoder(list[Args])
_MEMORY = msgspec.json.Decoder(list[Memory])
RAW_LIST = msgspec.json.Decoder(list[Raw])


def decode_records(text: bytes, report: Report) -> Records:
    """The events of a JSON array. Raises what msgspec raises where the text is not JSON."""
    try:
        events = _EVENTS.decode(text)
        report.entries = len(events)
        numbers: Sequence[int] = range(len(events))
        bad_times: dict[int, str] = {}
    except msgspec.ValidationError:  # well-formed, but some values have the wrong type
        text, numbers, bad_times = _correct_events(text, report)
        events = _EVENTS.decode(text)
    report.events = len(events)
    return Records(text, events, _decode_args(events, numbers, report), numbers, bad_times)


def _correct_events(text: bytes, report: Report) -> tuple[bytes, Sequence[int], dict[int, str]]:
    """The array with every value of the right type. Correct events keep their text to the byte."""
    items, events, numbers, bad_times = RAW_LIST.decode(text), [], [], dict[int, str]()
    report.entries = len(items)
    for number, item in enumerate(items):
        event = bytes(item)
        if not event.startswith(b"{"):
            report.add_oddity("entries that are not events", number, event, lost=1)
            continue
        try:
            _EVENT_FIELDS.decoder.decode(event)
        except msgspec.ValidationError:
            event = _correct_event(event, number, bad_times, report)
        events.append(event)
        numbers.append(number)
    return b"[" + b",".join(events) + b"]", numbers, bad_times


def _correct_event(text: bytes, number: int, bad_times: dict[int, str], report: Report) -> bytes:
    """The event without its unusable values; values that can be shown as text become text."""
    values = _EVENT_FIELDS.texts(text)
    for name, value in _EVENT_FIELDS.values(text)[1].items():
        example = f'"{name}": {short_text(value)}'
        if name in ("ts", "dur"):  # reported with all events without a time
            del values[name]
            bad_times.setdefault(number, example)
        elif value == b"null" or name == "stepscope":
            del values[name]
            report.add_oddity(f"events with an unusable '{name}' (ignored)", number, example)
        else:
            values[name] = msgspec.json.encode(value.decode("utf-8", "replace"))
            report.add_oddity(f"events with an unusable '{name}' (shown as text)", number, example)
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in values.items()) + b"}"


def decode_args_array(text: bytes | str) -> list[Args]:
    return _ARGS.decode(text)


def _decode_args(events: list[Event], numbers: Sequence[int], report: Report) -> list[Args]:
    """The arguments of each event that become columns; unusable values are null."""
    try:
        return _ARGS.decode(b"[" + b",".join([bytes(event.args) for event in events]) + b"]")
    except msgspec.ValidationError:
        return [_decode_event_args(event, number, report) for event, number in zip(events, numbers, strict=True)]


def _decode_event_args(event: Event, number: int, report: Report) -> Args:
    text = bytes(event.args)
    try:
        return _ARGS_FIELDS.decoder.decode(text)
    except msgspec.ValidationError:
        if not text.startswith(b"{"):  # Raw accepts any value
            event.args = Raw(b"{}" if text == b"null" else b'{"args":' + text + b"}")
            report.add_oddity("events whose 'args' are not an object", number, b'"args": ' + text)
            return Args()
        values, bad = _ARGS_FIELDS.values(text)
        for name, value in bad.items():
            report.add_oddity(f"events with an unusable '{_ARGS_FIELDS.json_name(name)}' (taken as unknown)", number, value)
        return Args(**values)


_LOWEST_ADDRESS, HIGHEST_ADDRESS = -(2**63), 2**64 - 1


def decode_memory(text: bytes, numbers: Sequence[int], report: Report) -> list[Memory | None]:
    """The memory events of a JSON array of their arguments; None for one that is unusable."""
    try:
        blocks: list[Memory] = _MEMORY.decode(text)
        if all(_LOWEST_ADDRESS <= block.address <= HIGHEST_ADDRESS for block in blocks):
            return [*blocks]
    except msgspec.ValidationError:
        pass
    return [_decode_block(bytes(item), number, report) for item, number in zip(RAW_LIST.decode(text), numbers, strict=True)]


def _decode_block(text: bytes, number: int, report: Report) -> Memory | None:
    values, bad = _MEMORY_FIELDS.values(text)
    if not _LOWEST_ADDRESS <= values.get("address", 0) <= HIGHEST_ADDRESS:
        bad["address"] = _MEMORY_FIELDS.texts(text)["address"]
    needed = next((name for name in bad if name in ("address", "bytes", "device_type", "device_id")), None)
    if needed:  # an event is lost once
        report.add_oddity(f"memory events left out for an unusable '{_MEMORY_FIELDS.json_name(needed)}'", number, bad[needed], lost=1)
        return None
    for name, value in bad.items():
        report.add_oddity(f"memory events with an unusable '{_MEMORY_FIELDS.json_name(name)}' (taken as unknown)", number, value)
    return Memory(**values)


# Kineto of ROCm writes `"bytes": "60"`; some tools write whole numbers as 60.0.
_NUMBER_AS_TEXT = re.compile(rb'^"?(-?(?:0|[1-9]\d{0,19}))(?:\.0+)?"?$')


class _Fields(Generic[_T]):
    """Decodes objects of one type field by field, for objects with values of the wrong type."""

    def __init__(self, kind: type[_T]) -> None:
        self.decoder = msgspec.json.Decoder(kind)
        fields = msgspec.structs.fields(kind)
        raw = [(item.name, Raw, msgspec.field(name=item.encode_name, default=Raw(b""))) for item in fields]
        self._raw = msgspec.json.Decoder(msgspec.defstruct(f"Raw{kind.__name__}", raw))
        self._json_names = {item.name: item.encode_name for item in fields}
        self._decoders = {item.name: msgspec.json.Decoder(item.type) for item in fields}
        self._numbers = {item.name for item in fields if isinstance(item.default, int)}

    def texts(self, text: bytes) -> dict[str, bytes]:
        """The JSON text of each field that the object has."""
        raw = self._raw.decode(text)
        return {name: value for name in self._decoders if (value := bytes(getattr(raw, name)))}

    def values(self, text: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The values of the right type, and the texts of the others, by field."""
        values, bad = {}, {}
        for name, value in self.texts(text).items():
            try:
                values[name] = self._decoders[name].decode(_NUMBER_AS_TEXT.sub(rb"\1", value) if name in self._numbers else value)
            except msgspec.ValidationError:
                bad[name] = value
        return values, bad

    def json_name(self, field: str) -> str:
        return self._json_names[field]


_EVENT_FIELDS, _ARGS_FIELDS, _MEMORY_FIELDS = _Fields(Event), _Fields(Args), _Fields(Memory)
