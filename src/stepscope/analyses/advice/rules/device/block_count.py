"""Kernels start a number of blocks that does not fill the cores of the NPU.

Fires for kernels of at least 20 us. With as many blocks as cores in every round, a kernel would take the part of its time in which all
cores work.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device", "tasks")
APPLIES = ("npu",)
LINK = "https://www.hiascend.com/document"
FIX = {"": "# choose a batch or tile size for which the kernel starts a multiple of as many blocks as there are cores"}
_LEAST_NS = 20_000


def block_count(run: Run) -> Iterator[Finding]:
    cores = run.trace.devices.filter(pl.col("kind").cast(pl.String) == "aicore").select(pl.col("cores").max()).collect().item()
    if not cores:
        return
    blocks = run.trace.table("tasks").select("rank", "span", "blocks").collect()
    work = run.work.filter(pl.col("dur_ns") >= _LEAST_NS).join(blocks, on=["rank", "span"], how="inner")
    rounds = (pl.col("blocks") + cores - 1) // cores
    work = work.filter(pl.col("blocks") > 0, pl.col("blocks") % cores != 0).with_columns(factor=pl.col("blocks") / (rounds * cores))
    for (kernel,), rows in work.with_columns(kernel=pl.coalesce("type", "name")).group_by("kernel", maintain_order=True):
        total = run.per_step(rows["dur_ns"])
        count = int(rows["blocks"].mode().sort()[0])
        yield Finding(
            parameters={"kernel": str(kernel), "blocks": count, "cores": cores, "time": total, "share": run.share(total)},
            evidence=Evidence("kernels", {}, {"name": str(rows["name"][0])}, {"total_ns": total, "blocks": count, "cores": cores}),
            changes=(scale_work(rows, pl.col("factor")),),
            culprit=str(kernel),
            spans=rows.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="low",
        )
