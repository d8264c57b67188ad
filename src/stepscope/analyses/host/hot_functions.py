"""In which functions does the host spend its time?"""

import polars as pl

from stepscope.analyses.shared.call_paths import call_tree, inside_itself, outermost_ns
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "name": pl.String,
    "kind": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "share": pl.Float64,
    "self_share": pl.Float64,
}


def hot_functions(trace: Trace, *, root: str | None = None) -> pl.DataFrame:
    """Per rank and function (Python frame, module, operator, runtime call): calls, total time and self time.

    A call inside another of the same name is part of the outer call: recursion is not counted twice. `root` selects calls below the
    frames whose name contains that text. Shares are of the time of all outermost calls of the rank.
    """
    tree = call_tree(trace, root)
    outermost = ~inside_itself(tree)
    return (
        tree.with_columns(outermost=outermost)
        .group_by("rank", "name", "kind")
        .agg(pl.col("calls", "self_ns").sum(), total_ns=pl.col("total_ns").filter("outermost").sum())
        .join(outermost_ns(tree), on="rank")
        .with_columns(share=pl.col("total_ns") / pl.col("whole"), self_share=pl.col("self_ns") / pl.col("whole"))
        .sort("rank", "self_ns", "name", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
