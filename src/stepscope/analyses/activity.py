"""How busy is each device, and how much memory does it use, over time?"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import unknown_times
from stepscope.analyses._memory import memory_samples
from stepscope.analyses._windows import device_steps
from stepscope.analyses._work import Lane, lanes
from stepscope.errors import UsageError
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,  # null: the host, of a rank without device work
    "at_ns": pl.Int64,  # where the bucket begins
    "bucket_ns": pl.Int64,  # how long it is
    "busy_share": pl.Float64,  # of the bucket: something ran
    "computing_share": pl.Float64,
    "exposed_share": pl.Float64,  # communication with nothing to hide it
    "copy_share": pl.Float64,  # copies and fills with neither
    "allocated_bytes": pl.Int64,  # at most
    "reserved_bytes": pl.Int64,
}

_ROWS = 4_000_000  # some 300 MB


def activity(trace: Trace, *, buckets: int = 500, step: int | None = None) -> pl.DataFrame:
    """Per rank and device, the time from the first to the last step or work in that many equal buckets: what share of each was busy.

    Computing, exposed communication and copies add up to busy, and busy times bucket_ns over all buckets to the union of what ran. The
    last bucket may reach beyond the end. Where device work is not completely recorded (between two windows, in steps that `overlap` calls
    incomplete), shares are of the rest of the bucket, and null where there is no rest. Bytes are the most
    that was in use in the bucket; null before the first sample. `step` looks at the time of one step only, as the
    device has it (see `overlap`). A rank without a device is judged by its host operators, with a null device.
    """
    times, found = _times(trace, step), list(lanes(trace))
    if buckets * len(found) > _ROWS:
        raise UsageError(f"buckets is {buckets}; expected at most {_ROWS // len(found)}: a row for each of {len(found):,} devices")
    memories = memory_samples(trace, None)
    tables = [pl.DataFrame(schema=COLUMNS)]
    for lane in found:
        of_rank = [other.work for other in found if other.rank == lane.rank]
        low, high = times.get(lane.rank, (2**63 - 1, -(2**63)))
        if step is None:  # one window for all devices of a rank
            low = min(low, *(int(work["start_ns"].min()) for work in of_rank))  # type: ignore[arg-type]
            high = max(high, *(int(work["end_ns"].max()) for work in of_rank))  # type: ignore[arg-type]
        if high > low:
            tables.append(_buckets(lane, memories, low, high, buckets, unknown_times(trace, lane.rank)))
    return pl.concat(tables)


def _times(trace: Trace, step: int | None) -> dict[int, tuple[int, int]]:
    """From when to when the steps of each rank, or the one step, are on the device."""
    every = device_steps(trace)
    steps = every if step is None else every.filter(pl.col("step") == step)
    bounds = steps.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return {rank: (start, end) for rank, start, end in bounds.iter_rows()}


class _Axis(NamedTuple):
    low: int
    high: int
    width: int

    @property
    def starts(self) -> intervals.Ints:
        return np.arange(self.low, self.high, self.width, dtype=np.int64)


def _buckets(lane: Lane, memories: pl.DataFrame, low: int, high: int, buckets: int, unknown: intervals.Set) -> pl.DataFrame:
    axis = _Axis(low, high, -(-(high - low) // buckets))
    starts = axis.starts
    computing = _union(lane, ["kernel"])
    communication = _union(lane, ["communication"])
    covered = [
        intervals.subtract(intervals.clip(part, low, high), unknown)
        for part in (
            lane.busy,
            computing,
            intervals.subtract(communication, computing),
            intervals.subtract(_union(lane, ["copy", "set"]), intervals.join(computing, communication)),
        )
    ]
    recorded = axis.width - intervals.covered(unknown, starts, starts + axis.width)
    shares = [intervals.covered(part, starts, starts + axis.width) / np.maximum(recorded, 1) for part in covered]
    names = ("busy_share", "computing_share", "exposed_share", "copy_share")
    of_lane = pl.col("device") == "cpu" if lane.device is None else pl.col("device").str.ends_with(f" {lane.device}")
    return (
        pl.DataFrame({"at_ns": starts, **dict(zip(names, shares, strict=True))})
        .with_columns(rank=pl.lit(lane.rank), device=pl.lit(lane.device), bucket_ns=pl.lit(axis.width))
        .with_columns(pl.when(pl.Series(recorded > 0)).then(pl.col(name)).alias(name) for name in names)
        .with_columns(_most(memories.filter(pl.col("rank") == lane.rank, of_lane), axis))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _union(lane: Lane, kinds: list[str]) -> intervals.Set:
    """When something of these kinds ran. On the host all there is is operators, which compute."""
    if lane.on_host:
        return lane.busy if kinds == ["kernel"] else intervals.NONE
    rows = lane.work.filter(pl.col("kind").is_in(kinds))
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def _most(samples: pl.DataFrame, axis: _Axis) -> list[pl.Series]:
    """The most in use in each bucket: its samples, and what the last one before it left."""
    bucket = (pl.col("at_ns") - axis.low).floordiv(axis.width).clip(-1)
    every = pl.DataFrame({"bucket": np.arange(-1, len(axis.starts))})
    columns = ["allocated_bytes", "reserved_bytes"]
    inside = samples.filter(pl.col("at_ns") < axis.high).with_columns(bucket=bucket)
    grouped = inside.group_by("bucket").agg(
        pl.col(columns).max(), *(pl.col(name).drop_nulls().last().alias(f"last_{name}") for name in columns)
    )
    joined = every.join(grouped, on="bucket", how="left", maintain_order="left")
    kept = joined.select(pl.max_horizontal(name, pl.col(f"last_{name}").forward_fill().shift(1)) for name in columns)
    return kept.tail(len(axis.starts)).get_columns()
