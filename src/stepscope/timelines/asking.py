"""What a client asks of a timeline: one event and all that is known of it, what is found, what is in an area, what is next."""

import bisect
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals, pyramid, tables
from stepscope.analyses._work import cut
from stepscope.errors import UsageError
from stepscope.intervals import Bools, Ints
from stepscope.timelines.lanes import FLAT, KINDS, WORK, Group, Lane, Timeline, rows_of
from stepscope.trace import Trace

MANY = 200  # of one list in an answer
_ARGS = 1 << 20  # spans whose arguments are read for every search; of more, only where that is asked for
_PORTION = 1 << 17
_LOOKED_THROUGH = 1 << 21  # spans among which the causes of gaps are looked for
_WORDS = ("name", "type", "scope")
Once = Callable[[tuple[Any, ...], Callable[[], pl.DataFrame]], pl.DataFrame]


def event(timeline: Timeline, at: int) -> dict[str, Any]:
    """The event of this number: where it stands, and what and when it is."""
    events = timeline.pyramid.events
    row = int(np.searchsorted(events.offsets, at, "right")) - 1
    drawn = [lane for lane in timeline.lanes if lane.kind != "counter"]
    lane = drawn[bisect.bisect_right([one.first for one in drawn], row) - 1]
    return {
        "rank": lane.rank,
        "span": int(events.span[at]),
        "lane": lane.id,
        "row": row - lane.first,
        "start": int(events.start[at]),
        "dur": int(events.dur[at]),
        "name": timeline.labels["name"][int(events.label[at])],
        "kind": KINDS[events.kind[at]],
    }


def near(timeline: Timeline, lane: Lane, row: int, at: int, direction: str, span: int | None = None) -> dict[str, Any] | None:
    """The event of a row at a moment, or the next or previous one; of those that begin together, seen from `span`."""
    if not 0 <= row < lane.rows or lane.kind == "counter":
        raise UsageError(f"no row {row} in lane {lane.id}")
    events = timeline.pyramid.events
    from_, to = (int(edge) for edge in events.offsets[lane.first + row : lane.first + row + 2])
    starts = events.start[from_:to]
    if direction == "at":
        some = pyramid.within(events, lane.first + row, at, at + 1)
        there = np.flatnonzero((events.start[some] + events.dur[some] > at) | (events.start[some] == at))
        return event(timeline, some.start + int(there[-1])) if len(there) else None
    if direction not in ("prev", "next"):
        raise UsageError(f"no direction '{direction}'; there are at, prev, next")
    low, high = from_ + int(np.searchsorted(starts, at, "left")), from_ + int(np.searchsorted(starts, at, "right"))
    known = (low + np.flatnonzero(events.span[low:high] == span)).tolist() if span is not None and span >= 0 else []
    following, before = (known[0] + 1, known[0] - 1) if known else (high, low - 1)
    chosen = following if direction == "next" else before
    return event(timeline, chosen) if from_ <= chosen < to else None


def details(trace: Trace, timeline: Timeline, rank: int, span: int) -> dict[str, Any]:
    """Everything that is known of a span, what it is part of, what caused it and what it caused."""
    of_rank = trace.spans.filter(pl.col("rank") == rank)
    found = tables.finite(of_rank.filter(pl.col("span") == span)).collect()
    if found.height == 0:
        raise UsageError(f"no span {span} of rank {rank}")
    row = found.row(0, named=True)
    start = row["start_ns"] - timeline.origin
    mine = _place(timeline, rank, row["track"], span, start)
    said = {name: value for name, value in row.items() if name not in ("start_ns", "dur_ns", "self_ns", "args", "shapes", "dtypes", "rank")}
    step = trace.steps.filter(pl.col("rank") == rank, pl.col("step") == row["step"]).select(pl.col("end_ns") - pl.col("start_ns"))
    step_ns = step.collect().to_series().to_list() if row["step"] is not None else []
    linked = of_rank.filter((pl.col("flow_in") == span) | (pl.col("op") == span)).select("span", "track", "start_ns", "dur_ns", "flow_in")
    effects = linked.sort("start_ns").collect()
    causes = [cause for cause in (row["flow_in"], row["op"]) if cause is not None and cause != span]
    above = _above(of_rank, timeline, mine, row)
    # A kernel is caused by its launch call, which is part of its operator.
    known = placed_spans(timeline, of_rank, rank, [*causes, *above])
    out = effects.filter(pl.col("flow_in") == span)
    launched = effects.filter((pl.col("flow_in") != span) | pl.col("flow_in").is_null())
    return said | {
        "rank": rank,
        "lane": mine and mine["lane"],
        "row": mine and mine["row"],
        "start": start,
        "start_ns": str(row["start_ns"]),
        "dur": row["dur_ns"],
        "self": row["self_ns"],
        "share_of_step": row["dur_ns"] / step_ns[0] if step_ns and step_ns[0] else None,
        "shapes": _parsed(row["shapes"]),
        "dtypes": _parsed(row["dtypes"]),
        "args": _parsed(row["args"]),
        "parents": [known[one] for one in above if one in known],
        "flows": {
            "in": [known[one] for one in causes[:1] if one in known],
            "out": _placed(timeline, rank, out),
            "out_count": out.height,
        },
        "operator": known.get(row["op"]) if row["op"] != span else None,
        "launched": _placed(timeline, rank, launched),
        "launched_count": launched.height,
        "launched_ns": launched["dur_ns"].sum(),
        **_same_name(timeline, rank, mine, row["name"] or ""),
    }


