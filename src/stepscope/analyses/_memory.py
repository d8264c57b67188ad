"""Samples of the memory in use, as the source counted it."""

import polars as pl

from stepscope.parameters import check_word
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
}


def memory_samples(trace: Trace, device: str | None) -> pl.DataFrame:
    """Per rank and device, in order of time: every sample of what is allocated and reserved, and the static part of it."""
    # Few names, many samples: the words are taken apart once per name.
    counters = trace.table("counters")
    words = counters.select("name", "unit").unique().collect()
    parts = words.filter(pl.col("unit").cast(pl.String) == "bytes").with_columns(
        pl.col("name").cast(pl.String).str.extract_groups(r"^(?<what>allocated|reserved) ?(?<device>.*)$").alias("word")
    )
    parts = parts.unnest("word").filter(pl.col("what").is_not_null(), True if device is None else pl.col("device") == device)
    if device is not None and parts.is_empty():
        check_device(trace, device)
    samples = (
        counters.join(parts.lazy(), on=["name", "unit"], maintain_order="left")
        .select("rank", "device", "what", "at_ns", bytes=pl.col("value").round().cast(pl.Int64, strict=False))
        .filter(pl.col("bytes").is_not_null())
        .sort("rank", "device", "at_ns", maintain_order=True)
        .collect()
    )
    moment = ["rank", "device", "at_ns"]
    allocated, reserved = (samples.filter(pl.col("what") == what).drop("what") for what in ("allocated", "reserved"))
    return (
        _beside(allocated.rename({"bytes": "allocated_bytes"}), reserved.rename({"bytes": "reserved_bytes"}), moment)
        .join(_static(trace, allocated), on=["rank", "device"], how="left", maintain_order="left")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def check_device(trace: Trace, device: str) -> None:
    """Refuse a device of which nothing in the whole recording says memory, where something says it of others."""
    counted = trace.whole.counters.select(pl.col("name").cast(pl.String).unique()).collect()["name"]
    named = trace.whole.allocations.select(pl.col("device").cast(pl.String).unique()).collect()["device"]
    known = sorted({*counted.str.extract(r"^(?:allocated|reserved) (.+)$").drop_nulls(), *named.drop_nulls()})
    if known:
        check_word("device", device, known)


def _beside(allocated: pl.DataFrame, reserved: pl.DataFrame, moment: list[str]) -> pl.DataFrame:
    """Both in one row where they were sampled together: the nth of a moment with the nth of that moment."""
    if allocated.select(moment).equals(reserved.select(moment)):
        return allocated.with_columns(reserved["reserved_bytes"])
    counted = [frame.with_columns(nth=pl.int_range(pl.len()).over(moment)) for frame in (allocated, reserved)]
    return counted[0].join(counted[1], on=[*moment, "nth"], how="full", coalesce=True).sort(*moment, "nth")


def _static(trace: Trace, allocated: pl.DataFrame) -> pl.DataFrame:
    """What is allocated at a device's first sample, less the blocks then alive that the recording saw come or go."""
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
