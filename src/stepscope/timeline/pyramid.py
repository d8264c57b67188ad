"""The spans of each row, and their summary at each zoom level.

A row is one line of the picture: the spans of one depth of one track, which overlap by a few nanoseconds at most. Times are nanoseconds
since the start of the trace. At level L a pixel is about 2**L ns wide: a *bucket*. Spans of at least a bucket are *long* and drawn one by
one. Shorter spans are summed per bucket: the busy time, the number that begin in it, and the longest, so that neither the share of time
nor a rare long span is lost. A tile is BUCKETS buckets of some rows.

Levels whose tiles hold few spans of a row are summed on request. Only coarser levels are stored, so that a tile reads at most about
FEW spans of a row, whatever the number of spans.
"""

import bisect
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.model.intervals import Ints

BUCKETS_LOG2 = 10
BUCKETS = 1 << BUCKETS_LOG2
FEW = 1 << 15
NEVER = np.iinfo(np.int64).min
_Codes = NDArray[np.int32]


class Spans(NamedTuple):
    """The spans of all rows, ordered by row and start."""

    offsets: Ints  # row r is offsets[r]:offsets[r + 1]
    start: Ints
    dur: Ints
    reach: Ints  # the latest end of this span and of the earlier ones in its row
    label: _Codes  # number of the label
    kind: NDArray[np.uint8]
    span: _Codes  # the id of the span in its rank; negative for derived spans

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    def row_slice(self, row: int) -> slice:
        return slice(int(self.offsets[row]), int(self.offsets[row + 1]))


class Buckets(NamedTuple):
    """Short spans of a row summed per bucket, ordered by time, without empty buckets."""

    bucket: Ints
    busy: Ints  # nanoseconds covered by these spans and not by earlier spans of the row
    began: Ints  # spans that begin here
    longest: Ints  # number of the longest span


class Pyramid(NamedTuple):
    spans: Spans
    top: int  # the level at which one tile covers the whole trace
    lowest: Ints  # by row: the finest stored level
    places: Ints  # by row and level: low and high in `buckets`, low and high in `long`
    buckets: Buckets
    long: Ints  # numbers of the long spans

    def stored(self, row: int, level: int) -> tuple[Buckets, Ints]:
        low, high, long_low, long_high = self.places[row, level].tolist()
        return Buckets(*(column[low:high] for column in self.buckets)), self.long[long_low:long_high]


def top_level(end: int) -> int:
    return max(0, (max(end, 1) - 1).bit_length() - BUCKETS_LOG2)


class Density:
    """Finds the finest level at which a tile holds more than FEW spans of a row. Starts arrive in order, portion by portion."""

    def __init__(self) -> None:
        self._last: Ints = np.empty(0, np.int64)
        self._nearest = 1 << 62

    def add(self, start: Ints) -> None:
        both = np.concatenate((self._last, start))
        if len(both) > FEW:
            # FEW + 1 consecutive spans that begin in one tile are too many: their starts differ only in bits within the tile.
            self._nearest = min(self._nearest, int((both[FEW:] ^ both[:-FEW]).min()))
        self._last = both[-FEW:].copy()

    def level(self, top: int) -> int:
        """The level; top + 1 if there is none."""
        return min(max(self._nearest.bit_length() - BUCKETS_LOG2, 0), top + 1)


class Portion(NamedTuple):
    """Some spans of a row, in order."""

    number: Ints
    start: Ints
    dur: Ints
    before: Ints  # the time until which earlier spans cover the row

    def where(self, chosen: NDArray[np.bool_]) -> "Portion":
        return Portion(*(column[chosen] for column in self))


class _Sums(NamedTuple):
    """Buckets with the duration of the longest span, for the next level."""

    bucket: Ints
    busy: Ints
    began: Ints
    longest: Ints
    longest_dur: Ints


_NO_SUMS = _Sums(*[np.empty(0, np.int64)] * 5)


