"""What a Kineto trace says, read with the standard library alone: what our own numbers are held against."""

import functools
import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import stepscope
from stepscope.model.trace import Trace

# Recorded on an H200 and on a V100; the last are samples of a larger job, with gaps in them.
FILES = [
    "torch_h200/resnet50_basic.json.gz",
    "torch_h200/resnet50_full.json.gz",
    "torch_h200/gpt2_full.json.gz",
    "torch_h200/ddp_gloo_rank0.json.gz",
    "torch_public/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "torch_public/two_ranks/sampled_rank-1.json.gz",
]
# With all that PyTorch records, of two ranks, and as an earlier PyTorch wrote it.
ONE_OF_EACH = [FILES[1], FILES[3], FILES[4]]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Event(NamedTuple):
    category: str
    name: str
    pid: Any
    tid: Any
    start: int  # ns
    end: int
    args: dict[str, Any]


@functools.cache
def events(path: Path) -> list[Event]:
    """Every complete event, by start."""
    whole = [e for e in _raw(path) if e.get("ph") == "X"]
    rows = [
        Event(e.get("cat", ""), e["name"], e["pid"], e["tid"], start := _ns(e["ts"]), start + _ns(e["dur"]), e.get("args", {}))
        for e in whole
    ]
    return sorted(rows, key=lambda event: event.start)


@functools.cache
def opened(path: Path) -> Trace:
    return stepscope.open(path, cache=False)


def steps(path: Path) -> dict[int, Event]:
    """The steps by number."""
    marks = [e for e in events(path) if e.category == "user_annotation" and e.name.startswith("ProfilerStep#")]
    return {int(e.name.removeprefix("ProfilerStep#")): e for e in marks}


def work(path: Path) -> list[Event]:
    return [e for e in events(path) if e.category in DEVICE]


def device_ranges(path: Path) -> list[Event]:
    """The steps as Kineto draws them on the device: of what the marker's own thread launched outside of other ranges."""
    return [e for e in events(path) if e.category == "gpu_user_annotation" and e.name.startswith("ProfilerStep#")]


@functools.cache
def device_steps(path: Path) -> dict[int, tuple[int, int]]:
    """From when to when each step is on the device: until its last work has ended; the host's time where no step is drawn there."""
    marks = sorted(steps(path).items(), key=lambda item: item[1].start)
    if not device_ranges(path):
        return {number: (step.start, step.end) for number, step in marks}
    extents = _extents(path)
    others = [e for e in work(path) if step_of_work(path, e) is None]
    found, before = {}, None
    for number, step in marks:
        first, finish = extents.get(number, (step.end, step.end))
        left = min(max((e.end for e in others if e.start < first), default=step.start), first)
        start = max(step.start, left, before if before is not None else step.start)
        found[number] = (start, before := max(step.end, finish, start))
    return found


@functools.cache
def _extents(path: Path) -> dict[int, tuple[int, int]]:
    """From the first start to the last end of the work that each step launched, and of its ranges."""
    parts: dict[int, list[Event]] = {}
    for event in work(path):
        call = launches(path).get(event.args.get("correlation"))
        for number, step in steps(path).items():
            if call and step.start <= call.start < step.end:
                parts.setdefault(number, []).append(event)
    for event in device_ranges(path):
        parts.setdefault(int(event.name.removeprefix("ProfilerStep#")), []).append(event)
    return {number: (min(e.start for e in own), max(e.end for e in own)) for number, own in parts.items()}


def step_of_work(path: Path, event: Event) -> int | None:
    """The step that launched it; of work whose launch is not in the file, the one in whose time on the device it runs."""
    call = launches(path).get(event.args.get("correlation"))
    times = (
        [(number, step.start, step.end) for number, step in steps(path).items()] if call else [(n, *e) for n, e in _extents(path).items()]
    )
    at = call.start if call else event.start
    return next((number for number, start, end in times if start <= at < end), None)


@functools.cache
def launches(path: Path) -> dict[Any, Event]:
    """The runtime or driver call of each correlation."""
    return {e.args["correlation"]: e for e in events(path) if e.category in ("cuda_runtime", "cuda_driver") and "correlation" in e.args}


def covered(spans: list[Event], low: int, high: int) -> int:
    """How much of low to high any of the spans covers; they are sorted by start."""
    total, reach = 0, low
    for span in spans:
        total += max(min(span.end, high) - max(span.start, reach), 0)
        reach = max(reach, min(span.end, high))
    return total


def instants(path: Path) -> list[dict[str, Any]]:
    """Every event without a duration, as the file has it."""
    return [e for e in _raw(path) if e.get("ph") == "i"]


@functools.cache
def _raw(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file, parse_float=Decimal)["traceEvents"]
    return found


def _ns(microseconds: Decimal | int | str) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value(ROUND_HALF_EVEN))
