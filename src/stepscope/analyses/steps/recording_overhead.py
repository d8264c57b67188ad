"""How much slower are steps while they are recorded, and how much idle time remains without recording?"""

import polars as pl

from stepscope.analyses.shared.steps.overhead import device_ranks, unprofiled
from stepscope.analyses.steps.overview import overview
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "steps": pl.Int64,  # recorded, that the figures cover
    "step_ns": pl.Int64,  # their median
    "unprofiled_steps": pl.Int64,  # timed while nothing was recorded
    "unprofiled_step_ns": pl.Int64,  # their median
    "unprofiled_p10_ns": pl.Int64,
    "unprofiled_p90_ns": pl.Int64,
    "overhead_share": pl.Float64,  # additional time of a recorded step, of the unprofiled step
    "idle_share": pl.Float64,  # of the device while recorded
    "idle_unprofiled_share": pl.Float64,  # of the device, of the unprofiled step: an estimate
    "idle_unprofiled_low_share": pl.Float64,  # of a step as short as unprofiled_p10_ns
    "idle_unprofiled_high_share": pl.Float64,  # of a step as long as unprofiled_p90_ns
    "overhead": pl.String,  # most of the idle time, part of the idle time, steps (no device), small, likely (by slowed_by); null: unknown
    "slowed_by": pl.String,  # recorded data that slows the host: stacks, shapes, memory
}


def recording_overhead(trace: Trace, *, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank. Recordings of stepscope time steps outside of their window (`trace.meta.unprofiled_steps`); other traces cannot.

    Recording slows the host and hardly the device. So in an unprofiled step the device is busy as long as in a recorded step (the mean,
    transfers included), and idle for the rest. Unprofiled steps vary, and so does their idle time: the low share is that of a step as
    short as `unprofiled_p10_ns`, the high share that of one as long as `unprofiled_p90_ns`. Recorded steps are slower if their median is
    more than 5 % above the unprofiled one and above 90 % of the unprofiled steps. Idle time is mostly overhead if the remaining share is
    less than half of the recorded one. Unprofiled figures are null if none are known, and for chosen or inferred steps, which have other
    boundaries. To measure the overhead then, compare with a run recorded without the options in `slowed_by`, or record some steps with
    `stepscope run --steps`. `warmup` as in `overview`.
    """
    rows = overview(trace, warmup=warmup)
    timed = unprofiled(trace, rows).drop("unprofiled_step_ns")
    return (
        rows.join(timed, on="rank", how="left", maintain_order="left")
        .with_columns(
            overhead_share=pl.col("step_ns") / pl.col("unprofiled_step_ns") - 1,
            idle_share=pl.when(pl.col("rank").is_in(device_ranks(trace))).then(1 - pl.col("busy_share")),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