class Found(NamedTuple):
    """What a search has found, by time."""

    at: NDArray[np.uint32]  # numbers of events
    total_ns: int
    searched: tuple[str, ...]

    def before(self, timeline: Timeline, moment: int) -> int:
        """How many of them begin before a moment."""
        return bisect.bisect_left(range(len(self.at)), moment, key=lambda one: timeline.pyramid.events.start[self.at[one]])


def search(
    trace: Trace, timeline: Timeline, text: str, kinds: Iterable[str] = (), rank: int | None = None, args: bool | None = None
) -> Found:
    """All spans with these words in name, type or scope (or matching a /regular expression/); in arguments, too, where there are few.

    `args` says whether arguments are looked at, however many there are.
    """
    events = timeline.pyramid.events
    with_args = timeline.spans <= _ARGS if args is None else args
    is_pattern = text.startswith("/") and len(text) > 1
    words = [text] if is_pattern else text.split()
    if not words:
        raise UsageError("nothing to search for")
    rows = _rows_of_rank(timeline, rank)
    hit: Bools = events.span[rows] >= 0
    if kinds:
        unknown = set(kinds) - set(KINDS)
        if unknown:
            raise UsageError(f"no kind '{min(unknown)}'; there are {', '.join(KINDS)}")
        hit &= np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in kinds])[events.kind[rows]]
    for word in words:
        labels = np.zeros(timeline.labels.height, np.bool_)
        labels[tables.matching(timeline.labels.lazy().with_row_index("at"), word).select("at").collect()["at"].to_numpy()] = True
        one = labels[events.label[rows]]
        if with_args:
            one |= _in_args(trace, timeline, rows.start, rows.stop, word)
        hit &= one
    at = rows.start + np.flatnonzero(hit)
    at = at[np.argsort(events.start[at], kind="stable")]  # of rows that are sorted: a merge
    return Found(at.astype(np.uint32), int(events.dur[at].sum()), (*_WORDS, "args") if with_args else _WORDS)


