"""The steps that a typical step is worked out from: without the first, where it was plainly slower."""

import polars as pl

from stepscope.trace import Trace

_SLOWER = 1.5  # times the median of the steps after it


def host_steps(trace: Trace) -> pl.DataFrame:
    """Every step, by rank and start, with `total_ns`, its time on the host."""
    steps: pl.DataFrame = trace.steps.with_columns(total_ns=pl.col("end_ns") - pl.col("start_ns")).sort("rank", "start_ns").collect()
    return steps


def counting_steps(trace: Trace, warmup: int | None) -> pl.DataFrame:
    """The steps that figures of a run are of, one rule for all of them: as `typical` has it, by the time on the host."""
    return typical(host_steps(trace), warmup)


def typical(steps: pl.DataFrame, warmup: int | None) -> pl.DataFrame:
    """Steps, sorted by rank and start, without each rank's first `warmup`; with None, without the first where it was plainly slower.

    Plainly: than nine in ten of the others, and half as slow again as their median. Such a step has compilation, allocation or the start
    of the data pipeline in it. Two steps must remain to compare it with.
    """
    place = pl.int_range(pl.len()).over("rank")
    if warmup is not None:
        return steps.filter(place >= warmup)
    time = pl.col("total_ns")
    rest = pl.when(place > 0).then(time)
    slow = (time > _SLOWER * rest.median().over("rank")) & (time > rest.quantile(0.9, "nearest").over("rank"))
    slow &= (place == 0) & (pl.len().over("rank") > 2)
    return steps.filter(~slow.fill_null(False))
