"""Which blocks of memory are alive at a moment?"""

import polars as pl

from stepscope.analyses._alive import most_alive
from stepscope.analyses._memory import check_device
from stepscope.analyses.memory_peaks import memory_peaks
from stepscope.errors import UsageError
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "address": pl.UInt64,
    "bytes": pl.Int64,
    "alloc_ns": pl.Int64,
    "free_ns": pl.Int64,
    "life_ns": pl.Int64,
    "op": pl.String,
    "scope": pl.String,  # the module that allocated it
    "name": pl.String,
    "shape": pl.String,
    "dtype": pl.String,
    "format": pl.String,
    "category": pl.String,
}


def live_tensors(trace: Trace, *, at_ns: int | None = None, step: int | None = None, device: str | None = None) -> pl.DataFrame:
    """Every block alive at `at_ns`, the largest first; without it, at the moment the most was allocated on each device, or in that step.

    A block is alive from its allocation up to its release. No alloc_ns: it was there before the recording; no free_ns: it outlived it.
    With memory's static_bytes, which no block of the recording explains, the blocks add up to what was allocated.
    """
    if at_ns is not None and step is not None:
        raise UsageError("live_tensors takes at_ns or step, not both")
    blocks = trace.table("allocations").with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    if device is not None:
        blocks = blocks.filter(pl.col("device") == device)
        if blocks.is_empty():
            check_device(trace, device)
    if at_ns is not None:
        alive = blocks.with_columns(at_ns=pl.lit(at_ns))
    else:
        alive = blocks.join(_peaks(trace, blocks, step), on=["rank", "device"])
    return (
        alive.filter(
            pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") <= pl.col("at_ns")),
            pl.col("free_ns").is_null() | (pl.col("free_ns") > pl.col("at_ns")),
        )
        .with_columns(life_ns=pl.col("free_ns") - pl.col("alloc_ns"))
        .sort("rank", "device", "bytes", "alloc_ns", descending=[False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _peaks(trace: Trace, blocks: pl.DataFrame, step: int | None) -> pl.DataFrame:
    """Per rank and device the moment of the peak: as the source's own counter says, or else by the blocks themselves."""
    peaks = memory_peaks(trace)
    if step is not None:
        return peaks.filter(pl.col("step") == step).select("rank", "device", at_ns="peak_ns")
    counted = peaks.sort("peak_bytes", "peak_ns", descending=[True, False], nulls_last=True).unique(
        ["rank", "device"], keep="first", maintain_order=True
    )
    summed = most_alive(blocks, ["rank", "device"]).join(counted, on=["rank", "device"], how="anti")
    return pl.concat([peaks.select("rank", "device", "peak_ns") for peaks in (counted, summed)]).rename({"peak_ns": "at_ns"})
