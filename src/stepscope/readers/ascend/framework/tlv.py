"""Binary records of torch_npu and MindSpore: type, length and content; the content is a head of fixed size and fields of the same form."""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import units
from stepscope.model.intervals import Ints
from stepscope.readers.common.problems import Problem

_PREFIX = struct.Struct("<HI")  # type, length
_NONE = np.empty(0, np.int64)


class Records(NamedTuple):
    """The heads of a file's records, and the positions of their fields."""

    heads: NDArray[Any]
    data: bytes
    fields: dict[int, tuple[Ints, Ints, Ints]]  # by type: records, first byte, byte after the last

    def text(self, field: int) -> pl.Series:
        """The field of each record; null for records without it."""
        rows, begins, ends = self.fields.get(field, (_NONE, _NONE, _NONE))
        texts = [self.data[begin:end].decode("utf-8", "replace") for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        column = pl.Series([None], dtype=pl.String).new_from_index(0, len(self.heads))
        return column.scatter(pl.Series(rows), pl.Series(texts, dtype=pl.String)) if len(rows) else column


def read(file: Path, head: np.dtype[Any], problems: list[Problem]) -> Records:
    data = file.read_bytes()
    begins, ends, intact = _bounds(data)
    problems += _rest(file, len(data) - intact)
    short = ends - begins < head.itemsize
    if short.any():
        problems.append(Problem(file.name, "records that are too short", int(short.sum())))
        begins, ends = begins[~short], ends[~short]
    buffer = np.frombuffer(data, np.uint8)
    heads = buffer[begins[:, None] + np.arange(head.itemsize)].view(head).reshape(-1) if len(begins) else np.empty(0, head)
    fields, lost = _fields(buffer, begins + head.itemsize, ends)
    if lost:
        problems.append(Problem(file.name, "records whose last field is truncated", lost))
    return Records(heads, data, fields)


def read_fixed(file: Path, layout: np.dtype[Any], problems: list[Problem]) -> NDArray[Any]:
    """A file of records of fixed size, without type and length."""
    data = file.read_bytes()
    problems += _rest(file, len(data) % layout.itemsize)
    return np.frombuffer(data, layout, count=len(data) // layout.itemsize)


def _rest(file: Path, size: int) -> list[Problem]:
    count = units.count(size, "byte at the end belongs", "bytes at the end belong")
    return [Problem(file.name, f"{count} to no complete record", 1)] if size else []


def _bounds(data: bytes) -> tuple[Ints, Ints, int]:
    """Start and end of each record's content, and the end of the last complete record."""
    begins, ends, position = [], [], 0
    while position + _PREFIX.size <= len(data):
        begin = position + _PREFIX.size
        end = begin + _PREFIX.unpack_from(data, position)[1]
        if end > len(data):
            break
        begins.append(begin)
        ends.append(end)
        position = end
    return np.array(begins, np.int64), np.array(ends, np.int64), position


def _fields(buffer: NDArray[np.uint8], begins: Ints, ends: Ints) -> tuple[dict[int, tuple[Ints, Ints, Ints]], int]:
    """Fields by type, and the number of truncated records: the first field of all records at once, then the second, and so on."""
    parts: dict[int, list[tuple[Ints, Ints, Ints]]] = {}
    rows, position, lost = np.arange(len(begins)), begins.copy(), 0
    while len(rows):
        more = position + _PREFIX.size <= ends[rows]
        lost += int((position[~more] < ends[rows[~more]]).sum())
        rows, position = rows[more], position[more]
        kind = _number(buffer, position, 2)
        begin = position + _PREFIX.size
        end = begin + _number(buffer, position + 2, 4)
        complete = end <= ends[rows]
        lost += int((~complete).sum())
        rows, kind, begin, end = rows[complete], kind[complete], begin[complete], end[complete]
        for number in np.unique(kind).tolist():
            same = kind == number
            parts.setdefault(number, []).append((rows[same], begin[same], end[same]))
        position = end
    joined = {kind: tuple(np.concatenate(column) for column in zip(*columns, strict=True)) for kind, columns in parts.items()}
    return {kind: (columns[0], columns[1], columns[2]) for kind, columns in joined.items()}, lost


def _number(buffer: NDArray[np.uint8], at: Ints, size: int) -> Ints:
    total = np.zeros(len(at), np.int64)
    for byte in range(size):
        total |= buffer[at + byte].astype(np.int64) << 8 * byte
    return total
