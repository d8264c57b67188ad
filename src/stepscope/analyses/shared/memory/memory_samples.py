"""Samples of allocated and reserved memory, as recorded."""

import polars as pl

from stepscope.model.columns.counters import OWNER
from stepscope.model.memo import memoized
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
}
_IS_MEMORY = pl.col("series").cast(pl.String).is_in(["allocated", "reserved"])


@memoized
def memory_samples(trace: Trace, device: str | None) -> pl.DataFrame:
    """Per rank and device, in order of time: every sample of allocated and reserved bytes, and the static part."""
    counters = trace.table("counters").filter(pl.col("unit").cast(pl.String) == "bytes", _IS_MEMORY).with_columns(device=OWNER)
    if device is not None:
        counters = counters.filter(pl.col("device") == device)
        if counters.select(pl.len()).collect().item() == 0:
            check_device(trace, device)
    samples = (
        counters.select("rank", "device", "series", "at_ns", bytes=pl.col("value").round().cast(pl.Int64, strict=False))
        .filter(pl.col("bytes").is_not_null())
        .sort("rank", "device", "at_ns", maintain_order=True)
        .collect()
    )
    key = ["rank", "device", "at_ns"]
    allocated, reserved = (samples.filter(pl.col("series") == series).drop("series") for series in ("allocated", "reserved"))
    return (
        _join_samples(allocated.rename({"bytes": "allocated_bytes"}), reserved.rename({"bytes": "reserved_bytes"}), key)
        .join(_static(trace, allocated), on=["rank", "device"], how="left", maintain_order="left")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def check_device(trace: Trace, device: str) -> None:
    """Raise UsageError if the recording has memory data of other devices, but not of this one."""
    counted = trace.whole.counters.filter(_IS_MEMORY, pl.col("owner").cast(pl.String) != "").select(OWNER.alias("device").unique())
    named = trace.whole.allocations.select(pl.col("device").cast(pl.String).unique())
    known = sorted({*counted.collect()["device"].drop_nulls(), *named.collect()["device"].drop_nulls()})
    if known:
        check_word("device", device, known)


def _join_samples(allocated: pl.DataFrame, reserved: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """One row per sample of both: the nth allocated with the nth reserved sample of a timestamp."""
    if allocated.select(key).equals(reserved.select(key)):
        return allocated.with_columns(reserved["reserved_bytes"])
    left, right = (frame.with_columns(nth=pl.int_range(pl.len()).over(key)) for frame in (allocated, reserved))
    return left.join(right, on=[*key, "nth"], how="full", coalesce=True).sort(*key, "nth")


def _static(trace: Trace, allocated: pl.DataFrame) -> pl.DataFrame:
    """Bytes allocated at the first sample of a device, less the live blocks whose allocation or release is recorded."""
    first = allocated.group_by("rank", "device").agg(pl.col("at_ns", "bytes").filter(pl.col("at_ns") == pl.col("at_ns").min()).last())
    blocks = (
        trace.table("allocations").select("rank", pl.col("device").cast(pl.String), "alloc_ns", "free_ns", block=pl.col("bytes")).collect()
    )
    alive = (pl.col("alloc_ns") <= pl.col("at_ns")).fill_null(True) & (pl.col("free_ns") > pl.col("at_ns")).fill_null(True)
    passing = pl.any_horizontal(pl.col("alloc_ns", "free_ns").is_not_null())
    return (
        blocks.join(first, on=["rank", "device"])
        .group_by("rank", "device")
        .agg(static_bytes=pl.col("bytes").first() - pl.col("block").filter(alive & passing).sum())
    )
