"""Rows of events put in their places, row by row, on all processors: what can be seen of each at any zoom, and sums of its chunks.

A *chunk* is CHUNK events of a row that follow one another. How often and how long each label occurs in it is summed up once, so that a
search and an area look at the events of the chunks at their edges alone.
"""

import bisect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope import pyramid
from stepscope.intervals import Ints
from stepscope.pyramid import Buckets, Events, Pyramid, Some
from stepscope.timelines.columns import PORTION, Column, Waiting, release

CHUNK = 1 << 16
SAMPLES = 1 << 8  # of counters whose extremes are kept
_DENSE = 1 << 15  # labels that are counted in a table of them all
_Codes = NDArray[np.int32]
# The files of a timeline: what stands in each.
KINDS: dict[str, Any] = dict.fromkeys(
    ("start", "dur", "reach", "bucket", "busy", "began", "longest", "long", "sum_times", "sum_total", "sum_longest", "sum_taken", "at"),
    np.int64,
)
KINDS |= {"label": np.int32, "span": np.int32, "sum_label": np.int32, "kind": np.uint8, "value": np.float64}
_EVENTS = ("start", "dur", "reach", "label", "kind", "span")
_SHORT = ("bucket", "busy", "began", "longest")
_SUMS = ("sum_label", "sum_times", "sum_total", "sum_longest", "sum_taken")


class Entries(NamedTuple):
    """Of some events, by label."""

    label: _Codes
    times: Ints
    total: Ints  # how long together
    longest: Ints
    taken: Ints  # how much of events of this label, in the row above, these events cover


class Sums(NamedTuple):
    first: Ints  # by row: the number of its first chunk; and how many there are
    places: Ints  # by chunk: from where to where in `entries`
    entries: Entries


class Samples(NamedTuple):
    """The counters, one after the other, each by time."""

    offsets: Ints
    at: Ints
    value: NDArray[np.float64]
    least: NDArray[np.float64]  # of each SAMPLES values, whichever counters they are of; and one more, which says nothing
    most: NDArray[np.float64]


def column(name: str, count: int, folder: Path | None) -> Column:
    return Column(KINDS[name], count, folder / name if folder else None)


def filled(
    waiting: Waiting, rows: list[int], above: list[int], labels: int, end: int, folder: Path | None, heard: Callable[[float], None]
) -> tuple[Pyramid, Sums]:
    """The timeline's rows, in order, by their numbers in `waiting`; `above` is the row of what each row's events are part of, or -1."""
    counts = [waiting.count(row) for row in rows]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    made = _Made(offsets, above, labels, pyramid.top_level(end), folder)
    total, done = max(int(offsets[-1]), 1), 0
    # Large rows first, so that no processor waits long for the others in the end.
    order = sorted(range(len(rows)), key=lambda row: -counts[row])
    with ThreadPoolExecutor(os.cpu_count() or 1, "stepscope-row") as pool:
        for work, share in ((lambda row: made.place(row, waiting.windows([rows[row]])), 0.5), (made.sum_up, 1.0)):
            begun, done = share - 0.5, 0
            for row, _ in zip(order, pool.map(work, order), strict=True):
                done += counts[row]
                heard(begun + done / total / 2)
    return made.done()


def samples(waiting: Waiting, rows: list[int], over_time: list[bool], folder: Path | None) -> Samples:
    """Each from when it holds. What is of the time before its sample holds since the one before; the first as long as the next one does,
    and one that is alone from the beginning."""
    offsets = np.concatenate(([0], np.cumsum([waiting.count(row) for row in rows]))).astype(np.int64)
    at, value = column("at", int(offsets[-1]), folder), column("value", int(offsets[-1]), folder)
    for number, row in enumerate(rows):
        place = int(offsets[number])
        last: Ints = np.empty(0, np.int64)
        for window in waiting.windows([row]):
            moment = window.columns[0]
            if over_time[number]:
                since = last if len(last) else np.maximum(2 * moment[:1] - moment[1:2], 0) if len(moment) > 1 else np.zeros(1, np.int64)
                moment, last = np.concatenate((since, moment[:-1])), moment[-1:]
            at.put(place, moment)
            value.put(place, window.columns[1])
            place += len(moment)
    values: NDArray[np.float64] = value.done()
    return Samples(offsets, at.done(), values, *extremes(values))


