"""A rank computes fewer FLOP/s than the others, or a pipeline stage has more FLOPs than the others.

Fires for the rank whose FLOP/s is more than 20 % below the mean of the ranks of its stage, and for the stage whose FLOPs per step are more
than 20 % above the mean of the stages. FLOPs are those of operators with recorded shapes, or of the profiler.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.parallelism.rank_places import rank_places

NEEDS = ("steps", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/distributed.pipelining.html"
FIX = {"": "# compare batch, sequence lengths and experts of this rank with those of another one"}
_STAGE_FIX = {"": "# move layers from this stage to the others"}
_APART = 0.2


def uneven_flops(run: Run) -> Iterator[Finding]:
    rows = run.table("cluster_ranks").drop_nulls(["flops_per_s", "step_ns"]).filter(pl.col("flops_per_s") > 0)
    rows = rows.select("rank", "flops_per_s", flops=pl.col("flops_per_s") * pl.col("step_ns") / 1e9)
    rows = rows.join(rank_places(run.trace).select("rank", "stage"), on="rank", how="left")
    if rows.height < 2:
        return
    ranks = rows.with_columns(mean=pl.col("flops_per_s").mean().over("stage"))
    ranks = ranks.with_columns(below=1 - pl.col("flops_per_s") / pl.col("mean")).sort("below", "rank", descending=[True, False])
    worst = ranks.row(0, named=True)
    if worst["below"] > _APART:
        yield Finding(
            parameters={"slow_rank": str(worst["rank"]), "speed": worst["flops_per_s"], "mean": worst["mean"], "below": worst["below"]},
            evidence=Evidence("cluster_ranks", {}, {"rank": worst["rank"]}, {"below_share": worst["below"]}),
            culprit=f"rank {worst['rank']}",
            statement=True,
        )
    stages = rows.drop_nulls("stage").group_by("stage").agg(pl.col("flops").mean()).sort("flops", "stage", descending=[True, False])
    if stages.height < 2:
        return
    stage, mean = stages.row(0, named=True), float(str(stages["flops"].mean()))
    if stage["flops"] / mean - 1 > _APART:
        yield Finding(
            parameters={"stage": stage["stage"], "flops": round(stage["flops"]), "above": stage["flops"] / mean - 1},
            evidence=Evidence("cluster_ranks", {"by": "pp"}, {"label": str(stage["stage"])}, {"above_share": stage["flops"] / mean - 1}),
            culprit=f"stage {stage['stage']}",
            code="advice-uneven_flops-stage",
            fix="advice-uneven_flops-stage-fix",
            fix_code=_STAGE_FIX,
            statement=True,
        )
