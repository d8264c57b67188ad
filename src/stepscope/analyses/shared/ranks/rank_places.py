"""The host and the pipeline stage of each rank."""

import polars as pl

from stepscope.analyses.shared.ranks.parallel_dimensions import parallel_indices
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_COLUMNS = {"rank": pl.Int32, "host": pl.String, "stage": pl.Int32}


@memoized
def rank_places(trace: Trace) -> pl.DataFrame:
    """rank, host and stage of each recorded rank; null where they are not known."""
    ranks = pl.DataFrame({"rank": trace.meta.ranks}, {"rank": pl.Int32})
    stages = trace.table("stage_operations").group_by("rank").agg(recorded=pl.col("stage").first()).collect()
    hosts = trace.table("hosts").select("rank", pl.col("host").cast(pl.String)).unique("rank", keep="first").collect()
    places = parallel_indices(trace).select("rank", "pp")
    rows = ranks.join(stages, on="rank", how="left").join(hosts, on="rank", how="left").join(places, on="rank", how="left")
    return rows.with_columns(stage=pl.coalesce("recorded", "pp")).select(pl.col(name).cast(dtype) for name, dtype in _COLUMNS.items())
