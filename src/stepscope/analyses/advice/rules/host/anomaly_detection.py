"""Anomaly detection of PyTorch is on: it records a stack for each operator and checks each gradient for NaN.

Fires where at least half of the functions of the backward pass are followed by `aten::isnan`. The fix switches it off: the checks take no
time, and neither does the time in operators with a gradient until they call their first inner operator, which is that of the stack.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import inside, removed
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
EXPLAINS = ("host_operator",)
HOST_BOUND = True
LINK = "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection"
FIX = {"pytorch": "torch.autograd.set_detect_anomaly(False)  # on only while a NaN is searched"}
_OFTEN = 0.5


def anomaly_detection(run: Run) -> Iterator[Finding]:
    functions = run.operators.filter(pl.col("name").str.starts_with("autograd::engine::evaluate_function"))
    gradients = functions.filter(~pl.col("name").str.contains("AccumulateGrad"))
    checks = inside(run.operators.filter(pl.col("name").is_in(["aten::isnan", "aten::any"])), functions.sort("start_ns"))
    if checks.height < 2 * _OFTEN * gradients.height or gradients.is_empty():
        return
    stacks = _until_first_call(run)
    total = run.per_step(checks["dur_ns"]) + run.per_step(stacks["end_ns"] - stacks["start_ns"])
    yield Finding(
        parameters={"checks": round(checks.height / 2 / run.steps.height), "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": "aten::isnan"}, {"total_ns": total}),
        changes=(*removed(run, checks), scale_host(stacks)),
        culprit="aten::isnan",
        source=run.source_of(checks),
        spans=checks.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )


def _until_first_call(run: Run) -> pl.DataFrame:
    """The time from the start of each operator with a gradient to its first inner operator: rank, start_ns, end_ns."""
    backward = run.trace.spans.filter((pl.col("kind") == "op") & pl.col("flow_in").is_not_null())
    forward = backward.select("rank", span="flow_in").unique().collect()
    first = run.operators.group_by("rank", span="parent").agg(end_ns=pl.col("start_ns").min())
    calls = run.operators.select("rank", "span", "start_ns").join(forward, on=["rank", "span"], how="semi")
    return calls.join(first, on=["rank", "span"]).select("rank", "start_ns", "end_ns")
