"""What keeps each device idle, in all?"""

import polars as pl

from stepscope.analyses.gaps import gaps
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "cause": pl.String,
    "gaps": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
}


def gap_causes(trace: Trace, *, min_ns: int = 0) -> pl.DataFrame:
    """Per rank, device and cause: the gaps of at least `min_ns` (see gaps) and their share of the time in steps, the longest first."""
    steps = trace.steps.group_by("rank").agg(steps_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()).collect()
    return (
        gaps(trace, min_ns=min_ns)
        .group_by("rank", "device", "cause")
        .agg(gaps=pl.len(), total_ns=pl.col("dur_ns").sum(), avg_ns=pl.col("dur_ns").mean().round(), max_ns=pl.col("dur_ns").max())
        .join(steps, on="rank")
        .with_columns(share=pl.col("total_ns") / pl.col("steps_ns"))
        .sort("rank", "device", "total_ns", "cause", descending=[False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
