"""The device of a rank runs at a lower clock than the others, and the other ranks wait for it.

Fires for a slow rank of the analysis `stragglers` that computes longer for the same work, where the mean of its device clock is at least
5 % below the median of the other ranks. With the fix, its kernels take as long as those of its peers.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.ranks.device_clocks import device_clocks

NEEDS = ("steps", "communication", "ranks", "clocks")
APPLIES = ("several ranks", "with device")
ALL_RANKS = True
LINK = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
FIX = {"": "# check temperature, power limit and other jobs on the device, such as with nvidia-smi -q -d PERFORMANCE or npu-smi info"}


def throttled_rank(run: Run) -> Iterator[Finding]:
    clocks = device_clocks(run.trace)
    for row in run.table("stragglers").filter(pl.col("kind") == "rank", pl.col("cause") == "frequency").to_dicts():
        rank = row["rank"]
        usual = pl.Series([clock for other, clock in clocks.items() if other != rank]).median()
        share = clocks[rank] / float(usual)  # type: ignore[arg-type]
        work = run.work.filter(pl.col("rank") == rank, pl.col("kind") == "kernel")
        yield Finding(
            parameters={"slow_rank": str(rank), "below": 1 - share, "excess": row["excess_ns"]},
            evidence=Evidence("stragglers", {}, {"kind": "rank", "rank": rank}, {"clock_share": share, "excess_ns": row["excess_ns"]}),
            changes=(scale_work(work, min(share, 1.0)),),
            culprit=f"rank {rank}",
            spans=run.steps.filter(pl.col("rank") == rank).select("rank", "step", "start_ns", "end_ns"),
        )
