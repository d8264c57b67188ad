"""Records of type, length and content, as torch_npu and MindSpore write them: a head of fixed size, then fields of the same form."""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import units
from stepscope.intervals import Ints
from stepscope.readers._kineto import Problem

_PREFIX = struct.Struct("<HI")  # type, length


class Tlv(NamedTuple):
    """The heads of a file's records, and where their fields are."""

    heads: NDArray[Any]
    data: bytes
    fields: dict[int, tuple[Ints, Ints, Ints]]  # by type: records, first byte, byte behind the last

    def text(self, field: int) -> pl.Series:
        """The field of each record; null where it has none."""
        rows, begins, ends = self.fields.get(field, (_NONE, _NONE, _NONE))
        texts = [self.data[begin:end].decode("utf-8", "replace") for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        words = pl.Series([None], dtype=pl.String).new_from_index(0, len(self.heads))
        return words.scatter(pl.Series(rows), pl.Series(texts, dtype=pl.String)) if len(rows) else words


_NONE = np.empty(0, np.int64)


def read(file: Path, head: np.dtype[Any], problems: list[Problem]) -> Tlv:
    data = file.read_bytes()
    begins, ends, past = _bounds(data)
    if past < len(data):
        problems.append(
            Problem(
                file.name, f"{units.count(len(data) - past, 'byte at the end belongs', 'bytes at the end belong')} to no whole record", 1
            )
        )
    short = ends - begins < head.itemsize
    if short.any():
        problems.append(Problem(file.name, "records that are too short", int(short.sum())))
        begins, ends = begins[~short], ends[~short]
    buffer = np.frombuffer(data, np.uint8)
    heads = buffer[begins[:, None] + np.arange(head.itemsize)].view(head).reshape(-1) if len(begins) else np.empty(0, head)
    fields, lost = _fields(buffer, begins + head.itemsize, ends)
    if lost:
        problems.append(Problem(file.name, "records whose last field is cut off", lost))
    return Tlv(heads, data, fields)


def _bounds(data: bytes) -> tuple[Ints, Ints, int]:
    """Where each record's content is; and where the last whole one ends."""
    begins, ends, here = [], [], 0
    while here + _PREFIX.size <= len(data):
        length = _PREFIX.unpack_from(data, here)[1]
        end = here + _PREFIX.size + length
        if end > len(data):
            break
        begins.append(here + _PREFIX.size)
        ends.append(end)
        here = end
    return np.array(begins, np.int64), np.array(ends, np.int64), here


def _fields(buffer: NDArray[np.uint8], begins: Ints, ends: Ints) -> tuple[dict[int, tuple[Ints, Ints, Ints]], int]:
    """The first field of all records, then the second, and so on."""
    parts: dict[int, list[tuple[Ints, Ints, Ints]]] = {}
    rows, here, lost = np.arange(len(begins)), begins.copy(), 0
    while len(rows):
        there = here + _PREFIX.size <= ends[rows]
        lost += int((here[~there] < ends[rows[~there]]).sum())
        rows, here = rows[there], here[there]
        kind = _number(buffer, here, 2)
        begin = here + _PREFIX.size
        end = begin + _number(buffer, here + 2, 4)
        whole = end <= ends[rows]
        lost += int((~whole).sum())
        rows, kind, begin, end = rows[whole], kind[whole], begin[whole], end[whole]
        for one in np.unique(kind).tolist():
            mine = kind == one
            parts.setdefault(one, []).append((rows[mine], begin[mine], end[mine]))
        here = end
    joined = {kind: tuple(np.concatenate(column) for column in zip(*found, strict=True)) for kind, found in parts.items()}
    return {kind: (columns[0], columns[1], columns[2]) for kind, columns in joined.items()}, lost


def _number(buffer: NDArray[np.uint8], at: Ints, size: int) -> Ints:
    total = np.zeros(len(at), np.int64)
    for byte in range(size):
        total |= buffer[at + byte].astype(np.int64) << 8 * byte
    return total
