"""How much communication is hidden behind computation?"""

from collections.abc import Iterator

import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.analyses._windows import ranks
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "total_ns": pl.Int64,
    "computing_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "overlapped_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "copy_ns": pl.Int64,
    "free_ns": pl.Int64,
    "complete": pl.Boolean,  # the device's work in this step is completely recorded
}


def overlap(trace: Trace) -> pl.DataFrame:
    """Per rank and step: time computing, communicating, communicating with nothing to hide it, copying with neither, and idle.

    computing + exposed + copy + free is the step. Where a step is not `complete`, they are null: what is not recorded is not idle.
    Transfers that are recorded apart from kernels, as in Ascend's step trace, are `communication_ns` also there.
    """
    tables = []
    for _, steps, found in parts(trace):
        start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
        tables.append(steps.with_columns(pl.Series(f"{name}_ns", intervals.covered(part, start, end)) for name, part in found.items()))
    if not tables:
        return pl.DataFrame(schema=COLUMNS)
    total = pl.col("end_ns") - pl.col("start_ns")
    known = coverage(trace).steps.select("rank", "step", "complete", "transfers")
    work = ["computing_ns", "overlapped_ns", "exposed_ns", "copy_ns"]
    return (
        pl.concat(tables)
        .join(known, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(
            *(pl.when("complete").then(name).alias(name) for name in work),
            communication_ns=pl.when(pl.col("complete") | pl.col("transfers")).then("communication_ns"),
        )
        .with_columns(total_ns=total, free_ns=total - pl.col("computing_ns") - pl.col("exposed_ns") - pl.col("copy_ns"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def parts(trace: Trace) -> Iterator[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Per rank: its steps, and when it was computing, communicating, both at once, only communicating, and only copying."""
    for rank, steps, busy in ranks(trace):
        yield rank, steps, told_apart(busy)


def told_apart(busy: dict[str, intervals.Set]) -> dict[str, intervals.Set]:
    """What ran, by kind, as the parts of a step."""
    computing, communication, copies, sets = (busy.get(kind, intervals.NONE) for kind in ("kernel", "communication", "copy", "set"))
    return {
        "computing": computing,
        "communication": communication,
        "overlapped": intervals.intersect(communication, computing),
        "exposed": intervals.subtract(communication, computing),
        "copy": intervals.subtract(intervals.join(copies, sets), intervals.join(computing, communication)),
    }
