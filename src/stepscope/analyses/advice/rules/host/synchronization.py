"""The program waits for the device in a synchronizing call, and the device then waits for the program.

Fires for calls on the threads of the program during which device work ends: `.item()`, `.cpu()`, `print` of a tensor, `nonzero`, explicit
synchronization. The fix leaves the call out, or makes it rare: the program runs ahead of the device instead.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, skip_waits
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.operator_calls import nearest
from stepscope.analyses.shared.operator_calls import rows_of as rows_by_span

NEEDS = ("steps", "device", "launches")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization"
FIX = {
    "pytorch": "total += loss.detach()  # on the device; read it with total.item() once per 100 steps",
    "mindspore": "loss_sum = loss_sum + loss  # a tensor; call asnumpy() once per 100 steps",
    "jax": "metrics.append(loss)  # a jax.Array; convert it with float() once per 100 steps",
    "tensorflow": "metric.update_state(loss)  # read metric.result().numpy() once per 100 steps",
}
_LEAST_NS = 10_000
_NOT_WAITING = r"(?i)StreamWaitEvent|EventQuery|EventRecord"
_READ = "aten::_local_scalar_dense"


def synchronization(run: Run) -> Iterator[Finding]:
    program = run.host.filter(pl.col("main") | pl.col("thread").is_in(run.launching_threads))
    is_call = ((pl.col("kind") == "sync") & ~pl.col("name").str.contains(_NOT_WAITING)) | (pl.col("name") == _READ)
    calls = program.filter(is_call, pl.col("dur_ns") >= _LEAST_NS)
    ends = np.sort(run.work["end_ns"].to_numpy())
    if calls.is_empty() or not len(ends):
        return
    last = np.append(ends, -1)[np.searchsorted(ends, calls["end_ns"].to_numpy(), "right") - 1]
    calls = calls.filter(pl.Series(last > calls["start_ns"].to_numpy())).sort("start_ns", "end_ns", descending=[False, True])
    # Of calls inside each other, the outermost counts.
    before = pl.col("end_ns").cum_max().shift(1).over("rank", "thread")
    calls = calls.filter(before.is_null() | (pl.col("start_ns") >= before))
    calls = calls.with_columns(culprit=_callers(program, calls))
    after = run.gaps.filter(pl.col("cause") == "sync")
    for (culprit,), part in calls.group_by("culprit", maintain_order=True):
        waited = run.per_step(part["dur_ns"])
        count = round(part.height / max(run.steps.height, 1), 1)
        idle = run.share_of_steps(after["dur_ns"])
        yield Finding(
            parameters={"call": str(culprit), "count": count, "time": waited, "idle": idle},
            evidence=Evidence("gap_causes", {}, {"cause": "sync"}, {"wait_ns": waited, "idle_share": idle}),
            changes=(skip_waits(part), scale_host(part)),
            culprit=str(culprit),
            source=run.source_of(part),
            spans=part.sort("dur_ns", descending=True).select("rank", "step", "span"),
        )


def _callers(program: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """The outermost operator around each call, such as aten::item; the call itself where no operator is around it."""
    parent = rows_by_span(program, program["rank"], program["parent"].fill_null(-1))
    is_op = (program["kind"] == "op").to_numpy()
    row = rows_by_span(program, calls["rank"], calls["span"])
    top = np.where(is_op[row], row, -1)
    above = nearest(np.where(parent < np.arange(len(parent)), parent, -1), is_op)
    at = above[row]
    while (inside := at >= 0).any():
        top = np.where(inside, at, top)
        at = np.where(inside, np.append(above, -1)[at], -1)
    return program["name"].gather(np.where(top >= 0, top, row))
