"""A rank starts its forward pass later in the step than the others, which wait for it.

Fires for the rank whose interval (step start to forward start) is more than 20 % above the mean of the ranks and by at least 1 % of a
step. With the fix, its interval is the mean, and the steps are shorter by the difference as far as no other rank is late.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": "# look at the data preparation of this rank: its files, its storage, the number of its workers"}
_ABOVE, _LEAST_SHARE = 0.2, 0.01


def late_rank(run: Run) -> Iterator[Finding]:
    rows = run.table("cluster_stages", per_step=False).drop_nulls("interval_ns").filter(pl.col("total_ns") > 0)
    if rows.height < 2:
        return
    # The first stage of a pipeline starts the step, so ranks are compared within their stage.
    rows = rows.with_columns(mean=pl.col("interval_ns").mean().over("stage"), ranks=pl.len().over("stage"))
    rows = rows.with_columns(excess=pl.col("interval_ns") - pl.col("mean")).sort("excess", "rank", descending=[True, False])
    row = rows.row(0, named=True)
    if row["ranks"] < 2 or row["excess"] <= _ABOVE * row["mean"] or row["excess"] < _LEAST_SHARE * row["total_ns"]:
        return
    others = rows.filter(pl.col("rank") != row["rank"], pl.col("stage").eq_missing(row["stage"]))["excess"].max()
    excess = round(row["excess"])
    yield Finding(
        parameters={"late_rank": str(row["rank"]), "interval": row["interval_ns"], "mean": round(row["mean"]), "excess": excess},
        evidence=Evidence("cluster_stages", {"per_step": False}, {"rank": row["rank"]}, {"interval_ns": row["interval_ns"]}),
        gain_ns=max(round(row["excess"] - max(float(str(others)), 0.0)), 0),
        culprit=f"rank {row['rank']}",
        confidence="medium",
    )
