"""Instructions of a program that XLA compiled: an XPlane file contains the HloProto of each program that ran."""

import re
from itertools import takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope.readers.common import wire
from stepscope.readers.common.wire import BYTES, MANY, VARINT, Buffer, Layout, Messages

# The field numbers are those of XLA's hlo.proto and xla_data.proto.
_PROTO: Layout = {1: (BYTES, 0)}
_MODULE: Layout = {1: (BYTES, 0), 3: (BYTES, MANY)}
_COMPUTATION: Layout = {2: (BYTES, MANY)}
_INSTRUCTION: Layout = {
    **{number: (BYTES, place) for place, number in enumerate((1, 2, 3, 7, 11, 28, 36))},  # name, opcode, shape, metadata, ...
    35: (VARINT, 7),
}
_METADATA: Layout = {2: (BYTES, 0)}
_SHAPE: Layout = {2: (VARINT, 0), 3: (BYTES, 1)}
_NAME, _OPCODE, _OUTPUT, _ABOUT, _FUSION, _TARGET, _OPERANDS, _ID = range(8)
_TYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32", 12: "f64", 13: "tuple",
    14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip


class Instruction(NamedTuple):
    opcode: str
    kind: str  # the opcode, with the kind of a fusion or the target of a custom call
    op_name: str  # the path of scopes and the primitive that it was compiled from
    shapes: str  # of its operands, JSON
    dtypes: str


class Program:
    """The instructions of one program, by name; kernels are named after them."""

    def __init__(self, buffer: Buffer, start: int, end: int) -> None:
        self._buffer = buffer
        module = self._decode(*self._decode([start], [end], _PROTO).bytes_at(0), _MODULE)
        computations = self._decode(module.many[3].start, module.many[3].end, _COMPUTATION)
        parts = computations.many[2]
        self._instructions = self._decode(parts.start, parts.end, _INSTRUCTION)
        rows = range(len(parts.start))
        self._by_name = {self._text(_NAME, row): row for row in rows}
        self._by_kernel = {re.sub(r"\W", "_", name): row for name, row in self._by_name.items()}
        self._by_id = {number: row for row, number in enumerate(self._instructions.signed(_ID).tolist())}

    def instruction(self, name: str) -> Instruction | None:
        row = self._by_name.get(name)
        return None if row is None else self._instruction(row)

    def of_kernel(self, name: str) -> Instruction | None:
        """The instruction that a kernel is named after; instructions that compile to the same kernel share it."""
        row = self._by_kernel.get(name)
        return None if row is None else self._instruction(row)

    def _instruction(self, row: int) -> Instruction:
        opcode, fusion, target = (self._text(place, row) for place in (_OPCODE, _FUSION, _TARGET))
        kind = f"{fusion.removeprefix('k').lower()} {opcode}" if fusion else f"{opcode} {target}" if target else opcode
        start, end = self._inside(_ABOUT, row, _METADATA).bytes_at(0)
        op_name = self._buffer.raw[int(start[0]) : int(end[0])].decode(errors="backslashreplace")
        operands = [self._by_id[number] for number in self._packed(self._instructions, _OPERANDS, row) if number in self._by_id]
        shapes = [self._inside(_OUTPUT, operand, _SHAPE) for operand in operands]
        return Instruction(
            opcode,
            kind,
            op_name,
            msgspec.json.encode([self._packed(shape, 1, 0) for shape in shapes]).decode(),
            msgspec.json.encode([_TYPES.get(int(shape.value[0, 0]), "") for shape in shapes]).decode(),
        )

    def _decode(self, start: object, end: object, layout: Layout) -> Messages:
        return wire.decode(self._buffer, np.asarray(start, np.int64), np.asarray(end, np.int64), layout)

    def _inside(self, place: int, row: int, layout: Layout) -> Messages:
        starts, ends = self._instructions.bytes_at(place)
        return self._decode(starts[row : row + 1], ends[row : row + 1], layout)

    def _packed(self, messages: Messages, place: int, row: int) -> list[int]:
        return wire.packed(self._buffer, int(messages.value[place, row]), int(messages.end[place, row]))

    def _text(self, place: int, row: int) -> str:
        start, end = int(self._instructions.value[place, row]), int(self._instructions.end[place, row])
        return self._buffer.raw[start:end].decode(errors="backslashreplace")


def scope(op_name: str) -> str:
    """The scopes of an operation's name, without the primitive at its end and without JAX's transformations around them.

    `jit(f)/transpose(jvp(mlp))/layer0/dot_general` is in `jit(f)/mlp/layer0`, as is its forward pass. An instruction that was made from
    several operations is in the common part of their scopes.
    """
    if "/(" in op_name:  # a/(b/x:c/y)
        return _strip_transformations(op_name[: op_name.index("/(")].split("/"))
    paths = [path.split("/")[:-1] for path in op_name.split(";")]
    return _strip_transformations([parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))])


def _strip_transformations(parts: list[str]) -> str:
    return "/".join(name for part in parts if (name := _strip_transformation(part)))


def _strip_transformation(part: str) -> str:
    while match := re.fullmatch(r"(?:jvp|transpose|vmap|remat|checkpoint|rematted_computation)\((.*)\)", part):
        part = match[1]
    return part
