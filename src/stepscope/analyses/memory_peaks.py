"""When was the most memory in use in each step, and which operator allocated it?"""

import polars as pl

from stepscope.analyses._memory import memory_samples
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "step": pl.Int32,
    "peak_bytes": pl.Int64,
    "peak_ns": pl.Int64,
    "op": pl.String,
    "scope": pl.String,  # the module in which it ran
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
    "growth_bytes": pl.Int64,
}


def memory_peaks(trace: Trace, *, device: str | None = None) -> pl.DataFrame:
    """Per rank, device and step: the most allocated, when, and by which operator; the most reserved; what stayed at the end.

    A step starts with what was allocated before it: where that is its peak, no operator of the step made it. Growth is the
    last value in the step less that first one. Moments outside every step have a row of their own, with no step.
    """
    samples = memory_samples(trace, device).sort("at_ns", maintain_order=True)
    steps = trace.table("steps").select("rank", "step", "start_ns", "end_ns").sort("start_ns").collect()
    inside = samples.join_asof(steps, left_on="at_ns", right_on="start_ns", by="rank", check_sortedness=False).with_columns(
        step=pl.when(pl.col("at_ns") < pl.col("end_ns")).then("step"), before=False
    )
    before = (
        steps.join(samples.select("rank", "device").unique(), on="rank")
        .sort("start_ns")
        .join_asof(
            pl.concat([_beginning(trace, samples), samples.filter(pl.col("allocated_bytes").is_not_null())]),
            left_on="start_ns",
            right_on="at_ns",
            by=["rank", "device"],
            allow_exact_matches=False,
            check_sortedness=False,
            coalesce=False,
        )
        .filter(pl.col("allocated_bytes").is_not_null())
        .with_columns(at_ns=pl.col("start_ns"), before=True)
    )
    allocated = pl.col("allocated_bytes")
    last, first = allocated.drop_nulls().last(), allocated.filter("before").first()
    peaks = (
        pl.concat([before.select(inside.columns), inside])
        .group_by("rank", "device", "step", maintain_order=True)
        .agg(
            pl.col("reserved_bytes").max(),
            pl.col("static_bytes").first(),
            peak_bytes=allocated.max(),
            peak_ns=pl.col("at_ns").get(allocated.arg_max()),
            growth_bytes=pl.when(pl.col("step").first().is_not_null()).then(last - first),
        )
    )
    return (
        peaks.join(_allocating(trace), on=["rank", "device", "peak_ns"], how="left")
        .sort("rank", "device", "step")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _beginning(trace: Trace, samples: pl.DataFrame) -> pl.DataFrame:
    """What was allocated before the first sample: static memory, and the older blocks that the recording saw go."""
    gone = pl.col("alloc_ns").is_null() & pl.col("free_ns").is_not_null()
    older = (
        trace.table("allocations")
        .group_by("rank", pl.col("device").cast(pl.String))
        .agg(older=pl.col("bytes").filter(gone).sum())
        .collect()
    )
    return (
        samples.group_by("rank", "device")
        .agg(pl.col("static_bytes").first())
        .join(older, on=["rank", "device"])
        .select(
            "rank",
            "device",
            at_ns=pl.lit(-(2**63), pl.Int64),
            allocated_bytes=pl.col("static_bytes") + pl.col("older"),
            reserved_bytes=pl.lit(None, pl.Int64),
            static_bytes="static_bytes",
        )
    )


def _allocating(trace: Trace) -> pl.DataFrame:
    """The operator behind the largest block allocated at each moment."""
    return (
        trace.table("allocations")
        .filter(pl.col("alloc_ns").is_not_null())
        .sort("bytes", descending=True)
        .unique(["rank", "device", "alloc_ns"], keep="first", maintain_order=True)
        .select("rank", pl.col("device", "op", "scope").cast(pl.String), peak_ns="alloc_ns")
        .collect()
    )
