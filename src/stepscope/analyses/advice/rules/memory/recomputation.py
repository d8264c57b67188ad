"""Activations are computed again in the backward pass, although memory may have room for them.

Fires for calls of modules inside the backward pass: activation checkpointing. Not where the device, by its recorded memory, would be more
than half full. The fix keeps the activations of as many modules as fit: these calls, and the time from the start of their gradient until
they begin, are not needed.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import BACKWARD, calls_of_modules, inside, work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules.memory._peaks import peaks
from stepscope.model import intervals

NEEDS = ("steps", "operators", "loops")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/checkpoint.html"
FIX = {"pytorch": "y = block(x)  # in place of torch.utils.checkpoint.checkpoint(block, x), for as many blocks as memory has room for"}
_FULL = 0.5
_PREPARED_NS = 1_000_000  # a longer time before a call has another cause


def recomputation(run: Run) -> Iterator[Finding]:
    calls = calls_of_modules(run, in_backward=True)
    if calls.is_empty() or any(peak.capacity and peak.taken > _FULL * peak.capacity for peak in peaks(run)):
        return
    gradients = run.operators.filter(pl.col("name").str.contains(BACKWARD), ~pl.col("name").str.starts_with("autograd::"))
    gradients = gradients.select("rank", "thread", begin="start_ns", gradient_end="end_ns").sort("begin")
    around = calls.sort("start_ns").join_asof(
        gradients, left_on="start_ns", right_on="begin", by=["rank", "thread"], check_sortedness=False
    )
    ranges = around.select("rank", start_ns=pl.coalesce("begin", "start_ns"), end_ns="end_ns")
    ranges = pl.concat([ranges, _before_forward(run, calls)])
    ops = inside(run.operators.filter(~pl.col("name").str.contains(BACKWARD)), calls)
    modules = calls["name"].str.strip_prefix("nn.Module: ")
    culprit = _common_path(sorted(set(modules)))
    total, count = run.per_step(calls["dur_ns"]), round(calls.height / run.steps.height)
    yield Finding(
        parameters={"module": culprit, "count": count, "time": total, "share": run.share(total)},
        evidence=Evidence("modules", {}, {"scope": culprit}, {"total_ns": total, "calls": count}),
        changes=(scale_host(ranges), scale_work(work_under(run, run.outermost(ops)))),
        culprit=culprit,
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )


def _before_forward(run: Run, again: pl.DataFrame) -> pl.DataFrame:
    """The time without an operator before each forward call of these modules, since the call of a module before it."""
    calls = calls_of_modules(run, in_backward=False).sort("rank", "thread", "start_ns")
    before = pl.col("end_ns").shift(1).over("rank", "thread", "step")
    gaps = calls.select("rank", "name", start_ns=before, end_ns="start_ns").filter(pl.col("name").is_in(again["name"].implode()))
    ops = run.operators.filter("outermost")
    busy = intervals.merge(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    gaps = gaps.drop_nulls().filter(pl.col("end_ns") - pl.col("start_ns") <= _PREPARED_NS)
    free = pl.Series(intervals.covered(busy, gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy()) == 0)
    return gaps.filter(free).select("rank", "start_ns", "end_ns")


def _common_path(modules: list[str]) -> str:
    """The module around all of these; the first one where they have none in common."""
    parts = [module.split("/") for module in modules]
    same = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
    return "/".join(same) or modules[0]
