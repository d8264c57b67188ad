"""Sums of the transfers between two ranks."""

import polars as pl

from stepscope.model.memo import memoized
from stepscope.model.rank_tables import TABLES, stored_rows
from stepscope.model.trace import Trace


@memoized
def link_sums(trace: Trace) -> pl.DataFrame:
    """The table `rank_links`: per rank, step, pair of ranks and transport the transfers, their bytes and their time."""
    if (stored := stored_rows(trace, "rank_links")) is not None:
        return stored
    return sums_of_links(trace.table("links"))


def sums_of_links(links: pl.LazyFrame) -> pl.DataFrame:
    """The sums of these rows of `links`."""
    key, amounts = ["rank", "step", "src", "dst", "transport"], pl.col("bytes", "dur_ns")
    sized = pl.col("bytes").is_not_null() & pl.col("dur_ns").is_not_null()
    moved = (pl.col("bytes") > 0) & (pl.col("dur_ns") > 0)
    sums = (
        links.with_columns(pl.col("transport").cast(pl.String))
        .group_by(key)
        .agg(
            amounts.sum(),
            transfers=pl.len(),
            sized_bytes=pl.col("bytes").filter(sized).sum(),
            sized_ns=pl.col("dur_ns").filter(sized).sum(),
            moved_bytes=pl.col("bytes").filter(moved).sum(),
            moved_ns=pl.col("dur_ns").filter(moved).sum(),
        )
    )
    return sums.sort(key).select(pl.col(name).cast(dtype) for name, dtype in TABLES["rank_links"].items()).collect()
