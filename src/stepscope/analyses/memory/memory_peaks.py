"""When is the peak of memory in each step, and which operator allocated it?"""

import polars as pl

from stepscope.analyses.shared.memory.memory_samples import memory_samples
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "step": pl.Int32,
    "peak_bytes": pl.Int64,
    "peak_ns": pl.Int64,
    "op": pl.String,
    "scope": pl.String,  # module of the operator
    "reserved_bytes": pl.Int64,
    "static_bytes": pl.Int64,
    "growth_bytes": pl.Int64,
}


@memoized
def memory_peaks(trace: Trace, *, device: str | None = None) -> pl.DataFrame:
    """Per rank, device and step: peak of allocated bytes, its timestamp and operator; peak of reserved bytes; growth.

    A step starts with the bytes allocated before it: if these are its peak, it has no operator. Growth is the last value in the step less
    the first. Samples outside every step have a row with a null step.
    """
    if (stored := stored_rows(trace, "rank_memory_peaks")) is not None:
        return stored if device is None else stored.filter(pl.col("device") == device)
    samples = memory_samples(trace, device).sort("at_ns", maintain_order=True)
    steps = trace.table("steps").select("rank", "step", "start_ns", "end_ns").sort("start_ns").collect()
    inside = samples.join_asof(steps, left_on="at_ns", right_on="start_ns", by="rank", check_sortedness=False).with_columns(
        step=pl.when(pl.col("at_ns") < pl.col("end_ns")).then("step"), before=False
    )
    before = (
        steps.join(samples.select("rank", "device").unique(), on="rank")
        .sort("start_ns")
        .join_asof(
            pl.concat([_before_samples(trace, samples), samples.filter(pl.col("allocated_bytes").is_not_null())]),
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
        peaks.join(_largest_allocations(trace), on=["rank", "device", "peak_ns"], how="left")
        .sort("rank", "device", "step")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _before_samples(trace: Trace, samples: pl.DataFrame) -> pl.DataFrame:
    """Bytes allocated before the first sample: static memory, and older blocks that were freed during the recording."""
    freed = pl.col("alloc_ns").is_null() & pl.col("free_ns").is_not_null()
    older = (
        trace.table("allocations")
        .group_by("rank", pl.col("device").cast(pl.String))
        .agg(older=pl.col("bytes").filter(freed).sum())
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


def _largest_allocations(trace: Trace) -> pl.DataFrame:
    """The operator of the largest block allocated at each timestamp."""
    return (
        trace.table("allocations")
        .filter(pl.col("alloc_ns").is_not_null())
        .sort("bytes", descending=True)
        .unique(["rank", "device", "alloc_ns"], keep="first", maintain_order=True)
        .select("rank", pl.col("device", "op", "scope").cast(pl.String), peak_ns="alloc_ns")
        .collect()
    )
