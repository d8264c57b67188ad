"""Every launch waits until its kernel has ended.

Fires where at least half of the launch calls end after their kernel, or a synchronizing call follows at least half of the launches before
the next one: CUDA_LAUNCH_BLOCKING, ASCEND_LAUNCH_BLOCKING or anomaly detection is on. The fix lets launches return at once.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, skip_waits
from stepscope.analyses.advice.engine.run import Run
from stepscope.model import intervals

NEEDS = ("steps", "device", "launches")
APPLIES = ("with device",)
EXPLAINS = ("synchronization", "launch_bound")
LINK = "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution"
FIX = {
    "pytorch": "unset CUDA_LAUNCH_BLOCKING  # on Ascend: unset ASCEND_LAUNCH_BLOCKING",
    "mindspore": "mindspore.set_context(pynative_synchronize=False)",
    "": "unset CUDA_LAUNCH_BLOCKING",
}
_OFTEN = 0.5
_LEAST_LAUNCHES = 10  # per step
_CALL_NS = 5_000  # of a launch that does not wait


def blocking_launch(run: Run) -> Iterator[Finding]:
    kernels = run.work.filter(pl.col("kind") == "kernel", pl.col("launch_ns").is_not_null()).sort("rank", "launch_ns")
    if kernels.height < _LEAST_LAUNCHES * max(run.steps.height, 1):
        return
    waits = kernels.filter(pl.col("launched_ns") >= pl.col("end_ns"))
    syncs = run.host.filter((pl.col("kind") == "sync") & ~pl.col("name").str.contains("(?i)StreamWaitEvent|EventQuery")).sort("start_ns")
    syncs = syncs.select("rank", "thread", "step", "span", sync_ns="start_ns", start_ns="start_ns", end_ns="end_ns", dur_ns="dur_ns")
    next_launch = pl.col("launch_ns").shift(-1).over("rank")
    followed = kernels.select("rank", "launched_ns", next_ns=next_launch).join_asof(
        syncs.select("rank", "sync_ns"), left_on="launched_ns", right_on="sync_ns", by="rank", strategy="forward", check_sortedness=False
    )
    followed = followed.filter(pl.col("sync_ns") < pl.col("next_ns"))
    share = max(waits.height, followed.height) / kernels.height
    if share < _OFTEN:
        return
    calls = waits.select("rank", "step", "span", start_ns="launch_ns", end_ns="launched_ns")
    factor = pl.min_horizontal(_CALL_NS / (pl.col("end_ns") - pl.col("start_ns")), 1.0)
    ranges = pl.concat([calls.select("rank", "start_ns", "end_ns"), syncs.select("rank", "start_ns", "end_ns")])
    # Launch calls of several threads, or of one launch, lie in one another.
    times = [intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()).total for part in ranges.partition_by("rank")]
    waited = run.per_step(pl.Series(times, dtype=pl.Int64))
    yield Finding(
        parameters={"share": share, "time": waited},
        evidence=Evidence("launches", {}, {}, {"blocking_share": share, "wait_ns": waited}),
        changes=(scale_host(calls, factor), skip_waits(ranges)),
        spans=calls.select("rank", "step", "span"),
    )
