"""The host, the pipeline stage and the other places of each rank, and the groups that figures are compared by."""

import polars as pl

from stepscope.analyses.shared.parallelism.parallel_dimensions import DIMENSIONS, parallel_indices
from stepscope.model.memo import memoized
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

_COLUMNS = {"rank": pl.Int32, "host": pl.String, "stage": pl.Int32}
GROUPINGS = ("rank", "host", *DIMENSIONS)


@memoized
def rank_places(trace: Trace) -> pl.DataFrame:
    """rank, host and stage of each recorded rank; null where they are not known."""
    ranks = pl.DataFrame({"rank": trace.meta.ranks}, {"rank": pl.Int32})
    stages = trace.table("stage_operations").group_by("rank").agg(recorded=pl.col("stage").first()).collect()
    hosts = trace.table("hosts").select("rank", pl.col("host").cast(pl.String)).unique("rank", keep="first").collect()
    places = parallel_indices(trace)
    rows = ranks.join(stages, on="rank", how="left").join(hosts, on="rank", how="left").join(places, on="rank", how="left")
    rows = rows.sort("rank").with_columns(stage=pl.coalesce("recorded", "pp"))
    return rows.select(*(pl.col(name).cast(dtype) for name, dtype in _COLUMNS.items()), *DIMENSIONS)


def rank_labels(trace: Trace, by: str | None) -> pl.DataFrame:
    """rank, label: what each rank is grouped by (rank, host, or its index in a dimension); without ranks for which it is not known."""
    grouping = check_word("grouping", by or "rank", GROUPINGS)
    rows = rank_places(trace).select("rank", label=pl.col(grouping).cast(pl.String))
    return rows.drop_nulls()
