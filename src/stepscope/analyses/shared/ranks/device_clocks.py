"""The clock of the device of each rank."""

import polars as pl

from stepscope.model.memo import memoized
from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace


@memoized
def device_clocks(trace: Trace) -> dict[int, float]:
    """Mean of the samples of the compute clock within the steps, by rank; ranks without samples are left out."""
    if trace.is_part_of_steps and trace.meta.summary:  # it has the mean of all steps together
        return {}
    if (stored := stored_rows(trace, "rank_figures")) is not None:
        return dict(stored.drop_nulls("device_clock").select("rank", "device_clock").iter_rows())
    series = pl.coalesce("series", "name").cast(pl.String).str.to_lowercase()
    samples = trace.counters.filter(series.str.contains(r"clock|freq") & ~series.str.contains("mem|hbm|cpu"), pl.col("value") > 0)
    bounds = trace.steps.group_by("rank").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
    inside = samples.join(bounds, on="rank").filter(pl.col("at_ns").is_between("first", "last"))
    return {int(rank): float(value) for rank, value in inside.group_by("rank").agg(pl.col("value").mean()).collect().iter_rows()}
