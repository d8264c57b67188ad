"""Which operators allocate the memory, and which never free it?"""

import polars as pl

from stepscope.analyses.shared.memory.live_blocks import blocks, peak_live_bytes
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "op": pl.String,
    "scope": pl.String,  # with by_scope: its module
    "blocks": pl.Int64,
    "allocated_bytes": pl.Int64,
    "largest_bytes": pl.Int64,
    "peak_bytes": pl.Int64,
    "never_freed": pl.Int64,
    "never_freed_bytes": pl.Int64,
}


def allocations_by_op(trace: Trace, *, device: str | None = None, by_scope: bool = False) -> pl.DataFrame:
    """Per rank, device and operator: blocks and bytes allocated, the peak of live bytes, and blocks whose release is not recorded.

    Blocks without a known operator, such as those allocated before the recording, are one row with a null op. `by_scope` adds a row for
    each module.
    """
    by = ["rank", "device", "op", "scope"]
    rows = blocks(trace, device)
    rows = rows if by_scope else rows.with_columns(scope=pl.lit(None, pl.String))
    not_freed = pl.col("free_ns").is_null()
    return (
        rows.group_by(by)
        .agg(
            blocks=pl.len(),
            allocated_bytes=pl.col("bytes").sum(),
            largest_bytes=pl.col("bytes").max(),
            never_freed=not_freed.sum(),
            never_freed_bytes=pl.col("bytes").filter(not_freed).sum(),
        )
        .join(peak_live_bytes(rows, by), on=by, nulls_equal=True)
        .sort("rank", "device", "allocated_bytes", "op", "scope", descending=[False, False, True, False, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
