"""From what torch.profiler holds when it has stopped to columns: one Python call per value, no object per event."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.captures import Column

Ints = NDArray[np.int64]

# The table `torch` of a capture has a row per event: category, name, pid, tid, start_ns, dur_ns, correlation and external (-1: none),
# flow (0: none) and flow_end, flops (-1: none); and for the rows `told` (their numbers) a text `meta`: what is inside the JSON object that
# Kineto writes as an event's arguments. Allocations are the table `torch_memory`: tid, start_ns, and such objects in one text.
PIECE = 250_000  # events

MEMORY = "[memory]"
_FORWARD_TO_BACKWARD = 1  # Kineto's number for that type of flow
_BACKWARD = 1  # PyTorch's number for the scope of a backward function
_COLLECTIVE = "record_param_comms"


def pieces(results: Any, *, shapes: bool, flops: bool) -> Iterator[tuple[str, dict[str, Column]]]:
    """The events of a finished session, as pieces of the two tables.

    `results` is a `_ProfilerResult`, private to PyTorch: raises where it is not as expected.
    """
    activities = results.trace_activities() if hasattr(results, "trace_activities") else None
    if activities is not None:
        counted = _flops(results.events()) if flops else None
        for start in range(0, len(activities), PIECE):
            yield from _from_activities(activities[start : start + PIECE], shapes, counted)
        return
    everything = results.events()
    events = [event for event in everything if _text(type(event).name, event) != MEMORY]
    flow = _flow(events)
    for start in range(0, len(events), PIECE):
        part = slice(start, start + PIECE)
        yield "torch", _from_events(events[part], shapes=shapes, flops=flops) | {name: values[part] for name, values in flow.items()}
    if len(events) < len(everything):
        yield "torch_memory", _from_tree(results, {event.start_thread_id(): event.device_resource_id() for event in everything})


def _from_activities(rows: list[Any], shapes: bool, flops: tuple[Ints, Ints] | None) -> Iterator[tuple[str, dict[str, Column]]]:
    """Since PyTorch 2.12: the records that Kineto's own JSON is written from."""
    kind = type(rows[0])
    names = _texts(kind.name, rows)
    if MEMORY in names:
        blocks = [row for row, name in zip(rows, names, strict=True) if name == MEMORY]
        yield (
            "torch_memory",
            {
                "tid": _narrow(np.abs(_numbers(kind.resource_id, blocks))),
                "start_ns": _numbers(kind.timestamp, blocks),
                "text": _joined(map(kind.metadata_json, blocks)),
            },
        )
        rows, names = [row for row, name in zip(rows, names, strict=True) if name != MEMORY], [name for name in names if name != MEMORY]
    if not rows:
        return
    words = list(map(kind.type, rows))
    own, linked = _numbers(kind.correlation_id, rows), _numbers(kind.linked_correlation_id, rows)
    columns: dict[str, Column] = {
        "name": names,
        "category": words,
        "pid": _narrow(_numbers(kind.device_id, rows)),
        "tid": _narrow(np.abs(_numbers(kind.resource_id, rows))),
        "start_ns": _numbers(kind.timestamp, rows),
        "dur_ns": _narrow(_numbers(kind.duration, rows)),
        **_joints(words, own, linked),
        **_told(rows, words, names, shapes, _meta),
    }
    flow = _numbers(kind.flow_id, rows)
    flowing = [rows[row] for row in np.flatnonzero(flow)]
    flow[flow != 0] *= _numbers(kind.flow_type, flowing) == _FORWARD_TO_BACKWARD
    ends = np.zeros(len(rows), np.bool_)
    ends[flow > 0] = [not row.flow_start() for row in flowing if row.flow_type() == _FORWARD_TO_BACKWARD]
    columns |= {"flow": _narrow(flow), "flow_end": ends}
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


