"""Operators run on the AI CPU of the NPU, not on its AI Cores.

Fires for tasks that the AI CPU runs. The gain assumes that the AI Cores take no time for them, so it is an upper bound.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.operator_calls import on_devices

NEEDS = ("steps", "device")
APPLIES = ("npu",)
LINK = "https://www.hiascend.com/document/detail/en/canncommercial/700/modeldevpt/ptmigr/AImpug_0063.html"
FIX = {
    "pytorch": "x = x.to(torch.int32)  # a type that the AI Cores support (not int64, float64), or an operator that they support",
    "mindspore": "x = x.astype(mindspore.int32)  # a type that the AI Cores support (not int64, float64)",
}


def wrong_device(run: Run) -> Iterator[Finding]:
    tasks = on_devices(run.trace).filter(pl.col("device") == "aicpu").select("rank", "span").collect()
    work = run.work.join(tasks, on=["rank", "span"], how="semi", maintain_order="left")
    named = work.with_columns(operator=pl.coalesce("op_name", "type", "name"))
    for (name,), calls in named.group_by("operator", maintain_order=True):
        total = run.per_step(calls["dur_ns"])
        yield Finding(
            parameters={"operator": str(name), "time": total, "count": round(calls.height / max(run.steps.height, 1), 1)},
            evidence=Evidence("operator_types", {}, {"device": "aicpu"}, {"total_ns": total}),
            changes=(scale_work(calls),),
            culprit=str(name),
            source=run.source_of(calls.select("rank", span="op").drop_nulls()),
            spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="medium",
        )
