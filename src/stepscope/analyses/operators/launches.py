"""How long does work wait between its launch on the host and its start on the device?"""

import polars as pl

from stepscope.analyses.shared.device_work import device_work
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "stream": pl.String,
    "name": pl.String,
    "calls": pl.Int64,
    "launch_avg_ns": pl.Int64,
    "delay_avg_ns": pl.Int64,
    "delay_min_ns": pl.Int64,
    "delay_max_ns": pl.Int64,
    "kernel_avg_ns": pl.Int64,
    "host_bound_calls": pl.Int64,
    "short_calls": pl.Int64,
}


def launches(trace: Trace) -> pl.DataFrame:
    """Per rank, stream and kernel: launches, the duration of a launch call, and the delay until the kernel starts; most calls first.

    The delay begins with the launch call, because a kernel may start before the call returns. `host_bound_calls` are launches on an
    empty stream: the device waited for the host. `short_calls` are launches of a kernel that is shorter than its launch call. Device work
    without a known launch is not counted. Recording slows the host: see `recording_overhead`.
    """
    stream = ["rank", "track"]
    work = device_work(trace).sort(*stream, "start_ns", "span")
    busy_until = pl.col("end_ns").cum_max().shift(1).over(stream)
    call, kernel = pl.col("launched_ns") - pl.col("launch_ns"), pl.col("end_ns") - pl.col("start_ns")
    delay = pl.col("start_ns") - pl.col("launch_ns")
    return (
        work.with_columns(idle=busy_until.is_null() | (busy_until <= pl.col("launch_ns")))
        .filter(pl.col("launch_ns").is_not_null())
        .group_by("rank", "device", "track", "stream", "name")
        .agg(
            calls=pl.len(),
            launch_avg_ns=call.mean().round(),
            delay_avg_ns=delay.mean().round(),
            delay_min_ns=delay.min(),
            delay_max_ns=delay.max(),
            kernel_avg_ns=kernel.mean().round(),
            host_bound_calls=pl.col("idle").sum(),
            short_calls=(kernel < call).sum(),
        )
        .with_columns(pl.col("name").cast(pl.String))
        .sort("rank", "track", "calls", "name", descending=[False, False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