def levels(portions: Iterator[Portion], lowest: int, top: int) -> Iterator[tuple[Buckets, Ints]]:
    """The summed short spans of one row and the numbers of the long ones, for each level from the lowest to the top."""
    pieces, longs = [_NO_SUMS], [Portion(*[np.empty(0, np.int64)] * 4)]  # a row may be empty
    for portion in portions:
        is_long = portion.dur >= 1 << lowest
        longs.append(portion.where(is_long))
        pieces.append(_sum_short(portion if not is_long.any() else portion.where(~is_long), lowest))
    sums = pieces[-1] if len(pieces) <= 2 else _merge_sums(pieces)
    long = Portion(*(np.concatenate(columns) for columns in zip(*longs, strict=True)))
    for level in range(lowest, top + 1):
        if level > lowest:
            sums, long = _next_level(sums, long, level)
        yield Buckets(*sums[:4]), long.number


def _next_level(sums: _Sums, long: Portion, level: int) -> tuple[_Sums, Portion]:
    """Merge pairs of buckets; spans that are shorter than the wider bucket are summed."""
    is_long = long.dur >= 1 << level
    halved = sums._replace(bucket=sums.bucket >> 1)
    return _merge_sums([halved, _sum_short(long.where(~is_long), level)]), long.where(is_long)


def _sum_short(portion: Portion, level: int) -> _Sums:
    """Sums of spans shorter than a bucket. A span across an edge is busy in both buckets and counts where it begins."""
    number, start, dur, before = portion
    if len(number) == 0:
        return _NO_SUMS
    end = start + dur
    uncovered = np.minimum(np.maximum(start, before), end)  # time that an earlier span covers is not counted twice
    bucket = start >> level
    edge = (bucket + 1) << level
    busy = np.minimum(end, edge) - np.minimum(uncovered, edge)
    first = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))
    best = _first_maximum(dur, first)
    sums = _Sums(bucket[first], np.add.reduceat(busy, first), np.diff(first, append=len(number)), number[best], dur[best])
    beyond = np.flatnonzero(end > edge)
    if len(beyond) == 0:
        return sums
    spilled = _Sums(
        bucket[beyond] + 1,
        end[beyond] - np.maximum(uncovered[beyond], edge[beyond]),
        np.zeros(len(beyond), np.int64),
        number[beyond],
        dur[beyond],
    )
    return _merge_sums([spilled, sums])  # spilled spans began first: of equals they win, whatever the portions


def _first_maximum(value: Ints, first: Ints) -> Ints:
    """The position of the largest value of each range that begins at `first`; of equals the first."""
    bits = len(value).bit_length()
    if int(value.max()).bit_length() + bits < 63:  # value and position fit in one number
        mask = (1 << bits) - 1
        return mask - (np.maximum.reduceat((value << bits) | (mask - np.arange(len(value))), first) & mask)
    maximum = np.repeat(np.maximum.reduceat(value, first), np.diff(first, append=len(value)))
    best = np.flatnonzero(value == maximum)
    group = np.searchsorted(first, best, "right") - 1
    return best[np.diff(group, prepend=-1) > 0]


