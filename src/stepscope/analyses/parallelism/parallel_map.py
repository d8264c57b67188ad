"""Where is each rank in data, tensor, pipeline, context and expert parallelism?"""

import polars as pl

from stepscope.analyses.shared.parallelism.parallel_dimensions import DIMENSIONS, parallel_groups_of, parallel_indices
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "host": pl.String,
    "recorded": pl.Boolean,
    "dp": pl.Int32,  # index in the group of the dimension; null if the dimension is not known
    "tp": pl.Int32,
    "pp": pl.Int32,  # the pipeline stage
    "cp": pl.Int32,
    "ep": pl.Int32,
    "how": pl.String,  # the source of each known dimension
}


def parallel_map(trace: Trace) -> pl.DataFrame:
    """Every rank of the job that is recorded or in a known group, with its index in each dimension, and how the dimensions are known.

    A dimension comes from the names that the framework gave to its groups, from stages that the recording contains, from the sizes of the
    job in the order of Megatron, or from the ranks and calls of the groups: chains of transfers are pipelines, all-to-all is between
    experts, and of reductions the groups of consecutive ranks are tensor parallel, the others data parallel.
    """
    sources = {group.dimension: group.how for group in parallel_groups_of(trace)}
    how = "; ".join(f"{name}: {sources[name]}" for name in DIMENSIONS if name in sources)
    hosts = trace.whole.table("hosts").select("rank", pl.col("host").cast(pl.String)).unique("rank", keep="first").collect()
    rows = parallel_indices(trace).join(hosts, on="rank", how="left", maintain_order="left")
    rows = rows.with_columns(recorded=pl.col("rank").is_in(trace.whole.meta.ranks), how=pl.lit(how or None, pl.String))
    if trace.whole is not trace:
        rows = rows.filter(pl.col("rank").is_in(trace.meta.ranks))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