def _told(rows: list[Any], words: list[str], names: list[str], shapes: bool, read: Callable[[Any, str, str], str]) -> dict[str, Column]:
    """The arguments of the rows that have some worth the time to take them over."""
    skipped = frozenset(("python_function",) if shapes else ("python_function", "cpu_op"))
    numbers = [number for number, word in enumerate(words) if word not in skipped]
    if not shapes and _COLLECTIVE in names:
        numbers = sorted({*numbers, *(number for number, name in enumerate(names) if name == _COLLECTIVE)})
    texts = [read(rows[number], words[number], names[number]) for number in numbers]
    return {"told": _narrow(np.array(numbers, np.int64)), "meta": texts}


def _meta(row: Any, word: str, name: str) -> str:
    """What Kineto would write of it, less the numbers that nobody needs and that would make every text another one."""
    text = _text(type(row).metadata_json, row)
    start, end = text.find('"Concrete Inputs"'), text.rfind(', "Ev Idx": ')
    if start >= 0 and end >= 0 and text.count('": ', 0, start) in (0, 1, 3) and text.find(",", end + 2) < 0:
        text = text[start:end]  # by far the commonest: inputs behind nothing but numbers
    else:
        text = _NUMBERS.sub("", text).rstrip(", ")
    if word == "kernel" and name.startswith("nccl"):
        caller = row.linked_activity()
        text = ", ".join(filter(None, (text, caller.metadata_json() if caller is not None and caller.name() == _COLLECTIVE else "")))
    return text


_NUMBERS = re.compile(r'"(?:Ev Idx|Record function id|Sequence number|Fwd thread id)": \d+(?:, )?')


def _from_events(rows: list[Any], *, shapes: bool, flops: bool) -> dict[str, Column]:
    """What PyTorch's own Python side is made of, for releases that have no more."""
    kind = type(rows[0])
    names, words = _texts(kind.name, rows), list(map(kind.activity_type, rows))
    on_host = np.fromiter((int(device) == 0 for device in map(kind.device_type, rows)), np.bool_, len(rows))
    own, linked = _numbers(kind.correlation_id, rows), _numbers(kind.linked_correlation_id, rows)
    columns: dict[str, Column] = {
        "name": names,
        "category": words,
        "pid": _narrow(np.where(on_host, os.getpid(), _numbers(kind.device_index, rows))),
        "tid": _narrow(np.abs(_numbers(kind.device_resource_id, rows))),
        "start_ns": _numbers(kind.start_ns, rows),
        "dur_ns": _narrow(_numbers(kind.duration_ns, rows)),
        **_joints(words, own, linked),
        **_told(rows, words, names, shapes, _inputs),
    }
    if flops:
        counts = _numbers(kind.flops, rows)
        columns["flops"] = np.where(counts > 0, counts, -1)
    return columns


def _inputs(row: Any, word: str, name: str) -> str:
    """As Kineto writes them; lists of numbers look the same in Python and in JSON."""
    if word != "cpu_op":  # the arguments of a kernel, copy or runtime call; empty where PyTorch does not hand them over
        return _text(type(row).metadata_json, row) if hasattr(row, "metadata_json") else ""
    more = [f"{json.dumps(key)}: {value}" for key, value in row.extra_meta().items()] if hasattr(row, "extra_meta") else []
    if types := row.dtypes():
        dims = getattr(row, "structured_input_shapes", row.shapes)()
        values = [_value(value) for value in row.concrete_inputs()]
        more += [f'"Concrete Inputs": {json.dumps(values)}', f'"Input type": {json.dumps(types)}', f'"Input Dims": {dims}']
    return ", ".join(more)


def _value(value: object) -> str:
    return "" if value is None else str(value)


def _joints(words: list[str], own: Ints, linked: Ints) -> dict[str, Column]:
    """What ties events together: device work to its launch call by `correlation`, both to their operator by `external`."""
    launch = np.fromiter((word.endswith(("_runtime", "_driver", "_sync")) or word in _DEVICE_WORDS for word in words), np.bool_, len(words))
    external = np.where(linked > 0, linked, np.where(launch | (own <= 0), -1, own))
    return {"correlation": _narrow(np.where(launch, own, -1)), "external": _narrow(external)}


