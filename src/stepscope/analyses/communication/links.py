"""How fast is each link between two ranks?"""

import polars as pl

from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "transport": pl.String,
    "transfers": pl.Int64,
    "bytes": pl.Int64,
    "total_ns": pl.Int64,
    "bytes_per_s": pl.Float64,
}


def links(trace: Trace, *, step: int | None = None, op: str | None = None) -> pl.DataFrame:
    """Per recording rank, pair of ranks and transport: transfers, bytes, time and bandwidth; optionally of one step or one operator.

    A transfer without recorded bytes or time counts only as a transfer.
    """
    rows = trace.table("links").with_columns(pl.col("op", "transport").cast(pl.String))
    if step is not None:
        rows = rows.filter(pl.col("step") == step)
    if op is not None:
        rows = rows.filter(pl.col("op") == op)
    whole = pl.col("bytes").is_not_null() & pl.col("dur_ns").is_not_null()
    seconds = pl.col("dur_ns").filter(whole).sum() / 1e9
    return (
        rows.group_by("rank", "src", "dst", "transport")
        .agg(
            transfers=pl.len(),
            bytes=pl.col("bytes").sum(),
            total_ns=pl.col("dur_ns").sum(),
            bytes_per_s=pl.when(seconds > 0).then(pl.col("bytes").filter(whole).sum() / seconds),
        )
        .sort("rank", "src", "dst", "transport")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
        .collect()
    )
