"""How many floating-point operations did each operator do, and how near did it come to the chip's peak?"""

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls, flop_totals
from stepscope.model.trace import Trace

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
    """Per rank and operator: FLOPs, and FLOP/s over the time of the device work it launched, or its own time if it ran on the host.

    `how` is recorded or from shapes: matrix products, convolutions and attention, forward and backward, if they are operators. A
    multiply-add is two; padding and masks save nothing. Calls without recorded FLOPs and without shapes are `unknown_calls`, and count in
    neither FLOPs nor time. `utilization` is the time that the chip would need at its dense peak for this precision over the time it took;
    null if `peak_source` names no peak. Time, rate and utilization leave out steps whose device work is not completely recorded. The
    device is null if nothing shows where the operator ran. A rank with only the sum of a step has one row, `whole step`.
    """
    totals = flop_totals(flop_calls(trace), "rank", "device", "name")
    return (
        pl.concat([totals, _step_sums(trace, totals)], how="diagonal_relaxed")
        .with_columns(share=(pl.col("flops") / pl.col("flops").sum().over("rank")).fill_nan(None))
        .sort("rank", -pl.col("flops"), "name", "device", nulls_last=True)
        .select(COLUMNS.keys())
        .cast(COLUMNS)  # type: ignore[arg-type]
    )


def _step_sums(trace: Trace, totals: pl.DataFrame) -> pl.DataFrame:
    """A row for each rank for which only the FLOPs of a whole step are known."""
    known = totals.filter(pl.col("flops").is_not_null()).select("rank").unique()
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
