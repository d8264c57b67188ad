"""How does each rank, host or parallel group spend its steps, and how does it differ from the others?"""

import polars as pl

from stepscope.analyses.cluster.stragglers import stragglers
from stepscope.analyses.communication.cluster_steps import cluster_steps
from stepscope.analyses.shared.parallelism.rank_places import rank_labels, rank_places
from stepscope.analyses.shared.ranks.device_clocks import device_clocks
from stepscope.analyses.shared.ranks.rank_clocks import rank_clocks
from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
from stepscope.analyses.shared.ranks.rank_steps import PARTS, rank_steps
from stepscope.analyses.steps.overview import overview
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_MEANS = ("step_ns", "own_ns", *(f"{part}_ns" for part in PARTS), "communication_ns", "exposed_ns", "wait_ns", "uncertain_wait_ns")
_MEANS = (*_MEANS, "transit_ns", "flops_per_s", "utilization", "device_clock")
COLUMNS = {
    "label": pl.String,  # of the row: the rank, the host, or the index in the dimension
    "rank": pl.Int32,  # null for groups of several ranks
    "ranks": pl.String,  # as ranges
    "count": pl.Int64,  # ranks
    "host": pl.String,  # null for several
    "dp": pl.Int32,
    "tp": pl.Int32,
    "pp": pl.Int32,
    "cp": pl.Int32,
    "ep": pl.Int32,
    "steps": pl.Int64,
    "step_ns": pl.Int64,  # mean
    "own_ns": pl.Int64,  # mean step without exposed communication: comparable without a common clock
    "excess_share": pl.Float64,  # of own_ns above the median of the rows
    "compute_ns": pl.Int64,
    "input_ns": pl.Int64,
    "collection_ns": pl.Int64,
    "host_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "wait_ns": pl.Int64,
    "uncertain_wait_ns": pl.Int64,  # in calls whose wait is smaller than the uncertainty of the clocks
    "transit_ns": pl.Int64,
    "flops_per_s": pl.Float64,
    "utilization": pl.Float64,
    "peak_memory_bytes": pl.Int64,  # the highest of the ranks
    "device_clock": pl.Float64,
    "clock_offset_ns": pl.Int64,
    "clock_uncertainty_ns": pl.Int64,  # the largest of the ranks
    "slow_ranks": pl.Int64,  # ranks that `stragglers` names
    "cause": pl.String,  # of the straggler with the largest loss
}


@memoized
def cluster_ranks(trace: Trace, *, by: str | None = None, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank, or with `by` per host (`host`) or index in a dimension (`dp`, `tp`, `pp`, `cp`, `ep`): means over its steps.

    The parts of `own_ns` are those of `stragglers`; communication and waits are those of `cluster_steps`, FLOPs and memory those of
    `overview`. A figure that is not recorded for any rank of the row is null. Slow first steps are left out as in `step_times`.
    """
    rows = _per_rank(trace, warmup).join(rank_labels(trace, by), on="rank")
    if (by or "rank") == "rank":
        rows = rows.with_columns(ranks="label", count=pl.lit(1))
    else:
        places = ("host", "dp", "tp", "pp", "cp", "ep")
        common = [pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name) for name in places]
        rows = rows.group_by("label").agg(
            *common,
            pl.col(_MEANS).mean(),
            pl.col("steps", "slow_ranks").sum(),
            pl.col("peak_memory_bytes", "clock_uncertainty_ns").max(),
            pl.col("cause").drop_nulls().first(),
            ranks=pl.col("rank"),
            count=pl.len(),
            first=pl.col("rank").min(),
            rank=pl.lit(None, pl.Int32),
            clock_offset_ns=pl.lit(None, pl.Int64),
        )
        rows = rows.with_columns(pl.Series("ranks", [rank_ranges(ranks) for ranks in rows["ranks"]], pl.String))
        rows = rows.sort(pl.col("label").cast(pl.Int64, strict=False), "label")
    excess = pl.col("own_ns") / pl.col("own_ns").median() - 1
    rows = rows.with_columns(excess_share=pl.when(pl.col("own_ns").median() > 0).then(excess))
    whole = [name for name in _MEANS if name.endswith("_ns")]
    return rows.with_columns(pl.col(whole).round()).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _per_rank(trace: Trace, warmup: int | None) -> pl.DataFrame:
    means = cluster_steps(trace, per_step=False, warmup=warmup).drop("start_ns", "step", "interval_ns", "fp_bp_ns", "tail_ns")
    own_times = rank_steps(trace).group_by("rank").agg(pl.col("own_ns", *(f"{part}_ns" for part in PARTS)).mean())
    figures = overview(trace, warmup=warmup).select("rank", "flops_per_s", "utilization", "peak_memory_bytes")
    clocks = pl.DataFrame(list(device_clocks(trace).items()), {"rank": pl.Int32, "device_clock": pl.Float64}, orient="row")
    offsets = rank_clocks(trace).select("rank", clock_offset_ns="offset_ns", clock_uncertainty_ns="uncertainty_ns")
    slow = _slow_ranks(trace)
    rows = rank_places(trace).rename({"stage": "recorded_stage"}).with_columns(pp=pl.coalesce("recorded_stage", "pp"))
    for part in (means.rename({"total_ns": "step_ns"}), own_times, figures, clocks, offsets, slow):
        rows = rows.join(part, on="rank", how="left", maintain_order="left")
    return rows.with_columns(pl.col("slow_ranks").fill_null(0), pl.col("steps").fill_null(0))


def _slow_ranks(trace: Trace) -> pl.DataFrame:
    """rank, slow_ranks and cause: of slow ranks, and of all ranks of slow hosts."""
    rows = stragglers(trace)
    hosts = rows.filter(pl.col("kind") == "host").select("host", "cause", "loss_ns")
    members = hosts.join(rank_places(trace).select("rank", "host"), on="host").select("rank", "cause", "loss_ns")
    alone = rows.filter(pl.col("kind") == "rank").select("rank", "cause", "loss_ns")
    every = pl.concat([alone, members]).sort("loss_ns", descending=True, nulls_last=True)
    return every.group_by("rank", maintain_order=True).agg(slow_ranks=pl.lit(1, pl.Int64), cause=pl.col("cause").first())
