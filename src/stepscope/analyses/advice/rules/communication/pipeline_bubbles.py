"""The stages of a pipeline wait for each other.

Fires where exposed receives are more than 10 % of the steps of all ranks. More micro-batches per step make the share smaller: with m
micro-batches and p stages of equal length, at least (p - 1) / (m + p - 1) of a step is waiting.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.communication.communication import waits

NEEDS = ("steps", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/distributed.pipelining.html"
FIX = {"": "# more micro-batches per step, an interleaved schedule, or stages of equal length"}
_LEAST = 0.1


def pipeline_bubbles(run: Run) -> Iterator[Finding]:
    steps = run.table("cluster_steps").filter(pl.col("total_ns") > 0)
    recorded = steps.filter(pl.col("receive_ns").is_not_null())
    if recorded.height:
        waited, known = int(recorded["receive_ns"].sum()), recorded
    else:
        calls = waits(run.trace)
        received = calls.filter(pl.col("collective") == "recv", pl.col("wait_ns").is_not_null(), pl.col("step").is_not_null())
        waited, known = int(received["wait_ns"].sum()), steps
    total = int(known["total_ns"].sum())
    if not total or waited < _LEAST * total:
        return
    per_step = round(waited / known.height)
    yield Finding(
        parameters={"waited": per_step, "share": waited / total, "ranks": known["rank"].n_unique()},
        evidence=Evidence("cluster_steps", {"per_step": False}, {}, {"waited_ns": per_step, "waited_share": waited / total}),
        culprit="pipeline",
        statement=True,
    )
