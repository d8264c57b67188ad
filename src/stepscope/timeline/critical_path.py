"""The critical path of a step on the timeline: its piece at a timestamp, and the part of a span that is on it."""

from typing import Any

import polars as pl

from stepscope.analyses.steps.critical_path import COLUMNS
from stepscope.model import intervals
from stepscope.model.trace import Trace
from stepscope.timeline import pyramid
from stepscope.timeline.details import Memo
from stepscope.timeline.layout import PATH_SPANS, Timeline, track_rows


def critical_part(trace: Trace, timeline: Timeline, rank: int, span: int, step: int | None, memo: Memo) -> dict[str, Any]:
    """The time of a span on the critical path, in total and by kind; null where the path is unknown.

    The path contains the outermost operators of a thread: a span inside one is on the path when that operator is.
    """
    path = _path(trace, timeline, rank, step, memo)
    if path is None or path.is_empty():
        return {"critical_ns": None, "critical": []}
    rank_spans = trace.spans.filter(pl.col("rank") == rank)
    row = rank_spans.filter(pl.col("span") == span).select("track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    track, start, end = row.row(0)
    piece_end = pl.col("start_ns") + pl.col("dur_ns")
    near = path.filter(pl.col("span") != span, pl.col("kind").is_in(["host", "wait"]), pl.col("start_ns") < end, piece_end > start)
    # A wait lies before the span that it waits for: a span that happens to be there is not part of it.
    encloses = (pl.col("start_ns") <= start) & (piece_end + intervals.JITTER_NS >= end)
    enclosing = rank_spans.filter(pl.col("track") == track, pl.col("span").is_in(near["span"].unique().to_list()), encloses)
    inside = near.join(enclosing.select("span").collect(), on="span", how="semi").with_columns(
        dur_ns=pl.min_horizontal(piece_end, pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    )
    pieces = pl.concat([path.filter(pl.col("span") == span), inside])
    kinds = pieces.group_by("kind", maintain_order=True).agg(ns=pl.col("dur_ns").sum())
    return {"critical_ns": int(pieces["dur_ns"].sum()), "critical": kinds.to_dicts()}


def piece_at(trace: Trace, timeline: Timeline, rank: int, time: int, memo: Memo) -> dict[str, Any] | None:
    """The piece of the critical path at a timestamp."""
    start, end = pl.col("start_ns") - timeline.origin, pl.col("end_ns") - timeline.origin
    steps = trace.steps.filter(pl.col("rank") == rank, start <= time, end > time).select("step").collect().to_series()
    path = _path(trace, timeline, rank, steps[0], memo) if len(steps) else None
    if path is None:
        return None
    pieces = path.filter(start <= time, start + pl.col("dur_ns") > time).select("kind", "name", "span", start=start, dur="dur_ns")
    return pieces.row(0, named=True) if pieces.height else None


def _path(trace: Trace, timeline: Timeline, rank: int, step: int | None, memo: Memo) -> pl.DataFrame | None:
    """The path of the whole rank in a small trace, else of the step."""
    if timeline.spans <= PATH_SPANS:
        return memo(("path", rank), lambda: trace.analyse("critical_path", rank=rank))
    return None if step is None else memo(("path", rank, step), lambda: _step_path(trace, timeline, rank, step))


def _step_path(trace: Trace, timeline: Timeline, rank: int, step: int) -> pl.DataFrame:
    """Computed from the spans of the step and of the one before it, in which its first kernels were launched."""
    rank_trace = trace.of_rank(rank)
    steps = rank_trace.steps.filter(pl.col("step").is_between(step - 1, step))
    low, high = steps.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    if low is None:
        return pl.DataFrame(schema=COLUMNS)
    # A filter on the start alone, so that Parquet skips the earlier parts of a large file.
    first = _first_start(timeline, rank, low - timeline.origin, high - timeline.origin) + timeline.origin
    spans = rank_trace.spans.filter(pl.col("start_ns") >= first)
    return rank_trace.part({"spans": spans}).of_time(low, high).analyse("critical_path").filter(pl.col("step") == step)


def _first_start(timeline: Timeline, rank: int, low: int, high: int) -> int:
    """The earliest start of the spans of a rank that overlap an interval."""
    spans = timeline.pyramid.spans
    rows = [row for track in timeline.tracks if track.kind == "spans" and track.rank == rank for row in track_rows(track)]
    slices = (pyramid.within(spans, row, low, high) for row in rows)
    return min((int(spans.start[part.start]) for part in slices if part.stop > part.start), default=low)
