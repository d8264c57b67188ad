"""What a client asks of a timeline: one event and all that is known of it, what is next, when and why a device is idle."""

import bisect
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope import intervals, pyramid, tables
from stepscope.analyses._coverage import complete_steps
from stepscope.analyses._work import cut
from stepscope.errors import UsageError
from stepscope.intervals import Ints
from stepscope.timelines import columns, finding, summing
from stepscope.timelines.lanes import KINDS, WORK, Group, Lane, Timeline, rows_of
from stepscope.trace import Trace

MANY = 200  # of one list in an answer
_RELEASED = 8  # stretches of time, after which the memory of what was looked at is given back
_LOOKED_THROUGH = 1 << 21  # spans among which the causes of gaps are looked for
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
        raise UsageError(f"no direction '{direction}'; expected at, prev or next")
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
    step = trace.steps.filter(pl.col("rank") == rank, pl.col("step").eq_missing(row["step"])).select(pl.col("end_ns") - pl.col("start_ns"))
    step_ns = step.collect().to_series().to_list() if row["step"] is not None else []
    linked = of_rank.filter((pl.col("flow_in") == span) | (pl.col("op") == span)).select("span", "track", "start_ns", "dur_ns", "flow_in")
    effects = linked.sort("start_ns").collect()
    causes = [cause for cause in (row["flow_in"], row["op"]) if cause is not None and cause != span]
    above = _above(timeline, mine, row)
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
        ask = functools.partial(
            trace.analyse if numbers is None else _near(trace, steps[first : last + 1]).analyse, "gaps", rank=group.rank
        )
        found = ask() if once is None else once(("gaps", group.rank, numbers), ask)
    else:
        known = complete_steps(trace).filter(pl.col("rank") == group.rank)["step"]
        inside = inside[steps["step"].gather(inside).is_in(known.implode()).to_numpy()]
        if len(inside) == 0:
            return []
        found = _idle(timeline, group, low, high, (begin[inside], end[inside], steps["step"].gather(inside)))
    start, device = pl.col("start_ns") - timeline.origin, pl.lit(group.device, pl.Int32)
    rows: list[dict[str, Any]] = (
        found.filter(pl.col("device").eq_missing(device), start < high, start + pl.col("dur_ns") > low)
        .select("step", "cause", "next_kernel", "next_span", "host_activity", "share_of_step", start=start, dur="dur_ns")
        .sort("dur", "start", descending=[True, False])
        .head(MANY)
        .to_dicts()
    )
    return rows


def _near(trace: Trace, steps: pl.DataFrame) -> Trace:
    """What begins in the time of some steps of one rank: of a large file the few parts of it that hold that."""
    begin, end = steps["start_ns"].min(), steps["end_ns"].max()
    wanted = ("rank", "track", "kind", "name", "start_ns", "dur_ns", "self_ns", "span", "parent", "flow_in", "step")
    spans = trace.spans.filter(pl.col("rank") == steps["rank"][0], pl.col("start_ns") >= begin, pl.col("start_ns") < end)
    return trace.part({"spans": spans.select(wanted).collect(), "steps": steps})


def _idle(timeline: Timeline, group: Group, low: int, high: int, steps: tuple[Ints, Ints, pl.Series]) -> pl.DataFrame:
    """When no stream of a device ran anything in these steps: of what reaches into a time, the MANY longest stretches."""
    events, (begin, end, numbers) = timeline.pyramid.events, steps
    lanes = [lane for lane in timeline.lanes if lane.group == group.id and lane.kind == "spans" and group.kind == "device"]
    rows = [row for lane in lanes for row in rows_of(lane)]
    is_work = np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in WORK])
    best = [np.empty((0, 3), np.int64)]  # start, length and step

    def keep(idle: intervals.Set) -> None:
        pieces = cut(idle.starts, idle.ends, begin, end)
        start, length = pieces.starts, pieces.ends - pieces.starts
        here = np.flatnonzero((start < high) & (start + length > low))
        here = here[np.lexsort((start[here], -length[here]))[:MANY]]
        best.append(np.stack((start[here], length[here], pieces.step[here]), 1))

    ran_until, last = int(begin[0]), int(end.max())
    for number, (from_, to) in enumerate(summing.stretches(timeline, rows, ran_until, last) if rows else (), 1):
        sets = []
        for row in rows:
            some = pyramid.within(events, row, from_, to)
            ran = is_work[events.kind[some]]
            start = events.start[some][ran]
            sets.append(intervals.merge(start, start + events.dur[some][ran]))
        busy = intervals.clip(intervals.join(*sets), from_, to)
        until = np.append(ran_until, busy.ends)
        idle = busy.starts > until[:-1]
        keep(intervals.Set(until[:-1][idle], busy.starts[idle]))
        ran_until = int(until[-1])
        if number % _RELEASED == 0:
            columns.release(events)
    if rows and ran_until < last:
        keep(intervals.Set(np.array([ran_until]), np.array([last])))
    start, length, step = np.concatenate(best).T
    return pl.DataFrame(
        {
            "device": pl.Series([group.device] * len(length), dtype=pl.Int32),
            "step": numbers.gather(step),
            "start_ns": start + timeline.origin,
            "dur_ns": length,
            "share_of_step": length / (end - begin)[step],
        }
    ).with_columns(pl.lit(None).alias(name) for name in ("cause", "next_kernel", "next_span", "host_activity"))


def _count(timeline: Timeline, rank: int, low: int, high: int) -> int:
    """How many spans of a rank reach into a time, about."""
    lanes = (lane for lane in timeline.lanes if lane.kind == "spans" and lane.rank == rank)
    found = (pyramid.within(timeline.pyramid.events, row, low, high) for lane in lanes for row in rows_of(lane))
    return sum(some.stop - some.start for some in found)


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


def _above(timeline: Timeline, mine: dict[str, Any] | None, row: dict[str, Any]) -> list[int]:
    """The spans around this one, the innermost first; not those that it only overlaps."""
    if mine is None or row["parent"] is None:
        return []
    lane, end = timeline.lanes[mine["lane"]], mine["start"] + mine["dur"] - intervals.JITTER_NS
    around = (near(timeline, lane, above, mine["start"], "at") for above in reversed(range(mine["row"])))
    return [one["span"] for one in around if one and one["start"] + one["dur"] >= end]


def _same_name(timeline: Timeline, rank: int, mine: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """The events of the same name in the rank just before and after this one, and how many there are."""
    if mine is None:
        return {"previous": None, "next": None, "same_name": 0, "same_name_before": 0}
    found = finding.same_name(timeline, rank, name)
    together = found.between(mine["start"], mine["start"] + 1).tolist()
    index = found.before(mine["start"]) + together.index(mine["at"])
    before, after = (found.number(one) for one in (index - 1, index + 1))
    told = {"previous": before, "next": after}
    return {way: event(timeline, at) if at is not None else None for way, at in told.items()} | {
        "same_name": found.count,
        "same_name_before": index,
    }


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
