"""The device is idle because the host launches many small kernels one by one.

Fires where idle gaps of the device end with a launch, in chains of launches that follow each other closely. The fix launches a whole
chain at once (a graph, or compiled code): then the host takes no time in it, and neither does the latency of each launch. A graph cannot
contain synchronization or calls of the allocator, so their findings come first, and so does that of an optimizer that loops over tensors.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, no_launch_latency, scale_host
from stepscope.analyses.advice.engine.run import CHAIN_NS, Run

NEEDS = ("steps", "device", "launches")
APPLIES = ("with device",)
HOST_BOUND = True
AFTER = ("synchronization", "blocking_launch", "allocator_stalls", "optimizer_loop")
LINK = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"
FIX = {
    "pytorch": 'model = torch.compile(model, mode="reduce-overhead")  # or torch.cuda.make_graphed_callables',
    "mindspore": "mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_config={'jit_level': 'O2'})",
    "jax": "step = jax.jit(train_step, donate_argnums=0)  # the whole step, not its parts",
    "tensorflow": "@tf.function(jit_compile=True)\ndef train_step(batch): ...",
}
_LEAST_LAUNCHES = 20  # per step


def launch_bound(run: Run) -> Iterator[Finding]:
    work = run.work.filter(pl.col("launch_ns").is_not_null()).sort("rank", "launch_ns")
    launches = work.height / max(run.steps.height, 1)
    waits = run.gaps.filter(pl.col("cause") == "host-bound", pl.col("device").is_not_null())
    idle = run.share_of_steps(waits["dur_ns"])
    if launches < _LEAST_LAUNCHES or idle <= 0:
        return
    before = pl.col("launch_ns").shift(1).over("rank", "step")
    chains = work.select("rank", "step", start_ns=before, end_ns="launched_ns").filter(pl.col("end_ns") - pl.col("start_ns") <= CHAIN_NS)
    if chains.is_empty():
        return
    host_ns = chains.select((pl.col("end_ns") - pl.col("start_ns")).median()).item()
    kernel_ns = work["dur_ns"].median()
    yield Finding(
        parameters={"idle": idle, "launches": round(launches), "host": round(host_ns), "kernel": round(float(str(kernel_ns)))},
        evidence=Evidence("gap_causes", {}, {"cause": "host-bound"}, {"idle_share": idle, "launches": round(launches)}),
        changes=(scale_host(chains), no_launch_latency(work)),
        spans=waits.sort("dur_ns", descending=True).select("rank", "step", "start_ns", "end_ns"),
        generic=True,
    )
