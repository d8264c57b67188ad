"""Tensors are converted from one data type to another in every step.

The fix keeps the tensors in the type in which they are used. Copies between host and device are no conversions, and neither are those of
a number that an operator such as `aten::mul` gets from Python.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import removed, time_ns, work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/amp.html"
FIX = {
    "pytorch": "model = model.to(torch.bfloat16)  # convert weights and constants once, not in every step",
    "mindspore": "model.to_float(mindspore.float16)  # convert weights and constants once, not in every step",
}
_NUMBER = r"^\[\[\]"  # the first input has no dimensions
_CONVERSIONS = ["aten::to", "aten::_to_copy", "Cast", "cast"]


def type_conversion(run: Run) -> Iterator[Finding]:
    calls = _of_tensors(run, run.outermost(run.operators.filter(pl.col("name").is_in(_CONVERSIONS))))
    work = work_under(run, calls)
    transfers = work.filter(pl.col("kind") == "copy").select("rank", span="call").unique()
    calls = calls.join(transfers, on=["rank", "span"], how="anti", maintain_order="left")
    moved = work.filter(pl.col("kind") == "kernel").select("rank", span="call", moves=True).unique()
    calls = calls.join(moved, on=["rank", "span"], how="left", maintain_order="left")
    # `aten::to` of a tensor that has the type already does nothing.
    calls = calls.filter(pl.col("moves").fill_null(False) | ((pl.col("launches") == 0) & (pl.col("dur_ns") - pl.col("self_ns") > 0)))
    if calls.is_empty():
        return
    total, count = run.per_step(time_ns(calls)), round(calls.height / run.steps.height)
    name = str(calls["name"].mode().sort()[0])
    yield Finding(
        parameters={"operator": name, "calls": count, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=removed(run, calls),
        culprit=name,
        source=run.source_of(calls),
        spans=calls.with_columns(time_ns(calls)).sort("time_ns", descending=True).select("rank", "step", "span"),
        confidence="low",
    )


def _of_tensors(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that do not convert a number, a tensor without dimensions. Without shapes, calls without an operator around them."""
    if calls["shapes"].null_count() == 0:
        return calls.filter(~pl.col("shapes").str.contains(_NUMBER))
    top = run.outermost(run.operators.filter(pl.col("name").str.starts_with("aten::")))
    return calls.join(top, on=["rank", "span"], how="semi", maintain_order="left")
