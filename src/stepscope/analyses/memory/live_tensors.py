"""Which blocks of memory are alive at a timestamp?"""

import polars as pl

from stepscope.analyses.memory.memory_peaks import memory_peaks
from stepscope.analyses.shared.memory.live_blocks import blocks, peak_live_bytes
from stepscope.errors import UsageError
from stepscope.model.trace import Trace

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
    """Every block alive at `at_ns`, the largest first; by default at the peak of each device, or in `step`.

    A block is alive from its allocation to its release. Without alloc_ns it was allocated before the recording; without free_ns it was
    not freed during it. The blocks and static_bytes of `memory` add up to the allocated bytes.
    """
    if at_ns is not None and step is not None:
        raise UsageError("live_tensors takes at_ns or step, not both")
    rows = blocks(trace, device)
    alive = rows.with_columns(at_ns=pl.lit(at_ns)) if at_ns is not None else rows.join(_peaks(trace, rows, step), on=["rank", "device"])
    return (
        alive.filter(
            pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") <= pl.col("at_ns")),
            pl.col("free_ns").is_null() | (pl.col("free_ns") > pl.col("at_ns")),
        )
        .with_columns(life_ns=pl.col("free_ns") - pl.col("alloc_ns"))
        .sort("rank", "device", "bytes", "alloc_ns", descending=[False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _peaks(trace: Trace, rows: pl.DataFrame, step: int | None) -> pl.DataFrame:
    """Per rank and device the timestamp of the peak: of the recorded samples, else of the blocks."""
    peaks = memory_peaks(trace)
    if step is not None:
        return peaks.filter(pl.col("step") == step).select("rank", "device", at_ns="peak_ns")
    sampled = peaks.sort("peak_bytes", "peak_ns", descending=[True, False], nulls_last=True).unique(
        ["rank", "device"], keep="first", maintain_order=True
    )
    computed = peak_live_bytes(rows, ["rank", "device"]).join(sampled, on=["rank", "device"], how="anti")
    return pl.concat([peaks.select("rank", "device", "peak_ns") for peaks in (sampled, computed)]).rename({"peak_ns": "at_ns"})
