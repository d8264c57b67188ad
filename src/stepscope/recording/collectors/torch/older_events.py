"""Columns from the event objects of PyTorch before 2.12, as `events` makes them from its records.

The objects lack some data: their category follows from their names; allocations and the shapes of lists of tensors come from the tree.
"""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepscope.model.captures import Column, coded
from stepscope.recording.collectors.options import Options
from stepscope.recording.collectors.torch.events import (
    MEMORY,
    NUMBER_KEYS,
    NUMBERS,
    PIECE,
    Cut,
    all_decoded,
    decoded,
    has_devices,
    joined,
    meta_columns,
    narrow,
    numbers,
    relations,
)

_BACKWARD = 1  # PyTorch's number for the scope of a backward function


def pieces(results: Any, options: Options, cut: Cut) -> Iterator[tuple[str, dict[str, Column]]]:
    """As `events.pieces`. Python stacks are not among these events."""
    shapes = options.record_shapes or options.with_flops
    events = results.events()
    events = cut.first_of(events, type(events[0]).start_ns) if events else events
    names = all_decoded(type(events[0]).name, events) if events else []
    threads: dict[int, int] = {}  # number in PyTorch and in the system, of the threads that allocate
    if MEMORY in names:
        threads = {event.start_thread_id(): event.device_resource_id() for event in events if event.nbytes()}
        events = [event for event, name in zip(events, names, strict=True) if name != MEMORY]
        names = [name for name in names if name != MEMORY]
    blocks, lists = _from_tree(results) if shapes or threads else ([], {})
    flow = _flow(events)
    for start in range(0, len(events), PIECE):
        part = slice(start, start + PIECE)
        columns = _columns(events[part], names[part], shapes=shapes, flops=options.with_flops, lists=lists)
        yield "torch", columns | {name: values[part] for name, values in flow.items()}
    if blocks:
        yield (
            "torch_memory",
            {
                "tid": narrow(np.array([threads.get(thread, 0) for _, thread, _ in blocks], np.int64)),
                "start_ns": np.array([at for at, _, _ in blocks], np.int64),
                "text": joined(_block(fields) for _, _, fields in blocks),
            },
        )


def _columns(rows: list[Any], names: list[str], *, shapes: bool, flops: bool, lists: dict[int, list[Any]]) -> dict[str, Column]:
    kind = type(rows[0])
    # Every value costs a call: none is made whose result is known.
    on_host = np.ones(len(rows), np.bool_)
    if has_devices():
        on_host = np.fromiter((int(device) == 0 for device in map(kind.device_type, rows)), np.bool_, len(rows))
    texts = coded(names)
    words = coded([_word(row, name, host) for row, name, host in zip(rows, names, on_host.tolist(), strict=True)])
    correlation, linked = numbers(kind.correlation_id, rows), np.zeros(len(rows), np.int64)
    has_cause = np.flatnonzero(~words.where(_WITH_INPUTS))
    linked[has_cause] = numbers(kind.linked_correlation_id, [rows[row] for row in has_cause])
    pid = np.full(len(rows), os.getpid(), np.int64)
    on_device = np.flatnonzero(~on_host)
    pid[on_device] = numbers(kind.device_index, [rows[row] for row in on_device])
    pid[words.where(("overhead",))] = -1  # has no process in Kineto's files
    columns: dict[str, Column] = {
        "name": texts,
        "category": words,
        "pid": narrow(pid),
        "tid": narrow(np.abs(numbers(kind.device_resource_id, rows))),
        "start_ns": numbers(kind.start_ns, rows),
        "dur_ns": narrow(numbers(kind.duration_ns, rows)),
        **relations(words, correlation, linked),
        **meta_columns(
            rows, words, texts, shapes, lambda row, word, name: _inputs(row, lists) if word in _WITH_INPUTS else _arguments(row)
        ),
    }
    if flops:
        counts = numbers(kind.flops, rows)
        columns["flops"] = np.where(counts > 0, counts, -1)
    return columns


def _word(row: Any, name: str, on_host: bool) -> str:
    """Kineto's category."""
    if row.is_user_annotation():
        return "user_annotation" if on_host else "gpu_user_annotation"
    if on_host:
        return "overhead" if name in _OVERHEAD else "cpu_op" if not (call := _CALL.match(name)) else _CALLS[call[1]]
    if name.startswith(("Memcpy", "Memset")):
        return f"gpu_{name[:6].lower()}"
    return "cuda_sync" if "cuda_sync_kind" in row.metadata_json() else "kernel"


