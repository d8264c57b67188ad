"""How much work is launched and not yet finished on each stream, over time?"""

import polars as pl

from stepscope.analyses._work import device_work
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "stream": pl.String,
    "track": pl.Int32,
    "at_ns": pl.Int64,
    "length": pl.Int64,
}


def queue_lengths(trace: Trace) -> pl.DataFrame:
    """Per rank and stream: the number of kernels, copies and fills launched and not yet finished, from each moment at which it changes.

    A piece of work counts from the start of its launch call to its end on the device. Work whose launch the source does
    not name is not counted. See `queues` for the longest and the average queue.
    """
    lane = ["rank", "device", "stream", "track"]
    work = device_work(trace).filter(pl.col("launch_ns").is_not_null())
    changes = pl.concat([work.select(*lane, at_ns="launch_ns", change=pl.lit(1)), work.select(*lane, at_ns="end_ns", change=pl.lit(-1))])
    return (
        changes.group_by(*lane, "at_ns")
        .agg(pl.col("change").sum())
        .sort("rank", "track", "at_ns")
        .filter(pl.col("change") != 0)
        .with_columns(length=pl.col("change").cum_sum().over("rank", "track"))
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )
