"""Operators on the CPU use more threads than the machine has cores: they wait for each other.

Fires where the ranks on a host together use more than one and a half times as many compute threads as it has cores, in a run without a
device. What fewer threads gain is not predicted.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.host.cpu import core_counts
from stepscope.analyses.shared.parallelism.rank_places import rank_places

NEEDS = ("steps", "operators", "compute threads")
APPLIES = ("pytorch",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html"
FIX = {"pytorch": "torch.set_num_threads(cores // ranks_per_host)  # or OMP_NUM_THREADS before the start"}
_MORE = 1.5


def thread_count(run: Run) -> Iterator[Finding]:
    samples = run.trace.counters.filter(pl.col("series").cast(pl.String) == "compute threads").select("rank", threads="value").collect()
    of_rank = samples.unique("rank").join(core_counts(run.trace), on="rank").join(rank_places(run.trace), on="rank", how="left")
    host = pl.coalesce("host", pl.col("rank").cast(pl.String))
    hosts = of_rank.group_by(host).agg(pl.col("threads").sum(), pl.col("cores").max(), ranks=pl.len()).sort("threads", descending=True)
    if run.work.height or hosts.is_empty():
        return
    row = hosts.row(0, named=True)
    threads, cores = int(row["threads"]), int(row["cores"])
    if threads <= _MORE * cores:
        return
    yield Finding(
        parameters={"threads": threads, "cores": cores, "ranks": row["ranks"]},
        evidence=Evidence("cpu_use", {"of": "machine"}, {}, {"threads": threads, "cores": cores}),
        culprit=f"{threads} threads",
        statement=True,
    )