def _merge_sums(pieces: list[_Sums]) -> _Sums:
    """One entry per bucket."""
    sums = _Sums(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
    if len(sums.bucket) == 0:
        return sums
    if (sums.bucket[1:] < sums.bucket[:-1]).any():
        order = np.argsort(sums.bucket, kind="stable")  # a merge of a few ordered runs
        sums = _Sums(*(column[order] for column in sums))
    first = np.flatnonzero(np.append(True, sums.bucket[1:] != sums.bucket[:-1]))
    if len(first) == len(sums.bucket):
        return sums
    best = _first_maximum(sums.longest_dur, first)
    added = np.add.reduceat(sums.busy, first), np.add.reduceat(sums.began, first)
    return _Sums(sums.bucket[first], *added, sums.longest[best], sums.longest_dur[best])


class Tile(NamedTuple):
    """The visible part of one row between two timestamps."""

    long: Ints  # numbers of spans
    buckets: Buckets  # `bucket` counts from the start of the tile


def tile(pyramid: Pyramid, row: int, level: int, index: int) -> Tile:
    """The tile of a row that begins at index * BUCKETS buckets of the level."""
    begin = index << BUCKETS_LOG2
    low, high = begin << level, (begin + BUCKETS) << level
    spans = pyramid.spans
    if pyramid.lowest[row] <= pyramid.top:
        if level > pyramid.top:
            return _tile_above_top(pyramid, row, level, index)
        if level >= pyramid.lowest[row]:
            buckets, candidates = pyramid.stored(row, level)
            inside = slice(*np.searchsorted(buckets.bucket, (begin, begin + BUCKETS)).tolist())
            # Each lookup reads another page of the file: bisect needs the fewest.
            positions = range(len(candidates))
            first = bisect.bisect_right(positions, low, key=lambda at: spans.reach[candidates[at]])
            last = bisect.bisect_left(positions, high, key=lambda at: spans.start[candidates[at]])
            return _visible(spans, candidates[first:last], Buckets(*(np.array(column[inside]) for column in buckets)), begin, low)
    portion = load_portion(
        lambda name, low, high: np.asarray(getattr(spans, name)[low:high]), within(spans, row, low, high), int(spans.offsets[row])
    )
    is_long = portion.dur >= 1 << level
    sums = _sum_short(portion.where(~is_long), level)
    inside_tile = (sums.bucket >= begin) & (sums.bucket < begin + BUCKETS)
    return _visible(spans, portion.number[is_long], Buckets(*(column[inside_tile] for column in sums[:4])), begin, low)


def _tile_above_top(pyramid: Pyramid, row: int, level: int, index: int) -> Tile:
    """A tile of a level that is coarser than the stored ones."""
    spans, (buckets, long) = pyramid.spans, pyramid.stored(row, pyramid.top)
    sums = _Sums(*buckets, spans.dur[buckets.longest])
    before = np.where(long > spans.offsets[row], spans.reach[np.maximum(long - 1, 0)], NEVER)
    rest = Portion(np.asarray(long), spans.start[long], spans.dur[long], before)
    for at in range(pyramid.top + 1, level + 1):
        sums, rest = _next_level(sums, rest, at)
    inside = sums.bucket >> BUCKETS_LOG2 == index
    begin = index << BUCKETS_LOG2
    long = rest.number[rest.start < (begin + BUCKETS) << level]
    return _visible(spans, long, Buckets(*(column[inside] for column in sums[:4])), begin, begin << level)


def _visible(spans: Spans, long: Ints, buckets: Buckets, begin: int, low: int) -> Tile:
    long = long[spans.start[long] + spans.dur[long] > low]
    return Tile(np.asarray(long), buckets._replace(bucket=buckets.bucket - begin))


def load_portion(get: Callable[[str, int, int], Ints], numbers: slice, first: int) -> Portion:
    """The spans of these numbers; `first` is the number of the first span of their row."""
    before = np.empty(numbers.stop - numbers.start, np.int64)
    if len(before):
        before[0] = get("reach", numbers.start - 1, numbers.start)[0] if numbers.start > first else NEVER
        before[1:] = get("reach", numbers.start, numbers.stop - 1)
    start, dur = (get(name, numbers.start, numbers.stop) for name in ("start", "dur"))
    return Portion(np.arange(numbers.start, numbers.stop), start, dur, before)


def within(spans: Spans, row: int, low: int, high: int) -> slice:
    """The spans of a row that may overlap an interval: from the first that reaches it to the last that begins before its end."""
    row_spans = spans.row_slice(row)
    first = row_spans.start + int(np.searchsorted(spans.reach[row_spans], low, "left"))
    last = row_spans.start + int(np.searchsorted(spans.start[row_spans], high, "left"))
    return slice(first, max(first, last))
