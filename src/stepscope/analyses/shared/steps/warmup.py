"""The steps that figures cover: all, or all but a first step that is much slower."""

import polars as pl

from stepscope.model.trace import Trace

_SLOWER = 1.5  # times the median of the steps after it


def host_steps(trace: Trace) -> pl.DataFrame:
    """Every step, by rank and start, with `total_ns`, its time on the host."""
    steps: pl.DataFrame = trace.steps.with_columns(total_ns=pl.col("end_ns") - pl.col("start_ns")).sort("rank", "start_ns").collect()
    return steps


def counting_steps(trace: Trace, warmup: int | None) -> pl.DataFrame:
    """The steps that all figures of a run cover: without warm-up steps, by the time on the host."""
    return _without_warmup(host_steps(trace), warmup)


def _without_warmup(steps: pl.DataFrame, warmup: int | None) -> pl.DataFrame:
    """Steps, sorted by rank and start, without the first `warmup` of each rank; with None, without the first if it is much slower.

    It is much slower if it takes more than 1.5 times the median of the others and longer than 90 % of them: it includes compilation,
    allocation or the start of the data pipeline. At least two other steps are needed.
    """
    place = pl.int_range(pl.len()).over("rank")
    if warmup is not None:
        return steps.filter(place >= warmup)
    time = pl.col("total_ns")
    rest = pl.when(place > 0).then(time)
    slow = (time > _SLOWER * rest.median().over("rank")) & (time > rest.quantile(0.9, "nearest").over("rank"))
    slow &= (place == 0) & (pl.len().over("rank") > 2)
    return steps.filter(~slow.fill_null(False))
