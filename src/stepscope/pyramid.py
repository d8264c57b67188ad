"""Events by row, and what of them can be seen at any zoom: the floor below the timeline.

A row is one line of the picture: the spans of one depth of one track, which do not overlap but for a few nanoseconds. Time is in
nanoseconds since the start of the trace. At level L a pixel is about 2**L ns wide, a *bucket*. What lasts a bucket or longer is drawn by
itself; what is shorter is summed up per bucket: how much of it is busy, how many began in it, and which of them is the longest, so that
neither the share of time nor a rare long event is lost from sight. A tile is BUCKETS buckets of some rows.

Levels whose tiles hold few events are summed up when asked. Only the coarser ones are kept, so that no answer looks at more than
about FEW events per row, whatever the number of events.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Ints

BUCKETS_LOG2 = 10
BUCKETS = 1 << BUCKETS_LOG2
FEW = 1 << 15
PORTION = 1 << 20
_Codes = NDArray[np.int32]
_FILES = ("offsets", "start", "dur", "reach", "label", "kind", "span")


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

    @property
    def end(self) -> int:
        """When the last event ends."""
        last = self.offsets[1:][np.diff(self.offsets) > 0] - 1
        return int(self.reach[last].max(initial=1))


class Unsorted(NamedTuple):
    """Events of some rows, in any order."""

    row: Ints | _Codes
    start: Ints
    dur: Ints
    label: _Codes
    kind: NDArray[np.uint8]
    span: _Codes


def events(parts: list[Unsorted], rows: int) -> Events:
    """All of them in order. The events of one row stand in one of the parts. The list is emptied: each column goes when it is copied."""
    places = [by_row(part.row, part.start, rows) for part in parts]
    offsets: Ints = np.sum([place.offsets for place in places], axis=0)
    pieces = [(index, row) for index, place in enumerate(places) for row in np.flatnonzero(np.diff(place.offsets)).tolist()]
    columns: list[list[NDArray[Any]]] = [list(part[1:]) for part in parts]
    parts.clear()

    def ordered(number: int, kind: type) -> NDArray[Any]:
        made: NDArray[Any] = np.empty(int(offsets[-1]), kind)
        for index, row in pieces:
            # Nothing is out of bounds; "raise" would copy everything once more.
            np.take(columns[index][number], places[index].of(row), out=made[offsets[row] : offsets[row + 1]], mode="clip")
        for own in columns:
            own[number] = own[number][:0]
        return made

    start, dur = ordered(0, np.int64), ordered(1, np.int64)
    reach = start + dur
    for _, row in pieces:
        own = reach[offsets[row] : offsets[row + 1]]
        np.maximum.accumulate(own, out=own)
    return Events(offsets, start, dur, reach, ordered(2, np.int32), ordered(3, np.uint8), ordered(4, np.int32))


class Places(NamedTuple):
    """Where things of some rows stand, row by row and by time."""

    order: Ints
    offsets: Ints

    def of(self, row: int) -> Ints:
        return self.order[self.offsets[row] : self.offsets[row + 1]]


def by_row(row: Ints | _Codes, time: Ints, rows: int) -> Places:
    # Sorting by a small number is a few passes; within a row most readers give the order of time already.
    order = np.argsort(row.astype(np.uint16) if rows <= 1 << 16 else row, kind="stable")
    found = Places(order, np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))).astype(np.int64))
    for one in np.flatnonzero(np.diff(found.offsets)).tolist():
        which = found.of(one)
        own = time[which]
        if (own[1:] < own[:-1]).any():
            which[:] = which[np.argsort(own, kind="stable")]
    return found


class Buckets(NamedTuple):
    """Short events summed up, by row and bucket. Only buckets that hold something."""

    row: Ints
    bucket: Ints
    busy: Ints  # nanoseconds covered by them, those already covered by an earlier event of the row left out
    began: Ints  # how many began here
    longest: Ints  # index of the event


class Level(NamedTuple):
    offsets: Ints  # of `buckets`, by row
    buckets: Buckets
    long_offsets: Ints
    long: Ints  # indices of the events that last a bucket or longer


class Pyramid(NamedTuple):
    events: Events
    top: int  # the level at which one tile holds everything
    lowest: int  # below this level everything is summed up when asked
    levels: list[Level]  # levels[0] is `lowest`


def top_level(end: int) -> int:
    return max(0, (max(end, 1) - 1).bit_length() - BUCKETS_LOG2)


def build(events: Events, end: int = 0) -> Pyramid:
    """`end` is a moment that the top level should reach to, where something else than events lasts longer."""
    top = top_level(max(end, events.end))
    lowest = _lowest(events, top)
    levels: list[Level] = []
    edges = np.arange(events.rows + 1)
    for level in range(lowest, top + 1):
        if level == lowest:
            pieces, longs = [], []
            for low, high in _portions(events.offsets):
                which = np.arange(low, high)
                is_long = events.dur[low:high] >= 1 << level
                longs.append(which[is_long])
                pieces.append(_sum_up(events, which[~is_long], level))
            buckets, long = _stacked(pieces), np.concatenate(longs)
        else:
            still = events.dur[long] >= 1 << level
            buckets = _grouped(events, _stacked([_halved(buckets), _sum_up(events, long[~still], level)]))
            long = long[still]
        levels.append(Level(np.searchsorted(buckets.row, edges), buckets, np.searchsorted(long, events.offsets), long))
    return Pyramid(events, top, lowest, levels)


def _portions(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Whole rows of about PORTION events together: so much is worked on at a time."""
    low = 0
    for high in offsets[1:].tolist():
        if high - low >= PORTION:
            yield low, high
            low = high
    yield low, int(offsets[-1])


