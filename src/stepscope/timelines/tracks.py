"""Which tracks of a trace have spans, in which order they are drawn, and how their spans stand above each other."""

import heapq
import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import schema
from stepscope.intervals import JITTER_NS, Ints
from stepscope.timelines import reading
from stepscope.timelines.columns import Waiting
from stepscope.timelines.told import Told
from stepscope.trace import Trace

_DEEPEST = 256  # open at one moment: of more, nobody sees what is part of what
_NAMED = re.compile(r"\(.+\)")  # a thread that has a name of its own, beside its number
_Codes = NDArray[np.int32]


class Track(NamedTuple):
    number: int
    rank: int
    track: int | None
    group: str
    label: str
    kind: str
    device: int | None
    pid: str | None
    rows: tuple[int, ...]  # their numbers in what waits, from the outermost on
    tangled: bool
    events: int
    kinds: tuple[str, ...]  # of its spans, the most frequent first


def tracks(trace: Trace, spans: reading.Spans, told: Told) -> list[Track]:
    """The tracks that have spans, in the order in which they are drawn; those whose depths are not nesting get rows that are."""
    said = {
        (row["rank"], row["track"]): row
        for row in trace.tracks.with_columns(pl.col("group", "kind").cast(pl.String)).collect().iter_rows(named=True)
    }
    devices = {(row["rank"], row["group"]) for row in said.values() if row["kind"] == "stream"}

    def home(rank: int, track: int, row: dict[str, Any]) -> Any:
        """What is of one thread stands together, whatever part of its process told of it."""
        group = rank, row.get("group")
        return rank, row.get("pid") if group in devices else group, row.get("tid") or track

    place: dict[Any, int] = {}
    named: set[Any] = set()
    for (rank, track), row in said.items():
        own = home(rank, track, row)
        place[own] = min(place.get(own, 1 << 31), row["sort"] or 0)
        if _NAMED.search(row["label"] or ""):
            named.add(own)
    marked: set[Any] = set()  # where steps are marked: the thread that trains, the stream that it uses
    depths: dict[int, dict[int, int]] = {}
    for (number, depth), code in spans.rows.items():
        depths.setdefault(number, {})[depth] = code
    found = []
    for number, (rank, track) in enumerate(spans.tracks):
        row = said.get((rank, track), {})
        kind, tangled = row.get("kind") or "", False
        deepest = max(depths[number])
        rows = [depths[number].get(depth, -1) for depth in range(deepest + 1)]  # a depth that nothing has is an empty row
        flat = kind == "stream"
        if deepest > (0 if flat else 1) and not _nests(spans.waiting, rows):
            rows, tangled = _untangled(spans.waiting, rows, told, flat), True
        counts = spans.kinds[number]
        kinds = tuple(schema.KINDS[at] for at in np.argsort(-counts, kind="stable") if counts[at])
        own = home(rank, track, row)
        if "step" in kinds:
            marked.add(own)
        one = Track(
            number,
            rank,
            None if track < 0 else track,
            row.get("group") or "",
            row.get("label") or "",
            kind,
            row.get("device"),
            row.get("pid"),
            tuple(rows),
            tangled,
            int(counts.sum()),
            kinds,
        )
        # What annotates a thread stands above it, what annotates a stream below.
        found.append((own, (place.get(own, 0), kind not in ("annotation", "stream"), kind != "stream", row.get("sort") or 0), one))
    # Where no thread of a process says, it is the one of which most was recorded.
    threads: dict[Any, dict[Any, int]] = {}
    for own, _, one in found:
        events = threads.setdefault((one.rank, one.group), {})
        events[own] = events.get(own, 0) + (one.events if one.kind == "thread" else 0)
    marked |= {
        max(events, key=lambda own: events[own]) for events in threads.values() if not marked & events.keys() and any(events.values())
    }
    return [one for _, _, one in sorted(found, key=lambda each: (each[0][0], each[0] not in marked, each[0] not in named, each[1]))]


