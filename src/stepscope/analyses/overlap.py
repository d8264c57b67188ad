"""How much communication is hidden behind computation?"""

import polars as pl

from stepscope import intervals
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
}


def overlap(trace: Trace) -> pl.DataFrame:
    """Per rank and step: time computing, communicating, communicating with nothing to hide it, copying with neither, and idle.

    computing + exposed + copy + free is the step.
    """
    tables = []
    for _, steps, busy in ranks(trace):
        computing, communication, copies, sets = (busy.get(kind, intervals.NONE) for kind in ("kernel", "communication", "copy", "set"))
        parts = {
            "computing_ns": computing,
            "communication_ns": communication,
            "overlapped_ns": intervals.intersect(communication, computing),
            "copy_ns": intervals.subtract(intervals.join(copies, sets), intervals.join(computing, communication)),
        }
        start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
        tables.append(steps.with_columns(pl.Series(name, intervals.covered(part, start, end)) for name, part in parts.items()))
    if not tables:
        return pl.DataFrame(schema=COLUMNS)
    total, exposed = pl.col("end_ns") - pl.col("start_ns"), pl.col("communication_ns") - pl.col("overlapped_ns")
    return (
        pl.concat(tables)
        .with_columns(total_ns=total, exposed_ns=exposed, free_ns=total - pl.col("computing_ns") - exposed - pl.col("copy_ns"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
