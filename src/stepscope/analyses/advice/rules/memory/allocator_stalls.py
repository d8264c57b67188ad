"""The program asks the driver for device memory within steps, instead of reusing what it has.

The fix keeps freed memory: the calls take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device", "api")
APPLIES = ("with device",)
HOST_BOUND = True
LINK = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
FIX = {
    "pytorch": "# remove torch.cuda.empty_cache() from the loop; PYTORCH_ALLOC_CONF=expandable_segments:True",
    "mindspore": "mindspore.set_context(max_device_memory='58GB')  # allocate the memory once",
}
_CALLS = r"^(?:cuda|hip|cuMem|aclrt)(?:Malloc|Free|MemAlloc|MemFree|MallocAsync|FreeAsync|MemMap|MemUnmap|HostAlloc|FreeHost|Alloc)\w*$"


def allocator_stalls(run: Run) -> Iterator[Finding]:
    calls = run.host.filter(pl.col("kind").is_in(["api", "sync"]), pl.col("name").str.contains(_CALLS))
    if calls.is_empty():
        return
    total, count = run.per_step(calls["dur_ns"]), calls.height / run.steps.height
    name = str(calls.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])["name"][0])
    yield Finding(
        parameters={"call": name, "calls": max(round(count), 1), "time": total, "share": run.share(total)},
        evidence=Evidence("totals", {}, {"name": name}, {"total_ns": total, "calls": round(count, 2)}),
        changes=(scale_host(calls),),
        culprit=name,
        source=run.source_of(calls),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
