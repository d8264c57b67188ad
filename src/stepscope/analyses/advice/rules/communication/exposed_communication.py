"""The device, or the program, waits for transfers between ranks that no computation hides.

The fix hides transfers behind computation: they take no time of their own. Waits for slow ranks remain.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "communication")
APPLIES = ("several ranks",)
LINK = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
FIX = {
    "pytorch": "model = DDP(model, bucket_cap_mb=25, gradient_as_bucket_view=True)  # starts transfers during the backward pass",
    "mindspore": "mindspore.set_auto_parallel_context(comm_fusion={'allreduce': {'mode': 'auto', 'config': None}})",
    "jax": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true python train.py",
}


def exposed_communication(run: Run) -> Iterator[Finding]:
    calls = run.trace.spans.filter(pl.col("kind") == "communication").select(
        "rank", "span", "start_ns", "dur_ns", pl.col("name").cast(pl.String)
    )
    calls = run.in_steps(calls.collect(), "start_ns")
    rows = run.table("communication").filter(pl.col("exposed_ns") > 0)
    if calls.is_empty() or rows.is_empty():
        return
    largest = rows.sort("exposed_ns", "name", descending=[True, False]).row(0, named=True)
    steps = run.table("cluster_steps").filter(pl.col("exposed_ns").is_not_null())
    exposed = float(steps["exposed_ns"].mean() or 0)  # type: ignore[arg-type]
    yield Finding(
        parameters={"exposed": round(exposed), "share": run.share(exposed), "operator": largest["name"]},
        evidence=Evidence(
            "communication", {}, {"name": largest["name"]}, {"exposed_ns": round(exposed), "exposed_share": run.share(exposed)}
        ),
        changes=(scale_work(calls),),
        culprit=largest["name"],
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
