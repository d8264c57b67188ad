"""How much slower are steps while they are recorded, and what of the idle time is left without it?"""

import polars as pl

from stepscope.analyses._overhead import device_ranks, unprofiled
from stepscope.analyses.overview import overview
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "steps": pl.Int64,  # recorded, that these figures are of
    "step_ns": pl.Int64,  # their median
    "unprofiled_steps": pl.Int64,  # that were timed while nothing was recorded
    "unprofiled_step_ns": pl.Int64,  # their median
    "unprofiled_p10_ns": pl.Int64,
    "unprofiled_p90_ns": pl.Int64,
    "overhead_share": pl.Float64,  # how much longer a recorded step is, of the unprofiled one
    "idle_share": pl.Float64,  # of the device while recorded
    "idle_unprofiled_share": pl.Float64,  # of the device, of the unprofiled step: an estimate
    "overhead": pl.String,  # most of the idle time, part of the idle time, steps (no device), small, likely (by slowed_by); null: not known
    "slowed_by": pl.String,  # recorded besides, and known to slow the host: stacks, shapes, memory
}


def recording_overhead(trace: Trace, *, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank. Recordings of stepscope time steps outside of their window (`trace.meta.unprofiled_steps`); other traces cannot.

    Recording stretches the host's part of a step and hardly what the device does. So in an unprofiled step the device is idle for what its
    work in a recorded step (the mean, transfers included) leaves of it; never for less than nothing. Recorded steps are slower where their
    median is over the unprofiled one by more than 5 %, and over nine in ten of the unprofiled steps. Idle time is mostly overhead where the
    share that is left is less than half of the recorded one. Unprofiled figures are null where none are known, and where steps were chosen
    or inferred: those begin elsewhere. To find out then, compare with a run recorded without the options in `slowed_by`, or record some
    steps of the job with `stepscope run --steps`. `warmup` as in `overview`.
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
