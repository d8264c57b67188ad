"""Which types of operators take the time, on the host and on the devices?"""

import polars as pl

from stepscope.analyses.operators.operators import operators
from stepscope.model.rank_tables import stored_rows
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
    if (stored := stored_rows(trace, "rank_operator_types")) is not None:
        return stored if device is None else stored.filter(pl.col("device") == device)
    return (
        operators(trace, device=device)
        .group_by("rank", "device", "type", maintain_order=True)
        .agg(
            pl.col("calls", "total_ns", "self_ns").sum(),
            pl.col("min_ns").min(),
            pl.col("max_ns").max(),
            share=pl.when(pl.col("share").is_not_null().any()).then(pl.col("share").sum()),
            device_steps=pl.col("device_steps").first(),
            calls_of=pl.col("calls_of").unique().sort(descending=True).str.join(", "),
        )
        .with_columns(avg_ns=pl.col("total_ns") / pl.col("calls"))
        .sort("rank", pl.col("device") == "cpu", "device", -pl.col("self_ns"), "type")
        .select(COLUMNS.keys())
    )
