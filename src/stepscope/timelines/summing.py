"""What is in an area of a timeline: by name, kind or lane, and how long each group was busy."""

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from stepscope import intervals, pyramid
from stepscope.errors import UsageError
from stepscope.intervals import Ints
from stepscope.timelines import columns, filling
from stepscope.timelines.filling import CHUNK, Entries
from stepscope.timelines.lanes import FLAT, KINDS, Group, Lane, Timeline, rows_of

_AT_ONCE = 1 << 20  # events whose union is worked out at a time
_RELEASED = 8  # times that, after which the memory of what was looked at is given back


def area(timeline: Timeline, lanes: list[Lane], low: int, high: int, by: str = "name") -> pl.DataFrame:
    """What stands in these lanes between two moments, each event with the part of it that lies there; the most of own time first.

    An event of no length counts where it is. `self_ns` is without what stands below it in the same lane. `by` is name (and kind and
    lane), kind or lane; `means` is the type of what bears a name.
    """
    if by not in ("name", "kind", "lane"):
        raise UsageError(f"no area by '{by}'; expected name, kind or lane")
    if high <= low:
        raise UsageError(f"the area ends at {high}, before it begins at {low}")
    parts = []
    for lane in lanes:
        entries = list(zip(*_of_lane(timeline, lane, low, high), strict=True))
        found_there = dict(zip(_ENTRIES, map(np.concatenate, entries), strict=True)) if entries else {}
        parts.append(pl.DataFrame(found_there, schema=_ENTRIES).with_columns(pl.lit(lane.id, pl.Int32).alias("lane")))
    key = {"name": ["name", "kind", "lane", "means"], "kind": ["kind"], "lane": ["lane"]}[by]
    is_flat = pl.col("kind").is_in([KINDS.index(kind) for kind in FLAT])
    found = (
        pl.concat([pl.DataFrame(schema=_ENTRIES | {"lane": pl.Int32}), *parts])
        .group_by("label", "lane")
        .agg(pl.col("times", "total", "taken").sum(), pl.col("longest").max())
    )
    about = timeline.labels.select("name", "kind", "means")[found["label"]]
    found = (
        found.hstack(about)
        .with_columns(own=pl.when(is_flat).then("total").otherwise(pl.col("total") - pl.col("taken")))
        .group_by(key)
        .agg(count=pl.col("times").sum(), total_ns=pl.col("total").sum(), self_ns=pl.col("own").sum(), max_ns=pl.col("longest").max())
        .filter(pl.col("count") > 0)
    )
    texts = {"kind": pl.Series(KINDS), "lane": pl.Series([lane.label for lane in timeline.lanes], dtype=pl.String)}
    nothing = pl.Series([None] * found.height, dtype=pl.String)
    return (
        found.with_columns(
            (found["name"] if by == "name" else texts[by].gather(found[by])).alias("key"),
            (nothing if by == "lane" else texts["kind"].gather(found["kind"])).alias("kind"),
            (nothing if by == "kind" else found["lane"]).cast(pl.Int32).alias("lane"),
            (found["means"] if by == "name" else nothing).alias("means"),
        )
        .with_columns(share=pl.col("total_ns") / (high - low), mean_ns=pl.col("total_ns") / pl.col("count"))
        .select("key", "kind", "lane", "means", "count", "total_ns", "self_ns", "share", "mean_ns", "max_ns")
        .sort("self_ns", "count", "key", "lane", "kind", descending=[True, True, False, False, False], nulls_last=True)
    )


_ENTRIES = {"label": pl.Int32, "times": pl.Int64, "total": pl.Int64, "longest": pl.Int64, "taken": pl.Int64}


def summary(timeline: Timeline, groups: Iterable[Group], low: int, high: int) -> list[dict[str, int]]:
    """How long each group was busy between two moments, and of it how long with each kind of work; idle is the rest, less what is
    not recorded."""
    told = []
    for group in groups:
        sums = _sums(timeline, group, low, high)
        busy, unrecorded = sums.pop("busy_ns", 0), 0
        for begin, end in ((max(begin, low), min(end, high)) for begin, end in group.unrecorded if begin < high and end > low):
            unrecorded += end - begin - _sums(timeline, group, begin, end).get("busy_ns", 0)
        told.append({"group": group.id, "busy_ns": busy, "idle_ns": high - low - busy - unrecorded, "unrecorded_ns": unrecorded} | sums)
    return told


def _sums(timeline: Timeline, group: Group, low: int, high: int) -> dict[str, int]:
    lanes = [lane for lane in timeline.lanes if lane.group == group.id and lane.kind == "spans"]
    rows = [(lane, row) for lane in lanes for row in rows_of(lane)]
    sums: dict[str, int] = {}
    for number, (begin, end) in enumerate(stretches(timeline, [row for _, row in rows], low, high), 1):
        if number % _RELEASED == 0:
            columns.release(timeline.pyramid.events)
        for kind, length in _busy(timeline, group, rows, begin, end).items():
            sums[kind] = sums.get(kind, 0) + length
    return sums


def stretches(timeline: Timeline, rows: list[int], low: int, high: int) -> Iterator[tuple[int, int]]:
    """A time in pieces that few enough events of these rows reach into."""
    some = [pyramid.within(timeline.pyramid.events, row, low, high) for row in rows]
    if sum(one.stop - one.start for one in some) <= _AT_ONCE or high - low < 2:
        yield low, high
        return
    middle = (low + high) // 2
    yield from stretches(timeline, rows, low, middle)
    yield from stretches(timeline, rows, middle, high)


def _busy(timeline: Timeline, group: Group, rows: list[tuple[Lane, int]], low: int, high: int) -> dict[str, int]:
    events = timeline.pyramid.events
    # Ranges and moments say where, not that something ran.
    is_work = np.array([kind not in ("step", "scope", "annotation", "instant") for kind in KINDS])
    sets: dict[str, list[intervals.Set]] = {}
    covered: Lane | None = None
    for lane, row in rows:
        if lane is covered:
            continue  # what is deeper is part of it
        some = pyramid.within(events, row, low, high)
        start, kind = events.start[some], events.kind[some]
        end, runs = start + events.dur[some], is_work[kind]
        for one in np.unique(kind[runs]) if group.kind == "device" else [-1]:
            own = slice(None) if runs.all() and one < 0 else runs if one < 0 else kind == one
            sets.setdefault("" if one < 0 else KINDS[one], []).append(intervals.merge(start[own], end[own]))
        if lane.nested and len(start) and runs.all():
            covered = lane
    joined = {kind: intervals.clip(intervals.join(*found), low, high) for kind, found in sets.items()}
    busy = intervals.join(*joined.values()).total if joined else 0
    return {"busy_ns": busy} | {f"{kind}_ns": one.total for kind, one in joined.items() if kind}


def _of_lane(timeline: Timeline, lane: Lane, low: int, high: int) -> Iterator[Entries]:
    """Of the events of a lane between two moments, by label: from the sums of whole chunks, and of what is at the edges."""
    events, sums = timeline.pyramid.events, timeline.sums
    tangle: list[tuple[Ints, Ints, Ints]] = []
    for row in rows_of(lane):
        from_, to = events.offsets[row : row + 2].tolist()
        every = pyramid.within(events, row, low, high)
        # Of these, what begins and ends inside.
        first = from_ + int(np.searchsorted(events.start[from_:to], low, "left"))
        last = min(from_ + int(np.searchsorted(events.reach[from_:to], high, "right")), every.stop)
        begin, end = -(-(first - from_) // CHUNK), (last - from_) // CHUNK if last < to else -(-(to - from_) // CHUNK)
        edges = [every]
        if begin < end and not lane.tangled:
            for chunk in range(int(sums.first[row]) + begin, int(sums.first[row]) + end):
                own = slice(*sums.places[chunk].tolist())
                yield Entries._make(column[own] for column in sums.entries)
            edges = [slice(every.start, from_ + begin * CHUNK), slice(min(from_ + end * CHUNK, to), every.stop)]
        above = row - 1 if lane.nested and row > lane.first else None
        for edge in edges:
            for begun in range(edge.start, edge.stop, CHUNK):
                some = slice(begun, min(begun + CHUNK, edge.stop))
                start, dur, label = events.start[some], events.dur[some], events.label[some]
                seen = (start + dur > low) | ((dur == 0) & (start >= low))
                start, dur, label = start[seen], dur[seen], label[seen]
                begins, ends = np.maximum(start, low), np.minimum(start + dur, high)
                if lane.tangled:
                    tangle.append((label, begins, ends))
                    continue
                taken = None if above is None or len(start) == 0 else _parents(timeline, above, start).taken(slice(None), begins, ends)
                yield filling.summed(timeline.labels.height, label, ends - begins, taken)
    if tangle:
        label, begins, ends = (np.concatenate(column) for column in zip(*tangle, strict=True))
        alone = intervals.nest(np.zeros(len(begins), np.int64), begins, ends).self_time
        codes = label.astype(np.int32)
        yield filling.summed(timeline.labels.height, codes, ends - begins, (codes, ends - begins - alone))


def _parents(timeline: Timeline, row: int, at: Ints) -> filling.Above:
    """What began last in a row at these moments, which are in order."""
    events = timeline.pyramid.events
    from_, to = events.offsets[row : row + 2].tolist()
    low, high = (from_ + np.searchsorted(events.start[from_:to], (at[0], at[-1]), "right")).tolist()
    near = slice(max(low - 1, from_), high)
    return filling.last_begun(at, events.start[near], events.dur[near], events.label[near])
