"""How fast is each link between two ranks?"""

import polars as pl

from stepscope.analyses.shared.ranks.link_sums import link_sums, sums_of_links
from stepscope.model.rank_tables import refuse_summary
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "transport": pl.String,
    "transfers": pl.Int64,
    "bytes": pl.Int64,
    "total_ns": pl.Int64,
    "bytes_per_s": pl.Float64,
}


def links(trace: Trace, *, step: int | None = None, op: str | None = None) -> pl.DataFrame:
    """Per recording rank, pair of ranks and transport: transfers, bytes, time and bandwidth; optionally of one step or one operator.

    A transfer without recorded bytes or time counts only as a transfer.
    """
    if op is not None:
        refuse_summary(trace, "operators of links")
        text = pl.col("op").cast(pl.String)
        rows = sums_of_links(trace.table("links").filter(text == op))
    else:
        rows = link_sums(trace)
    rows = rows if step is None else rows.filter(pl.col("step") == step)
    seconds = pl.col("sized_ns").sum() / 1e9
    return (
        rows.group_by("rank", "src", "dst", "transport")
        .agg(
            pl.col("transfers", "bytes").sum(),
            total_ns=pl.col("dur_ns").sum(),
            bytes_per_s=pl.when(seconds > 0).then(pl.col("sized_bytes").sum() / seconds),
        )
        .sort("rank", "src", "dst", "transport")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
