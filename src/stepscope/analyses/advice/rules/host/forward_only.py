"""A model also runs forward without a backward pass in the training step: for metrics, or to evaluate it.

Fires for outermost calls of a module whose operators have no backward pass, in at least half of the steps, where other calls of the same
module have one. A model that only infers, such as a teacher, is no such module. The fix takes the result of the training pass, or evaluates
once per many steps: these calls take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import calls_of_modules, inside, removed
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators", "loops")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation"
FIX = {
    "pytorch": "accuracy = (scores.detach().argmax(1) == targets).float().mean()  # the scores of the training pass\n"
    "if step % 100 == 0:\n    evaluate(model)",
}
_MOST_STEPS = 0.5


def forward_only(run: Run) -> Iterator[Finding]:
    calls = calls_of_modules(run, in_backward=False)
    ops = run.operators.sort("start_ns")
    spans = run.trace.spans.filter((pl.col("kind") == "op") & pl.col("flow_in").is_not_null())
    forward = spans.select("rank", span="flow_in").unique().collect()
    trained = ops.join(forward, on=["rank", "span"], how="semi").select("rank", "thread", at="start_ns")
    if calls.is_empty() or trained.is_empty():
        return
    following = calls.sort("start_ns").join_asof(
        trained.sort("at"), left_on="start_ns", right_on="at", by=["rank", "thread"], strategy="forward", check_sortedness=False
    )
    calls = following.with_columns(trains=(pl.col("at") < pl.col("end_ns")).fill_null(False))
    unused = calls.filter(~pl.col("trains"), pl.col("trains").any().over("rank", "name"))
    repeated = set(calls_of_modules(run, in_backward=True)["name"])  # a checkpointed module runs again in the backward pass
    unused = unused.filter(pl.col("step").n_unique().over("name") >= _MOST_STEPS * run.steps.height, ~pl.col("name").is_in(repeated))
    for (name,), rows in unused.group_by("name", maintain_order=True):
        module = str(name).removeprefix("nn.Module: ")
        total, count = run.per_step(rows["dur_ns"]), max(round(rows.height / run.steps.height), 1)
        work = removed(run, inside(run.top_level, rows))
        yield Finding(
            parameters={"module": module, "count": count, "time": total, "share": run.share(total)},
            evidence=Evidence("modules", {}, {"scope": module}, {"total_ns": total, "calls": count}),
            changes=(scale_host(rows), *work),
            culprit=module,
            source=run.source_of(rows),
            spans=rows.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="medium",
        )
