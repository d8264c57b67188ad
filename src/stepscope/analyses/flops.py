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
    dense peak for this precision over the time it took; null where `peak_source` names no peak.
    """
    return (
        summed(counted(trace), "rank", "device", "name")
        .with_columns(share=(pl.col("flops") / pl.col("flops").sum().over("rank")).fill_nan(None))
        .sort("rank", -pl.col("flops"), "name", "device", nulls_last=True)
        .select(COLUMNS.keys())
        .cast(COLUMNS)  # type: ignore[arg-type]
    )
