"""Copies from pageable memory of the host stop the program until they are done.

Fires for copies whose source names pageable memory, or whose call returns only when the copy has ended. The fix pins the memory and copies
with `non_blocking=True`: the call returns at once, and the copy takes as long as its bytes need at the bandwidth of the pinned copies of
the recording; without such copies, at 25 GB/s (PCIe 4), if that is less.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Change, Evidence, Finding, scale_host, scale_work, skip_waits
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
_PINNED_BYTES_PER_NS = 25.0
_LARGE = 1 << 20  # bytes: smaller copies do not reach the bandwidth


def pageable_copies(run: Run) -> Iterator[Finding]:
    copies = pageable(run)
    calls = run.outside_input(copies.select("rank", "step", "span", "op", "dur_ns", "bytes", start_ns="launch_ns", end_ns="launched_ns"))
    if calls.is_empty():
        return
    waited = run.per_step(calls["end_ns"] - calls["start_ns"])
    yield Finding(
        parameters={"count": round(calls.height / max(run.steps.height, 1), 1), "time": waited},
        evidence=Evidence("kernels", {}, {"name": copies["name"][0]}, {"wait_ns": waited, "copy_ns": run.per_step(calls["dur_ns"])}),
        changes=(
            *asynchronous(calls),
            scale_work(calls, (pl.col("bytes") / _bandwidth(run) / pl.col("dur_ns").clip(1)).clip(0, 1).fill_null(1)),
        ),
        culprit=str(copies["name"][0]),
        source=run.source_of(calls.select("rank", span="op").drop_nulls()),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )


def pageable(run: Run) -> pl.DataFrame:
    """Copies from pageable memory of the host, as in `run.work`, with their bytes."""
    copies = run.work.filter((pl.col("kind") == "copy") & pl.col("name").str.contains(FROM_HOST), pl.col("launch_ns").is_not_null())
    call = pl.col("launched_ns") - pl.col("launch_ns")
    blocking = pl.col("name").str.contains("(?i)pageable") | ((pl.col("launched_ns") >= pl.col("end_ns")) & (call > _CALL_NS))
    return _with_bytes(run, copies.filter(blocking & ~pl.col("name").str.contains("(?i)pinned")))


def asynchronous(calls: pl.DataFrame) -> tuple[Change, Change]:
    """The changes with which these calls (start_ns, end_ns) return at once."""
    length = (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    return scale_host(calls, pl.min_horizontal(_CALL_NS / length, 1.0)), skip_waits(calls)


def _with_bytes(run: Run, copies: pl.DataFrame) -> pl.DataFrame:
    sizes = run.trace.spans.filter(pl.col("kind") == "copy").select("rank", "span", "bytes").collect()
    return copies.join(sizes, on=["rank", "span"], how="left", maintain_order="left")


def _bandwidth(run: Run) -> float:
    """Bytes per ns of the fastest large copy from pinned memory."""
    pinned = pl.col("name").str.contains(FROM_HOST) & pl.col("name").str.contains("(?i)pinned")
    copies = _with_bytes(run, run.work.filter(pinned)).filter(pl.col("bytes") >= _LARGE)
    return copies.select((pl.col("bytes") / pl.col("dur_ns").clip(1)).max()).item() or _PINNED_BYTES_PER_NS
