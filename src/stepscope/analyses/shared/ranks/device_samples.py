"""Clock, temperature and power of the device of each rank."""

import polars as pl

from stepscope.analyses.shared.ranks.device_clocks import device_clocks
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

FIGURES = ("clock", "temperature", "power")
_COLUMNS = {"rank": pl.Int32, "figure": pl.String, "value": pl.Float64, "unit": pl.String}


@memoized
def device_samples(trace: Trace) -> pl.DataFrame:
    """rank, figure, value, unit: the mean clock and power, and the highest temperature; ranks without samples are left out."""
    series = pl.coalesce("series", "name").cast(pl.String).str.to_lowercase()
    on_host = pl.col("owner").cast(pl.String).is_in(["cpu", "process", "loader", "operator"]).fill_null(False)
    figure = pl.when(series.str.contains("temp")).then(pl.lit("temperature")).when(series.str.contains("power")).then(pl.lit("power"))
    samples = trace.counters.with_columns(figure=figure).filter(pl.col("figure").is_not_null() & ~on_host, pl.col("value") > 0)
    value = pl.when(pl.col("figure") == "temperature").then(pl.col("value").max()).otherwise(pl.col("value").mean())
    rows = samples.group_by("rank", "figure").agg(value=value.first(), unit=pl.col("unit").cast(pl.String).first()).collect()
    unit = trace.counters.filter(series.str.contains(r"clock|freq")).select(pl.col("unit").cast(pl.String).first()).collect().item(0, 0)
    clocks = [(rank, "clock", value, unit) for rank, value in device_clocks(trace).items()]
    every = pl.concat([pl.DataFrame(clocks, _COLUMNS, orient="row"), rows.select(pl.col(n).cast(t) for n, t in _COLUMNS.items())])
    return every.sort("figure", "rank")
