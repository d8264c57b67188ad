"""The device is idle while the host runs an operator on the CPU.

Fires for operators that launch nothing and run in idle gaps of the device. The fix moves the operator to the device, to a worker of the
input pipeline or out of the loop: then the host takes no time for it.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run
from stepscope.model import intervals

NEEDS = ("steps", "device", "operators")
APPLIES = ("with device",)
HOST_BOUND = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {
    "pytorch": 'x = torch.randn(shape, device="cuda")  # create and compute tensors on the device, not on the CPU',
    "mindspore": "x = mindspore.ops.standard_normal(shape)  # inside the network, so that it runs on the device",
    "jax": "x = jax.random.normal(key, shape)  # inside the jitted step",
    "tensorflow": "with tf.device('/GPU:0'):\n    x = tf.random.normal(shape)",
}
_LEAST_NS = 100_000  # a call; shorter ones are the cost of launching


def host_operator(run: Run) -> Iterator[Finding]:
    idle = run.gaps.filter(pl.col("cause") == "host-bound", pl.col("device").is_not_null())
    busy_host = run.operators.filter((pl.col("launches") == 0) & (pl.col("dur_ns") >= _LEAST_NS))
    if idle.is_empty() or busy_host.is_empty():
        return
    gaps = intervals.merge(idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy())
    inside = intervals.covered(gaps, busy_host["start_ns"].to_numpy(), busy_host["end_ns"].to_numpy())
    busy_host = busy_host.with_columns(pl.Series("idle_ns", inside))
    # Of calls inside each other, the innermost with most of the time is the culprit.
    own = busy_host.filter(2 * pl.col("self_ns") >= pl.col("dur_ns"), pl.col("idle_ns") > 0)
    share = run.share_of_steps(idle["dur_ns"])
    for (name,), calls in own.group_by("name", maintain_order=True):
        total, waited = run.per_step(calls["dur_ns"]), run.per_step(calls["idle_ns"])
        figures = {"waited_share": run.share_of_steps(calls["idle_ns"]), "total_ns": total}
        yield Finding(
            parameters={"idle": share, "operator": str(name), "time": total, "waited": waited},
            evidence=Evidence("operators", {}, {"name": str(name)}, figures),
            changes=(scale_host(calls),),
            culprit=str(name),
            source=run.source_of(calls),
            spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        )
