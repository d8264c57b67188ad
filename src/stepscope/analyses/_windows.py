"""What ran on each rank that has steps, as interval sets by kind."""

from collections.abc import Iterator

import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.trace import Trace


def ranks(trace: Trace) -> Iterator[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Every rank with known work, or a device whose work is not recorded: its steps in order, and what ran on it, by kind.

    Computation is `kernel`: device kernels, or host operators without a device.
    """
    known = ["kernel", "communication", "copy", "set"]
    work = _work(trace, pl.col("kind").is_in(known))
    data = coverage(trace).data
    on_host = [rank for rank, what in data.items() if what == "host"]
    # Most of what there is are operators: they are read only where they are needed.
    work |= _work(trace, (pl.col("kind") == "op") & pl.col("rank").is_in(on_host)) if on_host else {}
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect()
    for (rank,), rows in steps.group_by("rank", maintain_order=True):
        busy = {kind: part for (of, kind), part in work.items() if of == rank}
        if data[int(str(rank))] is None:  # nothing here is known to be work: silence is truer than "idle"
            continue
        if "kernel" not in busy:
            # Transfers of a host-only job run on threads of their own; an operator that waits for one is not computing.
            busy["kernel"] = busy.get("op", intervals.NONE)
        yield int(str(rank)), rows, busy


def _work(trace: Trace, which: pl.Expr) -> dict[tuple[int, str], intervals.Set]:
    """When something of these spans ran, by rank and kind."""
    spans = trace.spans.filter(which)
    # Of some spans only sums or means are known: they have a length, but no place in time.
    nowhere = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track").collect()
    spans = spans.join(nowhere.lazy(), on=["rank", "track"], how="anti") if nowhere.height else spans
    found = spans.select("rank", "kind", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    parts = found.partition_by("rank", "kind", as_dict=True)
    return {(int(rank), str(kind)): _merged(part) for (rank, kind), part in parts.items()}


def _merged(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
