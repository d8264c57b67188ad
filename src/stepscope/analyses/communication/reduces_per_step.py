"""Which transfers between ranks are in the average step, when, and how much of each is overlapped by computation?"""

import polars as pl

from stepscope.analyses.communication.reduces import reduces
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.step_trace import step_trace
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "stream": pl.String,
    "name": pl.String,
    "nth": pl.Int64,  # position among the transfers of this name on this stream in its step, from 1
    "steps": pl.Int64,  # with this transfer
    "offset_ns": pl.Float64,  # from the start of the step
    "dur_ns": pl.Float64,
    "overlapped_ns": pl.Float64,
    "exposed_ns": pl.Float64,
    "overlapped_share": pl.Float64,
    "bytes": pl.Float64,
}


def reduces_per_step(trace: Trace, *, warmup: int | None = None, clock: str = "host") -> pl.DataFrame:
    """Per rank, stream and transfer: mean offset in its step and mean duration, over the steps with this transfer.

    Transfers of different steps are the same if stream, name and position agree. Steps are left out as in `step_times`; `clock` is host or
    device, as in `step_trace`. With host, a transfer on a device may start after the end of the step, because devices run later than hosts.
    """
    counts = counting_steps(trace, warmup).select("rank", "step")
    steps = step_trace(trace, clock=clock).join(counts, on=["rank", "step"], how="semi").select("rank", "step", step_start_ns="start_ns")
    key = ["rank", "stream", "name"]
    rows = (
        reduces(trace)
        .with_columns(nth=pl.int_range(pl.len()).over(*key, "step") + 1)
        .join(steps, on=["rank", "step"])
        .with_columns(offset_ns=pl.col("start_ns") - pl.col("step_start_ns"))
        .group_by(*key, "nth")
        .agg(
            pl.col("offset_ns", "dur_ns", "overlapped_ns", "bytes").mean(),
            steps=pl.len(),
            exposed_ns=(pl.col("dur_ns") - pl.col("overlapped_ns")).mean(),
        )
    )
    known = pl.col("overlapped_ns") + pl.col("exposed_ns")  # mean of the transfers with known overlap
    share = pl.when(known > 0).then(pl.col("overlapped_ns") / known)
    return (
        rows.with_columns(overlapped_share=share)
        .sort("rank", "offset_ns", *key[1:], "nth", nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
