"""How much communication is hidden behind computation?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.coverage import coverage, ranks_without_copies
from stepscope.analyses.shared.steps.step_windows import device_times
from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "total_ns": pl.Int64,  # on the host
    "device_ns": pl.Int64,  # on the device: the sum of the parts
    "computing_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "overlapped_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "device_exposed_ns": pl.Int64,  # exposed communication on the device: transfers over gloo or MPI run on the host
    "copy_ns": pl.Int64,  # null if the source has only operators
    "free_ns": pl.Int64,
    "complete": pl.Boolean,  # the device's work in this step is completely recorded
    "host_exposed_ns": pl.Int64,  # exposed communication on the host, while the device is idle
    "clock": pl.String,  # clock of the parts: device if the source has steps on the device, else host
}


@memoized
def overlap(trace: Trace) -> pl.DataFrame:
    """Per rank and step: time of computation, communication, exposed communication, copies without either, and idle time.

    computing + device_exposed + copy + free is `device_ns`, the step on the device. A device runs later than its host: if the source also
    has steps on the device (gpu_user_annotation of Kineto), a step ends there with its last work, and the next one begins; otherwise it is
    the step on the host. For a rank with several devices the times are their mean.

    If a step is not `complete`, these parts are null: missing data is not idle time. Transfers from a separate source, as in the step trace
    of Ascend, are `communication_ns` also in such steps.
    """
    if (stored := stored_rows(trace, "rank_overlap")) is not None:
        return stored
    steps_of: dict[int, pl.DataFrame] = {}
    times: dict[int, list[dict[str, intervals.Ints]]] = {}
    for rank, steps, parts in device_parts(trace):
        start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
        steps_of[rank] = steps
        times.setdefault(rank, []).append({f"{name}_ns": intervals.covered(part, start, end) for name, part in parts.items()})
    if not times:
        return pl.DataFrame(schema=COLUMNS)
    device = pl.col("end_ns") - pl.col("start_ns")
    tables = [
        steps_of[rank].with_columns(pl.Series(name, np.mean([device[name] for device in each], axis=0).round()) for name in each[0])
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
        .with_columns(copy_ns=pl.when(~pl.col("rank").is_in(ranks_without_copies(trace))).then("copy_ns"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


@memoized
def device_parts(trace: Trace) -> list[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """`device_times` with the parts of a step instead of the kinds of work."""
    return [(rank, steps, step_parts(busy)) for rank, steps, busy in device_times(trace)]


def step_parts(busy: dict[str, intervals.Set]) -> dict[str, intervals.Set]:
    """The parts of a step from the times of its work by kind. A `transfer` runs on the host and takes no time of the device."""
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
