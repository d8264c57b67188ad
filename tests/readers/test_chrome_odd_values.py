"""Odd values in Chrome traces: any value in any field of any kind of event costs that event at most, never the file."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.readers.chrome import text as texts
from stepscope.server.report import report
from volume import every, mostly_deep

SAMPLE = Path(__file__).parents[1] / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"
# JSON text, since some of these no Python value stands for.
VALUES = {
    "null": "null",
    "true": "true",
    "minus 1": "-1",
    "2^31": str(2**31),
    "2^32": str(2**32),
    "2^63": str(2**63),
    "2^64": str(2**64),
    "below -2^63": str(-(2**63) - 1),
    "1e400": "1e400",
    "-1e400": "-1e400",
    "1.5": "1.5",
    "text": '"text"',
    "digits of another script": '"\u0663"',  # for which regular expressions and conversions disagree
    "empty text": '""',
    "NaN as text": '"NaN"',
    "half a character": r'"\ud800"',
    "list": "[]",
    "object": "{}",
    "list of one": "[1]",
    "nested": '{"a": [{"b": [[null, 1e400]]}]}',
    "5,000 digits": "9" * 5000,
    "5,000 digits as text": '"' + "9" * 5000 + '"',
    "deep": "[" * 200 + "]" * 200,
}
ODD_THREAD = 987_654  # odd events are on a thread of their own, so that they nest with no other
BY_HAND = [
    {"ph": "C", "cat": "util", "name": "SM", "pid": 0, "tid": 0, "ts": 3857146118000.5, "args": {"percent": 41}},
    {"ph": "B", "cat": "cpu_op", "name": "range", "pid": 400, "tid": 55, "ts": 3857146118000.5, "args": {"External id": 3}},
    {"ph": "E", "cat": "cpu_op", "name": "range", "pid": 400, "tid": 55, "ts": 3857146118002.5, "args": {}},
    {"ph": "b", "cat": "async", "name": "copy", "pid": 400, "tid": 55, "id": 5, "ts": 3857146118000.5, "args": {}},
    {"ph": "e", "cat": "async", "name": "copy", "pid": 400, "tid": 55, "id": 5, "ts": 3857146118003.5, "args": {}},
]


def _load() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One step of a training on an H200, as Kineto wrote it."""
    with gzip.open(SAMPLE) as file:
        document = json.load(file)
    found = document.pop("traceEvents")
    step = next(event for event in found if event["name"] == "ProfilerStep#1")
    first, last = step["ts"], step["ts"] + step["dur"]
    return document, [event for event in found if event["ph"] == "M" or first <= event["ts"] <= last] + BY_HAND


HEADER, EVENTS = _load()


def _kinds() -> dict[str, dict[str, Any]]:
    """An example of each kind of event: the one that says most."""
    found: dict[str, dict[str, Any]] = {}
    for event in EVENTS:
        kind = " ".join(str(event.get(key)) for key in ("ph", "cat") if key in event)
        kind += f" {event['name']}" if event["ph"] in "Mi" or event["name"] == "ProfilerStep#1" else ""
        if len(json.dumps(event)) > len(json.dumps(found.get(kind, {}))):
            found[kind] = event
    return found


KINDS = _kinds()


def odd_events(kind: str, value: str) -> Iterator[str]:
    """The event once for each of its fields, each time with the odd value in that field."""
    example = KINDS[kind]
    if example["ph"] != "M":
        example = example | {"tid": ODD_THREAD}
    places: list[tuple[str, ...]] = [(key,) for key in dict.fromkeys([*example, "stepscope", "id", "bp", "args"])]
    places += [
        ("args", key)
        for key in dict.fromkeys([*example.get("args", {}), "correlation", "External id", "bytes", "flops", "Module Hierarchy"])
    ]
    for place in places:
        event = json.loads(json.dumps(example))
        if len(place) == 1:
            event[place[0]] = "ODD"
        else:
            event.setdefault("args", {})[place[1]] = "ODD"
        yield json.dumps(event).replace('"ODD"', value)


def write(path: Path, more: list[str] = [], header: str = "") -> Path:  # noqa: B006 - never changed
    head = json.dumps(HEADER)[:-1] + header
    path.write_text(f'{head}, "traceEvents": [' + ",\n".join([*map(json.dumps, EVENTS), *more]) + "]}")
    return path


def opened(path: Path) -> stepscope.Trace:
    return stepscope.open(path, cache=False)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    trace = opened(write(tmp_path_factory.mktemp("plain") / "t.json"))
    return {name: frame.collect() for name, frame in trace.tables.items()}


# What an event is by itself. What lies around it, and the step it belongs to, may well change with another event.
OWN = ["span", "track", "kind", "name", "start_ns", "dur_ns", "correlation", "shapes", "dtypes", "flops", "bytes", "category", "args"]


def assert_unchanged(found: pl.DataFrame, whole: pl.DataFrame) -> None:
    pairs = 2  # ranges of begin and end events come last
    count = whole.height - pairs
    assert found.head(count).select(OWN).equals(whole.head(count).select(OWN))


