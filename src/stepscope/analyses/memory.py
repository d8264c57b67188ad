"""How much memory is in use, moment by moment?"""

import polars as pl

from stepscope.analyses._memory import memory_samples
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
    "event": pl.Int64,  # counts the moments of a device from 0: the order of execution
    "change_bytes": pl.Int64,  # of what is allocated, since the moment before
    "op": pl.String,  # of the largest block that came then, or that went where less is allocated
}


def memory(
    trace: Trace,
    *,
    device: str | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    pixels: int | None = None,
    by_event: bool = False,
) -> pl.DataFrame:
    """Per rank and device ("gpu 0", "cpu"): every moment at which the source said how much is allocated and reserved.

    Static is what was there before the recording and outlived it; null where no blocks were recorded. Several samples at one
    moment are several rows, so that no peak is lost. `op` is the operator that allocated the block, also where the block goes.

    `start_ns` and `end_ns` keep what lies between them, and the moments just before and after, where a line comes from and goes to.
    `pixels` thins a long curve out for a chart so many pixels wide: of each pixel of time, or of the order of events with `by_event`,
    the first and last moment and those of the least and the most allocated and reserved stay, so that no peak is hidden.
    """
    own = ["rank", "device"]
    rows = memory_samples(trace, device).with_columns(
        event=pl.int_range(pl.len(), dtype=pl.Int64).over(own), change_bytes=pl.col("allocated_bytes").diff().over(own)
    )
    after_start = (
        pl.lit(True) if start_ns is None else (pl.col("at_ns").shift(-1).over(own) >= start_ns).fill_null(pl.col("at_ns") >= start_ns)
    )
    before_end = pl.lit(True) if end_ns is None else (pl.col("at_ns").shift(1).over(own) <= end_ns).fill_null(pl.col("at_ns") <= end_ns)
    rows = rows.filter(after_start & before_end)
    if pixels is not None and rows.height > pixels:
        rows = pl.concat(_thinned(part, pixels, "event" if by_event else "at_ns") for part in rows.partition_by(own, maintain_order=True))
    rows = rows.with_columns(comes=pl.col("change_bytes") > 0)
    return rows.join(_causes(trace, rows), on=[*own, "at_ns", "comes"], how="left", maintain_order="left").select(
        pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()
    )


def _thinned(rows: pl.DataFrame, pixels: int, along: str) -> pl.DataFrame:
    """Of each pixel of one device's curve the rows that a line through all of them would reach to."""
    x = pl.col(along) - pl.col(along).min()
    # A width in whole units: no pixel is narrower than the others by a rounding error, and there are at most so many.
    pixel = x // (x.max() // pixels + 1)
    row, values = pl.col("row"), ("allocated_bytes", "reserved_bytes")
    kept = (
        rows.with_row_index("row")
        .with_columns(pixel=pixel)
        .group_by("pixel")
        .agg(
            row.first().alias("first"),
            row.last().alias("last"),
            *(row.get(pl.col(name).arg_min()).alias(f"{name} least") for name in values),
            *(row.get(pl.col(name).arg_max()).alias(f"{name} most") for name in values),
        )
        .drop("pixel")
    )
    return rows[pl.concat(kept.iter_columns()).drop_nulls().unique().sort()]


def _causes(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Per moment of these rows: the operator of the largest block that came, and of the largest that went."""
    moments = rows.select("at_ns").unique().lazy()
    blocks = trace.table("allocations").select("rank", "device", "op", "bytes", "alloc_ns", "free_ns")
    events = pl.concat(
        blocks.join(moments, left_on=at, right_on="at_ns", how="semi").select(
            "rank", pl.col("device", "op").cast(pl.String), "bytes", pl.col(at).alias("at_ns"), comes=pl.lit(comes)
        )
        for at, comes in (("alloc_ns", True), ("free_ns", False))
    )
    key = ["rank", "device", "at_ns", "comes"]
    largest = events.sort("bytes", descending=True, maintain_order=True).unique(key, keep="first", maintain_order=True)
    causes: pl.DataFrame = largest.drop("bytes").collect()
    return causes
