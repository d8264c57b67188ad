"""The gradient of a large embedding is dense: it is filled with zeros, and the optimizer updates every row, although a batch uses few.

Fires for `aten::embedding_dense_backward` that fills its gradient with zeros. The fix is a sparse gradient: nothing is filled, and the
optimizer leaves out the rows that no word of the batch uses: three passes over the table, as long as the fill each, or all its time if that
is less.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import annotated, inside, time_ns, work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
EXPLAINS = ("host_operator",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html"
FIX = {
    "pytorch": "table = torch.nn.Embedding(rows, width, sparse=True)\n"
    "optimizer = torch.optim.SparseAdam(table.parameters())  # or SGD, Adagrad; the other parameters keep their optimizer"
}
_BACKWARD = "aten::embedding_dense_backward"
_FILLS = ("aten::zero_", "aten::fill_")
_PASSES = 3  # of an optimizer without state: it reads table and gradient, and writes the table


def sparse_gradient(run: Run) -> Iterator[Finding]:
    calls = run.operators.filter(pl.col("name") == _BACKWARD)
    fills = run.outermost(inside(run.operators.filter(pl.col("name").is_in(_FILLS)), calls))
    filled = run.per_step(time_ns(fills)) if fills.height else 0
    updates = annotated(run, "Optimizer.step#")
    if not filled or updates.is_empty():
        return
    on_device = work_under(run, inside(run.top_level, updates))
    updated = run.per_step(on_device["dur_ns"] if on_device.height else updates["dur_ns"])
    left = 1 - min(_PASSES * filled / max(updated, 1), 1.0)
    update = scale_work(on_device, left) if on_device.height else scale_host(updates, left)
    total = run.per_step(time_ns(calls))
    yield Finding(
        parameters={"operator": _BACKWARD, "time": total, "fill": filled, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": _BACKWARD}, {"total_ns": total, "fill_ns": filled, "optimizer_ns": updated}),
        changes=(scale_host(fills), scale_work(work_under(run, fills)), update),
        culprit=_BACKWARD,
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
