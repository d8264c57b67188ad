"""How many floating-point operations did each operator do, and how near did it come to the chip's peak?"""

import polars as pl

from stepscope.analyses._flop_counts import counted, summed
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "name": pl.String,
    "calls": pl.Int64,
    "flops": pl.Int64,
    "share": pl.Float64,
    "time_ns": pl.Int64,
    "flops_per_s": pl.Float64,
    "utilization": pl.Float64,
    "precision": pl.String,
    "how": pl.String,
    "unknown_calls": pl.Int64,
    "peak_source": pl.String,
}


def flops(trace: Trace) -> pl.DataFrame:
    """Per rank and operator: FLOPs, and FLOP/s over the time of the device work it launched, or its own time where it ran on the host.

    `how` says whether the source recorded the FLOPs or they follow from the shapes of the inputs: of matrix products, convolutions and
    attention, forward and backward, as far as they show as operators. A multiply-add is two; padding and masks save nothing. Calls of
    which neither tells are `unknown_calls`, and count in neither FLOPs nor time. `utilization` is the time the chip would need at its
    dense peak for this precision over the time it took; null where `peak_source` names no peak. A rank of which the source has only the
    sum of a step has one row, `whole step`.
    """
    found = summed(counted(trace), "rank", "device", "name")
    return (
        pl.concat([found, _sums(trace, found)], how="diagonal_relaxed")
        .with_columns(share=(pl.col("flops") / pl.col("flops").sum().over("rank")).fill_nan(None))
        .sort("rank", -pl.col("flops"), "name", "device", nulls_last=True)
        .select(COLUMNS.keys())
        .cast(COLUMNS)  # type: ignore[arg-type]
    )


def _sums(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """A row for each rank of which only the FLOPs of a whole step are known."""
    known = found.filter(pl.col("flops").is_not_null()).select("rank").unique()
    sums = trace.devices.filter(pl.col("step_flops").is_not_null()).select(
        "rank",
        "flops_per_s",
        flops="step_flops",
        device=pl.col("kind").cast(pl.String),
        name=pl.lit("whole step"),
        how=pl.lit("sum of a step"),
    )
    rows: pl.DataFrame = sums.collect().join(known, on="rank", how="anti")
    return rows
