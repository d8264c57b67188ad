"""What ran on each rank that has steps, as interval sets by kind."""

from collections.abc import Iterator

import polars as pl

from stepscope import intervals
from stepscope.trace import Trace


def ranks(trace: Trace) -> Iterator[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Every rank with known work: its steps in order, and what ran on it, by kind.

    Computation is `kernel`: device kernels, or host operators without a device.
    """
    work = (
        trace.spans.filter(pl.col("kind").is_in(["kernel", "communication", "copy", "set", "op"]))
        .select("rank", pl.col("kind").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect()
    for (rank,), rows in steps.group_by("rank", maintain_order=True):
        busy = {str(kind): _merged(part) for (kind,), part in work.filter(pl.col("rank") == rank).group_by("kind")}
        if not busy:  # nothing here is known to be work: silence is truer than "idle"
            continue
        if "kernel" not in busy:
            # Transfers of a host-only job run on threads of their own; an operator that waits for one is not computing.
            busy["kernel"] = busy.get("op", intervals.NONE)
        yield int(str(rank)), rows, busy


def _merged(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