def _lowest(events: Events, top: int) -> int:
    """The first level at which some tile holds more than FEW events of a row; top + 1 where none does."""
    counts = np.diff(events.offsets)
    crowded = [(int(low), int(low + count)) for low, count in zip(events.offsets, counts, strict=False) if count > FEW]
    low, high = 0, top + 1
    while low < high:
        middle = (low + high) // 2
        # Any FEW + 1 events in a row that begin in one tile are too many.
        if any(
            (events.start[from_ : to - FEW] >> middle + BUCKETS_LOG2 == events.start[from_ + FEW : to] >> middle + BUCKETS_LOG2).any()
            for from_, to in crowded
        ):
            high = middle
        else:
            low = middle + 1
    return low


def _sum_up(events: Events, which: Ints, level: int) -> Buckets:
    """Events shorter than a bucket, in order, per bucket; one that lies across an edge is busy on both sides and counts where it begins."""
    if len(which) == 0:
        return Buckets(*[np.empty(0, np.int64)] * 5)
    start, dur = events.start[which], events.dur[which]
    end = start + dur
    row = np.searchsorted(events.offsets, which, "right") - 1
    before = np.where(which == events.offsets[row], np.iinfo(np.int64).min, events.reach[np.maximum(which - 1, 0)])
    fresh = np.minimum(np.maximum(start, before), end)  # what an earlier event covers is not covered twice
    bucket = start >> level
    edge = (bucket + 1) << level
    busy = np.minimum(end, edge) - np.minimum(fresh, edge)
    change = np.empty(len(which), np.bool_)
    change[0] = True
    np.logical_or(bucket[1:] != bucket[:-1], row[1:] != row[:-1], out=change[1:])
    first = np.flatnonzero(change)
    found = Buckets(
        row[first],
        bucket[first],
        np.add.reduceat(busy, first),
        np.diff(first, append=len(which)),
        which[_first_of_most(dur, first)],
    )
    beyond = np.flatnonzero(end > edge)
    spilled = Buckets(
        row[beyond],
        bucket[beyond] + 1,
        end[beyond] - np.maximum(fresh[beyond], edge[beyond]),
        np.zeros(len(beyond), np.int64),
        which[beyond],
    )
    return _grouped(events, _stacked([found, spilled]))


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


def _halved(buckets: Buckets) -> Buckets:
    """The same in buckets twice as wide; two that are now one stand beside each other still."""
    return buckets._replace(bucket=buckets.bucket >> 1)