@pytest.mark.parametrize("value", VALUES)
def test_odd_values_in_every_kind_of_event_leave_all_other_events_as_they_are(
    tmp_path: Path, plain: dict[str, pl.DataFrame], value: str
) -> None:
    events = [event for kind in KINDS for event in odd_events(kind, VALUES[value])]
    assert_unchanged(opened(write(tmp_path / "t.json", events)).spans.collect(), plain["spans"])


# Each kind by itself with a few of the values, each value with a few of the kinds.
@pytest.mark.parametrize(("kind", "value"), every([(kind, value) for kind in KINDS for value in VALUES], 9))
def test_an_odd_value_leaves_all_other_events_as_they_are(tmp_path: Path, plain: dict[str, pl.DataFrame], kind: str, value: str) -> None:
    trace = opened(write(tmp_path / "t.json", list(odd_events(kind, VALUES[value]))))
    assert_unchanged(trace.spans.collect(), plain["spans"])


@pytest.mark.parametrize("value", mostly_deep(VALUES, ["null", "2^63", "1e400", "half a character", "nested"]))
def test_every_analysis_and_the_timeline_answer_with_odd_events_of_every_kind(tmp_path: Path, value: str) -> None:
    events = [event for kind in KINDS if "ProfilerStep" not in kind for event in odd_events(kind, VALUES[value])]
    trace = opened(write(tmp_path / "t.json", events))
    assert report(trace, name="odd", max_bytes=20_000_000).left_out == []


def rows_of(trace: stepscope.Trace) -> set[tuple[str, str, int]]:
    return set(trace.problems.select("where", "what", "lost").collect().rows())


def memory(at: float, address: Any, size: Any = 512, **more: Any) -> dict[str, Any]:
    args = {"Addr": address, "Bytes": size, "Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total Reserved": 1024} | more
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": args}


OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"External id": 1}}


def small(path: Path, *events: dict[str, Any], **header: Any) -> stepscope.Trace:
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": [OP, *events]}))
    return opened(path)


def test_a_pointer_printed_as_a_signed_number_is_the_same_block_as_printed_unsigned(tmp_path: Path) -> None:
    high = 0xFFFF_8000_1234_5600  # Kineto prints it as -140737182493184
    trace = small(tmp_path / "t.json", memory(11, high - 2**64), memory(12, high, -512), memory(13, -(2**63)), memory(14, 2**63, -512))
    blocks = trace.allocations.select("address", "alloc_ns", "free_ns", "bytes").collect()
    assert blocks.rows() == [(high, 11_000, 12_000, 512), (2**63, 13_000, 14_000, 512)]
    assert not [what for _, what, _ in rows_of(trace) if "memory" in what]


@pytest.mark.parametrize("field", ["Addr", "Bytes", "Device Type", "Device Id"])
@pytest.mark.parametrize("odd", [None, 1.5, "text", True, 2**64, -(2**63) - 1, [1]])
def test_a_memory_event_that_names_no_block_is_left_out_and_counted(tmp_path: Path, field: str, odd: Any) -> None:
    whole = [memory(11, 4096), memory(14, 4096, -512)]
    plain = small(tmp_path / "plain.json", *whole).allocations.collect()
    trace = small(tmp_path / "t.json", whole[0], memory(12, 8192, **{field: odd}), memory(13, 8192, **{field: odd}), whole[1])
    assert trace.allocations.collect().equals(plain)
    assert plain.select("address", "alloc_ns", "free_ns").rows() == [(4096, 11_000, 14_000)]
    text = f"2 memory events left out for an unusable '{field}', for example {json.dumps(odd)}"
    assert ("event 2", text, 2) in rows_of(trace)


@pytest.mark.parametrize("field", ["correlation", "External id", "bytes", "flops"])
@pytest.mark.parametrize("odd", [None, 1.5, "text", True, 2**63, -(2**63) - 1, {}])
def test_a_number_that_no_column_holds_is_unknown_and_said_so(tmp_path: Path, field: str, odd: Any) -> None:
    kernel = OP | {"cat": "kernel", "name": "mm", "tid": 7, "pid": 0}
    others = {"correlation": 5, "External id": 1, "bytes": 64, "flops": 128}
    trace = small(tmp_path / "t.json", kernel | {"args": others | {field: odd}}, kernel | {"ts": 20, "args": others})
    column = {"External id": "op"}.get(field, field)
    known = {"correlation": 5, "bytes": 64, "flops": 128}
    spans = trace.spans.filter(pl.col("kind") == "kernel").collect()
    assert spans[1, column] == (0 if column == "op" else known[column])
    assert spans[0, column] is None
    assert json.loads(spans[0, "args"])[field] == odd  # what the file says stays
    assert ("event 1", f"1 event with an unusable '{field}' (taken as unknown), for example {json.dumps(odd)}", 0) in rows_of(trace)