def _nests(waiting: Waiting, rows: list[int]) -> bool:
    """Whether as many spans are open at one moment as there are levels above the deepest."""
    first = next(waiting.windows([rows[-1]], 1)).columns[0][0]
    around = sum(_is_open(waiting, row, int(first)) for row in rows[:-1])
    if around >= len(rows) - 1:
        return True
    every = list(waiting.windows(rows))
    start = np.concatenate([window.columns[0] for window in every])
    return len(rows) - 1 <= most_at_once(start, start + np.concatenate([window.columns[1] for window in every]))


def _is_open(waiting: Waiting, row: int, moment: int) -> bool:
    """Whether the last that began in a row before or at a moment has not ended."""
    last = waiting.last_before(row, moment + 1)
    return last is not None and int(last[0] + last[1]) > moment


def _untangled(waiting: Waiting, rows: list[int], told: Told, flat: bool) -> list[int]:
    """Rows in which each span is alone."""
    every = [window.columns for window in waiting.windows(rows)]
    columns = [np.concatenate(column) for column in zip(*every, strict=True)]
    start, end = columns[0], columns[0] + columns[1]
    row = first_fit(start, end) if flat or most_at_once(start, end) > _DEEPEST else nested_fit(start, end)
    for old in rows:
        waiting.drop(old)
    made = told.rows(int(row.max()) + 1)
    for at, new in enumerate(made):
        waiting.add_row(new, tuple(column[row == at] for column in columns))
    return made


def first_fit(start: Ints, end: Ints) -> _Codes:
    """The first row in which each is alone; of those that nest, the row is the depth."""
    row = np.zeros(len(start), np.int32)
    order = np.lexsort((-end, start))
    free: list[int] = []
    open_: list[tuple[int, int]] = []
    rows = 0
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        while open_ and open_[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(open_)[1])
        if free:
            mine = heapq.heappop(free)
        else:
            mine, rows = rows, rows + 1
        row[index] = mine
        heapq.heappush(open_, (finish, mine))
    return row


def nested_fit(start: Ints, end: Ints) -> _Codes:
    """A row in which each is alone, below all that it lies within; of two that only overlap, the longer above.

    Such are the calls of Python in which a range begins or ends: the range is part of what made the calls.
    """
    order = np.lexsort((-end, start))
    begins, ends = start[order].tolist(), end[order].tolist()
    rows: list[int] = []
    open_: list[tuple[int, int, bool]] = []  # until when, in which row, and whether there is room above for what outlives it
    for begin, finish, outlived in zip(begins, ends, _outlived(begins, ends), strict=True):
        open_ = [one for one in open_ if one[0] > begin]
        around = [one for one in open_ if one[0] + JITTER_NS >= finish]
        # Once for all that what outlives it outlives, too.
        gives_way = outlived is not None and not any(one[2] and one[0] < outlived for one in around)
        mine = max((one[1] for one in around), default=-1) + 1 + gives_way
        taken = {one[1] for one in open_}
        while mine in taken:
            mine += 1
        rows.append(mine)
        open_.append((finish, mine, gives_way))
    row = np.zeros(len(start), np.int32)
    row[order] = rows
    return row


def _outlived(begins: list[int], ends: list[int]) -> list[int | None]:
    """Of each the end of the first longer one that begins in it and ends after it."""
    found: list[int | None] = [None] * len(begins)
    open_: list[int] = []
    for index, (begin, finish) in enumerate(zip(begins, ends, strict=True)):
        open_ = [other for other in open_ if ends[other] > begin]
        for other in open_:
            if ends[other] + JITTER_NS < finish and ends[other] - begins[other] < finish - begin:
                found[other] = min(found[other] or finish, finish)
        open_.append(index)
    return found


def most_at_once(start: Ints, end: Ints) -> int:
    """How many are open at one moment, at most."""
    begun = np.sort(start)
    closed = np.searchsorted(np.sort(np.maximum(end, start)), begun, "right")
    return int((np.arange(1, len(begun) + 1) - closed).max(initial=0))
