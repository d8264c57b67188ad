"""Which functions take the time, over all paths of a flame graph?"""

import polars as pl

from stepscope.analyses.host import hot_functions
from stepscope.analyses.host.flame_graph import check_tree, tree_of_rank
from stepscope.analyses.shared.call_paths import inside_itself
from stepscope.analyses.shared.frame_trees import whole_ns
from stepscope.model.trace import Trace

COLUMNS = hot_functions.COLUMNS


def flame_functions(trace: Trace, *, by: str = "host", by_thread: bool = False) -> pl.DataFrame:
    """Per rank and function: calls, total and self time, over all paths of the tree that `flame_graph` shows, without its limits.

    A call inside another of the same name is part of the outer call. `by` and `by_thread` as in `flame_graph`. For the host these are the
    figures of `hot_functions`.
    """
    check_tree(by)
    ranks = trace.table("spans").select(pl.col("rank").unique().sort()).collect().to_series().to_list()
    parts = [pl.DataFrame(schema=COLUMNS)]
    for rank in ranks:
        tree = tree_of_rank(trace, rank, by, by_thread).with_columns(rank=pl.lit(rank))
        whole = whole_ns(tree)
        sums = (
            tree.with_columns(outermost=~inside_itself(tree))
            .group_by("rank", "name", "kind")
            .agg(pl.col("calls", "self_ns").sum(), total_ns=pl.col("total_ns").filter("outermost").sum())
            .with_columns(share=pl.col("total_ns") / (whole or None), self_share=pl.col("self_ns") / (whole or None))
            .sort("self_ns", "name", descending=[True, False])
        )
        parts.append(sums.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()))
    return pl.concat(parts)
