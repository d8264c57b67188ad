"""Most of the memory of the device is unused.

Fires below half of the memory of the device, where the device is idle for at least a tenth of the step: a larger batch gives each kernel
more to compute for the same number of launches. What it gains depends on the model and is not predicted.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules.memory._peaks import peaks

NEEDS = ("steps", "device", "memory")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": "batch_size = 2 * batch_size  # and scale the learning rate"}
_MOSTLY, _IDLE = 0.5, 0.1


def memory_headroom(run: Run) -> Iterator[Finding]:
    idle = run.share_of_steps(run.gaps.filter(pl.col("device").is_not_null())["dur_ns"])
    for peak in peaks(run):
        if peak.capacity and peak.taken < _MOSTLY * peak.capacity and idle >= _IDLE:
            used = peak.taken / peak.capacity
            yield Finding(
                parameters={"memory_device": peak.device, "peak": peak.taken, "capacity": peak.capacity, "used": used},
                evidence=Evidence("memory_peaks", {}, {"device": peak.device}, {"peak_bytes": peak.taken, "capacity_bytes": peak.capacity}),
                statement=True,
            )
