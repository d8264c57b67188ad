"""Which transfers between ranks does the average step make, when, and how much of each is hidden behind computation?"""

import polars as pl

from stepscope.analyses._warmup import counting_steps
from stepscope.analyses.reduces import reduces
from stepscope.analyses.step_trace import step_trace
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "stream": pl.String,
    "name": pl.String,
    "nth": pl.Int64,  # of this name on this stream in its step, from 1 on
    "steps": pl.Int64,  # that have it
    "offset_ns": pl.Float64,  # from the start of the step
    "dur_ns": pl.Float64,
    "overlapped_ns": pl.Float64,
    "exposed_ns": pl.Float64,
    "overlapped_share": pl.Float64,
    "bytes": pl.Float64,
}


def reduces_per_step(trace: Trace, *, warmup: int | None = None, clock: str = "host") -> pl.DataFrame:
    """Per rank, stream and transfer: when in its step it starts and how long it takes, averaged over the steps that have it.

    Transfers of different steps are the same where stream, name and place in their order agree. Steps are left out as in `step_times`;
    `clock` is host or device, as in `step_trace`. With host, a transfer on a device may start after the step's end, because devices run
    behind their hosts.
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
    known = pl.col("overlapped_ns") + pl.col("exposed_ns")  # the mean of the transfers of which it is known what hides them
    share = pl.when(known > 0).then(pl.col("overlapped_ns") / known)
    return (
        rows.with_columns(overlapped_share=share)
        .sort("rank", "offset_ns", *key[1:], "nth", nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
