"""Columns from the records that Kineto's JSON is written from: one Python call per value, no object per event.

PyTorch returns these records since 2.12; for earlier releases see `older_events`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.model.captures import Coded, Column, coded
from stepscope.recording.collectors.options import Options

Ints = NDArray[np.int64]

# The table `torch` of a capture has a row per event: category, name, pid, tid, start_ns, dur_ns, correlation and external (-1: none),
# flow (0: none) and flow_end, flops (-1: none); and for the rows whose numbers are in `told` a text `meta`: the content of the JSON object
# that Kineto writes as an event's arguments. Allocations are the table `torch_memory`: tid, start_ns, and such objects in one text.
PIECE = 250_000  # events

MEMORY = "[memory]"
_FORWARD_TO_BACKWARD = 1  # Kineto's number for that type of flow
COLLECTIVE = "record_param_comms"


@dataclass
class Cut:
    """Keeps at most this many events, the first ones, on host and devices alike."""

    most: int
    lost: int = 0
    at_ns: int | None = None

    def first_of(self, rows: list[Any], start_ns: Any) -> list[Any]:
        if len(rows) <= self.most:
            return rows
        starts = numbers(start_ns, rows)
        self.at_ns = int(np.partition(starts, self.most)[self.most])
        first = [row for row, is_early in zip(rows, (starts < self.at_ns).tolist(), strict=True) if is_early]
        self.lost = len(rows) - len(first)
        return first


def pieces(results: Any, options: Options, cut: Cut) -> Iterator[tuple[str, dict[str, Column]]]:
    """The events of a finished session as pieces of two tables. `_ProfilerResult` is private to PyTorch: raises where it differs."""
    shapes = options.record_shapes or options.with_flops
    flops = _flops(results.events()) if options.with_flops else None  # first: both lists at once would take twice the memory
    activities = results.trace_activities()
    activities = cut.first_of(activities, type(activities[0]).timestamp) if activities else activities
    for start in range(0, len(activities), PIECE):
        yield from _piece(activities[start : start + PIECE], shapes, flops)


def _piece(rows: list[Any], shapes: bool, flops: tuple[Ints, Ints] | None) -> Iterator[tuple[str, dict[str, Column]]]:
    kind = type(rows[0])
    names = all_decoded(kind.name, rows)
    if MEMORY in names:
        blocks = [row for row, name in zip(rows, names, strict=True) if name == MEMORY]
        yield (
            "torch_memory",
            {
                "tid": narrow(np.abs(numbers(kind.resource_id, blocks))),
                "start_ns": numbers(kind.timestamp, blocks),
                "text": joined(map(kind.metadata_json, blocks)),
            },
        )
        rows, names = [row for row, name in zip(rows, names, strict=True) if name != MEMORY], [name for name in names if name != MEMORY]
    if not rows:
        return
    words, texts = coded(list(map(kind.type, rows))), coded(names)
    # Every value costs a call: none is made whose result is known.
    elsewhere = np.flatnonzero(~words.where(_IN_THIS_PROCESS))
    pid = np.full(len(rows), os.getpid(), np.int64)
    pid[elsewhere] = numbers(kind.device_id, [rows[row] for row in elsewhere])
    correlation, linked = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
    if has_devices() or flops is not None:
        correlation = numbers(kind.correlation_id, rows)
    if has_devices():
        linked[elsewhere] = numbers(kind.linked_correlation_id, [rows[row] for row in elsewhere])
    columns: dict[str, Column] = {
        "name": texts,
        "category": words,
        "pid": narrow(pid),
        "tid": narrow(np.abs(numbers(kind.resource_id, rows))),
        "start_ns": numbers(kind.timestamp, rows),
        "dur_ns": narrow(numbers(kind.duration, rows)),
        **relations(words, correlation, linked),
        **meta_columns(rows, words, texts, shapes, _meta),
    }
    flow = numbers(kind.flow_id, rows)
    flowing = [rows[row] for row in np.flatnonzero(flow)]
    flow[flow != 0] *= numbers(kind.flow_type, flowing) == _FORWARD_TO_BACKWARD
    ends = np.zeros(len(rows), np.bool_)
    ends[flow > 0] = [not row.flow_start() for row in flowing if row.flow_type() == _FORWARD_TO_BACKWARD]
    columns |= {"flow": narrow(flow), "flow_end": ends}
    if flops is not None:
        columns["flops"] = _flops_of_rows(flops, words, correlation)
    yield "torch", columns


def has_devices() -> bool:
    """Whether PyTorch can record anything but the host."""
    import torch

    profiler: Any = torch.profiler
    return len(profiler.supported_activities()) > 1


def _flops_of_rows(flops: tuple[Ints, Ints], words: Coded, correlation: Ints) -> Ints:
    """The count of each row, -1 for none."""
    operators, counts = flops
    if not len(operators):
        return np.full(len(correlation), -1)
    at = np.minimum(np.searchsorted(operators, correlation), len(operators) - 1)
    return np.where(words.where(("cpu_op",)) & (operators[at] == correlation), counts[at], -1)


def meta_columns(rows: list[Any], words: Coded, names: Coded, shapes: bool, read: Callable[[Any, str, str], str]) -> dict[str, Column]:
    """The arguments of the rows that have useful ones."""
    is_useful = ~words.where(("python_function",) if shapes else ("python_function", "cpu_op"))
    if not shapes:
        is_useful |= names.where((COLLECTIVE,))
    useful = np.flatnonzero(is_useful)
    texts = [read(rows[row], words.words[words.codes[row]], names.words[names.codes[row]]) for row in useful]
    return {"told": narrow(useful), "meta": texts}


def _meta(row: Any, word: str, name: str) -> str:
    """Kineto's arguments without the numbers that nothing uses and that would make every text different."""
    text = decoded(type(row).metadata_json, row)
    start, end = text.find('"Concrete Inputs"'), text.rfind(', "Ev Idx": ')
    if start >= 0 and end >= 0 and text.count('": ', 0, start) in (0, 1, 3) and text.find(",", end + 2) < 0:
        text = text[start:end]  # by far the most common: inputs after numbers only
    else:
        text = NUMBERS.sub("", text).rstrip(", ")
    if word == "kernel" and name.startswith("nccl"):
        caller = row.linked_activity()
        text = ", ".join(filter(None, (text, caller.metadata_json() if caller is not None and caller.name() == COLLECTIVE else "")))
    return text


