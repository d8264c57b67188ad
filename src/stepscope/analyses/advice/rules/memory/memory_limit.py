"""The device is nearly out of memory.

Fires from 90 % of the memory of the device. A larger batch, or a longer input, would end the job.
"""

from collections.abc import Iterator

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules.memory._peaks import peaks

NEEDS = ("memory",)
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/docs/stable/checkpoint.html"
FIX = {
    "pytorch": "y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # recompute activations in the backward pass",
    "mindspore": "cell.recompute()  # recompute activations in the backward pass",
    "jax": "block = jax.checkpoint(block)  # recompute activations in the backward pass",
}
_NEAR = 0.9


def memory_limit(run: Run) -> Iterator[Finding]:
    for peak in peaks(run):
        if peak.capacity and peak.taken >= _NEAR * peak.capacity:
            parameters = {"memory_device": peak.device, "peak": peak.taken, "capacity": peak.capacity, "used": peak.taken / peak.capacity}
            yield Finding(
                parameters=parameters | ({"operator": peak.op} if peak.op else {}),
                evidence=Evidence("memory_peaks", {}, {"device": peak.device}, {"peak_bytes": peak.taken, "capacity_bytes": peak.capacity}),
                culprit=peak.op,
                statement=True,
            )
