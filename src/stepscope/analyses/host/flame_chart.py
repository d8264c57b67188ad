"""Which calls of a thread run when, one inside the other?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.call_paths import host_spans, rows_by_depth
from stepscope.analyses.shared.frame_trees import OTHER, large_rows
from stepscope.analyses.shared.operator_calls import enclosing_rows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "track": pl.Int32,
    "node": pl.Int64,
    "parent": pl.Int64,
    "depth": pl.Int32,
    "kind": pl.String,
    "name": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "total_ns": pl.Int64,  # of the calls themselves: "other frames" may have gaps between them
    "self_ns": pl.Int64,
    "calls": pl.Int64,
    "span": pl.Int64,
    "step": pl.Int32,
}


def flame_chart(
    trace: Trace,
    *,
    track: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    min_share: float = 0.0003,
    max_frames: int = 50_000,
) -> pl.DataFrame:
    """Per rank the calls of one host thread in the order of time: a row per call, after the row of the call around it.

    `track` is the thread; by default the one whose outermost calls take the most time. `start_ns` and `end_ns` select a range of time.
    Calls shorter than `min_share` of the range, and those beyond the longest `max_frames`, are merged: a row of the kind "other frames"
    covers neighbors inside the same call, with their number of calls, total and self time.
    """
    host = host_spans(trace, "start_ns", "step").filter(*(() if track is None else (pl.col("track") == track,)))
    end = pl.col("start_ns") + pl.col("dur_ns")
    if start_ns is not None:
        host = host.filter(end > start_ns)
    if end_ns is not None:
        host = host.filter(pl.col("start_ns") < end_ns)
    spans = host.with_columns(end_ns=end).collect()
    parts = [pl.DataFrame(schema=COLUMNS)]
    for (rank,), rows in spans.sort("rank").group_by("rank", maintain_order=True):
        of_track = rows.filter(pl.col("track") == (_busiest(rows) if track is None else track)).sort("depth", "start_ns", "span")
        low = int(of_track["start_ns"].min()) if start_ns is None else start_ns  # type: ignore[arg-type]
        high = int(of_track["end_ns"].max()) if end_ns is None else end_ns  # type: ignore[arg-type]
        chart = _chart(of_track, max((high - low) * min_share, 1), max_frames).with_columns(rank=pl.lit(rank))
        parts.append(chart.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()))
    return pl.concat(parts)


def _busiest(rows: pl.DataFrame) -> int:
    """The thread whose outermost calls take the most time; one with known kinds of calls, if there is one."""
    sums = rows.group_by("track").agg(
        unknown=(pl.col("kind") == "other").all(), total=pl.col("dur_ns").filter(pl.col("depth") == pl.col("depth").min()).sum()
    )
    return int(sums.sort("unknown", "total", "track", descending=[False, True, False])["track"][0])


def _chart(calls: pl.DataFrame, least_ns: float, max_frames: int) -> pl.DataFrame:
    calls = calls.with_columns(pl.col("kind", "name").cast(pl.String), pl.col("self_ns").fill_null(0), total_ns="dur_ns", calls=1)
    up = enclosing_rows(calls)
    level = np.zeros(calls.height, np.int64)
    for rows in rows_by_depth(calls["depth"].to_numpy()):
        level[rows] = np.where(up[rows] >= 0, level[up[rows]] + 1, 0)
    kept, around, directly = large_rows(up, level, calls["dur_ns"].to_numpy(), least_ns, max_frames)
    number = np.append(np.cumsum(kept) - 1, -1)
    marks = {"kept": kept, "parent": number[around], "direct": directly}
    calls = calls.with_columns(*(pl.Series(name, column) for name, column in marks.items()), pl.Series("depth", level, pl.Int32))
    merged = (
        calls.sort("parent", "start_ns", "depth", maintain_order=True)
        # A kept call ends a group; calls inside a short one belong to the group of that one.
        .with_columns(group=pl.col("kept").cum_sum().over("parent"))
        .filter(~pl.col("kept"))
        .group_by("parent", "group", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").filter("direct").max(),
            pl.col("track", "step").first(),
            pl.col("depth").min(),
            pl.col("total_ns").filter("direct").sum(),
            pl.col("self_ns", "calls").sum(),
            pl.col("span").sort_by("dur_ns").last(),
            kind=pl.lit(OTHER),
            name=pl.lit(None, pl.String),
        )
    )
    columns = [name for name in COLUMNS if name not in ("rank", "node")]
    chart = pl.concat([calls.filter("kept").select(columns), merged.select(columns)], how="vertical_relaxed")
    return chart.with_columns(node=pl.int_range(pl.len(), dtype=pl.Int64), parent=pl.when(pl.col("parent") >= 0).then("parent"))
