"""Blocks of memory that are alive at the same time."""

import polars as pl

from stepscope.analyses.shared.memory.memory_samples import check_device
from stepscope.model.trace import Trace


def blocks(trace: Trace, device: str | None) -> pl.DataFrame:
    """The allocations of one device, or of all, with texts as String; UsageError for an unknown device."""
    rows = trace.allocations.with_columns(pl.col(pl.Categorical).cast(pl.String))
    rows = rows if device is None else rows.filter(pl.col("device") == device)
    table: pl.DataFrame = rows.collect()
    if device is not None and table.is_empty():
        check_device(trace, device)
    return table


def peak_live_bytes(blocks: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Per group: the maximum of live bytes (`peak_bytes`) and its first timestamp (`peak_ns`).

    A block is alive from its allocation to its release, not included. A block allocated before the recording is alive from a nanosecond
    before the first allocation or release of all.
    """
    beginning = pl.min_horizontal(pl.col("alloc_ns").min(), pl.col("free_ns").min()).fill_null(0) - 1
    allocated = blocks.select(*by, at_ns=pl.col("alloc_ns").fill_null(beginning), change="bytes")
    freed = blocks.filter(pl.col("free_ns").is_not_null()).select(*by, at_ns="free_ns", change=-pl.col("bytes"))
    return (
        pl.concat([allocated, freed])
        .group_by(*by, "at_ns")
        .agg(pl.col("change").sum())
        .sort("at_ns")
        .with_columns(alive=pl.col("change").cum_sum().over(by))
        .group_by(by)
        .agg(peak_bytes=pl.col("alive").max(), peak_ns=pl.col("at_ns").get(pl.col("alive").arg_max()))
    )
