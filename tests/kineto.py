"""What a Kineto trace says, read with the standard library alone: what our own numbers are held against."""

import functools
import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import stepscope
from stepscope.trace import Trace

# Recorded on an H200 and on a V100; the last are samples of a larger job, with gaps in them.
FILES = [
    "torch_h200/resnet50_basic.json.gz",
    "torch_h200/resnet50_full.json.gz",
    "torch_h200/gpt2_full.json.gz",
    "torch_h200/ddp_gloo_rank0.json.gz",
    "torch_public/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "torch_public/two_ranks/sampled_rank-1.json.gz",
]
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


def launches(path: Path) -> dict[int, Event]:
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
