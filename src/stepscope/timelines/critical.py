"""The critical path on the timeline: its lane, and what of it a span is."""

from collections.abc import Callable
from typing import Any

import polars as pl

from stepscope import intervals, pyramid
from stepscope.analyses.critical_path import COLUMNS
from stepscope.timelines.lanes import PATH_SPANS, Timeline, rows_of
from stepscope.trace import Trace

Once = Callable[[tuple[Any, ...], Callable[[], pl.DataFrame]], pl.DataFrame]


def part(trace: Trace, timeline: Timeline, rank: int, span: int, step: int | None, once: Once) -> dict[str, Any]:
    """How long the span is on the critical path, and as what; null where the path is not known.

    The path knows the outermost operators of a thread: what is inside one is on the path when that is.
    """
    path = _path(trace, timeline, rank, step, once)
    if path is None or path.is_empty():
        return {"critical_ns": None, "critical": []}
    of_rank = trace.spans.filter(pl.col("rank") == rank)
    mine = of_rank.filter(pl.col("span") == span).select("track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    track, start, end = mine.row(0)
    finish = pl.col("start_ns") + pl.col("dur_ns")
    near = path.filter(pl.col("span") != span, pl.col("kind").is_in(["host", "wait"]), pl.col("start_ns") < end, finish > start)
    # A wait for what comes next lies before that: what happens to be there is no part of it.
    holds = (pl.col("start_ns") <= start) & (finish + intervals.JITTER_NS >= end)
    around = of_rank.filter(pl.col("track") == track, pl.col("span").is_in(near["span"].unique().to_list()), holds)
    inside = near.join(around.select("span").collect(), on="span", how="semi").with_columns(
        dur_ns=pl.min_horizontal(finish, pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    )
    own = pl.concat([path.filter(pl.col("span") == span), inside])
    kinds = own.group_by("kind", maintain_order=True).agg(ns=pl.col("dur_ns").sum())
    return {"critical_ns": int(own["dur_ns"].sum()), "critical": kinds.to_dicts()}


def at(trace: Trace, timeline: Timeline, rank: int, moment: int, once: Once) -> dict[str, Any] | None:
    """The piece at a moment; null where there is none."""
    start, end = pl.col("start_ns") - timeline.origin, pl.col("end_ns") - timeline.origin
    steps = trace.steps.filter(pl.col("rank") == rank, start <= moment, end > moment).select("step").collect().to_series()
    path = _path(trace, timeline, rank, steps[0], once) if len(steps) else None
    if path is None:
        return None
    here = path.filter(start <= moment, start + pl.col("dur_ns") > moment).select("kind", "name", "span", start=start, dur="dur_ns")
    return here.row(0, named=True) if here.height else None


def _path(trace: Trace, timeline: Timeline, rank: int, step: int | None, once: Once) -> pl.DataFrame | None:
    """Of the whole rank where that is quickly found, else of the step alone."""
    if timeline.spans <= PATH_SPANS:
        return once(("path", rank), lambda: trace.analyse("critical_path", rank=rank))
    return None if step is None else once(("path", rank, step), lambda: _of_step(trace, timeline, rank, step))


def _of_step(trace: Trace, timeline: Timeline, rank: int, step: int) -> pl.DataFrame:
    """Found from what was recorded in the step and the one before it, where the first of its work was launched."""
    own = trace.of_rank(rank)
    near = own.steps.filter(pl.col("step").is_between(step - 1, step)).select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect()
    low, high = near.row(0)
    if low is None:
        return pl.DataFrame(schema=COLUMNS)
    # Said of the start alone, so that of a large file the parts that are over before are not read.
    first = _first_start(timeline, rank, low - timeline.origin, high - timeline.origin) + timeline.origin
    near_spans = own.spans.filter(pl.col("start_ns") >= first)
    return own.part({"spans": near_spans}).of_time(low, high).analyse("critical_path").filter(pl.col("step") == step)


def _first_start(timeline: Timeline, rank: int, low: int, high: int) -> int:
    """When the first of the spans of a rank that reach into a time begins."""
    events = timeline.pyramid.events
    rows = [row for lane in timeline.lanes if lane.kind == "spans" and lane.rank == rank for row in rows_of(lane)]
    found = (pyramid.within(events, row, low, high) for row in rows)
    return min((int(events.start[some.start]) for some in found if some.stop > some.start), default=low)
