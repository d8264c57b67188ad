"""How many floating-point operations did each part of the model do, and how near did it come to the chip's peak?"""

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls, flop_totals
from stepscope.model.trace import Trace

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
    """Per rank and scope, with all scopes below it, sorted by name: the figures of `flops`. The empty scope is the whole rank.

    `depth` is the number of levels; all by default.
    """
    rows = flop_calls(trace).with_columns(pl.col("scope").fill_null(""))
    scopes = rows.select(pl.col("scope").unique())
    pairs = [(scope, *prefix) for scope in scopes["scope"] for prefix in _prefixes(scope)]
    prefixes = pl.DataFrame(pairs, schema={"scope": pl.String, "prefix": pl.String, "depth": pl.Int32}, orient="row")
    if depth is not None:
        prefixes = prefixes.filter(pl.col("depth") <= depth)
    totals = flop_totals(rows.join(prefixes, on="scope"), "rank", "prefix", "depth")
    whole = pl.col("flops").filter(pl.col("depth") == 0).first().over("rank")
    return (
        totals.rename({"prefix": "scope"})
        .with_columns(share=(pl.col("flops") / whole).fill_nan(None))
        .sort("rank", "scope")
        .select(COLUMNS.keys())
        .cast(COLUMNS)  # type: ignore[arg-type]
    )


def _prefixes(scope: str) -> list[tuple[str, int]]:
    """A scope and all scopes around it, the empty one first, each with its depth."""
    parts = scope.split("/") if scope else []
    return [("/".join(parts[:level]), level) for level in range(len(parts) + 1)]