_CALL = re.compile(r"(cuda|cu|hip)[A-Z]")
_CALLS = {"cuda": "cuda_runtime", "cu": "cuda_driver", "hip": "cuda_runtime"}
_OVERHEAD = frozenset(
    (
        "Activity Buffer Request",
        "Buffer Flush",
        "Command Buffer Full",
        "Driver Compiler",
        "Instrumentation",
        "Lazy Function Loading",
        "Resource",
        "Runtime Triggered Module Loading",
    )
)


_WITH_INPUTS = frozenset(("cpu_op", "user_annotation"))


def _arguments(row: Any) -> str:
    """Arguments of a kernel, a copy or a runtime call."""
    text = decoded(type(row).metadata_json, row).strip()
    if "\n" in text:
        text = _BREAK.sub(" ", text)
    return NUMBERS.sub("", text) if any(key in text for key in NUMBER_KEYS) else text


_BREAK = re.compile(r"\s*\n\s*")


def _inputs(row: Any, lists: dict[int, list[Any]]) -> str:
    """As Kineto writes them; lists of numbers look the same in Python and in JSON."""
    parts = [f"{json.dumps(key)}: {value}" for key, value in row.extra_meta().items()] if hasattr(row, "extra_meta") else []
    if types := row.dtypes():
        values = ["" if value is None else str(value) for value in row.concrete_inputs()]
        dims = lists.get(row.correlation_id()) or row.shapes()
        parts += [f'"Concrete Inputs": {json.dumps(values)}', f'"Input type": {json.dumps(types)}', f'"Input Dims": {dims}']
    return ", ".join(parts)


def _flow(events: list[Any]) -> dict[str, Column]:
    """From forward to backward as Kineto links them: the last forward and the first backward operator of a thread and sequence number."""
    count = len(events)
    flow, ends = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if not count:
        return {"flow": flow, "flow_end": ends}
    kind: Any = type(events[0])
    sequence = numbers(kind.sequence_nr, events)
    rows = np.flatnonzero(sequence >= 0)
    numbered = [events[row] for row in rows]
    reads = (kind.fwd_thread_id, kind.start_thread_id, kind.scope, kind.start_ns)
    forward_thread, thread, scope, start = (numbers(read, numbered) for read in reads)
    order = np.argsort(start, kind="stable")
    order = order[((forward_thread == 0) | (scope == _BACKWARD))[order]]
    columns = (rows[order], sequence[rows][order], forward_thread[order], thread[order])
    forward_rows: dict[tuple[int, int], int] = {}  # by thread and sequence number, until their backward function
    links = 0
    for row, number, from_thread, on_thread in zip(*(values.tolist() for values in columns), strict=True):
        if from_thread > 0:
            if (forward_row := forward_rows.pop((from_thread, number), None)) is not None:
                links += 1
                flow[forward_row] = flow[row] = links
                ends[row] = True
        else:
            forward_rows[on_thread, number] = row
    return {"flow": narrow(flow), "flow_end": ends}


def _from_tree(results: Any) -> tuple[list[tuple[int, int, Any]], dict[int, list[Any]]]:
    """Data of the tree alone: allocations (time, thread, fields), and the shapes of inputs where one is a list of tensors."""
    blocks, lists = [], {}
    nodes = list(results.experimental_event_tree())
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag.name == "Allocation":
            blocks.append((node.start_time_ns, node.start_tid, node.extra_fields))
        elif node.tag.name == "TorchOp":
            inputs = node.extra_fields.inputs
            if any(isinstance(value, list) for value in inputs):
                lists[node.correlation_id] = [_sizes(value) for value in inputs]
    return sorted(blocks, key=lambda block: block[0]), lists


def _sizes(value: Any) -> Any:
    return [_sizes(part) for part in value] if isinstance(value, list) else getattr(value, "sizes", [])


def _block(fields: Any) -> str:
    device = fields.device
    kind, number = _DEVICE_NUMBERS.get(device.type, 20), -1 if device.index is None else device.index
    return (
        f'"Total Reserved": {fields.total_reserved}, "Total Allocated": {fields.total_allocated}, "Bytes": {fields.alloc_size}, '
        f'"Device Id": {number}, "Device Type": {kind}, "Addr": {fields.ptr}'
    )


_DEVICE_NUMBERS = {"cpu": 0, "cuda": 1, "hip": 6, "xpu": 12, "mps": 13, "mtia": 19, "privateuseone": 20}  # c10::DeviceType