def test_a_whole_number_written_as_text_is_that_number(tmp_path: Path) -> None:
    """As Kineto writes the bytes of copies on AMD's chips."""
    copy = OP | {"cat": "gpu_memcpy", "name": "CopyHostToDevice", "tid": 7, "pid": 0, "args": {"correlation": 5.0, "bytes": "4096"}}
    trace = small(tmp_path / "t.json", copy, memory(11, "4096", "512"), memory(12, 4096, -512.0))
    assert trace.spans.filter(pl.col("kind") == "copy").select("correlation", "bytes").collect().rows() == [(5, 4096)]
    assert trace.allocations.select("address", "bytes", "alloc_ns", "free_ns").collect().rows() == [(4096, 512, 11_000, 12_000)]
    assert not [what for _, what, _ in rows_of(trace) if "unusable" in what]


def test_what_a_process_is_called_by_is_shown_as_text(tmp_path: Path) -> None:
    trace = small(tmp_path / "t.json", OP | {"pid": [1, 2], "ts": 20}, OP | {"pid": True, "ts": 30}, OP | {"tid": 1.5, "ts": 40})
    assert trace.tracks.select("pid", "tid").collect().rows() == [("1", "1"), ("[1, 2]", "1"), ("true", "1"), ("1", "1.5")]
    assert ("event 1", "2 events with an unusable 'pid' (shown as text), for example \"pid\": [1, 2]", 0) in rows_of(trace)


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**300, -1, True, "text", None, 1.5, [1]])
def test_a_rank_or_a_device_that_cannot_be_is_unknown_and_said_so(tmp_path: Path, number: Any) -> None:
    chip = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 150109880320}
    devices = [chip | {"id": number}, chip | {"numSms": number}, chip | {"totalGlobalMem": number}]
    trace = small(tmp_path / "t.json", distributedInfo={"rank": number, "world_size": number}, deviceProperties=devices)
    assert trace.meta.ranks == [0]
    assert trace.meta.world_size is None
    found = trace.devices.select("device", "cores", "memory_bytes").collect().rows()
    memory_bytes = 2**31 if number == 2**31 else None
    assert found == [(None, 132, 150109880320), (0, None, 150109880320), (0, 132, memory_bytes)]
    named = [what.partition(" is unusable")[0] for where, what, _ in rows_of(trace) if where == "header"]
    expected = ["distributedInfo: rank", "distributedInfo: world_size", "deviceProperties: id", "deviceProperties: numSms"]
    assert sorted(named) == sorted(expected + ([] if memory_bytes else ["deviceProperties: totalGlobalMem"]))


HEADERS = [
    *(
        "schemaVersion",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceName",
        "distributedInfo",
        "deviceProperties",
        "stepscope",
        "windows",
    ),
    *("record_shapes", "with_stack", "cuda_driver_version", "strategy_stages", "pid", "models", "metadata"),
]


@pytest.mark.parametrize("value", VALUES)
def test_an_odd_value_in_the_header_leaves_the_events_as_they_are(tmp_path: Path, plain: dict[str, pl.DataFrame], value: str) -> None:
    for place in ("before", "behind"):
        text = "".join(f', "{name}": {VALUES[value]}' for name in HEADERS)
        path = write(tmp_path / "t.json", header=text if place == "before" else "")
        if place == "behind":
            path.write_text(path.read_text().removesuffix("}") + text + "}")
        trace = opened(path)
        assert trace.spans.select(pl.exclude("rank")).collect().equals(plain["spans"].drop("rank"))
        trace.ends()
        for name in ("overview", "strategy", "cpu", "step_trace", "roofline"):
            trace.analyse(name)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piece", [None, 3000])
def test_every_array_of_events_of_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, piece: int | None) -> None:
    if piece:
        monkeypatch.setattr(texts, "PIECE", piece)
    first, second, third = ([OP | {"name": f"{array} {number}", "ts": number} for number in range(40)] for array in "abc")
    arrays = [f'"traceEvents": {json.dumps(events)}' for events in (first, [], second, third)]
    parts = ['"schemaVersion": 1', arrays[0], '"traceName": "x"', *arrays[1:3], '"record_shapes": 1', arrays[3], '"later": 5']
    text = f"{{{', '.join(parts)}}}".encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    trace = opened(path)
    assert trace.spans.collect()["name"].to_list() == [f"{array} {number}" for array in "abc" for number in range(40)]
    assert {"traceName": "x", "later": 5}.items() <= trace.meta.extra.items()
    assert "traceEvents" not in trace.meta.extra
    assert ("", "the file has 4 arrays of events: all of them are read", 0) in rows_of(trace)


def test_odd_events_are_counted_over_all_parts_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries 30 and 90 are no events; 50, 70 and 110 have no time."""
    events: list[Any] = [OP | {"name": f"op {number}", "ts": number} for number in range(120)]
    events[30] = events[90] = 5
    for number in (50, 70, 110):
        events[number] = events[number] | {"ts": [number]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    alone = opened(path)
    monkeypatch.setattr(texts, "PIECE", 3000)
    parts = opened(path)
    for trace in (alone, parts):
        assert ("event 30", "2 entries that are not events, for example 5", 2) in rows_of(trace)
        assert ("event 50", '3 events without a usable time, for example "ts": [50]', 3) in rows_of(trace)
        assert trace.spans.collect().height == 115
    assert parts.spans.collect().equals(alone.spans.collect())
