"""How evenly are tokens and time distributed over the expert ranks?"""

import polars as pl

from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.parallelism.parallel_dimensions import parallel_groups_of
from stepscope.analyses.shared.ranks.rank_steps import rank_steps
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "ep": pl.Int32,  # index in the group of experts
    "group": pl.Int32,  # number of the group
    "steps": pl.Int64,
    "exchanges": pl.Int64,  # all-to-all calls per step
    "bytes": pl.Int64,  # per step, sent and received in all-to-all: follows the tokens of the rank
    "load": pl.Float64,  # bytes, compared with the mean of the group
    "exchange_ns": pl.Int64,  # per step
    "wait_ns": pl.Int64,  # per step, for other experts
    "compute_ns": pl.Int64,  # mean step
    "compute_load": pl.Float64,  # compute_ns, compared with the mean of the group
}


def expert_load(trace: Trace) -> pl.DataFrame:
    """Per rank of the expert-parallel groups: the bytes of its all-to-all calls, which follow its tokens, and its time to compute.

    A load of 1.2 is 20 % above the mean of the group. Null where bytes or computation are not recorded.
    """
    places = [
        (rank, index, number)
        for number, group in enumerate(group for group in parallel_groups_of(trace) if group.dimension == "ep")
        for index, rank in enumerate(group.members)
    ]
    ranks = pl.DataFrame(places, {"rank": pl.Int32, "ep": pl.Int32, "group": pl.Int32}, orient="row")
    steps = trace.steps.group_by("rank").agg(steps=pl.len()).collect()
    calls = waits(trace).filter(pl.col("collective") == "all_to_all")
    sums = calls.group_by("rank").agg(
        exchanges=pl.len(),
        bytes=pl.when(pl.col("bytes").null_count() == 0).then(pl.col("bytes").sum()),
        exchange_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        wait_ns=pl.when(pl.col("wait_ns").count() > 0).then(pl.col("wait_ns").sum()),
    )
    computed = rank_steps(trace).group_by("rank").agg(pl.col("compute_ns").mean())
    rows = ranks.join(sums, on="rank").join(steps, on="rank", how="left").join(computed, on="rank", how="left")
    each = ("exchanges", "bytes", "exchange_ns", "wait_ns")
    rows = rows.with_columns((pl.col(name) / pl.col("steps").fill_null(1).clip(1)).round() for name in each)
    rows = rows.with_columns(load=_load("bytes"), compute_load=_load("compute_ns"), compute_ns=pl.col("compute_ns").round())
    return rows.sort("group", "ep").select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _load(name: str) -> pl.Expr:
    mean = pl.col(name).mean().over("group")
    return pl.when(mean > 0).then(pl.col(name) / mean)
