"""Which devices run at another clock, temperature or power than the others?"""

import polars as pl

from stepscope.analyses.shared.parallelism.rank_places import rank_places
from stepscope.analyses.shared.ranks.device_samples import FIGURES, device_samples
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "host": pl.String,
    "figure": pl.String,  # clock (mean), temperature (highest), power (mean)
    "value": pl.Float64,
    "unit": pl.String,
    "usual": pl.Float64,  # median of the ranks
    "difference_share": pl.Float64,  # of the median
    "outlier": pl.Boolean,
}
# A clock that is lower by this share, a temperature or a power that is higher by it, and by this many spreads of the other devices.
_ABOVE = {"clock": -0.05, "temperature": 0.15, "power": 0.2}
_SPREADS, _TO_DEVIATION, _LEAST_RANKS = 5.0, 1.4826, 3


def device_outliers(trace: Trace) -> pl.DataFrame:
    """Per rank and figure of its device, compared with the median of the ranks; the largest difference first.

    An outlier has a clock lower by 5 %, a temperature higher by 15 % or a power higher by 20 %, and is 5 spreads (median absolute
    deviations) away from the median. Of fewer than three ranks none is an outlier. The clock is the mean of the samples within the steps.
    """
    rows = device_samples(trace)
    value, usual = pl.col("value"), pl.col("value").median().over("figure")
    rows = rows.with_columns(usual=usual, difference_share=pl.when(usual != 0).then(value / usual - 1))
    spread = (pl.col("value") - pl.col("usual")).abs().median().over("figure") * _TO_DEVIATION
    above = pl.col("figure").replace_strict(_ABOVE, default=None, return_dtype=pl.Float64)
    beyond = pl.when(above < 0).then(pl.col("difference_share") <= above).otherwise(pl.col("difference_share") >= above)
    far = (pl.col("value") - pl.col("usual")).abs() > _SPREADS * spread
    rows = rows.with_columns(outlier=beyond.fill_null(False) & far & (pl.len().over("figure") >= _LEAST_RANKS))
    rows = rows.join(rank_places(trace).select("rank", "host"), on="rank", how="left")
    order = pl.col("figure").replace_strict({name: at for at, name in enumerate(FIGURES)}, return_dtype=pl.Int32)
    rows = rows.sort(~pl.col("outlier"), order, pl.col("difference_share").abs(), "rank", descending=[False, False, True, False])
    return rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