def area(timeline: Timeline, lanes: list[Lane], low: int, high: int, by: str = "name") -> pl.DataFrame:
    """What stands in these lanes between two moments, each event with the part of it that lies there; the most of own time first.

    An event of no length counts where it is. `self_ns` is without what stands below it in the same lane. `by` is name (and kind and
    lane), kind or lane.
    """
    if by not in ("name", "kind", "lane"):
        raise UsageError(f"no area by '{by}'; there are name, kind, lane")
    if high <= low:
        raise UsageError(f"the area ends at {high}, before it begins at {low}")
    names, of_label = _name_codes(timeline)
    codes = of_label * len(KINDS) if by == "name" else np.zeros_like(of_label)  # of labels; to which the kind is added
    groups = int(codes.max(initial=0)) + len(KINDS)
    pieces = []
    for lane in lanes:
        sums = _sums(timeline, lane, low, high, codes, groups)
        used = np.flatnonzero(sums[0])
        about = {"name": used // len(KINDS), "kind": used % len(KINDS), "lane": np.full(len(used), lane.id)}
        pieces.append(pl.DataFrame(about | {name: sums[index, used] for index, name in enumerate(_SUMS)}))
    whole = pl.concat(pieces) if pieces else pl.DataFrame(schema=dict.fromkeys(("name", "kind", "lane", *_SUMS), pl.Int64))
    if by != "name":
        whole = whole.group_by(by).agg(pl.col("count", "total_ns", "self_ns").sum(), pl.col("max_ns").max())
    texts = {"name": names, "kind": pl.Series(KINDS), "lane": pl.Series([lane.label for lane in timeline.lanes], dtype=pl.String)}
    nothing = pl.Series([None] * whole.height, dtype=pl.String)
    return (
        whole.with_columns(
            texts[by].gather(whole[by]).alias("key"),
            (nothing if by == "lane" else texts["kind"].gather(whole["kind"])).alias("kind"),
            (nothing if by == "kind" else whole["lane"]).cast(pl.Int32).alias("lane"),
        )
        .with_columns(share=pl.col("total_ns") / (high - low), mean_ns=pl.col("total_ns") / pl.col("count"))
        .select("key", "kind", "lane", "count", "total_ns", "self_ns", "share", "mean_ns", "max_ns")
        .sort("self_ns", "count", "key", "lane", descending=[True, True, False, False], nulls_last=True)
    )


_SUMS = ("count", "total_ns", "self_ns", "max_ns")


def summary(timeline: Timeline, groups: Iterable[Group], low: int, high: int) -> list[dict[str, int]]:
    """How long each group was busy between two moments, and of it how long with each kind of work; idle is the rest."""
    events = timeline.pyramid.events
    # Ranges and moments say where, not that something ran.
    is_work = np.array([kind not in ("step", "scope", "annotation", "instant") for kind in KINDS])
    told = []
    for group in groups:
        sets: dict[str, list[intervals.Set]] = {}
        for lane in timeline.lanes:
            if lane.group != group.id or lane.kind != "spans":
                continue
            for row in rows_of(lane):
                some = pyramid.within(events, row, low, high)
                start, kind = events.start[some], events.kind[some]
                end, runs = start + events.dur[some], is_work[kind]
                for one in np.unique(kind[runs]) if group.kind == "device" else [-1]:
                    own = slice(None) if runs.all() and one < 0 else runs if one < 0 else kind == one
                    sets.setdefault("" if one < 0 else KINDS[one], []).append(intervals.merge(start[own], end[own]))
                if lane.nested and len(start) and runs.all():
                    break  # what is deeper is part of it
        joined = {kind: intervals.clip(intervals.join(*found), low, high) for kind, found in sets.items()}
        parts = {kind: one.total for kind, one in joined.items()}
        busy = intervals.join(*joined.values()).total if joined else 0
        told.append({"group": group.id, "busy_ns": busy, "idle_ns": high - low - busy} | {f"{k}_ns": v for k, v in parts.items() if k})
    return told


def gaps(trace: Trace, timeline: Timeline, group: Group, low: int, high: int, once: Once | None = None) -> list[dict[str, Any]]:
    """The idle stretches of a device within steps that reach into a time, as `gaps` has them, the longest first.

    Where there is more than can be looked through at once, they come without their causes. `once` keeps what is asked again.
    """
    steps = trace.steps.filter(pl.col("rank") == group.rank).sort("start_ns").collect()
    begin, end = (steps[name].to_numpy() - timeline.origin for name in ("start_ns", "end_ns"))
    inside = np.flatnonzero((begin < high) & (end > low))
    if len(inside) == 0:
        return []
    # A step more on either side: what ends a gap, and what launched that, may be there.
    first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, steps.height - 1)
    if timeline.spans <= _LOOKED_THROUGH or _count(timeline, group.rank, int(begin[first]), int(end[last])) <= _LOOKED_THROUGH:
        numbers = None if timeline.spans <= _LOOKED_THROUGH else (int(steps["step"][first]), int(steps["step"][last]))
        ask = functools.partial(trace.analyse, "gaps", rank=group.rank, steps=numbers)
        found = ask() if once is None else once(("gaps", group.rank, numbers), ask)
    else:
        found = _idle(timeline, group, begin[inside], end[inside], steps["step"].gather(inside))
    start, device = pl.col("start_ns") - timeline.origin, pl.lit(group.device, pl.Int32)
    rows: list[dict[str, Any]] = (
        found.filter(pl.col("device").eq_missing(device), start < high, start + pl.col("dur_ns") > low)
        .select("step", "cause", "next_kernel", "next_span", "host_activity", "share_of_step", start=start, dur="dur_ns")
        .sort("dur", "start", descending=[True, False])
        .head(MANY)
        .to_dicts()
    )
    return rows


