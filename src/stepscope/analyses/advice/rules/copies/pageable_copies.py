"""Copies from pageable memory of the host stop the program until they are done.

Fires for copies whose source names pageable memory, or whose call returns only when the copy has ended. The fix pins the memory and copies
with `non_blocking=True`: the call returns at once, and the copy overlaps with kernels that do not need it. Its own time stays.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, skip_waits
from stepscope.analyses.advice.engine.run import FROM_HOST, Run

NEEDS = ("steps", "device", "launches")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"
FIX = {
    "pytorch": 'loader = DataLoader(dataset, pin_memory=True)\nx = x.to("cuda", non_blocking=True)',
    "mindspore": "dataset.device_que(); use sink mode: model.train(..., dataset_sink_mode=True)",
    "": "copy from pinned (page-locked) memory, asynchronously",
}
_CALL_NS = 10_000  # of an asynchronous copy


def pageable_copies(run: Run) -> Iterator[Finding]:
    copies = run.work.filter((pl.col("kind") == "copy") & pl.col("name").str.contains(FROM_HOST), pl.col("launch_ns").is_not_null())
    call = pl.col("launched_ns") - pl.col("launch_ns")
    blocking = pl.col("name").str.contains("(?i)pageable") | ((pl.col("launched_ns") >= pl.col("end_ns")) & (call > _CALL_NS))
    copies = copies.filter(blocking & ~pl.col("name").str.contains("(?i)pinned"))
    calls = run.outside_input(copies.select("rank", "step", "span", "op", "dur_ns", start_ns="launch_ns", end_ns="launched_ns"))
    if calls.is_empty():
        return
    length = (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    waited = run.per_step(calls["end_ns"] - calls["start_ns"])
    yield Finding(
        parameters={"count": round(calls.height / max(run.steps.height, 1), 1), "time": waited},
        evidence=Evidence("kernels", {}, {"name": copies["name"][0]}, {"wait_ns": waited, "copy_ns": run.per_step(calls["dur_ns"])}),
        changes=(scale_host(calls, pl.min_horizontal(_CALL_NS / length, 1.0)), skip_waits(calls)),
        culprit=str(copies["name"][0]),
        source=run.source_of(calls.select("rank", span="op").drop_nulls()),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
