"""Which kernels take the device's time, and how were they launched?"""

import polars as pl

from stepscope.analyses.shared.operator_calls import in_recorded_steps, on_devices, with_device_steps
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "name": pl.String,
    "op": pl.String,
    "scope": pl.String,  # by scope only
    "stream": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
    "grid": pl.String,
    "block": pl.String,
    "launch_count": pl.Int64,
    "registers": pl.Int64,
    "shared_memory_bytes": pl.Int64,
    "occupancy": pl.Float64,
    "device_steps": pl.Int64,  # steps that the rows of the rank cover: their device work is completely recorded
}
_KEYS = ["rank", "device", "name", "op", "scope"]
_SHARE = (pl.col("total_ns") / pl.col("total_ns").sum().over("rank", "device")).fill_nan(0.0).alias("share")
_ORDER = [pl.col("rank"), pl.col("device"), -pl.col("total_ns"), pl.col("name"), pl.col("op"), pl.col("scope")]
_LAUNCH = {
    "grid": r'"grid":\s*\[([^\]]*)\]',
    "block": r'"block":\s*\[([^\]]*)\]',
    "registers": r'"registers per thread":\s*(\d+)',
    "shared_memory_bytes": r'"shared memory":\s*(\d+)',
    "occupancy": r'"est\. achieved occupancy %":\s*([\d.]+)',
}
# Kineto assumes the default limit of 48 KiB of shared memory per block: for a kernel with more, its occupancy is 0.
_DEFAULT_SHARED_BYTES = 48 << 10


def kernels(trace: Trace, *, copies: bool = False, by_scope: bool = False) -> pl.DataFrame:
    """Per rank and device: kernels by name and by the operator that launched them, the longest total first.

    Communication kernels are kernels; copies and fills are included with `copies`. `share` is of the total of the device. `stream` lists
    its streams. `grid`, `block`, `registers` (per thread) and `shared_memory_bytes` are those of the most frequent of `launch_count` launch
    configurations. `occupancy` is the estimated achieved occupancy, 0 to 1, weighted by duration; null if it is unknown, as for kernels
    with more than 48 KiB of shared memory per block. With `by_scope` there is a row for each scope of these operators. Incompletely
    recorded steps are left out as in `operators`.
    """
    launches = (
        _calls(trace, copies, by_scope, [pl.col("args").str.extract(pattern).alias(column) for column, pattern in _LAUNCH.items()])
        .group_by(*_KEYS, "stream", *_LAUNCH)
        .agg(calls=pl.len().cast(pl.Int64), total_ns=pl.col("dur_ns").sum(), min_ns=pl.col("dur_ns").min(), max_ns=pl.col("dur_ns").max())
        .with_columns(pl.col("grid", "block").str.replace_all(r",\s*", "x"), pl.col("occupancy").cast(pl.Float64, strict=False) / 100)
    )
    unknown = (pl.col("occupancy") == 0) & (pl.col("shared_memory_bytes").cast(pl.Int64, strict=False) > _DEFAULT_SHARED_BYTES)
    launches = launches.with_columns(occupancy=pl.when(~unknown.fill_null(False)).then("occupancy"))
    configurations = pl.struct("grid", "block", "registers", "shared_memory_bytes")
    weighted = pl.col("occupancy").is_not_null()
    streams = pl.col("stream").drop_nulls().unique().sort()
    rows = (
        launches.with_columns(configuration_calls=pl.col("calls").sum().over(*_KEYS, configurations))
        .sort(-pl.col("configuration_calls"), "grid", "block", nulls_last=True)
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col("calls", "total_ns").sum(),
            pl.col("min_ns").min(),
            pl.col("max_ns").max(),
            pl.col("grid", "block", "registers", "shared_memory_bytes").first(),
            launch_count=pl.when(pl.col("grid").is_not_null().any()).then(configurations.n_unique()).otherwise(0),
            stream=streams.sort_by(streams.str.len_chars(), maintain_order=True).str.join(", "),  # 7 before 20
            occupancy=(pl.col("occupancy") * pl.col("total_ns")).sum() / pl.col("total_ns").filter(weighted).sum(),
        )
        .with_columns(_SHARE, avg_ns=pl.col("total_ns") / pl.col("calls"), occupancy=pl.col("occupancy").fill_nan(None))
        .sort(_ORDER)
    )
    kernel_rows = with_device_steps(trace, rows.collect(), pl.lit(True), "share")
    # Values of args may be out of range.
    return kernel_rows.select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())


@memoized
def kernel_totals(trace: Trace) -> pl.DataFrame:
    """The rows of `kernels` with names, calls, total_ns and share alone: it does not read the launch configuration of each call."""
    rows = _calls(trace, copies=False, by_scope=False, launch=[]).group_by(_KEYS)
    sums = rows.agg(calls=pl.len().cast(pl.Int64), total_ns=pl.col("dur_ns").sum()).with_columns(_SHARE).sort(_ORDER)
    return with_device_steps(trace, sums.collect(), pl.lit(True), "share")


def _calls(trace: Trace, copies: bool, by_scope: bool, launch: list[pl.Expr]) -> pl.LazyFrame:
    kinds = ["kernel", "communication", *(["copy", "set"] if copies else [])]
    return (
        in_recorded_steps(trace, on_devices(trace))
        .filter(pl.col("kind").is_in(kinds))
        .select(
            "rank",
            "dur_ns",
            "stream",
            pl.col("number").alias("device"),
            pl.col("name").cast(pl.String),
            pl.col("op_type").cast(pl.String).alias("op"),
            (pl.col("scope") if by_scope else pl.lit(None)).cast(pl.String).alias("scope"),
            *launch,
        )
    )
