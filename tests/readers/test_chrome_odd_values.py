"""Odd values in Chrome traces: any value in any field of any kind of event costs that event at most, never the file."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.web.report import report

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
    places = [(key,) for key in dict.fromkeys([*example, "stepscope", "id", "bp", "args"])]
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", VALUES)
def test_an_odd_value_leaves_all_other_events_as_they_are(tmp_path: Path, plain: dict[str, pl.DataFrame], kind: str, value: str) -> None:
    trace = opened(write(tmp_path / "t.json", list(odd_events(kind, VALUES[value]))))
    whole, found = plain["spans"], trace.spans.collect()
    pairs = 2  # ranges of begin and end events come last
    count = whole.height - pairs
    assert found.head(count).select(OWN).equals(whole.head(count).select(OWN))


@pytest.mark.parametrize("value", VALUES)
def test_every_analysis_and_the_timeline_answer_with_odd_events_of_every_kind(tmp_path: Path, value: str) -> None:
    events = [event for kind in KINDS if "ProfilerStep" not in kind for event in odd_events(kind, VALUES[value])]
    trace = opened(write(tmp_path / "t.json", events))
    assert report(trace, name="odd", max_bytes=20_000_000).left_out == []