def extremes(value: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the most of each SAMPLES values."""
    found = np.zeros((2, -(-len(value) // SAMPLES) + 1))
    step = max(PORTION // SAMPLES, 1) * SAMPLES
    for low in range(0, len(value), step):
        some = value[low : low + step]
        first = np.arange(0, len(some), SAMPLES)
        at = low // SAMPLES
        found[:, at : at + len(first)] = np.minimum.reduceat(some, first), np.maximum.reduceat(some, first)
    release([value])
    return found[0], found[1]


class _Made:
    """A timeline's arrays, while they are filled. Rows are independent of one another, but for the one above."""

    def __init__(self, offsets: Ints, above: list[int], labels: int, top: int, folder: Path | None) -> None:
        self._offsets, self._above, self._labels, self._top = offsets, above, labels, top
        self._columns = {name: column(name, int(offsets[-1]), folder) for name in _EVENTS}
        self._kept = {name: column(name, 0, folder) for name in (*_SHORT, "long", *_SUMS)}
        self._lowest = np.full(len(offsets) - 1, top + 1, np.int64)
        self._places = np.zeros((len(offsets) - 1, top + 1, 4), np.int64)
        self._first_chunk = np.concatenate(([0], np.cumsum(-(-np.diff(offsets) // CHUNK)))).astype(np.int64)
        self._chunks = np.zeros((int(self._first_chunk[-1]), 2), np.int64)
        self._turn = threading.Lock()

    def place(self, row: int, windows: Iterable[Any]) -> None:
        at, reached, crowd = int(self._offsets[row]), pyramid.NEVER, pyramid.Crowd()
        for window in windows:
            start, dur, label, kind, span = window.columns
            reach = start + dur
            reach[0] = max(int(reach[0]), reached)
            np.maximum.accumulate(reach, out=reach)
            reached = int(reach[-1])
            for name, values in zip(_EVENTS, (start, dur, reach, label, kind, span), strict=True):
                self._columns[name].put(at, values)
            at += len(start)
            crowd.add(start)
        self._lowest[row] = crowd.level(self._top)

    def sum_up(self, row: int) -> None:
        kept = int(self._lowest[row]) <= self._top
        portions = self._portions(row)
        if not kept:
            for _ in portions:
                pass
            return
        for level, (short, long) in enumerate(pyramid.levels(portions, int(self._lowest[row]), self._top), int(self._lowest[row])):
            with self._turn:
                low, long_low = self._append(_SHORT, short), self._append(("long",), (long,))
            self._places[row, level] = low, low + len(short.bucket), long_low, long_low + len(long)

    def done(self) -> tuple[Pyramid, Sums]:
        arrays = {name: own.done() for name, own in (self._columns | self._kept).items()}
        return joined(self._offsets, self._top, self._lowest, self._places, self._first_chunk, self._chunks, arrays)

    def _append(self, names: Iterable[str], columns: Iterable[NDArray[Any]]) -> int:
        at = 0
        for name, values in zip(names, columns, strict=True):
            at = self._kept[name].count
            self._kept[name].append(values)
        return at

    def _portions(self, row: int) -> Iterator[Some]:
        """The row in portions; while it passes, its chunks are summed up."""
        first, last = self._offsets[row : row + 2].tolist()
        near = None if self._above[row] < 0 else self._offsets[self._above[row] : self._above[row] + 2].tolist()
        for low in range(first, last, PORTION):
            some = pyramid.portion(self._get, slice(low, min(low + PORTION, last)), first)
            label = self._get("label", low, low + len(some.number))
            above = self._parents(some.start, *near) if near else None
            for begin in range(0, len(some.number), CHUNK):
                part = slice(begin, begin + CHUNK)
                start, dur = some.start[part], some.dur[part]
                taken = above.taken(part, start, start + dur) if above else None
                entries = summed(self._labels, label[part], dur, taken)
                with self._turn:
                    at = self._append(_SUMS, entries)
                self._chunks[int(self._first_chunk[row]) + (low - first + begin) // CHUNK] = at, at + len(entries.label)
            yield some

    def _parents(self, start: Ints, low: int, high: int) -> "Above":
        """What began last in the row from `low` to `high` when each of these began."""
        starts = self._columns["start"]
        first, last = (bisect.bisect_right(range(low, high), int(at), key=lambda one: starts.get(one, one + 1)[0]) for at in start[[0, -1]])
        from_, to = max(low + first - 1, low), low + last
        if to - from_ > 2 * PORTION and len(start) > 1:
            half = len(start) // 2
            one, two = self._parents(start[:half], low, high), self._parents(start[half:], low, high)
            return Above(np.append(one.end, two.end), np.append(one.label, two.label))
        return last_begun(start, *(self._get(name, from_, to) for name in ("start", "dur", "label")))

    def _get(self, name: str, low: int, high: int) -> Any:
        return self._columns[name].get(low, high)


def joined(
    offsets: Ints, top: int, lowest: Ints, places: Ints, first_chunk: Ints, chunks: Ints, arrays: dict[str, NDArray[Any]]
) -> tuple[Pyramid, Sums]:
    """The parts of a timeline from the arrays of its files."""
    events = Events(offsets, *(arrays[name] for name in _EVENTS))
    buckets = Buckets(*(arrays[name] for name in _SHORT))
    sums = Sums(first_chunk, chunks, Entries(*(arrays[name] for name in _SUMS)))
    return Pyramid(events, top, lowest, places, buckets, arrays["long"]), sums


class Above(NamedTuple):
    """For each of some events, what it is part of."""

    end: Ints  # when that ends; NEVER for nothing
    label: _Codes

    def taken(self, some: slice, first: Ints, last: Ints) -> tuple[_Codes, Ints]:
        """How much of it these events cover, from a first to a last moment: by label."""
        return self.label[some], np.maximum(np.minimum(last, self.end[some]), first) - first  # NEVER is as small as numbers get


def last_begun(at: Ints, start: Ints, dur: Ints, label: _Codes) -> Above:
    """The last of the events of a row that had begun at these moments, which are in order."""
    if len(start) == 0:
        return Above(np.full(len(at), pyramid.NEVER), np.zeros(len(at), np.int32))
    found = np.searchsorted(start, at, "right") - 1
    return Above(np.where(found >= 0, start[found] + dur[found], pyramid.NEVER), label[found])


def summed(labels: int, label: _Codes, length: Ints, taken: tuple[_Codes, Ints] | None) -> Entries:
    """By label: how many, how long, how long the longest; and how much of what labels they take."""
    other, part = taken or (np.empty(0, np.int32), np.empty(0, np.int64))
    used: Any = None
    if labels > _DENSE:
        used, where = np.unique(np.concatenate((label, other)), return_inverse=True)
        label, other, labels = where[: len(label)].astype(np.int32), where[len(label) :].astype(np.int32), len(used)
    count, total = np.bincount(label, minlength=labels), np.bincount(label, length, labels)
    away = np.bincount(other, part, labels) if len(other) else np.zeros(labels)
    some = np.flatnonzero((count > 0) | (away > 0))
    longest = np.zeros(labels, np.int64)
    np.maximum.at(longest, label, length)
    numbers = (some if used is None else used[some]).astype(np.int32)
    return Entries(numbers, count[some], total[some].astype(np.int64), longest[some], away[some].astype(np.int64))
