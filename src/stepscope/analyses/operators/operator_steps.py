"""How does the time of each type of operator change from step to step?"""

import polars as pl

from stepscope.analyses.operators.instances import instances
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "type": pl.String,
    "step": pl.Int32,  # null: outside every step
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
}


def operator_steps(trace: Trace, *, device: str | None = None) -> pl.DataFrame:
    """Per rank, device, type and step: calls and times of `operator_types`, by step. `device` selects one device."""
    return (
        instances(trace, device=device)
        .group_by("rank", "device", "type", "step")
        .agg(
            calls=pl.col("call").drop_nulls().n_unique() + pl.col("call").null_count(),
            total_ns=pl.col("dur_ns").sum(),
            self_ns=pl.col("self_ns").sum(),
        )
        .sort("rank", pl.col("device") == "cpu", "device", "type", "step", nulls_last=True)
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )
