"""The operation of an event in an XPlane file, by its HLO instruction or its name, and the kind of the event."""

import re
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.readers.common.wire import Damage
from stepscope.readers.xplane import hlo as xplane_hlo
from stepscope.readers.xplane.xspace import RAW, Plane, Space

IS_STEP, IS_CALL, IS_COPY, IS_SET = 1, 2, 4, 8  # flags of an event, by the stats that it has


class Programs:
    """The compiled programs in the file, decoded when first used."""

    def __init__(self, space: Space, planes: list[Plane]) -> None:
        self._buffer = space.buffer
        self._places: dict[int, tuple[int, int]] = {}
        self._numbers: dict[str, int] = {}
        self._programs: dict[int, xplane_hlo.Program | None] = {}
        self.unreadable: list[tuple[int, Damage]] = []
        for plane in planes:
            stats = plane.metadata_stats
            for row in np.flatnonzero((stats.name == plane.code("Hlo Proto")) & (stats.number == RAW)).tolist():
                match = re.fullmatch(r"(.*)\((\d+)\)", plane.names[int(stats.owner[row])])
                if match:
                    number = int(match[2]) - (1 << 64 if int(match[2]) >= 1 << 63 else 0)
                    self._places[number] = (int(stats.value[row]), int(stats.end[row]))
                    self._numbers[match[1]] = number

    def number(self, module: str) -> int:
        """The number of a module's program, -1 for none."""
        return self._numbers.get(module, -1)

    def find(self, number: int) -> xplane_hlo.Program | None:
        if number not in self._programs and number in self._places:
            try:
                self._programs[number] = xplane_hlo.Program(self._buffer, *self._places[number])
            except Damage as damage:  # the rest of the trace is readable
                self._programs[number] = None
                self.unreadable.append((number, damage))
        return self._programs.get(number)


class Operation(NamedTuple):
    kind: str
    role: str  # of the line that the event is on
    op_type: str | None = None
    scope: str | None = None
    category: str | None = None  # the operation's full name
    shapes: str | None = None
    dtypes: str | None = None
    transfer: str = ""  # communication, copy
    shared: bool = False  # found by the kernel's name, which several instructions may share
    region: bool = False  # work that another thread handed over starts or ends here


COLUMNS = list(Operation._fields)
COLUMN_TYPES = {
    "kind": schema.Kind,
    **dict.fromkeys(("role", "op_type", "scope", "category", "shapes", "dtypes", "transfer"), schema.Text),
    "shared": pl.Boolean,
    "region": pl.Boolean,
}
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|(ragged-)?all-to-all|collective-(permute|broadcast)|send|recv)(-start|-done)?(\.\d+)*$"
)
_COLLECTIVE_KERNEL = re.compile(r"(?i)(void )?(nccl|rccl|msccl|oneccl)")
_TENSORFLOW_COLLECTIVES = {"CollectiveReduceV2", "CollectiveReduceV3", "CollectiveGatherV2", "NcclAllReduce", "HorovodAllreduce"}
_TENSORFLOW_OP = re.compile(r"([A-Za-z0-9.][\w./>-]*):([A-Z_]\w*)")
_TENSORFLOW_EAGER = re.compile(r"EagerLocalExecute: (?!__)(\w+)")  # names of functions start with __; they have operations of their own
_INPUT = re.compile(r"Iterator|Prefetch(Produce|Consume)|Parallel(Map|Batch|Interleave)\w*(Produce|Consume)|MapAndBatch(Produce|Consume)")
_CALLS = re.compile(r"(cu|cuda|hip|nvtx|nccl)[A-Z]\w*(\(.*\))?")
_WAITS = re.compile(r"(?i)(cu|cuda|hip)\w*synchronize")


class EventTexts(NamedTuple):
    """The name of an event, and its stats that describe an operation."""

    label: str
    hlo_op: str
    tf_op: str
    name: str
    hlo_category: str


def compiled_operation(program: xplane_hlo.Program, role: str, texts: EventTexts) -> Operation | None:
    """The operation of the HLO instruction of an event."""
    instruction, shared = program.instruction(texts.hlo_op), False
    if instruction is None and role == "stream":  # in a CUDA graph, hlo_op names only the graph
        instruction, shared = program.of_kernel(texts.label), True
    if instruction is None:
        return None
    is_collective = _COLLECTIVE.match(instruction.opcode) or _COLLECTIVE.match(texts.hlo_op)
    transfer = "copy" if instruction.opcode in ("infeed", "outfeed") else "communication" if is_collective else ""
    path, op_type = instruction.op_name, texts.hlo_category or instruction.kind
    scope = xplane_hlo.scope(path) or None
    return Operation("", role, op_type, scope, path or None, instruction.shapes, instruction.dtypes, transfer, shared)


def named_operation(role: str, texts: EventTexts, tensorflow: bool) -> Operation:
    """The operation by the names in an event: of the TensorFlow operation, of the HLO instruction, or of the event."""
    label, hlo_op, tf_op = texts.label, texts.hlo_op, texts.tf_op
    path, _, op_type = tf_op.rpartition(":") if ":" in tf_op else (tf_op, "", "")
    if path == "XlaModule":
        path, op_type = texts.name, ""
    if role == "thread" and not hlo_op and tensorflow and (match := _TENSORFLOW_OP.fullmatch(label)):
        path, op_type = match[1], match[2]
    elif role == "thread" and tensorflow and (match := _TENSORFLOW_EAGER.fullmatch(label)):
        op_type = match[1]
    if hlo_op:
        op_type = texts.hlo_category or re.sub(r"([._]\d+)+$", "", hlo_op)
    is_collective = _COLLECTIVE.match(hlo_op) or op_type in _TENSORFLOW_COLLECTIVES
    transfer = "copy" if re.match(r"(in|out)feed\b", hlo_op) else "communication" if is_collective else ""
    return Operation("", role, op_type or None, xplane_hlo.scope(path) or None, path or None, transfer=transfer)


def host_kind(label: str, flags: int, operation: Operation) -> str:
    if flags & IS_STEP:
        return "step"
    if label.startswith("$"):
        return "python"
    if operation.transfer:
        return operation.transfer
    if label in ("MemoryAllocation", "MemoryDeallocation"):
        return "instant"
    if _WAITS.match(label):
        return "sync"
    if flags & IS_CALL or _CALLS.fullmatch(label):
        return "api"
    if _INPUT.match(label):
        return "data"
    return "op" if operation.op_type else "other"


def device_kind(label: str, role: str, flags: int, operation: Operation) -> str:
    if flags & IS_COPY or (role == "stream" and label.startswith("Memcpy")):
        return "copy"
    if flags & IS_SET or (role == "stream" and label.startswith("Memset")):
        return "set"
    if operation.transfer:
        return operation.transfer
    if role == "stream" and _COLLECTIVE_KERNEL.match(label):
        return "communication"
    return "copy" if role == "async" and re.search("copy|slice", label) else "kernel"
