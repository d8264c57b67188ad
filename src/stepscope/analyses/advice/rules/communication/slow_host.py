"""All ranks of a host take longer than those of the other hosts.

Fires for each slow host of the analysis `stragglers`. The gain is the loss of the job by replay of its steps without it.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.cluster.stragglers import CAUSE_WORDS

NEEDS = ("steps", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": "# compare the host with another one: other jobs, cooling, BIOS and power settings, storage; exchange it"}


def slow_host(run: Run) -> Iterator[Finding]:
    for row in run.table("stragglers").filter(pl.col("kind") == "host").to_dicts():
        yield Finding(
            parameters={"host": row["host"], "excess": row["excess_ns"], "cause": CAUSE_WORDS[row["cause"]]},
            evidence=Evidence("stragglers", {}, {"kind": "host", "host": row["host"]}, {"excess_ns": row["excess_ns"]}),
            culprit=row["host"],
            gain_ns=row["gain_ns"],
            confidence="medium",
        )
