"""How does each pipeline stage spend its steps: interval, computation, exposed communication, receives, and bubble?"""

import polars as pl

from stepscope.analyses.communication.cluster_steps import cluster_steps
from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.parallelism.parallel_dimensions import parallel_groups_of
from stepscope.analyses.shared.parallelism.rank_places import rank_places
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

PIPELINE, MODEL, DATA = "pipeline-parallel", "model-parallel", "data-parallel"
COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,  # null with per_step=False
    "mode": pl.String,  # pipeline-parallel, model-parallel, data-parallel; null for one rank
    "stage": pl.Int32,  # null without a pipeline
    "total_ns": pl.Int64,
    "interval_ns": pl.Int64,
    "fp_bp_ns": pl.Int64,
    "tail_ns": pl.Int64,
    "computation_ns": pl.Int64,  # the step without exposed communication, with idle time
    "communication_alone_ns": pl.Int64,  # exposed communication
    "receive_alone_ns": pl.Int64,  # exposed receives; null without a pipeline
    "collective_alone_ns": pl.Int64,  # exposed communication without receives
    "stage_ns": pl.Int64,  # the step without exposed receives
    "bubble_share": pl.Float64,  # of the step: exposed receives, in which the stage waits for another one
    "how": pl.String,  # recorded (the figures of the source), computed (from the calls of the rank)
}
_TIMES = tuple(name for name in COLUMNS if name.endswith("_ns"))


@memoized
def cluster_stages(trace: Trace, *, per_step: bool = True, warmup: int | None = None) -> pl.DataFrame:
    """Per rank and step: the columns of MindInsight's cluster step trace for its parallel mode, recorded or computed.

    MindInsight's definitions: computation is the step without exposed communication, stage time the step without exposed receives, and
    collective communication alone is exposed communication without receives. Exposed receives that run at the same time count once at most.
    Without per_step: means over the steps of a rank.
    """
    key = ["rank", "step"]
    steps = cluster_steps(trace, warmup=warmup)
    stages = rank_places(trace).select("rank", "stage")
    dimensions = {group.dimension for group in parallel_groups_of(trace)}
    has_stages = stages["stage"].n_unique() > 1 or steps["stage_ns"].count() > 0
    many = len(trace.meta.ranks) > 1 or (trace.meta.world_size or 1) > 1 or has_stages
    mode = PIPELINE if has_stages else MODEL if {"tp", "ep"} & dimensions or steps["computation_ns"].count() else DATA if many else None
    recorded = pl.col("computation_ns").is_not_null() | pl.col("stage_ns").is_not_null()
    received = _receives(trace) if mode == PIPELINE else pl.DataFrame(schema={"rank": pl.Int32, "step": pl.Int32, "received_ns": pl.Int64})
    alone = pl.when(recorded).then("recorded_exposed_ns").otherwise("exposed_ns")
    receive = (
        pl.when(recorded)
        .then("receive_ns")
        .otherwise(
            pl.when(pl.col("exposed_ns").is_not_null() & pl.col("received_ns").is_not_null()).then(
                pl.min_horizontal("received_ns", "exposed_ns")
            )
        )
    )
    exposed = trace.steps.select(*key, recorded_exposed_ns="exposed_ns").collect().unique(key, keep="first")
    steps = steps.join(exposed, on=key, how="left", maintain_order="left")
    rows = steps.join(received, on=key, how="left", maintain_order="left").join(stages, on="rank", how="left", maintain_order="left")
    rows = rows.with_columns(mode=pl.lit(mode, pl.String), communication_alone_ns=alone, receive_alone_ns=receive)
    total = pl.col("total_ns")
    rows = rows.with_columns(
        computation_ns=pl.coalesce("computation_ns", total - pl.col("communication_alone_ns")),
        collective_alone_ns=pl.coalesce("collective_ns", pl.col("communication_alone_ns") - pl.col("receive_alone_ns")),
        stage_ns=pl.coalesce("stage_ns", total - pl.col("receive_alone_ns")),
        how=pl.when(recorded).then(pl.lit("recorded")).otherwise(pl.lit("computed")),
    )
    if not per_step:
        rows = rows.group_by("rank").agg(pl.col(_TIMES).mean().round(), pl.col("mode", "stage", "how").first(), step=pl.lit(None, pl.Int32))
    # The whole step, also where the step of the source and its parts are of different clocks.
    whole = pl.col("stage_ns") + pl.col("receive_alone_ns")
    rows = rows.with_columns(bubble_share=pl.when(whole > 0).then(pl.col("receive_alone_ns") / whole))
    return rows.sort("step", "rank").select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _receives(trace: Trace) -> pl.DataFrame:
    """rank, step, received_ns: receives while the rank does not compute; of all steps of the ranks whose transfers are recorded."""
    calls = waits(trace).filter(pl.col("step").is_not_null())
    alone = pl.col("end_ns") - pl.col("start_ns") - pl.col("overlapped_ns")
    received = calls.filter(pl.col("collective").is_in(["recv", "send_recv"])).group_by("rank", "step").agg(received_ns=alone.sum())
    transferring = calls.filter(pl.col("collective").is_in(["send", "recv", "send_recv"])).select("rank").unique()
    steps = trace.steps.select("rank", "step").collect().join(transferring, on="rank", how="semi")
    return steps.join(received, on=["rank", "step"], how="left").with_columns(pl.col("received_ns").fill_null(0))
