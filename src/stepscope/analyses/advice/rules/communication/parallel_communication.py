"""The groups of a parallel dimension communicate while nothing computes.

Fires for each dimension (data, tensor, context or expert parallelism) whose calls are exposed for more than 10 % of computation and exposed
communication together, over all ranks; of a pipeline for the worst stage. Concurrent calls count once each, so dimensions may overlap.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.parallelism.call_dimensions import call_dimensions
from stepscope.analyses.shared.parallelism.rank_places import rank_places
from stepscope.analyses.shared.ranks.rank_steps import rank_steps

NEEDS = ("steps", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
FIX = {
    "": "# overlap it with computation, or give the dimension fewer ranks",
    "pytorch": "model = DDP(model, bucket_cap_mb=25, gradient_as_bucket_view=True)  # larger buckets, started in the backward pass",
    "mindspore": "mindspore.set_auto_parallel_context(comm_fusion={'allreduce': {'mode': 'auto', 'config': None}})",
}
_SHARDS = {"": "# keep the groups within a host, shard fewer operators, or overlap with sequence parallelism"}
_ABOVE = 0.1
_WORDS = {"dp": "data", "tp": "tensor", "cp": "context", "ep": "expert"}


def parallel_communication(run: Run) -> Iterator[Finding]:
    steps = rank_steps(run.trace).drop_nulls("compute_ns")
    calls = run.in_steps(waits(run.trace).drop("step"), "start_ns").join(steps.select("rank", "step"), on=["rank", "step"], how="semi")
    calls = calls.join(call_dimensions(run.trace), on=["rank", "group", "members"], nulls_equal=True)
    exposed = (pl.col("end_ns") - pl.col("start_ns") - pl.col("overlapped_ns")).clip(0)
    places = rank_places(run.trace).select("rank", "stage")
    by = ["dimension", "stage"]
    sums = calls.join(places, on="rank", how="left").group_by(by).agg(exposed=exposed.sum(), ranks=pl.col("rank").n_unique())
    work = steps.join(places, on="rank", how="left").group_by("stage").agg(computed=pl.col("compute_ns").sum(), steps=pl.len())
    rates = sums.join(work, on="stage", nulls_equal=True).with_columns(rate=pl.col("exposed") / (pl.col("exposed") + pl.col("computed")))
    worst = rates.sort("rate", "stage", descending=[True, False]).unique("dimension", keep="first", maintain_order=True)
    for row in worst.filter(pl.col("rate") > _ABOVE, pl.col("dimension").is_in(list(_WORDS))).iter_rows(named=True):
        in_data = row["dimension"] == "dp"
        per_step = round(row["exposed"] / row["steps"])
        parameters = {"dimension": f"{_WORDS[row['dimension']]} parallelism", "exposed": per_step, "share": row["rate"]}
        yield Finding(
            parameters=parameters | ({} if row["stage"] is None else {"stage": row["stage"]}),
            evidence=Evidence(
                "parallel_groups", {}, {"dimension": row["dimension"]}, {"exposed_ns": per_step, "exposed_share": row["rate"]}
            ),
            culprit=row["dimension"],
            statement=True,
            fix="advice-parallel_communication-fix" if in_data else "advice-parallel_communication-shards-fix",
            fix_code=FIX if in_data else _SHARDS,
        )
