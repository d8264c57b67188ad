"""The allocator holds memory that no tensor uses, while the device runs out of it.

Fires where at least a fifth of the reserved memory is not allocated at the peak, and at least half of the memory of the device is reserved.
"""

from collections.abc import Iterator

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules.memory._peaks import peaks

NEEDS = ("memory",)
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"
FIX = {"pytorch": "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py"}
_UNUSED, _FULL = 0.2, 0.5


def fragmentation(run: Run) -> Iterator[Finding]:
    for peak in peaks(run):
        if peak.reserved is None or not peak.capacity or peak.reserved < _FULL * peak.capacity:
            continue
        unused = 1 - peak.allocated / peak.reserved
        if unused >= _UNUSED:
            yield Finding(
                parameters={"memory_device": peak.device, "unused": unused, "reserved": peak.reserved, "allocated": peak.allocated},
                evidence=Evidence("memory_peaks", {}, {"device": peak.device}, {"reserved_bytes": peak.reserved, "unused_share": unused}),
                statement=True,
            )
