"""Allocations and memory counters from the events of an allocator."""

import polars as pl

from stepscope.model.columns.counters import of_device


def pair_releases(events: pl.DataFrame, block: list[str]) -> pl.DataFrame:
    """One row per allocation, with `alloc_ns` and the `free_ns` of the release that follows it at the same address.

    `events` are in the order of time within a block and have `at_ns` and `freed`. A release without an allocation keeps its row.
    """
    freed = pl.col("freed")
    next_release = pl.when(freed.shift(-1).over(block)).then(pl.col("at_ns").shift(-1).over(block))
    orphan = freed & ~(~freed).shift(1, fill_value=False).over(block)
    return (
        events.with_columns(
            alloc_ns=pl.when(~freed).then("at_ns"), free_ns=pl.when(freed).then("at_ns").otherwise(next_release), orphan=orphan
        )
        .filter(~freed | pl.col("orphan"))
        .sort(pl.coalesce("alloc_ns", "free_ns"), maintain_order=True)
    )


def memory_samples(events: pl.DataFrame, total: str) -> pl.DataFrame:
    """Samples of a counter from the totals of an allocator's events: `total` is the column, `owner` and `number` are the device."""
    return events.filter(pl.col(total).is_not_null()).select(
        **of_device(total, pl.col("owner"), pl.col("number")),
        at_ns="at_ns",
        value=pl.col(total).cast(pl.Float64),
        unit=pl.lit("bytes"),
    )
