"""Which types of operators take the time, on the host and on the devices?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.operator_calls import (
    calls_of_operators,
    host_self_times,
    in_recorded_steps,
    on_devices,
    with_device_steps,
)
from stepscope.model.parameters import check_word
from stepscope.model.rank_tables import stored_rows
from stepscope.model.schema import DEVICES
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "type": pl.String,
    "calls": pl.Int64,
    "calls_of": pl.String,  # operator, kernel, or both: as in `operators`
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
    "device_steps": pl.Int64,  # as in operators
}


def operator_types(trace: Trace, *, device: str | None = None) -> pl.DataFrame:
    """Per rank and device: totals of `operators` by type, the longest self time first."""
    if device is not None:
        check_word("device", device, DEVICES)
    if (stored := stored_rows(trace, "rank_operator_types")) is not None:
        return stored if device is None else stored.filter(pl.col("device") == device)
    rows = (
        pl.concat([_host(trace), _device(trace)])
        .group_by("rank", "device", "type")
        .agg(
            pl.col("calls", "total_ns", "self_ns").sum(),
            pl.col("min_ns").min(),
            pl.col("max_ns").max(),
            calls_of=pl.col("calls_of").unique().sort(descending=True).str.join(", "),
        )
        .with_columns(
            avg_ns=pl.col("total_ns") / pl.col("calls"),
            share=(pl.col("self_ns") / pl.col("self_ns").sum().over("rank", "device")).fill_nan(0.0),
        )
        .sort("rank", pl.col("device") == "cpu", "device", -pl.col("self_ns"), "type")
    )
    rows = with_device_steps(trace, rows, pl.col("device") != "cpu", "share")
    rows = rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    return rows if device is None else rows.filter(pl.col("device") == device)


_TYPE = pl.coalesce("op_type", "name").alias("type")


def _host(trace: Trace) -> pl.DataFrame:
    """Host operators by rank and type."""
    rows = _totals(host_self_times(trace, "op_type", "name").select("rank", _TYPE, "dur_ns", "self_ns"), "rank", "type")
    return rows.select("rank", pl.lit("cpu").alias("device"), *_FIGURES, calls_of=pl.lit("operator"))


def _device(trace: Trace) -> pl.DataFrame:
    """Calls of device work by rank, device and type; a call is that of `operators`."""
    columns = ("rank", "device", "name", "op_type", "scope", "op", "dur_ns", "self_ns")
    work = in_recorded_steps(trace, on_devices(trace)).select(*columns, "step").collect()
    call = calls_of_operators(trace, work)
    several = np.bincount(call[call >= 0], minlength=1)[np.maximum(call, 0)] > 1
    rows = work.with_columns(_TYPE, pl.Series("is_call", call >= 0), several=pl.Series((call >= 0) & several))
    summed = rows.filter("several").group_by("rank", "device", "type", "scope", "op").agg(pl.col("dur_ns", "self_ns").sum())
    key = ["rank", "device", "type", "is_call"]
    totals = pl.concat(
        [
            _totals(rows.filter(~pl.col("several")), *key),
            _totals(summed.with_columns(is_call=pl.lit(value=True)), *key),
        ]
    )
    calls_of = pl.when("is_call").then(pl.lit("operator")).otherwise(pl.lit("kernel"))
    return totals.select("rank", "device", *_FIGURES, calls_of=calls_of)


_FIGURES = [pl.col("type").cast(pl.String), *(pl.col(name) for name in ("calls", "total_ns", "self_ns", "min_ns", "max_ns"))]


def _totals(rows: pl.DataFrame, *key: str) -> pl.DataFrame:
    return rows.group_by(key).agg(
        calls=pl.len().cast(pl.Int64),
        total_ns=pl.col("dur_ns").sum(),
        self_ns=pl.col("self_ns").sum(),
        min_ns=pl.col("dur_ns").min(),
        max_ns=pl.col("dur_ns").max(),
    )