def _sums(timeline: Timeline, lane: Lane, low: int, high: int, codes: Ints, groups: int) -> Ints:
    """Of the events of a lane between two moments, by code and kind: how many, how long, how long without what is below, the longest."""
    events = timeline.pyramid.events
    sums = np.zeros((len(_SUMS), groups), np.int64)
    tangle: list[tuple[Ints, Ints, Ints]] = []
    for row in rows_of(lane):
        for at, first, last in _inside(timeline, row, low, high):
            key, clipped = events.kind[at] + codes[events.label[at]], last - first
            sums[0] += np.bincount(key, minlength=groups)
            sums[1] += np.bincount(key, clipped, groups).astype(np.int64)
            np.maximum.at(sums[3], key, clipped)
            if lane.nested and row > lane.first:
                # A child belongs to the last that began before it in the row above, which is shorter by it.
                parent = _last_begun(timeline, row - 1, events.start[at])
                known = parent >= 0
                parent = parent[known]
                until = np.minimum(last[known], events.start[parent] + events.dur[parent])
                taken = np.maximum(until - first[known], 0)
                sums[2] -= np.bincount(events.kind[parent] + codes[events.label[parent]], taken, groups).astype(np.int64)
            if lane.tangled:
                tangle.append((key, first, last))
    if tangle:
        keys, first, last = (np.concatenate(column) for column in zip(*tangle, strict=True))
        own = intervals.nest(np.zeros(len(first), np.int64), first, last).self_time
        sums[2] = np.bincount(keys, own, groups).astype(np.int64) - sums[1]
    sums[2] = np.where(np.isin(np.arange(groups) % len(KINDS), [KINDS.index(kind) for kind in FLAT]), sums[1], sums[1] + sums[2])
    return sums


def _inside(timeline: Timeline, row: int, low: int, high: int) -> Iterator[tuple[slice | Ints, Ints, Ints]]:
    """The events of a row that reach into a time, or are in it and of no length: which, and from when to when they are there.

    In portions that stay in the processor's cache.
    """
    events = timeline.pyramid.events
    every = pyramid.within(events, row, low, high)
    for begin in range(every.start, every.stop, _PORTION):
        some = slice(begin, min(begin + _PORTION, every.stop))
        start, dur = events.start[some], events.dur[some]
        end = start + dur
        at: slice | Ints = some
        if start[0] < low:
            seen = (end > low) | ((dur == 0) & (start >= low))
            at, start, end = begin + np.flatnonzero(seen), start[seen], end[seen]
        yield at, np.maximum(start, low), np.minimum(end, high)


def _last_begun(timeline: Timeline, row: int, at: Ints) -> Ints:
    """The events of a row that began last at these moments, which are in order; -1 for none."""
    events = timeline.pyramid.events
    from_, to = (int(edge) for edge in events.offsets[row : row + 2])
    if len(at) == 0 or from_ == to:
        return np.full(len(at), -1, np.int64)
    low, high = from_ + np.searchsorted(events.start[from_:to], (at[0], at[-1]), "right")
    near = max(int(low) - 1, from_)
    found = near + np.searchsorted(events.start[near : int(high)], at, "right") - 1
    return np.where(found >= from_, found, -1)


def _idle(timeline: Timeline, group: Group, begin: Ints, end: Ints, steps: pl.Series) -> pl.DataFrame:
    """When no stream of a device ran anything in these steps."""
    events = timeline.pyramid.events
    sets = [intervals.NONE]
    for lane in timeline.lanes:
        if lane.group == group.id and lane.kind == "spans" and group.kind == "device":
            for row in rows_of(lane):
                some = pyramid.within(events, row, int(begin[0]), int(end.max()))
                ran = np.isin(events.kind[some], [KINDS.index(kind) for kind in WORK])
                start = events.start[some][ran]
                sets.append(intervals.merge(start, start + events.dur[some][ran]))
    idle = intervals.gaps(intervals.join(*sets), int(begin[0]), int(end.max())) if group.kind == "device" else intervals.NONE
    pieces = cut(idle.starts, idle.ends, begin, end)
    length = pieces.ends - pieces.starts
    return pl.DataFrame(
        {
            "device": pl.Series([group.device] * len(length), dtype=pl.Int32),
            "step": steps.gather(pieces.step),
            "start_ns": pieces.starts + timeline.origin,
            "dur_ns": length,
            "share_of_step": length / (end - begin)[pieces.step],
        }
    ).with_columns(pl.lit(None).alias(name) for name in ("cause", "next_kernel", "next_span", "host_activity"))


def _count(timeline: Timeline, rank: int, low: int, high: int) -> int:
    """How many spans of a rank reach into a time, about."""
    lanes = (lane for lane in timeline.lanes if lane.kind == "spans" and lane.rank == rank)
    found = (pyramid.within(timeline.pyramid.events, row, low, high) for lane in lanes for row in rows_of(lane))
    return sum(some.stop - some.start for some in found)


