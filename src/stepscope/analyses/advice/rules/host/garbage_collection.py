"""Python's garbage collector pauses the program.

Fires for recorded collections. The fix collects between the steps, or freezes the objects that live until the end.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "collections")
APPLIES = ()
LINK = "https://docs.python.org/3/library/gc.html#gc.freeze"
FIX = {"": "gc.collect(); gc.freeze(); gc.disable()  # after the first step; then gc.collect() every 1,000 steps"}


def garbage_collection(run: Run) -> Iterator[Finding]:
    rows = run.trace.spans.filter(pl.col("category").cast(pl.String) == "gc").select("rank", "span", "start_ns", "dur_ns").collect()
    rows = run.in_all_steps(rows, "start_ns")
    steps = run.all_steps
    if rows.is_empty() or steps.is_empty():
        return
    gain = round(int(rows["dur_ns"].sum()) / steps.height)
    longest = int(rows["dur_ns"].to_numpy().max())
    yield Finding(
        parameters={"time": gain, "pauses": rows.height, "longest": longest, "steps": steps.height},
        evidence=Evidence("totals", {}, {"name": "GC"}, {"pause_ns": gain, "longest_ns": longest}),
        culprit="gc",
        gain_ns=gain,
        spans=rows.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
