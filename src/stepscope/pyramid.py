"""Events by row, and what of them can be seen at any zoom: the floor below the timeline.

A row is one line of the picture: the spans of one depth of one track, which do not overlap but for a few nanoseconds. Time is in
nanoseconds since the start of the trace. At level L a pixel is about 2**L ns wide, a *bucket*. What lasts a bucket or longer is drawn by
itself; what is shorter is summed up per bucket: how much of it is busy, how many began in it, and which of them is the longest, so that
neither the share of time nor a rare long event is lost from sight. A tile is BUCKETS buckets of some rows.

Levels at which a row's tiles hold few events are summed up when asked. Only the coarser ones are kept, so that no answer looks at more
than about FEW events of a row, whatever the number of events.
"""

import bisect
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Ints

BUCKETS_LOG2 = 10
BUCKETS = 1 << BUCKETS_LOG2
FEW = 1 << 15
NEVER = np.iinfo(np.int64).min
_Codes = NDArray[np.int32]


class Events(NamedTuple):
    """Every event of every row, by row and start."""

    offsets: Ints  # row r is offsets[r]:offsets[r + 1]
    start: Ints
    dur: Ints
    reach: Ints  # the latest end of this event and those before it in its row
    label: _Codes  # what it is called, by number
    kind: NDArray[np.uint8]
    span: _Codes  # the span's id within its rank; negative for what is not one span

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1


class Buckets(NamedTuple):
    """Short events of a row summed up, in order of time. Only buckets that hold something."""

    bucket: Ints
    busy: Ints  # nanoseconds covered by them, those already covered by an earlier event of the row left out
    began: Ints  # how many began here
    longest: Ints  # number of the event


class Pyramid(NamedTuple):
    events: Events
    top: int  # the level at which one tile holds everything
    lowest: Ints  # by row: below this level everything is summed up when asked
    places: Ints  # by row and level: from where to where in `buckets`, from where to where in `long`
    buckets: Buckets
    long: Ints  # numbers of the events that last a bucket or longer

    def kept(self, row: int, level: int) -> tuple[Buckets, Ints]:
        low, high, long_low, long_high = self.places[row, level].tolist()
        return Buckets(*(column[low:high] for column in self.buckets)), self.long[long_low:long_high]


def top_level(end: int) -> int:
    return max(0, (max(end, 1) - 1).bit_length() - BUCKETS_LOG2)


class Crowd:
    """Finds the first level at which some tile holds more than FEW events of a row, whose starts come in order, portion by portion."""

    def __init__(self) -> None:
        self._last: Ints = np.empty(0, np.int64)
        self._nearest = 1 << 62

    def add(self, start: Ints) -> None:
        both = np.concatenate((self._last, start))
        if len(both) > FEW:
            # Any FEW + 1 events in a row that begin in one tile are too many: they differ only in bits within the tile.
            self._nearest = min(self._nearest, int((both[FEW:] ^ both[:-FEW]).min()))
        self._last = both[-FEW:].copy()

    def level(self, top: int) -> int:
        """top + 1 where none does."""
        return min(max(self._nearest.bit_length() - BUCKETS_LOG2, 0), top + 1)


class Some(NamedTuple):
    """Some events of a row, in order."""

    number: Ints
    start: Ints
    dur: Ints
    before: Ints  # until when the row is covered by earlier events

    def where(self, chosen: NDArray[np.bool_]) -> "Some":
        return Some(*(column[chosen] for column in self))


class _Sums(NamedTuple):
    """Buckets on their way up."""

    bucket: Ints
    busy: Ints
    began: Ints
    longest: Ints
    most: Ints  # how long the longest is


_NO_SUMS = _Sums(*[np.empty(0, np.int64)] * 5)


def levels(portions: Iterator[Some], lowest: int, top: int) -> Iterator[tuple[Buckets, Ints]]:
    """Of the events of one row, from the lowest level to the top: the short ones summed up, and the numbers of the long ones."""
    pieces, longs = [_NO_SUMS], [Some(*[np.empty(0, np.int64)] * 4)]  # a row may hold no event
    for some in portions:
        is_long = some.dur >= 1 << lowest
        longs.append(some.where(is_long))
        pieces.append(_sum_up(some if not is_long.any() else some.where(~is_long), lowest))
    sums = pieces[-1] if len(pieces) <= 2 else _grouped(_stacked(pieces))
    long = Some(*(np.concatenate(columns) for columns in zip(*longs, strict=True)))
    for level in range(lowest, top + 1):
        if level > lowest:
            sums, long = _up(sums, long, level)
        yield Buckets(*sums[:4]), long.number


def _up(sums: _Sums, long: Some, level: int) -> tuple[_Sums, Some]:
    """From the level below: two buckets are one, and some events are no longer long."""
    still = long.dur >= 1 << level
    halved = sums._replace(bucket=sums.bucket >> 1)
    return _grouped(_stacked([halved, _sum_up(long.where(~still), level)])), long.where(still)


def _sum_up(some: Some, level: int) -> _Sums:
    """Events shorter than a bucket, per bucket; one that lies across an edge is busy on both sides and counts where it begins."""
    number, start, dur, before = some
    if len(number) == 0:
        return _NO_SUMS
    end = start + dur
    fresh = np.minimum(np.maximum(start, before), end)  # what an earlier event covers is not covered twice
    bucket = start >> level
    edge = (bucket + 1) << level
    busy = np.minimum(end, edge) - np.minimum(fresh, edge)
    first = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))
    best = _first_of_most(dur, first)
    found = _Sums(bucket[first], np.add.reduceat(busy, first), np.diff(first, append=len(number)), number[best], dur[best])
    beyond = np.flatnonzero(end > edge)
    if len(beyond) == 0:
        return found
    spilled = _Sums(
        bucket[beyond] + 1,
        end[beyond] - np.maximum(fresh[beyond], edge[beyond]),
        np.zeros(len(beyond), np.int64),
        number[beyond],
        dur[beyond],
    )
    return _grouped(_stacked([spilled, found]))  # what is spilled began first: of equals it is told, whatever the portions


