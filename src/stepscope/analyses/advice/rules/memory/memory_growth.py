"""Memory grows from step to step: something keeps the tensors of past steps.

Fires where, of at least four steps, every one ends with more live bytes than the one before, by at least 0.1 % of the peak in the median.
The culprit is the operator, and the module, whose blocks of at least four fifths of the steps are never freed.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "allocations")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/torch_cuda_memory.html"
FIX = {
    "pytorch": "losses.append(loss.detach())  # or loss.item(): keep numbers, not tensors with their graph",
    "mindspore": "losses.append(float(loss.asnumpy()))  # keep numbers, not tensors",
}
_LEAST_STEPS, _LEAST_GROWTH, _MOST_STEPS = 4, 0.001, 0.8


def memory_growth(run: Run) -> Iterator[Finding]:
    steps = run.trace.steps.select("rank", "step", "start_ns", "end_ns").sort("start_ns").collect()
    blocks = (
        run.trace.table("allocations")
        .select("rank", pl.col("device", "op", "scope").cast(pl.String), "bytes", "alloc_ns", "free_ns")
        .collect()
    )
    if steps.height < _LEAST_STEPS:
        return
    for (device,), of_device in blocks.group_by("device", maintain_order=True):
        live = [
            int(
                of_device.filter(pl.col("alloc_ns").fill_null(0) < end, pl.col("free_ns").is_null() | (pl.col("free_ns") >= end))[
                    "bytes"
                ].sum()
            )
            for end in steps["end_ns"]
        ]
        growth = pl.Series(live).diff().drop_nulls()[1:]  # the first steps allocate what stays, such as the state of the optimizer
        peak = max(live)
        if not peak or len(growth) < _LEAST_STEPS - 2 or int(growth.min()) <= 0 or float(growth.median()) < _LEAST_GROWTH * peak:  # type: ignore[arg-type]
            continue
        op, scope, lost = _never_freed(of_device, steps)
        parameters = {"memory_device": str(device), "growth": round(float(growth.median())), "live": live[-1], "steps": steps.height}  # type: ignore[arg-type]
        yield Finding(
            parameters=parameters | ({"operator": op, "lost": lost} if op else {}) | ({"scope": scope} if scope else {}),
            evidence=Evidence("memory_peaks", {}, {"device": str(device)}, {"growth_bytes": parameters["growth"]}),
            culprit=scope or op,
            statement=True,
        )


def _never_freed(blocks: pl.DataFrame, steps: pl.DataFrame) -> tuple[str | None, str | None, int]:
    """Operator and module that leave most bytes in nearly every step, and these bytes per step."""
    kept = blocks.filter(pl.col("free_ns").is_null(), pl.col("alloc_ns").is_not_null()).sort("alloc_ns")
    bounds = steps.select("rank", "step", low="start_ns", high="end_ns").sort("low")
    kept = kept.join_asof(bounds, left_on="alloc_ns", right_on="low", by="rank", check_sortedness=False)
    kept = kept.filter(pl.col("alloc_ns") < pl.col("high"))
    by_op = (
        kept.group_by("op", "scope")
        .agg(steps=pl.col("step").n_unique(), bytes=pl.col("bytes").sum())
        .filter(pl.col("steps") >= _MOST_STEPS * steps.height)
        .sort("bytes", "op", descending=[True, False], nulls_last=True)
    )
    if by_op.is_empty():
        return None, None, 0
    op, scope, count, size = by_op.row(0)
    return op, scope, round(size / count)
