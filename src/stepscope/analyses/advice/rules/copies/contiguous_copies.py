"""Tensors are copied to make them contiguous.

Fires for `contiguous`, `reshape` and batched products that copy a tensor, also inside `einsum`.
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


_CALLS = ("aten::contiguous", "aten::reshape")
_PRODUCT = "aten::bmm"  # copies operands whose layout it cannot read


def contiguous_copies(run: Run) -> Iterator[Finding]:
    calls = run.outermost(run.operators.filter(pl.col("name").is_in([*_CALLS, _PRODUCT])))
    copies = inside(run.operators.filter(pl.col("name") == "aten::copy_"), calls)
    around = calls.sort("start_ns").select("rank", "thread", call="span", call_start="start_ns", operator="name")
    copied = copies.sort("start_ns").join_asof(
        around, left_on="start_ns", right_on="call_start", by=["rank", "thread"], check_sortedness=False
    )
    for (name,), part in copied.group_by("operator", maintain_order=True):
        around_part = calls.join(part.select("rank", span="call").unique(), on=["rank", "span"], how="semi")
        yield _finding(run, str(name), around_part, part if name == _PRODUCT else around_part)


def _finding(run: Run, name: str, calls: pl.DataFrame, copies: pl.DataFrame) -> Finding:
    total, count = run.per_step(time_ns(copies)), round(calls.height / run.steps.height)
    return Finding(
        parameters={"calls": count, "operator": name, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=removed(run, copies),
        culprit=name,
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
