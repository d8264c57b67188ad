"""Columns of counters and of the devices of allocations. `owner` and `number` are a device: `npu 0`, `cpu`."""

from typing import Any

import polars as pl

# The name of a counter consists of `series`, `owner` and `number`: `HBM 0 Read npu 1`.
COLUMNS: dict[str, Any] = {
    "name": pl.String,
    "at_ns": pl.Int64,
    "value": pl.Float64,
    "unit": pl.String,
    "series": pl.String,
    "owner": pl.String,
    "number": pl.Int64,
}

# The owner with its number, as the tables name devices.
OWNER = pl.when(pl.col("number").is_null()).then(pl.col("owner").cast(pl.String)).otherwise(
    pl.format("{} {}", pl.col("owner").cast(pl.String), pl.col("number"))
)  # fmt: skip


def device_columns(owner: str, number: pl.Expr) -> dict[str, pl.Expr]:
    """The columns that identify the device of an allocation; a null number is the host."""
    number = number.cast(pl.Int64)
    kind = pl.when(number.is_null()).then(pl.lit("cpu")).otherwise(pl.lit(owner))
    return {"device": pl.concat_str(kind, number.cast(pl.String), separator=" ", ignore_nulls=True), "owner": kind, "number": number}


def of_device(series: pl.Expr | str, owner: pl.Expr | str, number: pl.Expr | int | None) -> dict[str, pl.Expr]:
    """The columns that identify a counter of a device; a text is a constant, and a device may have no number (`cpu`)."""
    series, owner = (pl.lit(part) if isinstance(part, str) else part for part in (series, owner))
    number = number.cast(pl.Int64) if isinstance(number, pl.Expr) else pl.lit(number, pl.Int64)
    name = pl.concat_str(series, owner, number.cast(pl.String), separator=" ", ignore_nulls=True)
    return {"name": name, "series": series, "owner": owner, "number": number}
