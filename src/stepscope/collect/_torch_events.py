"""From the records that Kineto's own JSON is written from to columns: one Python call per value, no object per event.

PyTorch hands these records over since 2.12; for earlier releases see `_torch_older`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.captures import Column
from stepscope.collect.options import Options

Ints = NDArray[np.int64]

# The table `torch` of a capture has a row per event: category, name, pid, tid, start_ns, dur_ns, correlation and external (-1: none),
# flow (0: none) and flow_end, flops (-1: none); and for the rows `told` (their numbers) a text `meta`: what is inside the JSON object that
# Kineto writes as an event's arguments. Allocations are the table `torch_memory`: tid, start_ns, and such objects in one text.
PIECE = 250_000  # events

MEMORY = "[memory]"
_FORWARD_TO_BACKWARD = 1  # Kineto's number for that type of flow
COLLECTIVE = "record_param_comms"


@dataclass
class Cut:
    """At most so many events are taken over, the first ones, on host and devices alike."""

    most: int
    lost: int = 0
    at_ns: int | None = None

    def first_of(self, rows: list[Any], start_ns: Any) -> list[Any]:
        if len(rows) <= self.most:
            return rows
        starts = numbers(start_ns, rows)
        self.at_ns = int(np.partition(starts, self.most)[self.most])
        kept = [row for row, early in zip(rows, (starts < self.at_ns).tolist(), strict=True) if early]
        self.lost = len(rows) - len(kept)
        return kept


def pieces(results: Any, options: Options, cut: Cut) -> Iterator[tuple[str, dict[str, Column]]]:
    """The events of a finished session as pieces of two tables. `_ProfilerResult` is private to PyTorch: raises where it is another."""
    shapes = options.record_shapes or options.with_flops
    activities = results.trace_activities()
    activities = cut.first_of(activities, type(activities[0]).timestamp) if activities else activities
    counted = _flops(results.events()) if options.with_flops else None
    for start in range(0, len(activities), PIECE):
        yield from _piece(activities[start : start + PIECE], shapes, counted)


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
    words = list(map(kind.type, rows))
    own, linked = numbers(kind.correlation_id, rows), numbers(kind.linked_correlation_id, rows)
    columns: dict[str, Column] = {
        "name": names,
        "category": words,
        "pid": narrow(numbers(kind.device_id, rows)),
        "tid": narrow(np.abs(numbers(kind.resource_id, rows))),
        "start_ns": numbers(kind.timestamp, rows),
        "dur_ns": narrow(numbers(kind.duration, rows)),
        **joints(words, own, linked),
        **told(rows, words, names, shapes, _meta),
    }
    flow = numbers(kind.flow_id, rows)
    flowing = [rows[row] for row in np.flatnonzero(flow)]
    flow[flow != 0] *= numbers(kind.flow_type, flowing) == _FORWARD_TO_BACKWARD
    ends = np.zeros(len(rows), np.bool_)
    ends[flow > 0] = [not row.flow_start() for row in flowing if row.flow_type() == _FORWARD_TO_BACKWARD]
    columns |= {"flow": narrow(flow), "flow_end": ends}
    if flops is not None:
        columns["flops"] = _counted(flops, words, own)
    yield "torch", columns


def _counted(flops: tuple[Ints, Ints], words: list[str], own: Ints) -> Ints:
    """The count of each row, -1 for none."""
    correlation, amount = flops
    if not len(correlation):
        return np.full(len(own), -1)
    at = np.minimum(np.searchsorted(correlation, own), len(correlation) - 1)
    is_op = np.fromiter((word == "cpu_op" for word in words), np.bool_, len(words))
    return np.where(is_op & (correlation[at] == own), amount[at], -1)


def told(rows: list[Any], words: list[str], names: list[str], shapes: bool, read: Callable[[Any, str, str], str]) -> dict[str, Column]:
    """The arguments of the rows that have some worth the time to take them over."""
    skipped = frozenset(("python_function",) if shapes else ("python_function", "cpu_op"))
    numbers = [number for number, word in enumerate(words) if word not in skipped]
    if not shapes and COLLECTIVE in names:
        numbers = sorted({*numbers, *(number for number, name in enumerate(names) if name == COLLECTIVE)})
    texts = [read(rows[number], words[number], names[number]) for number in numbers]
    return {"told": narrow(np.array(numbers, np.int64)), "meta": texts}


def _meta(row: Any, word: str, name: str) -> str:
    """What Kineto would write of it, less the numbers that nobody needs and that would make every text another one."""
    text = decoded(type(row).metadata_json, row)
    start, end = text.find('"Concrete Inputs"'), text.rfind(', "Ev Idx": ')
    if start >= 0 and end >= 0 and text.count('": ', 0, start) in (0, 1, 3) and text.find(",", end + 2) < 0:
        text = text[start:end]  # by far the commonest: inputs behind nothing but numbers
    else:
        text = NUMBERS.sub("", text).rstrip(", ")
    if word == "kernel" and name.startswith("nccl"):
        caller = row.linked_activity()
        text = ", ".join(filter(None, (text, caller.metadata_json() if caller is not None and caller.name() == COLLECTIVE else "")))
    return text


NUMBERS = re.compile(r'"(?:Ev Idx|Record function id|Sequence number|Fwd thread id)": \d+(?:, )?')


def joints(words: list[str], own: Ints, linked: Ints) -> dict[str, Column]:
    """What ties events together: device work to its launch call by `correlation`, both to their operator by `external`."""
    launch = np.fromiter((word.endswith(("_runtime", "_driver", "_sync")) or word in _DEVICE_WORDS for word in words), np.bool_, len(words))
    external = np.where(linked > 0, linked, np.where(launch | (own <= 0), -1, own))
    return {"correlation": narrow(np.where(launch, own, -1)), "external": narrow(external)}


_DEVICE_WORDS = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))


def _flops(events: Iterable[Any]) -> tuple[Ints, Ints]:
    """Sorted numbers of the operators that have a count, and the counts."""
    found = sorted((event.correlation_id(), event.flops()) for event in events if event.flops() > 0)
    table = np.array(found, np.int64).reshape(-1, 2)
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
    except UnicodeDecodeError as error:  # the name of a function that was gone when torch asked for it
        return error.object.decode("utf-8", "replace")
    return text


def narrow(values: Ints) -> NDArray[Any]:
    """The same numbers in as few bytes as hold them."""
    low, high = values.min(initial=0), values.max(initial=0)
    fitting = (size for size in (np.int8, np.int16, np.int32) if np.iinfo(size).min <= low and high <= np.iinfo(size).max)
    return values.astype(next(fitting, np.int64))
