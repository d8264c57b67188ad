"""How long do the ranges of the user take, on the host and on the devices?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import device_work
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "name": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "device_ns": pl.Int64,
}


def annotations(trace: Trace) -> pl.DataFrame:
    """Per rank and name of a range on the host: calls, their time, and the time of the device work launched while one was open.

    Launches count from every thread of the rank, because a backward pass launches from other threads; device work launched under
    two ranges of one name counts once. device_ns is null on a rank whose device work is not linked to launches.
    """
    ranges = _host_ranges(trace)
    duration = pl.col("end_ns") - pl.col("start_ns")
    return (
        ranges.group_by("rank", "name")
        .agg(calls=pl.len(), total_ns=duration.sum(), avg_ns=duration.mean(), min_ns=duration.min(), max_ns=duration.max())
        .join(_launched(trace, ranges), on=["rank", "name"], how="left")
        .sort("rank", "total_ns", "name", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _host_ranges(trace: Trace) -> pl.DataFrame:
    """The annotations of host threads, without those of streams, which the profiler derived from them."""
    tracks = trace.table("tracks")
    streams = tracks.filter(pl.col("kind") == "stream")
    of_streams = tracks.join(streams, on=["rank", "pid", "tid"], how="semi")
    return (
        trace.table("spans")
        .filter(pl.col("kind") == "annotation")
        .join(pl.concat([streams, of_streams]).select("rank", "track"), on=["rank", "track"], how="anti")
        .select("rank", pl.col("name").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )


def _launched(trace: Trace, ranges: pl.DataFrame) -> pl.DataFrame:
    """Per rank and name: the duration of the device work launched within the union of its ranges."""
    key = ["rank", "name"]
    before = pl.col("end_ns").cum_max().shift(1).over(key)
    unions = (
        ranges.sort("start_ns")
        .with_columns(apart=(pl.col("start_ns") > before).fill_null(True))
        .with_columns(union=pl.col("apart").cum_sum().over(key))
        .group_by(*key, "union")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    work = device_work(trace).filter(pl.col("launch_ns").is_not_null()).sort("launch_ns")
    tables = []
    for (rank,), part in work.group_by("rank"):
        rank_unions = unions.filter(pl.col("rank") == rank)
        at = part["launch_ns"].to_numpy()
        until = np.append(0, np.cumsum((part["end_ns"] - part["start_ns"]).to_numpy()))
        first, last = (np.searchsorted(at, rank_unions[bound].to_numpy()) for bound in ("start_ns", "end_ns"))
        tables.append(rank_unions.select(*key, device_ns=pl.Series(until[last] - until[first])))
    return (
        pl.concat([pl.DataFrame(schema={name: COLUMNS[name] for name in (*key, "device_ns")}), *tables])
        .group_by(key)
        .agg(pl.col("device_ns").sum())
    )
