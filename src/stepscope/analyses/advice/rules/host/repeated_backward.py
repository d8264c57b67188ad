"""The backward pass runs several times through the same part of the graph: once per loss.

Fires for functions of the backward pass whose forward operator has had its backward pass before: `backward(retain_graph=True)`. PyTorch
links only the first one with its forward operator. The fix adds the losses and calls `backward` once: the repeated functions take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import inside, removed
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
FIX = {"pytorch": "(loss_a + loss_b).backward()  # once, in place of loss.backward(retain_graph=True) for each"}
_FUNCTION = r"Backward\d*$"
_LEAST = 0.05  # of the functions: fewer may lack their link for another reason


def repeated_backward(run: Run) -> Iterator[Finding]:
    functions = run.operators.filter(pl.col("name").str.contains(_FUNCTION), ~pl.col("name").str.contains("evaluate_function"))
    linked = run.trace.spans.filter((pl.col("kind") == "op") & pl.col("flow_in").is_not_null()).select("rank", "span", "name").collect()
    repeated = functions.join(linked.select("rank", "span"), on=["rank", "span"], how="anti")
    # A function that is never linked, such as one written in Python, is no repetition.
    repeated = repeated.filter(pl.col("name").is_in(linked["name"].cast(pl.String).unique().implode()))
    if repeated.is_empty() or repeated.height < _LEAST * functions.height:
        return
    calls = _around(run, repeated)
    total, count = run.per_step(calls["dur_ns"]), round(repeated.height / run.steps.height)
    largest = repeated.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    name = str(largest["name"][0])
    yield Finding(
        parameters={"operator": name, "count": count, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=removed(run, calls),
        culprit=name,
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )


def _around(run: Run, functions: pl.DataFrame) -> pl.DataFrame:
    """The outermost operators that contain these."""
    top = run.top_level.sort("start_ns")
    around = inside(functions, top).sort("start_ns").select("rank", "thread", at="start_ns")
    outer = top.select("rank", "thread", "span", "start_ns")
    rows = around.join_asof(outer, left_on="at", right_on="start_ns", by=["rank", "thread"], check_sortedness=False)
    return top.join(rows.select("rank", "span").unique(), on=["rank", "span"], how="semi")
