"""Calls of operators: their device work, their time, and the changes of a fix that makes them faster or removes them."""

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Change, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.operator_calls import nearest, rows_of

BACKWARD = r"^autograd::|^torch::autograd::|Backward\d*$"  # operators of PyTorch's backward pass


def calls_of_modules(run: Run, *, in_backward: bool) -> pl.DataFrame:
    """Calls of modules that no other module calls, as `run.host` has them: those inside operators of the backward pass, or the others."""
    calls = run.host.filter(pl.col("kind") == "scope").sort("start_ns", "end_ns", descending=[False, True])
    reach = pl.col("end_ns").cum_max().shift(1).over("rank", "track")
    calls = calls.filter(reach.is_null() | (pl.col("start_ns") >= reach))
    backward = run.operators.filter("outermost", pl.col("name").str.contains(BACKWARD))
    within = inside(calls, backward.sort("start_ns"))
    return calls.join(within.select("rank", "span"), on=["rank", "span"], how="semi" if in_backward else "anti", maintain_order="left")


def work_under(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """The device work of these calls (rank, span) and of operators inside them: rows of `run.work` with `call`, the span of the call."""
    operators = run.nesting
    rows = rows_of(operators, calls["rank"], calls["span"])
    marked = np.zeros(operators.height, np.bool_)
    marked[rows[rows >= 0]] = True
    around = np.where(marked, np.arange(operators.height), nearest(operators["outer"].to_numpy(), marked))
    work = run.work.filter(pl.col("op").is_not_null())
    operator = rows_of(operators, work["rank"], work["op"])
    call = np.where(operator >= 0, np.append(around, -1)[operator], -1)
    spans = operators["span"].gather(pl.Series(np.maximum(call, 0))) if operators.height else pl.Series([], dtype=pl.Int64)
    return work.with_columns(spans.alias("call")).filter(pl.Series(call >= 0))


def time_ns(calls: pl.DataFrame) -> pl.Series:
    """The time of each call where it works: on the device if it launches work, else on the host."""
    return calls.select(pl.when(pl.col("launches") > 0).then("device_ns").otherwise("dur_ns").alias("time_ns")).to_series()


def removed(run: Run, calls: pl.DataFrame) -> tuple[Change, ...]:
    """The calls are not made: neither the host nor the device takes time for them."""
    return (scale_host(calls), scale_work(work_under(run, calls)))


def faster(run: Run, calls: pl.DataFrame, factor: float) -> tuple[Change, ...]:
    """The calls take `factor` of their time where they work; launching them takes as long as before."""
    on_device = calls.filter(pl.col("launches") > 0)
    on_host = calls.filter(pl.col("launches") == 0)
    changes = (scale_host(on_host, factor), scale_work(work_under(run, on_device), factor))
    return tuple(change for change in changes if change.rows.height)


def annotated(run: Run, prefix: str) -> pl.DataFrame:
    """The spans of the host in `steps` whose name begins so, such as PyTorch's `Optimizer.step#`."""
    return run.host.filter(pl.col("name").str.starts_with(prefix))


def inside(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """The calls on the thread of a range (rank, thread, start_ns, end_ns) that start within it; ranges of a thread do not overlap."""
    bounds = ranges.select("rank", "thread", range_start="start_ns", range_end="end_ns").sort("range_start")
    return (
        calls.sort("start_ns")
        .join_asof(bounds, left_on="start_ns", right_on="range_start", by=["rank", "thread"], check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("range_end"))
        .drop("range_start", "range_end")
    )
