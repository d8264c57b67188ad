"""Which operators allocate the memory, and which never give it back?"""

import polars as pl

from stepscope.analyses._alive import most_alive
from stepscope.analyses._memory import check_device
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "op": pl.String,
    "scope": pl.String,  # with by_scope: the module in which it ran
    "blocks": pl.Int64,
    "allocated_bytes": pl.Int64,
    "largest_bytes": pl.Int64,
    "peak_bytes": pl.Int64,
    "never_freed": pl.Int64,
    "never_freed_bytes": pl.Int64,
}


def allocations_by_op(trace: Trace, *, device: str | None = None, by_scope: bool = False) -> pl.DataFrame:
    """Per rank, device and operator: blocks and bytes allocated, the most of them alive at once, and those the recording saw no end of.

    Blocks of no known operator, such as those from before the recording, are one row with no op. `by_scope` keeps modules apart.
    """
    by = ["rank", "device", "op", "scope"]
    scope = pl.col("scope").cast(pl.String) if by_scope else pl.lit(None, pl.String).alias("scope")
    blocks = (
        trace.table("allocations").select("rank", pl.col("device", "op").cast(pl.String), scope, "bytes", "alloc_ns", "free_ns").collect()
    )
    if device is not None:
        blocks = blocks.filter(pl.col("device") == device)
        if blocks.is_empty():
            check_device(trace, device)
    kept = pl.col("free_ns").is_null()
    return (
        blocks.group_by(by)
        .agg(
            blocks=pl.len(),
            allocated_bytes=pl.col("bytes").sum(),
            largest_bytes=pl.col("bytes").max(),
            never_freed=kept.sum(),
            never_freed_bytes=pl.col("bytes").filter(kept).sum(),
        )
        .join(most_alive(blocks, by), on=by, nulls_equal=True)
        .sort("rank", "device", "allocated_bytes", "op", "scope", descending=[False, False, True, False, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
