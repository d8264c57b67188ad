"""Which transfers between ranks run in each step, and how much of each is overlapped by computation?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.coverage import complete_steps
from stepscope.analyses.shared.steps.step_windows import device_times
from stepscope.model import intervals
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "name": pl.String,
    "stream": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "bytes": pl.Int64,
    "overlapped_ns": pl.Int64,
    "overlapped_share": pl.Float64,
}


def reduces(trace: Trace) -> pl.DataFrame:
    """Every collective or point-to-point transfer of a step, in order of its start, on the stream or host thread that ran it.

    A transfer on a device belongs to the step that launched it. `overlapped_ns` is the part during which the rank computed,
    computing as in `overlap`: device kernels, or host operators if there is no device. It is null in steps whose device work is not
    completely recorded.
    """
    rows: pl.DataFrame = (
        trace.spans.filter((pl.col("kind") == "communication") & pl.col("step").is_not_null())
        .select("rank", "step", "track", "name", "start_ns", "dur_ns", "bytes", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(trace.tracks.select("rank", "track", stream="label"), on=["rank", "track"], how="left")
        .sort("rank", "step", "start_ns", "track")
        .collect()
    )
    computing: dict[int, intervals.Set] = {}
    for number, _, times in device_times(trace):
        computing[number] = intervals.join(computing.get(number, intervals.NONE), times["kernel"])
    complete = complete_steps(trace).with_columns(complete=True)
    overlapped = np.zeros(rows.height, np.int64)
    for (rank,), part in rows.with_row_index().group_by("rank"):
        busy = computing.get(int(str(rank)), intervals.NONE)
        overlapped[part["index"].to_numpy()] = intervals.covered(busy, part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
    share = pl.when(pl.col("dur_ns") > 0).then(pl.col("overlapped_ns") / pl.col("dur_ns"))
    return (
        rows.with_columns(pl.Series("overlapped_ns", overlapped))
        .join(complete, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(overlapped_ns=pl.when("complete").then("overlapped_ns"))
        .with_columns(overlapped_share=share)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
