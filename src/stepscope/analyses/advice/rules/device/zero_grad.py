"""Gradients are set to zero by writing zeros, which the next backward pass then adds to.

The fix drops the gradients instead: nothing is written, and the backward pass stores its result without reading zeros. Only the writes are
part of the gain.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import annotated, inside, removed, time_ns
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html"
FIX = {"pytorch": "optimizer.zero_grad(set_to_none=True)"}


def zero_grad(run: Run) -> Iterator[Finding]:
    ranges = annotated(run, "Optimizer.zero_grad#")
    calls = inside(run.top_level, ranges)
    calls = calls.filter(pl.col("name").str.contains(r"zero_|fill_"))
    if calls.is_empty():
        return
    count, total = round(calls.height / run.steps.height), run.per_step(time_ns(calls))
    name = str(calls["name"].mode().sort()[0])
    yield Finding(
        parameters={"operator": name, "calls": count, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=removed(run, calls),
        culprit=name,
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