def _first_of_most(value: Ints, first: Ints) -> Ints:
    """Of each stretch that begins at `first`, where its largest value stands; of equals the first."""
    bits = len(value).bit_length()
    if int(value.max()).bit_length() + bits < 63:  # value and place in one number
        back = (1 << bits) - 1
        return back - (np.maximum.reduceat((value << bits) | (back - np.arange(len(value))), first) & back)
    most = np.repeat(np.maximum.reduceat(value, first), np.diff(first, append=len(value)))
    best = np.flatnonzero(value == most)
    group = np.searchsorted(first, best, "right") - 1
    return best[np.diff(group, prepend=-1) > 0]


def _stacked(pieces: list[_Sums]) -> _Sums:
    return _Sums(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def _grouped(pieces: _Sums) -> _Sums:
    """Pieces of one bucket as one."""
    if len(pieces.bucket) == 0:
        return pieces
    if (pieces.bucket[1:] < pieces.bucket[:-1]).any():
        order = np.argsort(pieces.bucket, kind="stable")  # of a few stretches that are in order: a merge
        pieces = _Sums(*(column[order] for column in pieces))
    first = np.flatnonzero(np.append(True, pieces.bucket[1:] != pieces.bucket[:-1]))
    if len(first) == len(pieces.bucket):
        return pieces
    best = _first_of_most(pieces.most, first)
    return _Sums(
        pieces.bucket[first],
        np.add.reduceat(pieces.busy, first),
        np.add.reduceat(pieces.began, first),
        pieces.longest[best],
        pieces.most[best],
    )


class Tile(NamedTuple):
    """What can be seen of one row between two moments."""

    long: Ints  # numbers of events
    buckets: Buckets  # `bucket` counts from the start of the tile


def tile(pyramid: Pyramid, row: int, level: int, index: int) -> Tile:
    """The tile of a row that begins at index * BUCKETS buckets of the level."""
    begin = index << BUCKETS_LOG2
    low, high = begin << level, (begin + BUCKETS) << level
    events = pyramid.events
    if pyramid.lowest[row] <= pyramid.top:
        if level > pyramid.top:
            return _above(pyramid, row, level, index)
        if level >= pyramid.lowest[row]:
            kept, candidates = pyramid.kept(row, level)
            inside = slice(*np.searchsorted(kept.bucket, (begin, begin + BUCKETS)).tolist())
            # Each look is at another place of the file: as few as can be.
            every = range(len(candidates))
            first = bisect.bisect_right(every, low, key=lambda at: events.reach[candidates[at]])
            last = bisect.bisect_left(every, high, key=lambda at: events.start[candidates[at]])
            return _seen(events, candidates[first:last], Buckets(*(np.array(column[inside]) for column in kept)), begin, low)
    some = _of(events, within(events, row, low, high), row)
    is_long = some.dur >= 1 << level
    sums = _sum_up(some.where(~is_long), level)
    seen = (sums.bucket >= begin) & (sums.bucket < begin + BUCKETS)
    return _seen(events, some.number[is_long], Buckets(*(column[seen] for column in sums[:4])), begin, low)


def _above(pyramid: Pyramid, row: int, level: int, index: int) -> Tile:
    """A tile that is wider than everything."""
    events, (kept, long) = pyramid.events, pyramid.kept(row, pyramid.top)
    sums = _Sums(kept.bucket, kept.busy, kept.began, kept.longest, events.dur[kept.longest])
    before = np.where(long > events.offsets[row], events.reach[np.maximum(long - 1, 0)], NEVER)
    rest = Some(np.asarray(long), events.start[long], events.dur[long], before)
    for at in range(pyramid.top + 1, level + 1):
        sums, rest = _up(sums, rest, at)
    seen = sums.bucket >> BUCKETS_LOG2 == index
    begin = index << BUCKETS_LOG2
    long = rest.number[rest.start < (begin + BUCKETS) << level]
    return _seen(events, long, Buckets(*(column[seen] for column in sums[:4])), begin, begin << level)


def _seen(events: Events, long: Ints, buckets: Buckets, begin: int, low: int) -> Tile:
    long = long[events.start[long] + events.dur[long] > low]
    return Tile(np.asarray(long), buckets._replace(bucket=buckets.bucket - begin))


def _of(events: Events, some: slice, row: int) -> Some:
    return portion(lambda name, low, high: np.asarray(getattr(events, name)[low:high]), some, int(events.offsets[row]))


def portion(get: Callable[[str, int, int], Ints], some: slice, first: int) -> Some:
    """The events of these numbers of the row whose first event has the number `first`."""
    before = np.empty(some.stop - some.start, np.int64)
    if len(before):
        before[0] = get("reach", some.start - 1, some.start)[0] if some.start > first else NEVER
        before[1:] = get("reach", some.start, some.stop - 1)
    return Some(np.arange(some.start, some.stop), get("start", some.start, some.stop), get("dur", some.start, some.stop), before)


def within(events: Events, row: int, low: int, high: int) -> slice:
    """The events of a row that may overlap a stretch of time: from the first that reaches it to the last that begins before its end."""
    from_, to = int(events.offsets[row]), int(events.offsets[row + 1])
    first = from_ + int(np.searchsorted(events.reach[from_:to], low, "left"))
    last = from_ + int(np.searchsorted(events.start[from_:to], high, "left"))
    return slice(first, max(first, last))
