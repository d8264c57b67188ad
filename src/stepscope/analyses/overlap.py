"""How much communication is hidden behind computation?"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.analyses._windows import ranks
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "total_ns": pl.Int64,  # on the host
    "device_ns": pl.Int64,  # on the device: what the parts add up to
    "computing_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "overlapped_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "device_exposed_ns": pl.Int64,  # the part of it that the device runs: transfers over gloo or MPI run on the host
    "copy_ns": pl.Int64,
    "free_ns": pl.Int64,
    "complete": pl.Boolean,  # the device's work in this step is completely recorded
    "host_exposed_ns": pl.Int64,  # the part of it in which the host communicates
    "clock": pl.String,  # whose step the parts are of: device where the source draws steps on the device, else host
}


def overlap(trace: Trace) -> pl.DataFrame:
    """Per rank and step: time computing, communicating, communicating with nothing to hide it, copying with neither, and idle.

    computing + device_exposed + copy + free is `device_ns`, the step on the device. A device runs behind its host: where the source draws
    the steps on the device, too (Kineto's gpu_user_annotation), a step lasts there until its last work has ended, and the next one begins
    then; elsewhere it is the step on the host. Of a rank with several devices the times are their mean.

    Where a step is not `complete`, these parts are null: what is not recorded is not idle. Transfers that are recorded apart from kernels,
    as in Ascend's step trace, are `communication_ns` also there.
    """
    steps_of: dict[int, pl.DataFrame] = {}
    times: dict[int, list[dict[str, intervals.Ints]]] = {}
    for rank, steps, found in parts(trace):
        start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
        steps_of[rank] = steps
        times.setdefault(rank, []).append({f"{name}_ns": intervals.covered(part, start, end) for name, part in found.items()})
    if not times:
        return pl.DataFrame(schema=COLUMNS)
    device = pl.col("end_ns") - pl.col("start_ns")
    tables = [
        steps_of[rank].with_columns(pl.Series(name, np.mean([one[name] for one in each], axis=0).round()) for name in each[0])
        for rank, each in times.items()
    ]
    known = coverage(trace).steps.select("rank", "step", "complete", "transfers")
    work = ["computing_ns", "overlapped_ns", "exposed_ns", "device_exposed_ns", "copy_ns", "host_exposed_ns"]
    return (
        pl.concat(tables)
        .join(known, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(
            *(pl.when("complete").then(name).alias(name) for name in work),
            communication_ns=pl.when(pl.col("complete") | pl.col("transfers")).then("communication_ns"),
        )
        .with_columns(device_ns=device, free_ns=device - pl.col("computing_ns") - pl.col("device_exposed_ns") - pl.col("copy_ns"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def parts(trace: Trace) -> Iterator[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Per rank and device: its steps, and when it was computing, communicating, both at once, only communicating, and only copying."""
    for rank, steps, busy in ranks(trace):
        yield rank, steps, told_apart(busy)


def told_apart(busy: dict[str, intervals.Set]) -> dict[str, intervals.Set]:
    """What ran, by kind, as the parts of a step. A `transfer` runs on the host beside a device and takes none of its time."""
    kinds = ("kernel", "communication", "transfer", "copy", "set")
    computing, on_device, transfers, copies, sets = (busy.get(kind, intervals.NONE) for kind in kinds)
    communication = intervals.join(on_device, transfers)
    return {
        "computing": computing,
        "communication": communication,
        "overlapped": intervals.intersect(communication, computing),
        "exposed": intervals.subtract(communication, computing),
        "device_exposed": intervals.subtract(on_device, computing),
        "copy": intervals.subtract(intervals.join(copies, sets), intervals.join(computing, on_device)),
        "host_exposed": intervals.subtract(transfers, intervals.join(computing, on_device, copies, sets)),
    }
