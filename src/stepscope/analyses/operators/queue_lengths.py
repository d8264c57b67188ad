"""How much work is launched and not yet finished on each stream, over time?"""

import polars as pl

from stepscope.analyses.shared.device_work import device_work
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "stream": pl.String,
    "track": pl.Int32,
    "at_ns": pl.Int64,
    "length": pl.Int64,
}


def queue_lengths(trace: Trace) -> pl.DataFrame:
    """Per rank and stream: the number of kernels, copies and fills launched and not yet finished, at each timestamp at which it changes.

    A kernel counts from the start of its launch call to its end on the device. Work without a known launch is not counted. See `queues`
    for the maximum and the mean length.
    """
    stream = ["rank", "device", "stream", "track"]
    work = device_work(trace).filter(pl.col("launch_ns").is_not_null())
    changes = pl.concat(
        [work.select(*stream, at_ns="launch_ns", change=pl.lit(1)), work.select(*stream, at_ns="end_ns", change=pl.lit(-1))]
    )
    return (
        changes.group_by(*stream, "at_ns")
        .agg(pl.col("change").sum())
        .sort("rank", "track", "at_ns")
        .filter(pl.col("change") != 0)
        .with_columns(length=pl.col("change").cum_sum().over("rank", "track"))
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )
