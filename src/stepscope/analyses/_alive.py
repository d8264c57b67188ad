"""Blocks of memory that are alive at the same time."""

import polars as pl


def most_alive(blocks: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Per group: the most bytes alive at once (`peak_bytes`) and the first moment of it (`peak_ns`).

    A block is alive from its allocation up to, not including, its release. One allocated before the recording is alive
    from a nanosecond before the first event of all.
    """
    beginning = pl.min_horizontal(pl.col("alloc_ns").min(), pl.col("free_ns").min()).fill_null(0) - 1
    come = blocks.select(*by, at_ns=pl.col("alloc_ns").fill_null(beginning), change="bytes")
    go = blocks.filter(pl.col("free_ns").is_not_null()).select(*by, at_ns="free_ns", change=-pl.col("bytes"))
    return (
        pl.concat([come, go])
        .group_by(*by, "at_ns")
        .agg(pl.col("change").sum())
        .sort("at_ns")
        .with_columns(alive=pl.col("change").cum_sum().over(by))
        .group_by(by)
        .agg(peak_bytes=pl.col("alive").max(), peak_ns=pl.col("at_ns").get(pl.col("alive").arg_max()))
    )
