"""Columns of counters. A name consists of `series`, `owner` and `number`: `HBM 0 Read npu 1`."""

from typing import Any

import polars as pl

COLUMNS: dict[str, Any] = {
    "name": pl.String,
    "at_ns": pl.Int64,
    "value": pl.Float64,
    "unit": pl.String,
    "series": pl.String,
    "owner": pl.String,
    "number": pl.Int64,
}

# The owner of a counter with its number, as the tables name devices: `npu 0`, `cpu`.
OWNER = pl.when(pl.col("number").is_null()).then(pl.col("owner").cast(pl.String)).otherwise(
    pl.format("{} {}", pl.col("owner").cast(pl.String), pl.col("number"))
)  # fmt: skip


def of_device(series: pl.Expr | str, owner: pl.Expr | str, number: pl.Expr | int | None) -> dict[str, pl.Expr]:
    """The columns that identify a counter of a device; a text is a constant, and a device may have no number (`cpu`)."""
    series, owner = (pl.lit(part) if isinstance(part, str) else part for part in (series, owner))
    number = number.cast(pl.Int64) if isinstance(number, pl.Expr) else pl.lit(number, pl.Int64)
    name = pl.concat_str(series, owner, number.cast(pl.String), separator=" ", ignore_nulls=True)
    return {"name": name, "series": series, "owner": owner, "number": number}
