"""The rows of a timeline, written on all processors: its zoom levels and the sums of its chunks.

A *chunk* is CHUNK consecutive spans of a row. The count and duration of each label in it are summed once, so that a search or an area
reads only the spans of the chunks at its edges.
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

from stepscope.model.intervals import Ints
from stepscope.timeline import pyramid
from stepscope.timeline.construction.columns import PORTION, Column, RowBuffer, Window, release
from stepscope.timeline.pyramid import Buckets, Portion, Pyramid, Spans

CHUNK = 1 << 16
SAMPLES = 1 << 8  # samples of counters whose extremes are stored
_DENSE = 1 << 15  # labels that are counted in an array of all labels
_Codes = NDArray[np.int32]
# The files of a timeline and the type of their numbers.
DTYPES: dict[str, Any] = dict.fromkeys(
    ("start", "dur", "reach", "bucket", "busy", "began", "longest", "long", "sum_count", "sum_total", "sum_longest", "sum_covered", "at"),
    np.int64,
)
DTYPES |= {"label": np.int32, "span": np.int32, "sum_label": np.int32, "kind": np.uint8, "value": np.float64}
_SPANS = ("start", "dur", "reach", "label", "kind", "span")
_BUCKETS = ("bucket", "busy", "began", "longest")
_SUMS = ("sum_label", "sum_count", "sum_total", "sum_longest", "sum_covered")


class LabelSums(NamedTuple):
    """Sums over spans, by label."""

    label: _Codes
    spans: Ints
    total: Ints
    longest: Ints
    covered: Ints  # time of this label's spans in the row above that the summed spans cover


class Sums(NamedTuple):
    first: Ints  # by row: its first chunk; then the number of chunks
    places: Ints  # by chunk: low and high in `entries`
    entries: LabelSums


class Samples(NamedTuple):
    """The samples of all counters, each counter ordered by time."""

    offsets: Ints
    at: Ints
    value: NDArray[np.float64]
    least: NDArray[np.float64]  # of each SAMPLES values, across counters; the last entry is padding
    most: NDArray[np.float64]


def new_column(name: str, count: int, folder: Path | None) -> Column:
    return Column(DTYPES[name], count, folder / name if folder else None)


def build_rows(
    buffer: RowBuffer,
    rows: list[int],
    parent_rows: list[int],
    labels: int,
    end: int,
    folder: Path | None,
    on_progress: Callable[[float], None],
) -> tuple[Pyramid, Sums]:
    """The rows of the timeline, in order; `rows` are their numbers in the buffer, `parent_rows` the row of their parents, or -1."""
    counts = [buffer.count(row) for row in rows]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    writer = _RowWriter(offsets, parent_rows, labels, pyramid.top_level(end), folder)
    total = max(int(offsets[-1]), 1)
    # Large rows first, so that all processors are busy until the end.
    order = sorted(range(len(rows)), key=lambda row: -counts[row])
    with ThreadPoolExecutor(os.cpu_count() or 1, "stepscope-row") as pool:
        for work, begun in ((lambda row: writer.write(row, buffer.windows([rows[row]])), 0.0), (writer.summarize, 0.5)):
            done = 0
            for row, _ in zip(order, pool.map(work, order), strict=True):
                done += counts[row]
                on_progress(begun + done / total / 2)
    return writer.finish()


def build_samples(buffer: RowBuffer, rows: list[int], over_time: list[bool], folder: Path | None) -> Samples:
    """The samples of each counter with the start of their validity.

    A value over time covers the interval before its sample, so it is shifted back by one sample. The first covers as much time as the
    second; a single one is valid from the start.
    """
    offsets = np.concatenate(([0], np.cumsum([buffer.count(row) for row in rows]))).astype(np.int64)
    at, value = new_column("at", int(offsets[-1]), folder), new_column("value", int(offsets[-1]), folder)
    for number, row in enumerate(rows):
        position = int(offsets[number])
        last: Ints = np.empty(0, np.int64)
        for window in buffer.windows([row]):
            time = window.columns[0]
            if over_time[number]:
                since = last if len(last) else np.maximum(2 * time[:1] - time[1:2], 0) if len(time) > 1 else np.zeros(1, np.int64)
                time, last = np.concatenate((since, time[:-1])), time[-1:]
            at.put(position, time)
            value.put(position, window.columns[1])
            position += len(time)
    values: NDArray[np.float64] = value.finish()
    return Samples(offsets, at.finish(), values, *_extremes(values))


def _extremes(value: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the most of each SAMPLES values."""
    extremes = np.zeros((2, -(-len(value) // SAMPLES) + 1))
    step = max(PORTION // SAMPLES, 1) * SAMPLES
    for low in range(0, len(value), step):
        portion = value[low : low + step]
        first = np.arange(0, len(portion), SAMPLES)
        at = low // SAMPLES
        extremes[:, at : at + len(first)] = np.minimum.reduceat(portion, first), np.maximum.reduceat(portion, first)
    release([value])
    return extremes[0], extremes[1]


class _RowWriter:
    """Fills the arrays of a timeline. Rows depend on no other row but the one above."""

    def __init__(self, offsets: Ints, parent_rows: list[int], labels: int, top: int, folder: Path | None) -> None:
        self._offsets, self._parent_rows, self._labels, self._top = offsets, parent_rows, labels, top
        self._spans = {name: new_column(name, int(offsets[-1]), folder) for name in _SPANS}
        self._summaries = {name: new_column(name, 0, folder) for name in (*_BUCKETS, "long", *_SUMS)}
        self._lowest = np.full(len(offsets) - 1, top + 1, np.int64)
        self._places = np.zeros((len(offsets) - 1, top + 1, 4), np.int64)
        self._first_chunk = np.concatenate(([0], np.cumsum(-(-np.diff(offsets) // CHUNK)))).astype(np.int64)
        self._chunks = np.zeros((int(self._first_chunk[-1]), 2), np.int64)
        self._lock = threading.Lock()

    def write(self, row: int, windows: Iterable[Window]) -> None:
        at, reached, density = int(self._offsets[row]), pyramid.NEVER, pyramid.Density()
        for window in windows:
            start, dur, label, kind, span = window.columns
            reach = start + dur
            reach[0] = max(int(reach[0]), reached)
            np.maximum.accumulate(reach, out=reach)
            reached = int(reach[-1])
            for name, values in zip(_SPANS, (start, dur, reach, label, kind, span), strict=True):
                self._spans[name].put(at, values)
            at += len(start)
            density.add(start)
        self._lowest[row] = density.level(self._top)

    def summarize(self, row: int) -> None:
        """Sum the chunks of a row, and store its zoom levels from the lowest on."""
        lowest, portions = int(self._lowest[row]), self._portions(row)
        if lowest > self._top:
            for _ in portions:
                pass
            return
        for level, (buckets, long) in enumerate(pyramid.levels(portions, lowest, self._top), lowest):
            with self._lock:
                low, long_low = self._append(_BUCKETS, buckets), self._append(("long",), (long,))
            self._places[row, level] = low, low + len(buckets.bucket), long_low, long_low + len(long)

    def finish(self) -> tuple[Pyramid, Sums]:
        arrays = {name: column.finish() for name, column in (self._spans | self._summaries).items()}
        return assemble(self._offsets, self._top, self._lowest, self._places, self._first_chunk, self._chunks, arrays)

    def _append(self, names: Iterable[str], columns: Iterable[NDArray[Any]]) -> int:
        at = 0
        for name, values in zip(names, columns, strict=True):
            at = self._summaries[name].count
            self._summaries[name].append(values)
        return at

    def _portions(self, row: int) -> Iterator[Portion]:
        """The portions of a row; the chunks of each are summed before it is yielded."""
        first, last = self._offsets[row : row + 2].tolist()
        parent = self._parent_rows[row]
        for low in range(first, last, PORTION):
            portion = pyramid.load_portion(self._get, slice(low, min(low + PORTION, last)), first)
            label = self._get("label", low, low + len(portion.number))
            parents = self._parents(portion.start, *self._offsets[parent : parent + 2].tolist()) if parent >= 0 else None
            for begin in range(0, len(portion.number), CHUNK):
                chunk = slice(begin, begin + CHUNK)
                start, dur = portion.start[chunk], portion.dur[chunk]
                covered = parents.covered(chunk, start, start + dur) if parents else None
                sums = sum_by_label(self._labels, label[chunk], dur, covered)
                with self._lock:
                    at = self._append(_SUMS, sums)
                self._chunks[int(self._first_chunk[row]) + (low - first + begin) // CHUNK] = at, at + len(sums.label)
            yield portion

    def _parents(self, start: Ints, low: int, high: int) -> "Parents":
        """The last span of the row from `low` to `high` that began by each start."""
        starts = self._spans["start"]
        first, last = (
            bisect.bisect_right(range(low, high), int(at), key=lambda number: starts.get(number, number + 1)[0]) for at in start[[0, -1]]
        )
        from_, to = max(low + first - 1, low), low + last
        if to - from_ > 2 * PORTION and len(start) > 1:
            half = len(start) // 2
            left, right = self._parents(start[:half], low, high), self._parents(start[half:], low, high)
            return Parents(np.append(left.end, right.end), np.append(left.label, right.label))
        return last_begun(start, *(self._get(name, from_, to) for name in ("start", "dur", "label")))

    def _get(self, name: str, low: int, high: int) -> Any:
        return self._spans[name].get(low, high)


def assemble(
    offsets: Ints, top: int, lowest: Ints, places: Ints, first_chunk: Ints, chunks: Ints, arrays: dict[str, NDArray[Any]]
) -> tuple[Pyramid, Sums]:
    """The parts of a timeline from the arrays of its files."""
    spans = Spans(offsets, *(arrays[name] for name in _SPANS))
    buckets = Buckets(*(arrays[name] for name in _BUCKETS))
    sums = Sums(first_chunk, chunks, LabelSums(*(arrays[name] for name in _SUMS)))
    return Pyramid(spans, top, lowest, places, buckets, arrays["long"]), sums


class Parents(NamedTuple):
    """The parent of each of some spans."""

    end: Ints  # end of the parent; NEVER without one
    label: _Codes

    def covered(self, chosen: slice, start: Ints, end: Ints) -> tuple[_Codes, Ints]:
        """The labels of the parents, and the time of each that its span covers from `start` to `end`."""
        return self.label[chosen], np.maximum(np.minimum(end, self.end[chosen]), start) - start  # NEVER is the smallest number


def last_begun(at: Ints, start: Ints, dur: Ints, label: _Codes) -> Parents:
    """The last span of a row that began by each timestamp; timestamps are in order."""
    if len(start) == 0:
        return Parents(np.full(len(at), pyramid.NEVER), np.zeros(len(at), np.int32))
    last = np.searchsorted(start, at, "right") - 1
    return Parents(np.where(last >= 0, start[last] + dur[last], pyramid.NEVER), label[last])


def sum_by_label(labels: int, label: _Codes, length: Ints, covered: tuple[_Codes, Ints] | None) -> LabelSums:
    """Count, total and longest duration by label, and the time of parents by the parents' label."""
    parent_label, covered_ns = covered or (np.empty(0, np.int32), np.empty(0, np.int64))
    used: Any = None
    if labels > _DENSE:
        used, inverse = np.unique(np.concatenate((label, parent_label)), return_inverse=True)
        label, parent_label, labels = inverse[: len(label)].astype(np.int32), inverse[len(label) :].astype(np.int32), len(used)
    count, total = np.bincount(label, minlength=labels), np.bincount(label, length, labels)
    covered_total = np.bincount(parent_label, covered_ns, labels) if len(parent_label) else np.zeros(labels)
    present = np.flatnonzero((count > 0) | (covered_total > 0))
    longest = np.zeros(labels, np.int64)
    np.maximum.at(longest, label, length)
    numbers = (present if used is None else used[present]).astype(np.int32)
    return LabelSums(numbers, count[present], total[present].astype(np.int64), longest[present], covered_total[present].astype(np.int64))
