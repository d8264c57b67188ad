"""Columns of a timeline under construction: filled portion by portion, in memory or in files.

A timeline of a hundred million spans is built in portions. A portion is stored as *parts*: runs of one row, ordered by time. A *window*
merges the parts of some rows between two timestamps.
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

from stepscope.model.intervals import Ints

PORTION = 1 << 20  # spans that are processed at a time
MEMORY_ROWS = 12 << 20  # spans buffered in memory; further spans go to files
_STRIDE = 1 << 12  # every _STRIDE-th timestamp of a part stays in memory, as an index
_Array = NDArray[Any]


class Column:
    """An array that is filled piece by piece, from one or several threads."""

    def __init__(self, dtype: Any, count: int = 0, file: Path | None = None, values: _Array | None = None) -> None:
        self._dtype, self.count = np.dtype(dtype), count if values is None else len(values)
        self._path = file
        self._file = -1 if file is None else os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._close = weakref.finalize(self, os.close, self._file) if file else None
        if file:
            os.truncate(self._file, count * self._dtype.itemsize)
        self._array: _Array = np.empty(0 if file else count, self._dtype) if values is None else values

    def put(self, at: int, values: _Array) -> None:
        if self._path is None:
            self._array[at : at + len(values)] = values
            return
        rest, offset = _bytes(np.ascontiguousarray(values, self._dtype)), at * self._dtype.itemsize
        while len(rest):
            written = os.pwrite(self._file, rest, offset)
            offset, rest = offset + written, rest[written:]

    def append(self, values: _Array) -> None:
        at, self.count = self.count, self.count + len(values)
        if self._path is None and self.count > len(self._array):
            grown = np.empty(max(self.count, 2 * len(self._array)), self._dtype)
            grown[:at] = self._array[:at]
            self._array = grown
        self.put(at, values)

    def get(self, low: int, high: int) -> _Array:
        if self._path is None:
            return self._array[low:high]
        values = np.empty(max(high - low, 0), self._dtype)
        rest, offset = _bytes(values), low * self._dtype.itemsize
        while len(rest):
            read = os.preadv(self._file, [rest], offset)
            if read == 0:
                raise OSError(f"{self._path} is shorter than it was")
            offset, rest = offset + read, rest[read:]
        return values

    def finish(self) -> _Array:
        """The whole array; a file is mapped into memory."""
        if self._path is None or self._close is None:
            return self._array[: self.count]
        self._close()
        return map_file(self._path, self._dtype, self.count)


def _bytes(values: _Array) -> memoryview:
    return memoryview(values.view(np.uint8).data)


def map_file(file: Path, dtype: Any, count: int) -> _Array:
    """An array of `count` numbers that is read from the file on access."""
    expected = count * np.dtype(dtype).itemsize
    if file.stat().st_size != expected:
        raise ValueError(f"{file} has {file.stat().st_size} bytes; expected {expected}")
    return np.memmap(file, dtype, "r", shape=(count,)).view(np.ndarray) if count else np.empty(0, dtype)


def release(arrays: Iterable[_Array]) -> None:
    """Free the resident pages of mapped arrays. The next access reads them again."""
    for array in arrays:
        file_map = getattr(array.base, "_mmap", None)
        if file_map is not None:
            file_map.madvise(mmap.MADV_DONTNEED)


class Window(NamedTuple):
    end: int | None  # rows of the window begin before this timestamp; None for the last window
    columns: tuple[_Array, ...]  # the first is the timestamp


class _Part(NamedTuple):
    columns: tuple[Column, ...]
    low: int
    high: int
    timestamps: Ints  # every _STRIDE-th timestamp, and the last

    def first_from(self, time: int) -> int:
        """Position of the first entry that does not begin before a timestamp."""
        if self.timestamps[-1] < time:
            return self.high
        block = max(int(np.searchsorted(self.timestamps[:-1], time, "left")) - 1, 0)
        low = self.low + block * _STRIDE
        return low + int(np.searchsorted(self.columns[0].get(low, min(low + _STRIDE, self.high)), time, "left"))


class RowBuffer:
    """Rows of timestamped entries. Portions arrive in any order; each is sorted by row and time on arrival."""

    def __init__(self, dtypes: Iterable[Any], folder: Path | None) -> None:
        self._dtypes = tuple(dtypes)
        self._folder = folder
        self._files: tuple[Column, ...] | None = None
        self._in_memory = 0
        self._parts: dict[int, list[_Part]] = {}

    def add(self, row: NDArray[Any], columns: tuple[_Array, ...]) -> None:
        if len(row) == 0:
            return
        if int(row.max()) < 1 << 16:
            row = row.astype(np.uint16)  # numpy sorts 16 bits in two passes
        order = np.argsort(row, kind="stable")
        row = row[order]
        edges = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1).tolist(), len(row)]
        time = columns[0][order]
        for low, high in itertools.pairwise(edges):
            row_time = time[low:high]
            if (row_time[1:] < row_time[:-1]).any():
                by_time = np.argsort(row_time, kind="stable")
                order[low:high] = order[low:high][by_time]
                row_time[:] = row_time[by_time]
        self._store(row, edges, (time, *(column[order] for column in columns[1:])))

    def add_row(self, row: int, columns: tuple[_Array, ...]) -> None:
        """Append entries to one row; they must be ordered by time."""
        if len(columns[0]):
            self._store(np.array([row]), [0, len(columns[0])], columns)

    def count(self, row: int) -> int:
        return sum(part.high - part.low for part in self._parts.get(row, ()))

    def drop(self, row: int) -> None:
        self._parts.pop(row, None)

    def last_before(self, row: int, time: int) -> tuple[Any, ...] | None:
        """The last entry of a row that begins before a timestamp."""
        positions = [(part, part.first_from(time) - 1) for part in self._parts.get(row, ())]
        entries = [tuple(column.get(at, at + 1)[0] for column in part.columns) for part, at in positions if at >= part.low]
        return max(entries, key=lambda entry: entry[0], default=None)

    def windows(self, rows: Iterable[int], size: int = PORTION) -> Iterator[Window]:
        """The entries of some rows by time, about `size` per window, however the portions lie in time."""
        parts = [part for row in rows for part in self._parts.get(row, ())]
        edges: list[int | None] = [None]
        if sum(part.high - part.low for part in parts) > size + _STRIDE:
            timestamps = np.sort(np.concatenate([part.timestamps[:-1] for part in parts]))
            step = max(size // _STRIDE, 1)
            edges = [*np.unique(timestamps[step::step]).tolist(), None]
        lows = [part.low for part in parts]
        for edge in edges:
            highs = [part.high if edge is None else part.first_from(edge) for part in parts]
            slices = [(part, low, high) for part, low, high in zip(parts, lows, highs, strict=True) if low < high]
            lows = highs
            if slices:
                yield Window(edge, _merge(slices))

    def _store(self, row: NDArray[Any], edges: list[int], columns: tuple[_Array, ...]) -> None:
        """Store sorted columns; each range between two edges belongs to one row."""
        count, at = len(columns[0]), 0
        if self._folder is not None and self._in_memory + count > MEMORY_ROWS:
            if self._files is None:
                names = [self._folder / f"buffer{id(self)}_{number}" for number in range(len(self._dtypes))]
                self._files = tuple(Column(dtype, 0, name) for dtype, name in zip(self._dtypes, names, strict=True))
                for name in names:
                    name.unlink()  # the open descriptor keeps the file alive
            target, at = self._files, self._files[0].count
            for column, values in zip(target, columns, strict=True):
                column.append(values)
        else:
            self._in_memory += count
            target = tuple(Column(dtype, values=values) for dtype, values in zip(self._dtypes, columns, strict=True))
        for low, high in itertools.pairwise(edges):
            time = columns[0][low:high]
            self._parts.setdefault(int(row[low]), []).append(_Part(target, at + low, at + high, np.append(time[::_STRIDE], time[-1])))


def _merge(slices: list[tuple[_Part, int, int]]) -> tuple[_Array, ...]:
    pieces = [tuple(column.get(low, high) for column in part.columns) for part, low, high in slices]
    if len(pieces) == 1:
        return pieces[0]
    columns = tuple(np.concatenate(column) for column in zip(*pieces, strict=True))
    if (columns[0][1:] < columns[0][:-1]).any():
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)
    return columns
