"""A rank takes longer than the others, which wait for it.

Fires for each slow rank of the analysis `stragglers`: its time per step without communication is above that of its peers in all steps but
for jitter, or in more steps than chance explains. With the fix, its computation and its program take as long as those of its peers.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Change, Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.cluster.stragglers import CAUSE_WORDS
from stepscope.analyses.shared.ranks.rank_steps import rank_steps

NEEDS = ("steps", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
FIX = {"": "# compare the rank with another one: input, batch size, other jobs on its host, device clock"}
_MOST = 8  # ranks


def slow_rank(run: Run) -> Iterator[Finding]:
    for row in run.table("stragglers").filter(pl.col("kind") == "rank", pl.col("cause").ne_missing("frequency")).head(_MOST).to_dicts():
        rank, steps = row["rank"], rank_steps(run.trace).filter(pl.col("rank") == row["rank"])
        time = float(steps["own_ns"].median() or 0)  # type: ignore[arg-type]
        yield _finding(run, row, rank, time)


def _finding(run: Run, row: dict[str, Any], rank: int, time: float) -> Finding:
    usual = max(time - row["excess_ns"], 0.0) if row["persistent"] else time
    excess = row["excess_ns"] / usual if usual else 0.0
    slow_ns = time if row["persistent"] else usual + row["excess_ns"]
    parameters = {
        "slow_rank": str(rank),
        "own": round(slow_ns),
        "median": round(usual),
        "excess": excess,
        "cause": CAUSE_WORDS[row["cause"]],
    }
    figures = {"excess_ns": row["excess_ns"], "slow_steps": row["slow_steps"], "all_steps": row["all_steps"]}
    return Finding(
        parameters=parameters,
        evidence=Evidence("stragglers", {}, {"kind": "rank", "rank": rank}, figures),
        changes=_as_fast(run, rank, 1 / (1 + excess)) if row["persistent"] else (),
        gain_ns=None if row["persistent"] else row["gain_ns"],
        culprit=f"rank {rank}",
        spans=run.steps.filter(pl.col("rank") == rank).select("rank", "step", "start_ns", "end_ns"),
        confidence="high" if row["confidence"] >= 0.8 else "medium" if row["confidence"] >= 0.4 else "low",
    )


def _as_fast(run: Run, rank: int, factor: float) -> tuple[Change, ...]:
    work = run.work.filter(pl.col("rank") == rank, pl.col("kind") != "communication")
    ranges = run.steps.filter(pl.col("rank") == rank)
    return (scale_work(work, factor), scale_host(ranges, factor))
