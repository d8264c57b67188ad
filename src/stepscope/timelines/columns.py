"""Numbers on their way into a timeline: put where they belong piece by piece, in memory, or in files of which nothing stays in memory.

A timeline of a hundred million events is built in portions. What was read waits as *parts*: stretches of one row, in order of time, of
all the portions. A *window* is what begins in some rows between two moments, in order, put together from those parts.
"""

import itertools
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Ints

PORTION = 1 << 20  # events that are worked on at a time
ROOM = 12 << 20  # events that wait in memory; more wait in files
_STRIDE = 1 << 12  # every so many moments of a part are remembered, to find a moment in it
_Array = NDArray[Any]


class Column:
    """An array that is filled piece by piece. The pieces may come from several threads."""

    def __init__(self, kind: Any, count: int = 0, file: Path | None = None, held: _Array | None = None) -> None:
        self._kind, self.count = np.dtype(kind), count if held is None else len(held)
        self._path = file
        self._file = -1 if file is None else os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._close = weakref.finalize(self, os.close, self._file) if file else None
        if file:
            os.truncate(self._file, count * self._kind.itemsize)
        self._array: _Array = np.empty(0 if file else count, self._kind) if held is None else held

    def put(self, at: int, values: _Array) -> None:
        if self._path is None:
            self._array[at : at + len(values)] = values
            return
        rest, place = _bytes(np.ascontiguousarray(values, self._kind)), at * self._kind.itemsize
        while len(rest):
            written = os.pwrite(self._file, rest, place)
            place, rest = place + written, rest[written:]

    def append(self, values: _Array) -> None:
        at, self.count = self.count, self.count + len(values)
        if self._path is None and self.count > len(self._array):
            grown = np.empty(max(self.count, 2 * len(self._array)), self._kind)
            grown[:at] = self._array[:at]
            self._array = grown
        self.put(at, values)

    def get(self, low: int, high: int) -> _Array:
        if self._path is None:
            return self._array[low:high]
        found = np.empty(max(high - low, 0), self._kind)
        rest, place = _bytes(found), low * self._kind.itemsize
        while len(rest):
            read = os.preadv(self._file, [rest], place)
            if read == 0:
                raise OSError(f"{self._path} is shorter than it was")
            place, rest = place + read, rest[read:]
        return found

    def done(self) -> _Array:
        """All of it: what is in a file is mapped into memory."""
        if self._path is None or self._close is None:
            return self._array[: self.count]
        self._close()
        return mapped(self._path, self._kind, self.count)


def _bytes(values: _Array) -> memoryview:
    return memoryview(values.view(np.uint8).data)


def mapped(file: Path, kind: Any, count: int) -> _Array:
    """An array of that many numbers that is read as it is looked at."""
    expected = count * np.dtype(kind).itemsize
    if file.stat().st_size != expected:
        raise ValueError(f"{file} has {file.stat().st_size} bytes; expected {expected}")
    return np.memmap(file, kind, "r", shape=(count,)).view(np.ndarray) if count else np.empty(0, kind)


def release(arrays: Iterable[_Array]) -> None:
    """Give back the memory of what was looked at of mapped arrays; the system still has it, and it comes again when it is looked at."""
    for array in arrays:
        own = getattr(array.base, "_mmap", None)
        if own is not None:
            own.madvise(mmap.MADV_DONTNEED)


class Window(NamedTuple):
    end: int | None  # what begins before; None for the last
    columns: tuple[_Array, ...]  # the first is time


class _Part(NamedTuple):
    columns: tuple[Column, ...]
    low: int
    high: int
    some: Ints  # every _STRIDE-th moment, and the last

    def before(self, moment: int) -> int:
        """Where the first is that does not begin before a moment."""
        if self.some[-1] < moment:
            return self.high
        block = max(int(np.searchsorted(self.some[:-1], moment, "left")) - 1, 0)
        low = self.low + block * _STRIDE
        return low + int(np.searchsorted(self.columns[0].get(low, min(low + _STRIDE, self.high)), moment, "left"))


