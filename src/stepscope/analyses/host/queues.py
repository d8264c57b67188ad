"""How full are the queues between host and device?"""

import polars as pl

from stepscope.analyses.operators.queue_lengths import queue_lengths
from stepscope.model.steps.windows import with_windows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "stream": pl.String,
    "max_length": pl.Int64,
    "mean_length": pl.Float64,
    "empty_ns": pl.Int64,
    "empty_share": pl.Float64,
}


def queues(trace: Trace) -> pl.DataFrame:
    """Per rank and stream, from its first launch to the end of its last work: maximum and mean length of the queue, and the time empty.

    If a queue is often empty, the device waits for the host; if it is long, the host is ahead.
    """
    length, held = pl.col("length"), pl.col("at_ns").shift(-1).over("rank", "track", "window") - pl.col("at_ns")
    return (
        with_windows(queue_lengths(trace), trace.meta, "at_ns")
        .with_columns(held_ns=held)
        .group_by("rank", "device", "stream", "track")
        .agg(
            max_length=length.max(),
            total_ns=pl.col("held_ns").sum(),
            waited_ns=(length * pl.col("held_ns")).sum(),
            empty_ns=pl.col("held_ns").filter(length == 0).sum(),
        )
        .sort("rank", "track")
        .with_columns(mean_length=pl.col("waited_ns") / pl.col("total_ns"), empty_share=pl.col("empty_ns") / pl.col("total_ns"))
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )
