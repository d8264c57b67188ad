"""How busy is each device, and how much memory does it use, over time?"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import Device, devices
from stepscope.analyses.shared.memory.memory_samples import memory_samples
from stepscope.analyses.shared.steps.coverage import unknown_times
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.errors import UsageError
from stepscope.model import intervals
from stepscope.model.trace import Trace

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
    """Per rank and device: the busy share of each bucket of the time from the first to the last step or work, in `buckets` equal buckets.

    Computing, exposed communication and copies add up to busy. The last bucket may extend beyond the end. Where device work is not
    completely recorded (between two windows, in steps that are not complete in `overlap`), shares are of the rest of the bucket, and null
    if there is no rest. Bytes are the maximum in the bucket; null before the first sample. `step` selects the time of one step on the
    device (see `overlap`). A rank without a device has the shares of its host operators, and a null device.
    """
    times, every_device = _times(trace, step), list(devices(trace))
    if buckets * (count := len(every_device)) > _ROWS:
        raise UsageError(f"buckets is {buckets}; expected at most {_ROWS // count}: a row for each of {count:,} devices")
    memories = memory_samples(trace, None)
    tables = [pl.DataFrame(schema=COLUMNS)]
    for device in every_device:
        of_rank = [other.work for other in every_device if other.rank == device.rank]
        low, high = times.get(device.rank, (2**63 - 1, -(2**63)))
        if step is None:  # one window for all devices of a rank
            low = min(low, *(int(work["start_ns"].min()) for work in of_rank))  # type: ignore[arg-type]
            high = max(high, *(int(work["end_ns"].max()) for work in of_rank))  # type: ignore[arg-type]
        if high > low:
            tables.append(_buckets(device, memories, low, high, buckets, unknown_times(trace, device.rank)))
    return pl.concat(tables)


def _times(trace: Trace, step: int | None) -> dict[int, tuple[int, int]]:
    """Start and end on the device of all steps of each rank, or of the one step."""
    steps = device_steps(trace).filter(True if step is None else pl.col("step") == step)
    bounds = steps.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return {rank: (start, end) for rank, start, end in bounds.iter_rows()}


class _Axis(NamedTuple):
    low: int
    high: int
    width: int

    @property
    def starts(self) -> intervals.Ints:
        return np.arange(self.low, self.high, self.width, dtype=np.int64)


def _buckets(device: Device, memories: pl.DataFrame, low: int, high: int, buckets: int, unknown: intervals.Set) -> pl.DataFrame:
    axis = _Axis(low, high, -(-(high - low) // buckets))
    starts = axis.starts
    computing = _union(device, ["kernel"])
    communication = _union(device, ["communication"])
    covered = [
        intervals.subtract(intervals.clip(part, low, high), unknown)
        for part in (
            device.busy,
            computing,
            intervals.subtract(communication, computing),
            intervals.subtract(_union(device, ["copy", "set"]), intervals.join(computing, communication)),
        )
    ]
    recorded = axis.width - intervals.covered(unknown, starts, starts + axis.width)
    shares = [intervals.covered(part, starts, starts + axis.width) / np.maximum(recorded, 1) for part in covered]
    names = ("busy_share", "computing_share", "exposed_share", "copy_share")
    of_device = pl.col("device") == "cpu" if device.number is None else pl.col("device").str.ends_with(f" {device.number}")
    return (
        pl.DataFrame({"at_ns": starts, **dict(zip(names, shares, strict=True))})
        .with_columns(rank=pl.lit(device.rank), device=pl.lit(device.number), bucket_ns=pl.lit(axis.width))
        .with_columns(pl.when(pl.Series(recorded > 0)).then(pl.col(name)).alias(name) for name in names)
        .with_columns(_peaks(memories.filter(pl.col("rank") == device.rank, of_device), axis))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _union(device: Device, kinds: list[str]) -> intervals.Set:
    """The times of the spans of these kinds. On the host, operators count as kernels."""
    if device.on_host:
        return device.busy if kinds == ["kernel"] else intervals.NONE
    rows = device.work.filter(pl.col("kind").is_in(kinds))
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def _peaks(samples: pl.DataFrame, axis: _Axis) -> list[pl.Series]:
    """The maximum in use in each bucket: of its samples, and of the last sample before it."""
    bucket = (pl.col("at_ns") - axis.low).floordiv(axis.width).clip(-1)
    buckets = pl.DataFrame({"bucket": np.arange(-1, len(axis.starts))})
    columns = ["allocated_bytes", "reserved_bytes"]
    inside = samples.filter(pl.col("at_ns") < axis.high).with_columns(bucket=bucket)
    grouped = inside.group_by("bucket").agg(
        pl.col(columns).max(), *(pl.col(name).drop_nulls().last().alias(f"last_{name}") for name in columns)
    )
    joined = buckets.join(grouped, on="bucket", how="left", maintain_order="left")
    peaks = joined.select(pl.max_horizontal(name, pl.col(f"last_{name}").forward_fill().shift(1)) for name in columns)
    return peaks.tail(len(axis.starts)).get_columns()
