"""The device runs below its highest clock of the recording.

Fires where the mean of the clock of the cores in the steps is at least 5 % below its highest sample. At the highest clock, kernels would
take that share less.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device", "clocks")
APPLIES = ("with device",)
LINK = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
FIX = {"": "# check temperature, power limit and other jobs on the device, such as with nvidia-smi -q -d PERFORMANCE or npu-smi info"}
_DROP = 0.05


def clock_drop(run: Run) -> Iterator[Finding]:
    series = pl.coalesce("series", "name").cast(pl.String).str.to_lowercase()
    samples = run.trace.counters.filter(series.str.contains(r"clock|freq") & ~series.str.contains("mem|hbm|cpu")).select(
        "rank", "at_ns", "value", "number", name=pl.coalesce("series", "name").cast(pl.String)
    )
    every = samples.filter(pl.col("value") > 0).collect()
    for (name, device), rows in every.group_by("name", "number", maintain_order=True):
        inside = run.in_steps(rows, "at_ns")
        if inside.height < 2:
            continue
        highest, mean = float(rows["value"].max()), float(inside["value"].mean())  # type: ignore[arg-type]
        if mean > (1 - _DROP) * highest:
            continue
        work = run.work.filter(pl.col("kind") == "kernel")
        yield Finding(
            parameters={"drop": 1 - mean / highest, "clock": str(name)},
            evidence=Evidence("tables/counters", {}, {"name": str(name)}, {"mean_share": mean / highest}),
            changes=(scale_work(work, mean / highest),),
            culprit=f"{name} {device}" if device is not None else str(name),
            spans=run.steps.select("rank", "step", "start_ns", "end_ns"),
            confidence="medium",
        )