NUMBER_KEYS = ("Ev Idx", "Record function id", "Sequence number", "Fwd thread id")
NUMBERS = re.compile(rf'"(?:{"|".join(NUMBER_KEYS)})": \d+(?:, )?')


def relations(words: Coded, correlation: Ints, linked: Ints) -> dict[str, Column]:
    """Device spans are related to their launch by `correlation`, both to their operator by `external`."""
    launch = words.where([word for word in words.words if is_launch(word)])
    external = np.where(linked > 0, linked, np.where(launch | (correlation <= 0), -1, correlation))
    return {"correlation": narrow(np.where(launch, correlation, -1)), "external": narrow(external)}


def is_launch(word: str) -> bool:
    """Whether it is a launch or a device span."""
    return word.endswith(("_runtime", "_driver", "_sync")) or word in ("kernel", "gpu_memcpy", "gpu_memset")


_IN_THIS_PROCESS = ("cpu_op", "user_annotation", "python_function")


def _flops(events: Iterable[Any]) -> tuple[Ints, Ints]:
    """Sorted numbers of the operators that have a count, and the counts."""
    counts = sorted((event.correlation_id(), event.flops()) for event in events if event.flops() > 0)
    table = np.array(counts, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def joined(objects: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(f"[{{{'},{'.join(objects)}}}]".encode(), np.uint8)


def numbers(read: Any, rows: list[Any]) -> Ints:
    return np.fromiter(map(read, rows), np.int64, len(rows))


def all_decoded(read: Any, rows: list[Any]) -> list[str]:
    try:
        return list(map(read, rows))
    except UnicodeDecodeError:
        return [decoded(read, row) for row in rows]


def decoded(read: Any, row: Any) -> str:
    try:
        text: str = read(row)
    except UnicodeDecodeError as error:  # the name of a function that was freed before torch read it
        return error.object.decode("utf-8", "replace")
    return text


def narrow(values: Ints) -> NDArray[Any]:
    """The same numbers in the smallest type that holds them."""
    low, high = values.min(initial=0), values.max(initial=0)
    fitting = (size for size in (np.int8, np.int16, np.int32) if np.iinfo(size).min <= low and high <= np.iinfo(size).max)
    return values.astype(next(fitting, np.int64))
