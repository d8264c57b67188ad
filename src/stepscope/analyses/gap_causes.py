"""What keeps each device idle, in all?"""

import polars as pl

from stepscope.analyses._warmup import counting_steps
from stepscope.analyses._windows import device_steps
from stepscope.analyses.gaps import gaps
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int32,  # null for all steps together
    "cause": pl.String,
    "gaps": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
}


def gap_causes(trace: Trace, *, min_ns: int = 0, per_step: bool = False, warmup: int | None = None) -> pl.DataFrame:
    """Per rank, device and cause, the longest first: gaps of at least `min_ns` (see gaps) and their share of the device's time in steps.

    A slow first step is left out, or as many of the first as `warmup` says, as in `overview`. With per_step the same for each step, none
    left out, and the share is of that step.
    """
    key = ["rank", "step"] if per_step else ["rank"]
    every = device_steps(trace)
    counts = every if per_step else every.join(counting_steps(trace, warmup), on=["rank", "step"], how="semi")
    steps = counts.group_by(key).agg(steps_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    found = (
        gaps(trace, min_ns=min_ns)
        .join(counts.select("rank", "step"), on=["rank", "step"], how="semi")
        .group_by("device", "cause", *key)
        .agg(gaps=pl.len(), total_ns=pl.col("dur_ns").sum(), avg_ns=pl.col("dur_ns").mean().round(), max_ns=pl.col("dur_ns").max())
        .join(steps, on=key)
        .with_columns(share=pl.col("total_ns") / pl.col("steps_ns"), step="step" if per_step else pl.lit(None))
    )
    order = ["rank", "device", "step", "total_ns", "cause"]
    return found.sort(order, descending=[False, False, False, True, False]).select(
        pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()
    )
