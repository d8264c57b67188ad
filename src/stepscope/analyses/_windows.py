"""What ran in each step, as interval sets by kind."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from stepscope import intervals
from stepscope.trace import Trace


class Window(NamedTuple):
    """One step of one rank, and what ran in it. `busy_by_kind` is not yet cut to the window."""

    rank: int
    step: int
    start_ns: int
    end_ns: int
    busy_by_kind: dict[str, intervals.Set]

    def busy(self, kind: str) -> intervals.Set:
        return intervals.clip(self.busy_by_kind.get(kind, intervals.NONE), self.start_ns, self.end_ns)


def windows(trace: Trace) -> Iterator[Window]:
    """Every step, in order, of every rank with known work. Computation is `kernel`: device kernels, or host operators without a device."""
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
        for step, start, end in rows.select("step", "start_ns", "end_ns").iter_rows():
            yield Window(int(str(rank)), step, start, end, busy)


def _merged(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