_DEVICE_WORDS = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))


def _flops(events: Iterable[Any]) -> tuple[Ints, Ints]:
    """Sorted numbers of the operators that have a count, and the counts."""
    found = sorted((event.correlation_id(), event.flops()) for event in events if event.flops() > 0)
    table = np.array(found, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _flow(events: list[Any]) -> dict[str, Column]:
    """From forward to backward as Kineto links them: of a thread and sequence number the last forward, the first backward one."""
    count = len(events)
    kind: Any = type(events[0]) if events else None
    flow, ends = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if not count:
        return {"flow": flow, "flow_end": ends}
    reads = (kind.sequence_nr, kind.fwd_thread_id, kind.start_thread_id, kind.scope, kind.start_ns)
    number, forward, thread, scope, start = (_numbers(read, events) for read in reads)
    open_ones: dict[tuple[int, int], int] = {}
    rows = np.flatnonzero((number >= 0) & ((forward == 0) | (scope == _BACKWARD)))
    rows = rows[np.argsort(start[rows], kind="stable")]
    links = 0
    for row, sequence, from_thread, own in zip(
        rows.tolist(), number[rows].tolist(), forward[rows].tolist(), thread[rows].tolist(), strict=True
    ):
        if from_thread > 0:
            if (cause := open_ones.pop((from_thread, sequence), None)) is not None:
                links += 1
                flow[cause] = flow[row] = links
                ends[row] = True
        else:
            open_ones[own, sequence] = row
    return {"flow": _narrow(flow), "flow_end": ends}


def _from_tree(results: Any, threads: dict[int, int]) -> dict[str, Column]:
    """Allocations with address and totals, which the flat events lack; `threads`: the system's number of each of the tree's."""
    found, waiting = [], list(results.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.tag.name == "Allocation":
            found.append((node.start_time_ns, threads.get(node.start_tid, 0), node.extra_fields))
    found.sort(key=lambda row: row[0])
    return {
        "tid": _narrow(np.array([lane for _, lane, _ in found], np.int64)),
        "start_ns": np.array([at for at, _, _ in found], np.int64),
        "text": _joined(_block(fields) for _, _, fields in found),
    }


_DEVICE_NUMBERS = {"cpu": 0, "cuda": 1, "hip": 6, "xpu": 12, "mps": 13, "mtia": 19, "privateuseone": 20}  # c10::DeviceType


def _block(fields: Any) -> str:
    device = fields.device
    kind, number = _DEVICE_NUMBERS.get(device.type, 20), -1 if device.index is None else device.index
    return (
        f'"Total Reserved": {fields.total_reserved}, "Total Allocated": {fields.total_allocated}, "Bytes": {fields.alloc_size}, '
        f'"Device Id": {number}, "Device Type": {kind}, "Addr": {fields.ptr}'
    )


def _joined(objects: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(f"[{{{'},{'.join(objects)}}}]".encode(), np.uint8)


def _numbers(read: Any, rows: list[Any]) -> Ints:
    return np.fromiter(map(read, rows), np.int64, len(rows))


def _texts(read: Any, rows: list[Any]) -> list[str]:
    try:
        return list(map(read, rows))
    except UnicodeDecodeError:
        return [_text(read, row) for row in rows]


def _text(read: Any, row: Any) -> str:
    try:
        text: str = read(row)
    except UnicodeDecodeError as error:  # the name of a function that was gone when torch asked for it
        return error.object.decode("utf-8", "replace")
    return text


def _narrow(values: Ints) -> NDArray[Any]:
    """The same numbers in as few bytes as hold them."""
    low, high = values.min(initial=0), values.max(initial=0)
    fitting = (size for size in (np.int8, np.int16, np.int32) if np.iinfo(size).min <= low and high <= np.iinfo(size).max)
    return values.astype(next(fitting, np.int64))