class Waiting:
    """Rows of things with a moment, in portions that come in any order. Each portion is put in order by row and time when it comes."""

    def __init__(self, kinds: Iterable[Any], folder: Path | None) -> None:
        self._kinds = tuple(kinds)
        self._folder = folder
        self._files: tuple[Column, ...] | None = None
        self._in_memory = 0
        self._parts: dict[int, list[_Part]] = {}

    def add(self, row: NDArray[Any], columns: tuple[_Array, ...]) -> None:
        if len(row) == 0:
            return
        if int(row.max()) < 1 << 16:
            row = row.astype(np.uint16)  # which is sorted in two passes
        order = np.argsort(row, kind="stable")
        row = row[order]
        edges = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1).tolist(), len(row)]
        time = columns[0][order]
        for low, high in itertools.pairwise(edges):
            own = time[low:high]
            if (own[1:] < own[:-1]).any():
                again = np.argsort(own, kind="stable")
                order[low:high] = order[low:high][again]
                own[:] = own[again]
        self._keep(row, edges, (time, *(column[order] for column in columns[1:])))

    def add_row(self, row: int, columns: tuple[_Array, ...]) -> None:
        """More of one row, in order of time."""
        if len(columns[0]):
            self._keep(np.array([row]), [0, len(columns[0])], columns)

    def rows(self) -> list[int]:
        return sorted(self._parts)

    def count(self, row: int) -> int:
        return sum(part.high - part.low for part in self._parts.get(row, ()))

    def drop(self, row: int) -> None:
        self._parts.pop(row, None)

    def last_before(self, row: int, moment: int) -> tuple[Any, ...] | None:
        """The last of a row that begins before a moment."""
        found = [(part, part.before(moment) - 1) for part in self._parts.get(row, ())]
        every = [tuple(column.get(at, at + 1)[0] for column in part.columns) for part, at in found if at >= part.low]
        return max(every, key=lambda one: one[0], default=None)

    def windows(self, rows: Iterable[int], size: int = PORTION) -> Iterator[Window]:
        """All of some rows by time, about so much at once, however the portions lie in time."""
        parts = [part for row in rows for part in self._parts.get(row, ())]
        edges: list[int | None] = [None]
        if sum(part.high - part.low for part in parts) > size + _STRIDE:
            some = np.sort(np.concatenate([part.some[:-1] for part in parts]))
            step = max(size // _STRIDE, 1)
            edges = [*np.unique(some[step::step]).tolist(), None]
        at = [part.low for part in parts]
        for edge in edges:
            until = [part.high if edge is None else part.before(edge) for part in parts]
            chosen = [(part, low, high) for part, low, high in zip(parts, at, until, strict=True) if low < high]
            at = until
            if chosen:
                yield Window(edge, _together(chosen))

    def _keep(self, row: NDArray[Any], edges: list[int], columns: tuple[_Array, ...]) -> None:
        """Sorted columns, of which each stretch between two edges is of one row."""
        count, at = len(columns[0]), 0
        if self._folder is not None and self._in_memory + count > ROOM:
            if self._files is None:
                names = [self._folder / f"waiting{id(self)}_{number}" for number in range(len(self._kinds))]
                self._files = tuple(Column(kind, 0, name) for kind, name in zip(self._kinds, names, strict=True))
                for name in names:
                    name.unlink()  # they go when nobody has them open any more
            home, at = self._files, self._files[0].count
            for column, values in zip(home, columns, strict=True):
                column.append(values)
        else:
            self._in_memory += count
            home = tuple(Column(kind, held=values) for kind, values in zip(self._kinds, columns, strict=True))
        for low, high in itertools.pairwise(edges):
            own = columns[0][low:high]
            self._parts.setdefault(int(row[low]), []).append(_Part(home, at + low, at + high, np.append(own[::_STRIDE], own[-1])))


def _together(chosen: list[tuple[_Part, int, int]]) -> tuple[_Array, ...]:
    pieces = [tuple(column.get(low, high) for column in part.columns) for part, low, high in chosen]
    if len(pieces) == 1:
        return pieces[0]
    columns = tuple(np.concatenate(column) for column in zip(*pieces, strict=True))
    if (columns[0][1:] < columns[0][:-1]).any():
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)
    return columns