def _stacked(pieces: list[Buckets]) -> Buckets:
    return Buckets(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def _grouped(events: Events, pieces: Buckets) -> Buckets:
    """Pieces of one row and bucket as one."""
    if len(pieces.row) == 0:
        return pieces
    order = np.lexsort((pieces.bucket, pieces.row))
    row, bucket, longest = pieces.row[order], pieces.bucket[order], pieces.longest[order]
    first = np.flatnonzero(np.append(True, (bucket[1:] != bucket[:-1]) | (row[1:] != row[:-1])))
    return Buckets(
        row[first],
        bucket[first],
        np.add.reduceat(pieces.busy[order], first),
        np.add.reduceat(pieces.began[order], first),
        longest[_first_of_most(events.dur[longest], first)],
    )


class Tile(NamedTuple):
    """What can be seen of one row between two moments."""

    long: Ints  # indices of events
    buckets: Buckets  # `bucket` counts from the start of the tile


def tile(pyramid: Pyramid, row: int, level: int, index: int) -> Tile:
    """The tile of a row that begins at index * BUCKETS buckets of the level."""
    begin = index << BUCKETS_LOG2
    low, high = begin << level, (begin + BUCKETS) << level
    if level >= pyramid.lowest and level - pyramid.lowest < len(pyramid.levels):
        kept = pyramid.levels[level - pyramid.lowest]
        from_, to = (int(kept.offsets[row + side]) for side in (0, 1))
        inside = slice(*(from_ + np.searchsorted(kept.buckets.bucket[from_:to], (begin, begin + BUCKETS))))
        buckets = Buckets(*(np.asarray(column[inside]) for column in kept.buckets))
        candidates = kept.long[kept.long_offsets[row] : kept.long_offsets[row + 1]]
        reach = pyramid.events.reach[candidates]
        some = slice(int(np.searchsorted(reach, low, "right")), int(np.searchsorted(pyramid.events.start[candidates], high, "left")))
        long = candidates[some]
    else:
        some = within(pyramid.events, row, low, high)
        which = np.arange(some.start, some.stop)
        is_long = pyramid.events.dur[some] >= 1 << level
        long = which[is_long]
        buckets = _sum_up(pyramid.events, which[~is_long], level)
        seen = (buckets.bucket >= begin) & (buckets.bucket < begin + BUCKETS)
        buckets = Buckets(*(column[seen] for column in buckets))
    long = long[pyramid.events.start[long] + pyramid.events.dur[long] > low]
    return Tile(np.asarray(long), buckets._replace(bucket=buckets.bucket - begin))


def within(events: Events, row: int, low: int, high: int) -> slice:
    """The events of a row that may overlap a stretch of time: from the first that reaches it to the last that begins before its end."""
    from_, to = int(events.offsets[row]), int(events.offsets[row + 1])
    first = from_ + int(np.searchsorted(events.reach[from_:to], low, "left"))
    last = from_ + int(np.searchsorted(events.start[from_:to], high, "left"))
    return slice(first, max(first, last))


def write(pyramid: Pyramid, folder: Path) -> None:
    """Plain arrays, to be mapped into memory."""
    for name in _FILES:
        np.save(folder / f"{name}.npy", getattr(pyramid.events, name))
    for at, level in enumerate(pyramid.levels):
        np.save(folder / f"level{at}.npy", np.stack(level.buckets))
        np.save(folder / f"long{at}.npy", level.long)
        np.save(folder / f"level{at}_offsets.npy", np.stack((level.offsets, level.long_offsets)))
    np.save(folder / "levels.npy", np.array([pyramid.top, pyramid.lowest, len(pyramid.levels)]))


def read(folder: Path) -> Pyramid:
    found = Events(*(mapped(folder / f"{name}.npy") for name in _FILES))
    top, lowest, count = (int(value) for value in np.load(folder / "levels.npy"))
    levels = []
    for at in range(count):
        offsets, long_offsets = np.load(folder / f"level{at}_offsets.npy")
        buckets = Buckets(*mapped(folder / f"level{at}.npy"))
        levels.append(Level(offsets, buckets, long_offsets, mapped(folder / f"long{at}.npy")))
    return Pyramid(found, top, lowest, levels)


def mapped(file: Path) -> NDArray[Any]:
    """An array that is read as it is looked at."""
    found: NDArray[Any] = np.load(file, mmap_mode="r").view(np.ndarray)
    return found
