"""The optimizer updates one parameter after the other, with a few operators for each.

Fires where most operators of an optimizer step are not batched: they update one tensor each. The fix updates all parameters with one
operator: then the loop of the host takes no time between the operators, nor in operators that launch kernels, and each other operator, and
each kernel, saves the cost of a call: what the fastest quarter of them takes, at most 10 us for an operator and 5 us for a kernel.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import annotated, inside, work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/optim.html#algorithms"
FIX = {"pytorch": "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # or foreach=True"}
_TOGETHER = r"_foreach_|_fused_|_compiled"
_LEAST_CALLS = 20  # per step
_CHEAPEST = 0.25  # this quantile of the durations is the cost of a call
_CALL_NS, _KERNEL_NS = 10_000, 5_000  # where all parameters are large, the fastest is no mere call


def optimizer_loop(run: Run) -> Iterator[Finding]:
    ranges = annotated(run, "Optimizer.step#")
    calls = inside(run.top_level, ranges)
    is_batched = pl.col("name").str.contains(_TOGETHER)
    singles = calls.filter(~is_batched)
    if singles.height < _LEAST_CALLS * run.steps.height or singles.height < calls.height / 2:
        return
    total, on_host = int(ranges["dur_ns"].sum()), singles.filter(pl.col("launches") == 0)
    cost = min(float(on_host["dur_ns"].quantile(_CHEAPEST) or 0), _CALL_NS)
    kept = int(calls.filter(is_batched)["dur_ns"].sum()) + max(int(on_host["dur_ns"].sum()) - cost * on_host.height, 0)
    host = kept / total if total else 0.0
    work = work_under(run, singles)
    launch = min(float(work["dur_ns"].quantile(_CHEAPEST) or 0), _KERNEL_NS)
    name = str(ranges["name"].mode().sort()[0]).removeprefix("Optimizer.step#").removesuffix(".step")
    per_step = run.per_step(ranges["dur_ns"])
    yield Finding(
        parameters={"optimizer": name, "calls": round(singles.height / run.steps.height), "time": per_step, "share": run.share(per_step)},
        evidence=Evidence("annotations", {}, {}, {"total_ns": per_step, "calls": round(singles.height / run.steps.height)}),
        changes=(scale_host(ranges, min(host, 1.0)), scale_work(work, 1 - launch / pl.col("dur_ns").clip(1))),
        culprit=f"{name}.step",
        source=run.source_of(ranges),
        spans=ranges.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
