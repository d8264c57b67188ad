"""What does each stage of the pipeline do in a step, and how large is its bubble?"""

import polars as pl

from stepscope.analyses.cluster.cluster_stages import cluster_stages
from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.parallelism.parallel_dimensions import parallel_groups_of
from stepscope.analyses.shared.ranks.rank_clocks import rank_clocks
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "stage": pl.Int32,
    "step": pl.Int32,
    "kind": pl.String,  # forward, backward, send, receive, collective, other
    "operation": pl.String,
    "micro_batch": pl.Int32,
    "start_ns": pl.Int64,  # since the start of the step on the clock of the first rank
    "end_ns": pl.Int64,
    "wait_ns": pl.Int64,  # for another rank
    "step_start_ns": pl.Int64,  # of the rank, on its own clock
    "step_ns": pl.Int64,
    "bubble_share": pl.Float64,  # of the step of the rank: exposed receives
}
_SENDS = ["send", "recv", "send_recv"]


def pipeline_chart(trace: Trace, *, step: int | None = None, replica: int = 0, top: int = 20_000) -> pl.DataFrame:
    """The operations of the ranks of one pipeline in one step, by stage: those of `stage_operations`, else transfers and collectives.

    `replica` numbers the pipelines of the job, `step` is the slowest step by default. Computation between transfers is shown only where
    its operations are recorded. `top` limits the rows to the earliest ones; 0 for all.
    """
    table = cluster_stages(trace)
    pipelines = [group.members for group in parallel_groups_of(trace) if group.dimension == "pp"]
    if table.is_empty() or not pipelines:
        return pl.DataFrame(schema=COLUMNS)
    members = pipelines[min(replica, len(pipelines) - 1)]
    table = table.filter(pl.col("rank").is_in(members))
    totals = table.group_by("step").agg(pl.col("total_ns").max()).sort("total_ns", "step", descending=[True, False])
    if step is None and totals.height:
        step = totals["step"][0]
    steps = table.filter(pl.col("step") == step).select("rank", "step", "stage", "bubble_share", step_ns="total_ns")
    begins = trace.steps.filter(pl.col("step") == step).select("rank", step_start_ns="start_ns").collect().unique("rank", keep="first")
    offsets = rank_clocks(trace).select("rank", pl.col("offset_ns").fill_null(0))
    steps = steps.join(begins, on="rank").join(offsets, on="rank", how="left").with_columns(pl.col("offset_ns").fill_null(0))
    origin = (pl.col("step_start_ns") + pl.col("offset_ns")).min()
    steps = steps.with_columns(shift=pl.col("offset_ns") - origin)
    rows = _operations(trace, members, step)
    rows = rows if rows.height else _calls(trace, members, step)
    rows = rows.join(steps, on="rank").with_columns(pl.col("start_ns", "end_ns") + pl.col("shift"), step=pl.lit(step, pl.Int32))
    order = ["start_ns", "end_ns", "operation", "micro_batch"]
    rows = rows.sort(*order, "rank")
    rows = rows.head(top) if top else rows
    return rows.sort("stage", "rank", *order).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _operations(trace: Trace, members: tuple[int, ...], step: int | None) -> pl.DataFrame:
    """The recorded operations of stages."""
    spans = trace.table("rank_operations") if trace.meta.summary else trace.spans.select("rank", "span", "step", "start_ns", "dur_ns")
    rows = trace.table("stage_operations").join(spans, on=["rank", "span"]).filter(pl.col("rank").is_in(members), pl.col("step") == step)
    name = pl.col("operation").cast(pl.String)
    kind = (
        pl.when(name.str.ends_with("-send"))
        .then(pl.lit("send"))
        .when(name.str.ends_with("-recv"))
        .then(pl.lit("receive"))
        .when(name.str.starts_with("forward"))
        .then(pl.lit("forward"))
        .when(name.str.starts_with("backward"))
        .then(pl.lit("backward"))
        .when(name.str.contains("all-gather|reduce-scatter|all-reduce"))
        .then(pl.lit("collective"))
        .otherwise(pl.lit("other"))
    )
    end = pl.col("start_ns") + pl.col("dur_ns")
    chosen = rows.select("rank", "start_ns", "micro_batch", kind=kind, operation=name, end_ns=end, wait_ns=pl.lit(None, pl.Int64))
    operations: pl.DataFrame = chosen.collect()
    return operations


def _calls(trace: Trace, members: tuple[int, ...], step: int | None) -> pl.DataFrame:
    """Transfers and collectives of the ranks."""
    rows = waits(trace).filter(pl.col("rank").is_in(members), pl.col("step") == step, pl.col("has_times"))
    sends = pl.when(pl.col("collective") == "send").then(pl.lit("send")).otherwise(pl.lit("receive"))
    kind = pl.when(pl.col("collective").is_in(_SENDS)).then(sends).otherwise(pl.lit("collective"))
    return rows.select("rank", "start_ns", "end_ns", "wait_ns", kind=kind, operation="name", micro_batch=pl.lit(None, pl.Int32))
