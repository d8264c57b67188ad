"""The peak memory of each rank."""

import polars as pl

from stepscope.model.columns.counters import OWNER
from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace


def peak_memory(trace: Trace) -> pl.DataFrame:
    """rank and peak_memory_bytes: the highest sample, or the bytes allocated before the first one, as in `memory_peaks`."""
    if trace.is_part_of_steps and trace.meta.summary:  # it has the peak of all steps together
        return pl.DataFrame(schema={"rank": pl.Int32, "peak_memory_bytes": pl.Float64})
    if (stored := stored_rows(trace, "rank_figures")) is not None:
        return stored.select("rank", "peak_memory_bytes")
    key, at = ["rank", "device"], pl.col("at_ns")
    of_devices = (pl.col("series").cast(pl.String) == "allocated") & (pl.col("owner").cast(pl.String) != "")
    samples = (
        trace.counters.filter(of_devices, pl.col("unit").cast(pl.String) == "bytes")
        .group_by("rank", device=OWNER)
        .agg(peak=pl.col("value").max(), first=pl.col("value").filter(at == at.min()).last(), first_ns=at.min())
    )
    allocated, freed = pl.col("alloc_ns") == pl.col("first_ns"), pl.col("alloc_ns").is_null() & (pl.col("free_ns") == pl.col("first_ns"))
    changes = (
        trace.allocations.select("rank", pl.col("device").cast(pl.String), "bytes", "alloc_ns", "free_ns")
        .join(samples, on=key)
        .group_by(key)
        .agg(
            change=pl.col("bytes").filter(freed).sum()
            - pl.col("bytes").filter(allocated & (pl.col("free_ns").ne_missing(pl.col("first_ns")))).sum()
        )
    )
    peak = pl.max_horizontal("peak", pl.col("first") + pl.col("change").fill_null(0))
    on_host = pl.col("device") == "cpu"
    peaks = samples.join(changes, on=key, how="left").with_columns(peak=peak).group_by("rank")
    best = peaks.agg(gpu=pl.col("peak").filter(~on_host).max(), cpu=pl.col("peak").max())
    memory: pl.DataFrame = best.select("rank", peak_memory_bytes=pl.coalesce("gpu", "cpu")).collect()
    return memory
