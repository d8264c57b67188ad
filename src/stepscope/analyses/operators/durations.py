"""How much do the calls of an operator differ in duration?"""

import polars as pl

from stepscope.analyses.operators.instances import instances
from stepscope.analyses.shared.operator_calls import CALL, calls_of_work
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "name": pl.String,
    "type": pl.String,
    "scope": pl.String,
    "shapes": pl.String,
    "dtypes": pl.String,
    "calls": pl.Int64,
    "min_ns": pl.Int64,
    "p50_ns": pl.Int64,
    "p90_ns": pl.Int64,
    "p95_ns": pl.Int64,
    "p99_ns": pl.Int64,
    "max_ns": pl.Int64,
}
_PARTS = {
    "type": ["type"],
    "operator": ["name", "type", "scope"],
    "shape": ["name", "type", "scope", "shapes", "dtypes"],
}


def durations(trace: Trace, *, by: str = "type", device: str | None = None) -> pl.DataFrame:
    """Per rank, device and type: percentiles of the durations of its calls, the longest first. `by` is type, operator or shape.

    Calls are those of `operators`. A percentile is the shortest occurring duration that at least this percentage of the calls do not
    exceed. By operator there is a row for each row of `operators`, by shape for each row of `operators` by shape; other columns are null.
    `device` selects one device.
    """
    check_word("grouping", by, _PARTS)
    spans = instances(trace, device=device).lazy().select(*CALL, "shapes", "dtypes", "dur_ns")
    on_host = pl.col("device") == "cpu"
    calls = pl.concat(
        [spans.filter(on_host), calls_of_work(spans.filter(~on_host), pl.col("dur_ns").sum()).select(spans.collect_schema().names())]
    )
    duration = pl.col("dur_ns").sort()
    # Nearest rank, in whole numbers: 95 % of 20 calls are 19.
    at = {f"p{percent}_ns": duration.get((pl.len().cast(pl.Int64) * percent + 99) // 100 - 1) for percent in (50, 90, 95, 99)}
    rows = calls.group_by("rank", "device", *_PARTS[by]).agg(
        calls=pl.len(), min_ns=pl.col("dur_ns").min(), max_ns=pl.col("dur_ns").max(), **at
    )
    missing = [pl.lit(None, COLUMNS[column]).alias(column) for column in ("name", "scope", "shapes", "dtypes") if column not in _PARTS[by]]
    return (
        rows.collect()
        .with_columns(missing)
        .sort("rank", pl.col("device") == "cpu", "device", -pl.col("max_ns"), "type", "name", "scope", "shapes", "dtypes")
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )
