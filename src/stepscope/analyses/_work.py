"""Device work by lane, with the host calls that launched it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.intervals import Ints
from stepscope.trace import Trace

DEVICE_KINDS = ["kernel", "copy", "set", "communication"]


class Lane(NamedTuple):
    """What one device of one rank did, by start. A rank without device work has one lane, its host operators, and `device` None."""

    rank: int
    device: int | None
    on_host: bool
    work: pl.DataFrame

    @property
    def busy(self) -> intervals.Set:
        return intervals.merge(self.work["start_ns"].to_numpy(), self.work["end_ns"].to_numpy())


def lanes(trace: Trace) -> Iterator[Lane]:
    """Every device of every rank, in order."""
    device = device_work(trace)
    nothing = {"launch_ns": pl.lit(None, pl.Int64), "launch_track": pl.lit(None, pl.Int32)}
    host = (
        trace.spans.filter(pl.col("kind") == "op")
        .join(device.lazy().select("rank").unique(), on="rank", how="anti")
        .select("rank", "span", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), **nothing)
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
    )
    found = [Lane(rank, number, False, work) for (rank, number), work in device.group_by("rank", "device")]
    found += [Lane(rank, None, True, work) for (rank,), work in host.group_by("rank")]
    yield from sorted(found, key=lambda lane: (lane.rank, -1 if lane.device is None else lane.device))


def device_work(trace: Trace) -> pl.DataFrame:
    """Every piece of work on a device stream, by rank and start; the launch is null where the source does not link it."""
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track", "device", stream="label")
    calls = trace.spans.filter(pl.col("kind").is_in(["api", "sync", "op"])).select(
        "rank",
        pl.col("span").alias("flow_in"),
        pl.col("track").alias("launch_track"),
        pl.col("start_ns").alias("launch_ns"),
        (pl.col("start_ns") + pl.col("dur_ns")).alias("launched_ns"),
    )
    work: pl.DataFrame = (
        trace.spans.filter(pl.col("kind").is_in(DEVICE_KINDS))
        .select("rank", "track", "span", "kind", "name", "step", "start_ns", "flow_in", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(streams, on=["rank", "track"])
        .join(calls, on=["rank", "flow_in"], how="left")
        .sort("rank", "start_ns", "span")
        .collect()
    )
    return work


class Pieces(NamedTuple):
    """Intervals cut at the steps: which interval and which step each piece is of, and its bounds."""

    interval: Ints
    step: Ints
    starts: Ints
    ends: Ints


def cut(starts: Ints, ends: Ints, step_starts: Ints, step_ends: Ints) -> Pieces:
    """Sorted disjoint intervals cut at the steps, in the order of the steps; what lies between two steps is left out."""
    first, last = np.searchsorted(ends, step_starts, "right"), np.searchsorted(starts, step_ends, "left")
    count = np.where(step_ends > step_starts, np.maximum(last - first, 0), 0)
    step = np.repeat(np.arange(len(step_starts)), count)
    interval = np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count) + first[step]
    return Pieces(interval, step, np.maximum(starts[interval], step_starts[step]), np.minimum(ends[interval], step_ends[step]))
