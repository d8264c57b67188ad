"""The program creates a tensor on the CPU and then moves it to the device.

Fires where an operator that fills a tensor on the CPU (random numbers, zeros, ones, a range) runs outside the input pipeline, and the next
device work of the program is a copy from the host. The fix creates the tensor on the device: operator and copy take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work, skip_waits
from stepscope.analyses.advice.engine.run import FROM_HOST, Run
from stepscope.model import intervals

NEEDS = ("steps", "device", "operators", "launches")
APPLIES = ("with device", "pytorch")
EXPLAINS = ("host_operator",)
HOST_BOUND = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device"
FIX = {"pytorch": 'x = torch.randn(shape, device="cuda")  # in place of torch.randn(shape).to("cuda")'}
_FILLS = (
    r"^aten::(normal_?|randn?(_like)?|randint(_like)?|random_|uniform_|bernoulli_?|exponential_|fill_|zero_|zeros|ones|full|arange|"
    r"linspace|eye|tril|triu)$"
)


def tensor_on_cpu(run: Run) -> Iterator[Finding]:
    fills = run.operators.filter((pl.col("launches") == 0) & pl.col("name").str.contains(_FILLS), 2 * pl.col("self_ns") >= pl.col("dur_ns"))
    fills = run.outside_input(fills).sort("end_ns")
    work = run.work.filter(pl.col("launch_ns").is_not_null())
    launches = work.select("rank", "launch_ns", "launched_ns", "kind", "name", copy="span", copy_ns="dur_ns").sort("launch_ns")
    if fills.is_empty() or launches.is_empty():
        return
    following = fills.join_asof(
        launches, left_on="end_ns", right_on="launch_ns", by="rank", strategy="forward", suffix="_copy", check_sortedness=False
    )
    moved = following.filter(pl.col("kind") == "copy", pl.col("name_copy").str.contains(FROM_HOST))
    idle_times = run.gaps.filter(pl.col("cause").is_in(["host-bound", "sync"]))
    gaps = intervals.merge(idle_times["start_ns"].to_numpy(), idle_times["end_ns"].to_numpy())
    for (name,), calls in moved.group_by("name", maintain_order=True):
        copies = calls.unique("copy").select("rank", "copy_ns", "launch_ns", "launched_ns", span="copy")
        at_launch = copies.select("rank", start_ns="launch_ns", end_ns="launched_ns")
        total = run.per_step(calls["dur_ns"])
        waited = intervals.covered(gaps, calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
        idle = run.share_of_steps(pl.Series(waited))  # while the calls run
        yield Finding(
            parameters={"idle": idle, "operator": str(name), "time": total, "copy": run.per_step(copies["copy_ns"])},
            evidence=Evidence("operators", {}, {"name": str(name)}, {"total_ns": total, "idle_share": idle}),
            changes=(scale_host(pl.concat([calls.select(at_launch.columns), at_launch])), scale_work(copies), skip_waits(at_launch)),
            culprit=str(name),
            source=run.source_of(calls),
            spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        )
