"""One rank takes longer than the others, which wait for it.

Fires for a rank whose time per step without communication is more than 5 % above the median of the ranks, in the median of the steps and
in at least four fifths of them: other slow steps are noise. With the fix, its computation and its program take as long as those of the
median rank.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Change, Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "communication", "ranks")
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
FIX = {"": "# compare the rank with another one: input, batch size, other jobs on its host, device clock"}
_ABOVE, _MOST_STEPS = 0.05, 0.8
_USUAL = pl.col("own_ns").quantile(0.5, "lower")  # of two ranks, the faster one


def slow_rank(run: Run) -> Iterator[Finding]:
    slow = _own_time(run).filter(pl.col("excess") > _ABOVE, pl.col("slower") >= _MOST_STEPS)
    for rank, time, excess in slow.select("rank", "own_ns", "excess").iter_rows():
        usual = time / (1 + excess)
        parameters = {"slow_rank": str(rank), "own": round(time), "median": round(usual), "excess": excess, "cause": _cause(run, rank)}
        yield Finding(
            parameters=parameters,
            evidence=Evidence("cluster_steps", {"per_step": False}, {"rank": rank}, {"own_ns": round(time), "median_ns": round(usual)}),
            changes=_as_fast(run, rank, 1 / (1 + excess)),
            culprit=f"rank {rank}",
            spans=run.steps.filter(pl.col("rank") == rank).select("rank", "step", "start_ns", "end_ns"),
            confidence="medium",
        )


def _own_time(run: Run) -> pl.DataFrame:
    """Per rank the median time of a step in which it does not communicate, how far it is above the other ranks, and in how many steps."""
    steps = run.table("cluster_steps").join(run.steps.select("rank", "step"), on=["rank", "step"], how="semi")
    busy = steps.select("rank", "step", own_ns=pl.col("total_ns") - pl.col("exposed_ns")).drop_nulls()
    busy = busy.filter(pl.len().over("step") > 1).with_columns(excess=pl.col("own_ns") / _USUAL.over("step") - 1)
    by_rank = busy.group_by("rank").agg(pl.col("own_ns", "excess").median(), slower=(pl.col("excess") > _ABOVE).mean())
    return by_rank.sort("rank")


def _as_fast(run: Run, rank: int, factor: float) -> tuple[Change, ...]:
    work = run.work.filter(pl.col("rank") == rank, pl.col("kind") != "communication")
    ranges = run.steps.filter(pl.col("rank") == rank)
    return (scale_work(work, factor), scale_host(ranges, factor))


def _cause(run: Run, rank: int) -> str:
    """What the rank has more of than the median rank: input, device compute, or time of the host."""
    steps = run.table("cluster_steps", per_step=False)
    waits = run.host.filter(pl.col("kind") == "data", "main").group_by("rank").agg(input=pl.col("dur_ns").sum() / run.steps.height)
    rows = steps.select("rank", computing="computing_ns").join(waits, on="rank", how="left").with_columns(pl.col("input").fill_null(0))
    excess = {}
    for name in ("computing", "input"):
        values = rows[name].drop_nulls()
        mine = rows.filter(pl.col("rank") == rank)[name].drop_nulls()
        if len(values) and len(mine):
            excess[name] = float(mine[0]) - float(values.median())  # type: ignore[arg-type]
    largest = max(excess, key=lambda name: excess[name], default=None)
    if "computing" not in excess and run.operators.filter(pl.col("rank") == rank).is_empty():
        return "unknown cause"
    cause = largest if largest is not None and excess[largest] > 0 else "host"
    return {"computing": "more computation", "input": "longer waits for input", "host": "a slower program on the host"}[cause]
