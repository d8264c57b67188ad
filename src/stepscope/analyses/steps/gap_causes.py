"""Why is each device idle, in total?"""

import polars as pl

from stepscope.analyses.shared.steps.coverage import complete_steps
from stepscope.analyses.shared.steps.overhead import unprofiled
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.shared.steps.warmup import counting_steps, host_steps
from stepscope.analyses.steps.gaps import gaps
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int32,  # null for all steps
    "cause": pl.String,
    "gaps": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
    "device_steps": pl.Int64,  # that the row covers: their device work is completely recorded
    "unprofiled_share": pl.Float64,  # of the unprofiled step, without recording overhead: an estimate; null if unknown
}
# Recording slows the host, and so it makes gaps longer in which the device waits for the host; input and other ranks do not change.
_NOT_HOST = ["data wait", "communication"]


def gap_causes(trace: Trace, *, min_ns: int = 0, per_step: bool = False, warmup: int | None = None) -> pl.DataFrame:
    """Per rank, device and cause, the longest first: gaps of at least `min_ns` (see gaps) and their share of the device time in steps.

    Steps are left out by `warmup` as in `overview`. With per_step there are rows for each step, and the share is of that step.

    `unprofiled_share`, only without per_step: the idle time of a device in an unprofiled step (`recording_overhead`), by cause. Gaps caused
    by the host (host-bound, sync, launch latency, unknown) become shorter in proportion; data waits and communication keep their duration,
    up to that idle time.
    """
    key = ["rank", "step"] if per_step else ["rank"]
    counts = device_steps(trace)
    if not per_step:
        counts = counts.join(counting_steps(trace, warmup), on=["rank", "step"], how="semi")
    counts = counts.join(complete_steps(trace), on=["rank", "step"], how="semi")
    steps = counts.group_by(key).agg(steps_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), device_steps=pl.len())
    every_gap = gaps(trace).join(counts.select("rank", "step"), on=["rank", "step"], how="semi")
    totals = (
        every_gap.filter(pl.col("dur_ns") >= min_ns)
        .group_by("device", "cause", *key)
        .agg(gaps=pl.len(), total_ns=pl.col("dur_ns").sum(), avg_ns=pl.col("dur_ns").mean().round(), max_ns=pl.col("dur_ns").max())
        .join(steps, on=key)
        .with_columns(share=pl.col("total_ns") / pl.col("steps_ns"), step="step" if per_step else pl.lit(None))
        .join(_unprofiled(trace, every_gap, counts), on=["rank", "device"], how="left", nulls_equal=True)
    )
    not_host = pl.col("cause").is_in(_NOT_HOST)
    scale = pl.lit(None, pl.Float64) if per_step else pl.when(not_host).then("other_scale").otherwise("host_scale")
    order = ["rank", "device", "step", "total_ns", "cause"]
    return (
        totals.with_columns(unprofiled_share=pl.col("total_ns") * scale)
        .sort(order, descending=[False, False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _unprofiled(trace: Trace, every_gap: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Per rank and device, the share of the unprofiled steps per nanosecond of gaps: of gaps caused by the host, and of others."""
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
    other = pl.col("dur_ns").filter(pl.col("cause").is_in(_NOT_HOST)).sum()
    idle = every_gap.filter(pl.col("device").is_not_null()).group_by("rank", "device").agg(other=other, host=pl.col("dur_ns").sum() - other)
    bare = pl.col("unprofiled_step_ns") * pl.col("steps")
    left = pl.max_horizontal(bare - (pl.col("steps_ns") - pl.col("other") - pl.col("host")), 0)
    other_left = pl.when(pl.col("host") > 0).then(pl.min_horizontal("other", left)).otherwise(left)
    return (
        idle.join(steps, on="rank")
        .join(unprofiled(trace, steps), on="rank")
        .select("rank", "device", other_scale=other_left / pl.col("other") / bare, host_scale=(left - other_left) / pl.col("host") / bare)
    )