def _name_codes(timeline: Timeline) -> tuple[pl.Series, Ints]:
    """The distinct names, and which of them each label has."""
    names = timeline.labels["name"].unique(maintain_order=True)
    codes = timeline.labels.select("name").join(
        pl.DataFrame({"name": names}).with_row_index("at"), on="name", how="left", maintain_order="left"
    )
    return names, codes["at"].cast(pl.Int64).to_numpy()


def _rows_of_rank(timeline: Timeline, rank: int | None) -> slice:
    """The events of a rank, whose rows stand together, or all."""
    offsets = timeline.pyramid.events.offsets
    own = [lane for lane in timeline.lanes if lane.kind != "counter" and lane.rank in (rank, lane.rank if rank is None else rank)]
    if not own:
        return slice(0, 0)
    return slice(int(offsets[own[0].first]), int(offsets[own[-1].first + own[-1].rows]))


def _place(timeline: Timeline, rank: int, track: int | None, span: int, start: int) -> dict[str, Any] | None:
    """The event of a span."""
    events = timeline.pyramid.events
    lane = next((lane for lane in timeline.lanes if lane.kind == "spans" and (lane.rank, lane.track) == (rank, track)), None)
    for row in rows_of(lane) if lane else ():
        from_, to = (int(edge) for edge in events.offsets[row : row + 2])
        low, high = from_ + np.searchsorted(events.start[from_:to], (start, start + 1))
        at = low + np.flatnonzero(events.span[low:high] == span)
        if len(at):
            return event(timeline, int(at[0])) | {"at": int(at[0])}
    return None


def _placed(timeline: Timeline, rank: int, spans: pl.DataFrame) -> list[dict[str, Any]]:
    rows = spans.head(MANY).select("span", "track", pl.col("start_ns") - timeline.origin).iter_rows()
    found = [_place(timeline, rank, track, span, start) for span, track, start in rows]
    return [{key: value for key, value in one.items() if key != "at"} for one in found if one]


def placed_spans(timeline: Timeline, spans: pl.LazyFrame, rank: int, wanted: list[int]) -> dict[int, dict[str, Any]]:
    """The events of these spans of a rank, by span; at most MANY."""
    rows = spans.filter(pl.col("span").is_in(wanted)).select("span", "track", "start_ns", "dur_ns").collect() if wanted else None
    return {one["span"]: one for one in _placed(timeline, rank, rows)} if rows is not None else {}


def _above(spans: pl.LazyFrame, timeline: Timeline, mine: dict[str, Any] | None, row: dict[str, Any]) -> list[int]:
    """The spans around this one, the innermost first."""
    if mine is None or row["parent"] is None:
        return []
    lane = timeline.lanes[mine["lane"]]
    around = [near(timeline, lane, above, mine["start"], "at") for above in range(mine["row"])]
    ids = [one["span"] for one in around if one]
    parents = dict(spans.filter(pl.col("span").is_in([*ids, row["parent"]])).select("span", "parent").collect().iter_rows())
    found: list[int] = []
    parent = row["parent"]
    while parent is not None and parent not in found:
        found.append(parent)
        parent = parents.get(parent)
    return found


def _same_name(timeline: Timeline, rank: int, mine: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """The events of the same name in the rank just before and after this one, and how many there are."""
    if mine is None:
        return {"previous": None, "next": None, "same_name": 0, "same_name_before": 0}
    events = timeline.pyramid.events
    rows = _rows_of_rank(timeline, rank)
    labels = (timeline.labels["name"] == name).to_numpy()
    at = rows.start + np.flatnonzero(labels[events.label[rows]] & (events.span[rows] >= 0))
    start = events.start[at]
    order = np.argsort(start, kind="stable")
    index = int(np.flatnonzero(at[order] == mine["at"])[0])
    before, after = (event(timeline, int(at[order[one]])) if 0 <= one < len(at) else None for one in (index - 1, index + 1))
    return {"previous": before, "next": after, "same_name": len(at), "same_name_before": index}


def _in_args(trace: Trace, timeline: Timeline, low: int, high: int, word: str) -> Bools:
    """Of the events from one number to another, which have the word in their arguments."""
    hits = tables.matching(trace.spans.select("rank", "span", "args"), word).select("rank", "span").collect()
    found = np.zeros(high - low, np.bool_)
    for (rank,), rows in hits.partition_by("rank", as_dict=True).items():
        own = _rows_of_rank(timeline, rank)
        part = slice(max(own.start, low), min(own.stop, high))
        if part.start < part.stop:
            found[part.start - low : part.stop - low] = np.isin(timeline.pyramid.events.span[part], rows["span"].to_numpy())
    return found


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
