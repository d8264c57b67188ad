"""From the events that PyTorch before 2.12 hands to its own Python side to the columns of `_torch_events`.

What they do not say is told by other things: their category by their names, allocations and the shapes of lists of tensors by the tree.
"""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepscope.captures import Column, coded
from stepscope.collect._torch_events import MEMORY, NUMBERS, PIECE, Cut, all_decoded, decoded, joined, joints, meta_columns, narrow, numbers
from stepscope.collect.options import Options

_BACKWARD = 1  # PyTorch's number for the scope of a backward function


def pieces(results: Any, options: Options, cut: Cut) -> Iterator[tuple[str, dict[str, Column]]]:
    """As `_torch_events.pieces`. Python stacks are not among these events."""
    shapes = options.record_shapes or options.with_flops
    everything = results.events()
    everything = cut.first_of(everything, type(everything[0]).start_ns) if everything else everything
    events = [event for event in everything if decoded(type(event).name, event) != MEMORY]
    threads = {event.start_thread_id(): event.device_resource_id() for event in everything if event.nbytes()}  # torch's and the system's
    blocks, lists = _from_tree(results) if shapes or threads else ([], {})
    flow = _flow(events)
    for start in range(0, len(events), PIECE):
        part = slice(start, start + PIECE)
        columns = _columns(events[part], shapes=shapes, flops=options.with_flops, lists=lists)
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


def _columns(rows: list[Any], *, shapes: bool, flops: bool, lists: dict[int, list[Any]]) -> dict[str, Column]:
    kind = type(rows[0])
    names = all_decoded(kind.name, rows)
    on_host = np.fromiter((int(device) == 0 for device in map(kind.device_type, rows)), np.bool_, len(rows))
    texts = coded(names)
    words = coded([_word(row, name, host) for row, name, host in zip(rows, names, on_host.tolist(), strict=True)])
    own, linked = numbers(kind.correlation_id, rows), numbers(kind.linked_correlation_id, rows)
    apart = words.where(("overhead",))  # has no process in Kineto's files
    columns: dict[str, Column] = {
        "name": texts,
        "category": words,
        "pid": narrow(np.where(apart, -1, np.where(on_host, os.getpid(), numbers(kind.device_index, rows)))),
        "tid": narrow(np.abs(numbers(kind.device_resource_id, rows))),
        "start_ns": numbers(kind.start_ns, rows),
        "dur_ns": narrow(numbers(kind.duration_ns, rows)),
        **joints(words, own, linked),
        **meta_columns(
            rows, words, texts, shapes, lambda row, word, name: _inputs(row, lists) if word in _WITH_INPUTS else _arguments(row)
        ),
    }
    if flops:
        counts = numbers(kind.flops, rows)
        columns["flops"] = np.where(counts > 0, counts, -1)
    return columns


def _word(row: Any, name: str, on_host: bool) -> str:
    """Kineto's word for what this is."""
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
    """Of a kernel, a copy or a runtime call."""
    return NUMBERS.sub("", _BREAK.sub(" ", decoded(type(row).metadata_json, row)).strip())


_BREAK = re.compile(r"\s*\n\s*")


def _inputs(row: Any, lists: dict[int, list[Any]]) -> str:
    """As Kineto writes them; lists of numbers look the same in Python and in JSON."""
    found = [f"{json.dumps(key)}: {value}" for key, value in row.extra_meta().items()] if hasattr(row, "extra_meta") else []
    if types := row.dtypes():
        values = ["" if value is None else str(value) for value in row.concrete_inputs()]
        dims = lists.get(row.correlation_id()) or row.shapes()
        found += [f'"Concrete Inputs": {json.dumps(values)}', f'"Input type": {json.dumps(types)}', f'"Input Dims": {dims}']
    return ", ".join(found)


def _flow(events: list[Any]) -> dict[str, Column]:
    """From forward to backward as Kineto links them: of a thread and sequence number the last forward, the first backward one."""
    count = len(events)
    flow, ends = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if not count:
        return {"flow": flow, "flow_end": ends}
    kind: Any = type(events[0])
    reads = (kind.sequence_nr, kind.fwd_thread_id, kind.start_thread_id, kind.scope, kind.start_ns)
    number, forward, thread, scope, start = (numbers(read, events) for read in reads)
    rows = np.flatnonzero((number >= 0) & ((forward == 0) | (scope == _BACKWARD)))
    rows = rows[np.argsort(start[rows], kind="stable")]
    open_ones: dict[tuple[int, int], int] = {}
    links = 0
    for row, sequence, from_thread, own in zip(
        *(values.tolist() for values in (rows, number[rows], forward[rows], thread[rows])), strict=True
    ):
        if from_thread > 0:
            if (cause := open_ones.pop((from_thread, sequence), None)) is not None:
                links += 1
                flow[cause] = flow[row] = links
                ends[row] = True
        else:
            open_ones[own, sequence] = row
    return {"flow": narrow(flow), "flow_end": ends}


def _from_tree(results: Any) -> tuple[list[tuple[int, int, Any]], dict[int, list[Any]]]:
    """What only the tree has: allocations (when, on which thread, what), and the shapes of inputs where one is a list of tensors."""
    blocks, lists = [], {}
    waiting = list(results.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        waiting += node.children
        word = node.tag.name
        if word == "Allocation":
            blocks.append((node.start_time_ns, node.start_tid, node.extra_fields))
        elif word == "TorchOp":
            inputs = node.extra_fields.inputs
            if any(isinstance(value, list) for value in inputs):
                lists[node.correlation_id] = [_sizes(value) for value in inputs]
    return sorted(blocks, key=lambda block: block[0]), lists


def _sizes(value: Any) -> Any:
    return [_sizes(one) for one in value] if isinstance(value, list) else getattr(value, "sizes", [])


def _block(fields: Any) -> str:
    device = fields.device
    kind, number = _DEVICE_NUMBERS.get(device.type, 20), -1 if device.index is None else device.index
    return (
        f'"Total Reserved": {fields.total_reserved}, "Total Allocated": {fields.total_allocated}, "Bytes": {fields.alloc_size}, '
        f'"Device Id": {number}, "Device Type": {kind}, "Addr": {fields.ptr}'
    )


_DEVICE_NUMBERS = {"cpu": 0, "cuda": 1, "hip": 6, "xpu": 12, "mps": 13, "mtia": 19, "privateuseone": 20}  # c10::DeviceType
