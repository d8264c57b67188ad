"""What keeps each device idle, in all?"""

import polars as pl

from stepscope.analyses._coverage import complete_steps
from stepscope.analyses._overhead import unprofiled
from stepscope.analyses._warmup import counting_steps, host_steps
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
    "device_steps": pl.Int64,  # that the row is of: their device work is completely recorded
    "unprofiled_share": pl.Float64,  # of the unprofiled step, without what recording adds: an estimate; null where it is not known
}
# Recording makes the host slower, and so the gaps in which the device waits for it; input and other ranks are late on their own.
_ON_THEIR_OWN = ["data wait", "communication"]


def gap_causes(trace: Trace, *, min_ns: int = 0, per_step: bool = False, warmup: int | None = None) -> pl.DataFrame:
    """Per rank, device and cause, the longest first: gaps of at least `min_ns` (see gaps) and their share of the device's time in steps.

    A slow first step is left out, or as many of the first as `warmup` says, as in `overview`. With per_step the same for each step, none
    left out, and the share is of that step.

    `unprofiled_share`, only without per_step: a device's idle time in an unprofiled step (`recording_overhead`), divided among its causes.
    Gaps that are the host's (host-bound, sync, launch latency, unknown) become shorter alike; data waits and communication keep their
    length, as far as that idle time has room for them.
    """
    key = ["rank", "step"] if per_step else ["rank"]
    every = device_steps(trace)
    counts = every if per_step else every.join(counting_steps(trace, warmup), on=["rank", "step"], how="semi")
    counts = counts.join(complete_steps(trace), on=["rank", "step"], how="semi")
    steps = counts.group_by(key).agg(steps_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), device_steps=pl.len())
    every_gap = gaps(trace).join(counts.select("rank", "step"), on=["rank", "step"], how="semi")
    found = (
        every_gap.filter(pl.col("dur_ns") >= min_ns)
        .group_by("device", "cause", *key)
        .agg(gaps=pl.len(), total_ns=pl.col("dur_ns").sum(), avg_ns=pl.col("dur_ns").mean().round(), max_ns=pl.col("dur_ns").max())
        .join(steps, on=key)
        .with_columns(share=pl.col("total_ns") / pl.col("steps_ns"), step="step" if per_step else pl.lit(None))
        .join(_unprofiled(trace, every_gap, counts), on=["rank", "device"], how="left", nulls_equal=True)
    )
    own = pl.col("cause").is_in(_ON_THEIR_OWN)
    scale = pl.lit(None, pl.Float64) if per_step else pl.when(own).then("own_scale").otherwise("host_scale")
    order = ["rank", "device", "step", "total_ns", "cause"]
    return (
        found.with_columns(unprofiled_share=pl.col("total_ns") * scale)
        .sort(order, descending=[False, False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _unprofiled(trace: Trace, every_gap: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Per rank and device, what a nanosecond of its gaps is of the unprofiled steps: of gaps that are the host's, and of the others."""
    how = host_steps(trace).select("rank", "step", pl.col("how").cast(pl.String))
    steps = (
        counts.join(how, on=["rank", "step"])
        .group_by("rank")
        .agg(
            steps=pl.len(),
            steps_how=pl.col("how").unique().sort().str.join(", "),
            step_ns=pl.col("total_ns").median(),
            steps_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
    )
    own = pl.col("dur_ns").filter(pl.col("cause").is_in(_ON_THEIR_OWN)).sum()
    idle = every_gap.filter(pl.col("device").is_not_null()).group_by("rank", "device").agg(own=own, host=pl.col("dur_ns").sum() - own)
    bare = pl.col("unprofiled_step_ns") * pl.col("steps")
    left = pl.max_horizontal(bare - (pl.col("steps_ns") - pl.col("own") - pl.col("host")), 0)
    kept = pl.when(pl.col("host") > 0).then(pl.min_horizontal("own", left)).otherwise(left)
    return (
        idle.join(steps, on="rank")
        .join(unprofiled(trace, steps), on="rank")
        .select("rank", "device", own_scale=kept / pl.col("own") / bare, host_scale=(left - kept) / pl.col("host") / bare)
    )
