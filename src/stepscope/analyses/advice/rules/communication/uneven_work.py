"""A rank runs operators that the other ranks do not run, and these wait for it.

Fires where a minority of ranks with the same collectives runs operators in most steps, outside its input, that the others never run, and
these take at least 0.5 % of its steps. Where every rank has such operators, they are stages of a pipeline. With the fix these operators
take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import BACKWARD, removed
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
FIX = {"": "# run it on all ranks with a part of the data, once per many steps, or after the training"}
_LEAST, _MOST_STEPS = 0.005, 0.5


def uneven_work(run: Run) -> Iterator[Finding]:
    ranks = run.steps["rank"].n_unique()
    collectives = run.trace.spans.filter(pl.col("kind") == "communication").group_by("rank").agg(pl.len()).collect()
    if collectives.height < ranks or collectives["len"].n_unique() > 1:
        return
    calls = run.top_level.filter(~pl.col("name").str.contains(BACKWARD))
    calls = calls.filter(2 * pl.col("rank").n_unique().over("name") <= ranks)
    calls = _outside_input(run, calls)
    calls = calls.filter(2 * pl.col("step").n_unique().over("rank", "name") >= run.steps["step"].n_unique())
    of_rank = calls.group_by("rank").agg(pl.col("dur_ns").sum()).sort("dur_ns", "rank", descending=[True, False])
    if of_rank.is_empty() or 2 * of_rank.height > ranks:
        return
    rank, total = of_rank.row(0)
    steps = run.steps.filter(pl.col("rank") == rank)
    time = round(total / max(steps.height, 1))
    if total < _LEAST * int((steps["end_ns"] - steps["start_ns"]).sum()):
        return
    extra = calls.filter(pl.col("rank") == rank)
    largest = extra.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    name = str(largest["name"][0])
    yield Finding(
        parameters={"slow_rank": str(rank), "operator": name, "time": time, "operators": largest.height},
        evidence=Evidence("operators", {"rank": rank}, {"name": name}, {"total_ns": time}),
        changes=removed(run, extra),
        culprit=f"rank {rank}, {name}",
        source=run.source_of(extra.filter(pl.col("name") == name)),
        spans=extra.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )


def _outside_input(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that do not start while the program of their rank waits for its input."""
    waits = run.host.filter((pl.col("kind") == "data") & pl.col("main")).select("rank", at="start_ns", until="end_ns").sort("at")
    around = calls.sort("start_ns").join_asof(waits, left_on="start_ns", right_on="at", by="rank", check_sortedness=False)
    return around.filter((pl.col("start_ns") >= pl.col("until")).fill_null(True))
