"""How many floating-point operations did each part of the model do, and how near did it come to the chip's peak?"""

import polars as pl

from stepscope.analyses._flop_counts import counted, summed
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "scope": pl.String,
    "depth": pl.Int32,
    "calls": pl.Int64,
    "flops": pl.Int64,
    "share": pl.Float64,
    "time_ns": pl.Int64,
    "flops_per_s": pl.Float64,
    "utilization": pl.Float64,
    "how": pl.String,
    "unknown_calls": pl.Int64,
    "peak_source": pl.String,
}


def flops_by_scope(trace: Trace, *, depth: int | None = None) -> pl.DataFrame:
    """Per rank and scope, with everything below it, in the order of their names: as `flops`. The empty scope is the whole rank.

    `depth` is how many levels of scopes to show; all of them where it is not given.
    """
    rows = counted(trace).with_columns(pl.col("scope").fill_null(""))
    scopes = rows.select(pl.col("scope").unique())
    around = [(scope, *part) for scope in scopes["scope"] for part in _around(scope)]
    prefixes = pl.DataFrame(around, schema={"scope": pl.String, "prefix": pl.String, "depth": pl.Int32}, orient="row")
    if depth is not None:
        prefixes = prefixes.filter(pl.col("depth") <= depth)
    found = summed(rows.join(prefixes, on="scope"), "rank", "prefix", "depth")
    whole = pl.col("flops").filter(pl.col("depth") == 0).first().over("rank")
    return (
        found.rename({"prefix": "scope"})
        .with_columns(share=(pl.col("flops") / whole).fill_nan(None))
        .sort("rank", "scope")
        .select(COLUMNS.keys())
        .cast(COLUMNS)  # type: ignore[arg-type]
    )


def _around(scope: str) -> list[tuple[str, int]]:
    """A scope and all around it, the empty one first: each with its depth."""
    parts = scope.split("/") if scope else []
    return [("/".join(parts[:level]), level) for level in range(len(parts) + 1)]
