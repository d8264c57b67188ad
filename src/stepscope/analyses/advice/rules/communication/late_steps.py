"""The steps of a rank begin later than those of the other ranks.

Fires where the time between two steps of a rank is more than 20 % above the median of the ranks, and the difference more than 1 % of the
step. The gain is this difference: the other ranks wait for it in their first communication.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/docs/stable/data.html"
FIX = {"": "# compare the input of the rank with that of another one: files, storage, number of workers"}
_ABOVE, _OF_STEP = 0.2, 0.01


def late_steps(run: Run) -> Iterator[Finding]:
    means = run.table("cluster_steps", per_step=False).drop_nulls("interval_ns").with_columns(usual=pl.col("interval_ns").median())
    named = run.table("stragglers").filter(pl.col("kind") == "rank")["rank"].to_list()
    more = pl.col("interval_ns") - pl.col("usual")
    late = means.filter(more > _ABOVE * pl.col("usual"), more > _OF_STEP * pl.col("total_ns"), ~pl.col("rank").is_in(named))
    for row in late.sort("interval_ns", descending=True).head(1).to_dicts() if means.height > 1 else []:
        excess = round(row["interval_ns"] - row["usual"])
        yield Finding(
            parameters={"slow_rank": str(row["rank"]), "interval": row["interval_ns"], "median": round(row["usual"])},
            evidence=Evidence("cluster_steps", {"per_step": False}, {"rank": row["rank"]}, {"interval_ns": row["interval_ns"]}),
            culprit=f"rank {row['rank']}",
            gain_ns=excess,
            confidence="low",
        )
