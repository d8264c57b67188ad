"""How much communication is hidden behind computation?"""

import polars as pl

from stepscope import intervals
from stepscope.analyses._windows import windows
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
    rows = []
    for window in windows(trace):
        computing, communication, copying = (
            window.busy("kernel"),
            window.busy("communication"),
            intervals.join(window.busy("copy"), window.busy("set")),
        )
        hidden = intervals.intersect(communication, computing)
        copy_only = intervals.subtract(copying, intervals.join(computing, communication))
        exposed = communication.total - hidden.total
        rows.append(
            {
                "rank": window.rank,
                "step": window.step,
                "total_ns": window.end_ns - window.start_ns,
                "computing_ns": computing.total,
                "communication_ns": communication.total,
                "overlapped_ns": hidden.total,
                "exposed_ns": exposed,
                "copy_ns": copy_only.total,
                "free_ns": window.end_ns - window.start_ns - computing.total - exposed - copy_only.total,
            }
        )
    return pl.DataFrame(rows, schema=COLUMNS)
