"""Tensors are copied to make them contiguous.

The fix avoids the copy: an operator that takes strides, a layout chosen once before the loop, or dimensions in the order in which they
are used.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import inside, removed, time_ns
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/tensor_view.html"
FIX = {"pytorch": "x = x.transpose(1, 2).contiguous()  # once, before the loop; or an operator that takes strides"}


def contiguous_copies(run: Run) -> Iterator[Finding]:
    calls = run.outermost(run.operators.filter(pl.col("name") == "aten::contiguous"))
    copies = inside(run.operators.filter(pl.col("name") == "aten::copy_"), calls)
    around = calls.sort("start_ns").select("rank", "thread", call="span", call_start="start_ns")
    copied = copies.sort("start_ns").join_asof(
        around, left_on="start_ns", right_on="call_start", by=["rank", "thread"], check_sortedness=False
    )
    calls = calls.join(copied.select("rank", span="call").unique(), on=["rank", "span"], how="semi")
    if calls.is_empty():
        return
    total, count = run.per_step(time_ns(calls)), round(calls.height / run.steps.height)
    yield Finding(
        parameters={"calls": count, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": "aten::contiguous"}, {"total_ns": total, "calls": count}),
        changes=removed(run, calls),
        culprit="aten::contiguous",
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
