"""The device, or the program, waits for transfers between ranks that no computation hides.

The fix hides transfers behind computation: they take no time of their own. Where the recording has the time of the transfers themselves,
only this part is hidden, and the rest of the calls, which waits for other ranks or is idle, is a finding of its own. Where computation
hides a tenth of the transfers already, the fix is at least partly in place: the confidence is low.
"""

from collections.abc import Iterator
from typing import Literal

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.communication.communication import waits

NEEDS = ("steps", "communication")
APPLIES = ("several ranks",)
LINK = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
FIX = {
    "pytorch": "model = DDP(model, bucket_cap_mb=25, gradient_as_bucket_view=True)  # starts transfers during the backward pass",
    "mindspore": "mindspore.set_auto_parallel_context(comm_fusion={'allreduce': {'mode': 'auto', 'config': None}})",
    "jax": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true python train.py",
}
_OVERLAPS = 0.1  # of the communication
_ARRIVAL = {"": "# record all ranks, and open their folder: the rank whose calls are the shortest arrives last"}


def exposed_communication(run: Run) -> Iterator[Finding]:
    steps = run.table("cluster_steps").join(run.steps.select("rank", "step"), on=["rank", "step"], how="semi")
    exposed = steps["exposed_ns"].drop_nulls()
    largest = run.table("communication").filter(pl.col("exposed_ns") > 0).sort("exposed_ns", "name", descending=[True, False])
    calls = waits(run.trace).drop("step").with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    calls = run.in_steps(calls.filter(pl.col("dur_ns") > 0), "start_ns")
    if calls.is_empty() or largest.is_empty() or not exposed.sum():
        return
    name, per_step = str(largest["name"][0]), round(float(exposed.sum()) / len(exposed))
    transit = calls["recorded_transit_ns"]
    known = transit.null_count() == 0
    in_transit = run.per_step(transit) if known else None
    figures = {"exposed_ns": per_step, "exposed_share": run.share(per_step)} | ({"transit_ns": in_transit} if known else {})
    evidence = Evidence("communication", {}, {"name": name}, figures)
    parameters = {"exposed": per_step, "operator": name} | ({"transit": in_transit} if known else {})
    spans = calls.sort("dur_ns", descending=True).select("rank", "step", "span")
    part = (pl.col("recorded_transit_ns") / pl.col("dur_ns")).clip(0, 1) if known else pl.lit(1.0)
    # Where transfers overlap with computation already, the fix is in place: what it leaves needs less data, or faster links.
    hidden = run.per_step((steps["communication_ns"] - steps["exposed_ns"]).drop_nulls())
    confidence: Literal["medium", "low"] = "low" if hidden >= _OVERLAPS * run.per_step(steps["communication_ns"].drop_nulls()) else "medium"
    yield Finding(parameters, evidence, (scale_work(calls, 1 - part),), name, spans=spans, confidence=confidence, generic=True)
    if known:
        others = {"wait": calls["recorded_wait_ns"], "idle": calls["recorded_idle_ns"]}
        rest = {name: run.per_step(times) for name, times in others.items() if times.null_count() == 0}
        yield Finding(
            parameters | rest,
            evidence,
            (scale_work(calls, part),),
            name,
            spans=spans,
            confidence="medium",
            generic=True,
            code="advice-exposed_communication-arrival",
            fix="advice-exposed_communication-arrival-fix",
            fix_code=_ARRIVAL,
        )
