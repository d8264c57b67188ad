"""A pipeline stage computes longer than the others, which wait for it.

Fires for each slow stage of the analysis `stragglers`: its ranks need more than 10 % more time than those of the usual stage. The gain is
the time of a step by replay with usual durations on this stage; layers that move to other stages take a part of it there.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/distributed.pipelining.html"
FIX = {
    "": "# move layers to other stages; the last one also has the output layer and the loss",
    "mindspore": "cell.pipeline_stage = 1  # move layers to other stages; the last one also has the output layer and the loss",
}


def stage_imbalance(run: Run) -> Iterator[Finding]:
    for row in run.table("stragglers").filter(pl.col("kind") == "stage").to_dicts():
        name = f"stage {row['stage']}"
        yield Finding(
            parameters={"stage": row["stage"], "excess": row["excess_ns"], "share": run.share(row["excess_ns"])},
            evidence=Evidence("job_loss", {}, {"dimension": "stage", "name": name}, {"excess_ns": row["excess_ns"]}),
            culprit=name,
            gain_ns=max(row["gain_ns"], 0),
            confidence="medium",
        )
