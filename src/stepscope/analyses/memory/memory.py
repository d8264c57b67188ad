"""How much memory is in use over time?"""

import polars as pl

from stepscope.analyses.shared.memory.memory_samples import memory_samples
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
    "event": pl.Int64,  # number of the sample of a device, from 0: the order of execution
    "change_bytes": pl.Int64,  # of allocated bytes, since the previous sample
    "op": pl.String,  # of the largest block allocated at that time, or freed if the change is negative
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
    """Per rank and device ("gpu 0", "cpu"): every sample of allocated and reserved bytes.

    Static bytes were allocated before the recording and not freed during it; null if no blocks are recorded. Several samples at one
    timestamp are several rows, so that no peak is lost. `op` is the operator that allocated the block, also for a release.

    `start_ns` and `end_ns` select samples, with one before and one after for the ends of a line. `pixels` thins a long curve for a chart of
    that width: for each pixel of time, or of the order of events with `by_event`, the first and last sample and those with the minimum and
    maximum allocated and reserved bytes remain, so that no peak is hidden.
    """
    key = ["rank", "device"]
    rows = memory_samples(trace, device).with_columns(
        event=pl.int_range(pl.len(), dtype=pl.Int64).over(key), change_bytes=pl.col("allocated_bytes").diff().over(key)
    )
    after_start = (
        pl.lit(True) if start_ns is None else (pl.col("at_ns").shift(-1).over(key) >= start_ns).fill_null(pl.col("at_ns") >= start_ns)
    )
    before_end = pl.lit(True) if end_ns is None else (pl.col("at_ns").shift(1).over(key) <= end_ns).fill_null(pl.col("at_ns") <= end_ns)
    rows = rows.filter(after_start & before_end)
    if pixels is not None and rows.height > pixels:
        rows = pl.concat(_thinned(part, pixels, "event" if by_event else "at_ns") for part in rows.partition_by(key, maintain_order=True))
    rows = rows.with_columns(allocates=pl.col("change_bytes") > 0)
    return rows.join(_causes(trace, rows), on=[*key, "at_ns", "allocates"], how="left", maintain_order="left").select(
        pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()
    )


def _thinned(rows: pl.DataFrame, pixels: int, along: str) -> pl.DataFrame:
    """For each pixel of the curve of one device the rows that a line through all of them reaches."""
    x = pl.col(along) - pl.col(along).min()
    # A whole number of units per pixel: rounding makes no pixel narrower, and there are at most `pixels`.
    pixel = x // (x.max() // pixels + 1)
    row, values = pl.col("row"), ("allocated_bytes", "reserved_bytes")
    selected = (
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
    return rows[pl.concat(selected.iter_columns()).drop_nulls().unique().sort()]


def _causes(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Per timestamp of these rows: the operator of the largest block that was allocated, and of the largest that was freed."""
    timestamps = rows.select("at_ns").unique().lazy()
    blocks = trace.table("allocations").select("rank", "device", "op", "bytes", "alloc_ns", "free_ns")
    events = pl.concat(
        blocks.join(timestamps, left_on=at, right_on="at_ns", how="semi").select(
            "rank", pl.col("device", "op").cast(pl.String), "bytes", pl.col(at).alias("at_ns"), allocates=pl.lit(allocates)
        )
        for at, allocates in (("alloc_ns", True), ("free_ns", False))
    )
    key = ["rank", "device", "at_ns", "allocates"]
    largest = events.sort("bytes", descending=True, maintain_order=True).unique(key, keep="first", maintain_order=True)
    causes: pl.DataFrame = largest.drop("bytes").collect()
    return causes
