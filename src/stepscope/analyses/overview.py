"""How long are the steps, and how well do they use the device?"""

import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import complete_steps, coverage, step_ranges
from stepscope.analyses._flop_counts import counted
from stepscope.analyses._host import host_spans, main_threads
from stepscope.analyses._overhead import with_overhead
from stepscope.analyses._warmup import counting_steps, host_steps
from stepscope.analyses.overlap import overlap
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "steps": pl.Int64,  # that these figures are of
    "left_out": pl.Int64,  # steps: warm-up
    "steps_how": pl.String,
    "step_ns": pl.Int64,
    "p90_ns": pl.Int64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "first_step_ns": pl.Int64,
    "device_data": pl.String,  # complete, partial, none (not recorded) or host (no device: operators stand in); null where nothing is known
    "device_steps": pl.Int64,  # that shares and rates of the device are of: their device work is completely recorded
    "device_step_ranges": pl.String,  # which, where these are not all
    "compute_share": pl.Float64,  # of the device's time in these steps; the four add up to 1
    "communication_share": pl.Float64,  # with no computation to hide it
    "copy_share": pl.Float64,  # with neither
    "idle_share": pl.Float64,
    "busy_share": pl.Float64,  # all but idle
    "input_wait_ns": pl.Int64,  # per step, on average
    "input_wait_share": pl.Float64,
    "exposed_communication_share": pl.Float64,
    "peak_memory_bytes": pl.Int64,
    "flops_per_s": pl.Float64,
    "utilization": pl.Float64,
    "unprofiled_step_ns": pl.Int64,  # median of steps while nothing was recorded; null where none are known
    "idle_unprofiled_share": pl.Float64,  # of the device, without what recording adds: see recording_overhead
    "overhead": pl.String,  # what recording adds: most of the idle time, part of the idle time, steps, small, likely; null: not known
    "slowed_by": pl.String,  # recorded besides, and known to slow the host: stacks, shapes, memory
}


def overview(trace: Trace, *, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank. `step_ns` is the median and `p90_ns` the 90th percentile of its steps.

    Each rank's first step is left out of all figures where it took more than one and a half times the median of the others, and more
    than nine in ten of them, as in `step_times`; `warmup` says how many of the first steps to leave out instead, 0 for none.
    `first_step_ns` is the first one's time in any case. Shares and rates are over the time in the steps that count;
    those of the device over the `device_steps` among them, whose device work is completely recorded, and null where there is none.

    Compute, communication, copy and idle are of the device, as `overlap` has them, and add up to 1: a moment counts as communication where
    nothing computes, and as copy where neither does; busy is all but idle. They are of the step on the device where the source draws
    steps there (`steps_how` then says device ranges), and of the host where a rank has no device. Exposed
    communication is all that no computation hides, also where the host runs it while the device is idle. Input wait: the thread that
    runs the steps waited for data, per step on average and as a share; null where nothing of the input was recorded.
    Peak memory: the most allocated at once on the device, or on the host where no device memory was recorded, over the whole recording.
    FLOPs: of all operators in steps that `flops` can count, null where it can count none; utilization is the time the chip would need
    for them at its dense peaks over the time in steps, null where a peak is not known. All this is while recording; the last four columns,
    as in `recording_overhead`, say what a step takes without it.
    """
    every = host_steps(trace)
    steps = counting_steps(trace, warmup)
    firsts = every.group_by("rank").agg(all=pl.len(), first_step_ns=pl.col("total_ns").first())
    rows = steps.group_by("rank", maintain_order=True).agg(
        steps=pl.len(),
        steps_how=pl.col("how").cast(pl.String).unique().sort().str.join(", "),
        step_ns=pl.col("total_ns").median().round(),
        p90_ns=pl.col("total_ns").quantile(0.9, "nearest"),
        min_ns=pl.col("total_ns").min(),
        max_ns=pl.col("total_ns").max(),
        total_ns=pl.col("total_ns").sum(),
    )
    recorded = steps.join(complete_steps(trace), on=["rank", "step"], how="semi", maintain_order="left")
    counts = recorded.select("rank", "step")
    for part in (
        firsts,
        _device_names(trace),
        _device_steps(trace, steps, recorded),
        _device_shares(trace, counts),
        _input_waits(trace, steps),
        _memory(trace),
        _flops(trace, counts),
    ):
        rows = rows.join(part, on="rank", how="left", maintain_order="left")
    total = pl.col("recorded_ns")
    figures = rows.with_columns(
        left_out=pl.col("all") - pl.col("steps"),
        input_wait_ns=(pl.col("waited_ns") / pl.col("steps")).round(),
        input_wait_share=pl.col("waited_ns") / pl.col("total_ns"),
        flops_per_s=pl.col("flops") / total * 1e9,
        utilization=pl.col("ideal_ns") / total,
    )
    drawn = pl.when(pl.col("clock") == "device").then(pl.lit("device ranges"))
    figures = with_overhead(figures, trace).with_columns(steps_how=pl.concat_str("steps_how", drawn, separator=", ", ignore_nulls=True))
    return figures.select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())


def _device_names(trace: Trace) -> pl.DataFrame:
    """The chips that did something, or those of the host."""
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "device").unique()
    used = trace.devices.join(streams, on=["rank", "device"], how="semi")
    host = trace.devices.filter(pl.col("kind").cast(pl.String) == "cpu").join(used, on="rank", how="anti")
    names: pl.DataFrame = (
        pl.concat([used, host])
        .sort("rank", "device")
        .group_by("rank")
        .agg(device=pl.col("name").unique(maintain_order=True).str.join(", "))
    ).collect()
    return names


def _device_steps(trace: Trace, steps: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """What is recorded of each rank's device in the steps that count, and their time."""
    data = coverage(trace).data
    known = recorded.group_by("rank").agg(pl.col("step"), recorded_ns=pl.col("total_ns").sum())
    rows = steps.group_by("rank", maintain_order=True).agg(all=pl.len()).join(known, on="rank", how="left")
    numbers = [[] if numbers is None else numbers.to_list() for numbers in rows["step"]]
    return rows.select(
        "rank",
        "recorded_ns",
        pl.Series("device_data", [data[rank] for rank in rows["rank"]], dtype=pl.String),
        pl.Series(
            "device_steps", [None if data[rank] is None else len(own) for rank, own in zip(rows["rank"], numbers, strict=True)], pl.Int64
        ),
        pl.Series(
            "device_step_ranges",
            [step_ranges(own) if 0 < len(own) < count else None for own, count in zip(numbers, rows["all"], strict=True)],
            dtype=pl.String,
        ),
    )


def _device_shares(trace: Trace, counts: pl.DataFrame) -> pl.DataFrame:
    """What the device did in the steps that count, as shares of its time in them."""
    parts = {
        "compute_share": "computing_ns",
        "communication_share": "device_exposed_ns",
        "copy_share": "copy_ns",
        "idle_share": "free_ns",
        "exposed_communication_share": "exposed_ns",
    }
    sums = (
        overlap(trace)
        .join(counts, on=["rank", "step"], how="semi")
        .group_by("rank")
        .agg(pl.col("device_ns", *parts.values()).sum(), pl.col("clock").first())
        .filter(pl.col("device_ns") > 0)
    )
    shares = sums.select("rank", "clock", **{name: pl.col(part) / pl.col("device_ns") for name, part in parts.items()})
    return shares.with_columns(busy_share=1 - pl.col("idle_share"))


def _input_waits(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    loading = (
        host_spans(trace)
        .filter(pl.col("kind") == "data")
        .select("rank", "thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    waits = loading.join(main_threads(trace), on=["rank", "thread"], how="semi").partition_by("rank", as_dict=True)
    found = []
    for rank in loading["rank"].unique():
        rows = waits.get((rank,), loading.clear())
        found.append((rank, _within(steps, rank, intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()))))
    return pl.DataFrame(found, schema={"rank": pl.Int32, "waited_ns": pl.Int64}, orient="row")


def _within(steps: pl.DataFrame, rank: object, some: intervals.Set) -> int:
    rows = steps.filter(pl.col("rank") == rank)
    return int(intervals.covered(some, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()).sum())


def _memory(trace: Trace) -> pl.DataFrame:
    """The highest sample, or what was allocated before the first one, as `memory_peaks` has it too."""
    key, at = ["rank", "device"], pl.col("at_ns")
    samples = (
        trace.counters.with_columns(pl.col("name").cast(pl.String))
        .filter(pl.col("name").str.starts_with("allocated ") & (pl.col("unit").cast(pl.String) == "bytes"))
        .group_by("rank", pl.col("name").str.strip_prefix("allocated ").alias("device"))
        .agg(peak=pl.col("value").max(), first=pl.col("value").filter(at == at.min()).last(), first_ns=at.min())
    )
    here, gone = pl.col("alloc_ns") == pl.col("first_ns"), pl.col("alloc_ns").is_null() & (pl.col("free_ns") == pl.col("first_ns"))
    changes = (
        trace.allocations.select("rank", pl.col("device").cast(pl.String), "bytes", "alloc_ns", "free_ns")
        .join(samples, on=key)
        .group_by(key)
        .agg(
            change=pl.col("bytes").filter(gone).sum()
            - pl.col("bytes").filter(here & (pl.col("free_ns").ne_missing(pl.col("first_ns")))).sum()
        )
    )
    peak = pl.max_horizontal("peak", pl.col("first") + pl.col("change").fill_null(0))
    on_host = pl.col("device") == "cpu"
    peaks = samples.join(changes, on=key, how="left").with_columns(peak=peak).group_by("rank")
    best = peaks.agg(gpu=pl.col("peak").filter(~on_host).max(), cpu=pl.col("peak").max())
    found: pl.DataFrame = best.select("rank", peak_memory_bytes=pl.coalesce("gpu", "cpu")).collect()
    return found


def _flops(trace: Trace, counts: pl.DataFrame) -> pl.DataFrame:
    in_steps = Trace(trace.tables | {"spans": trace.spans.join(counts.lazy(), on=["rank", "step"], how="semi")}, trace.meta)
    calls = counted(in_steps).filter(pl.col("flops") > 0)
    every = pl.col("ideal_ns").is_not_null().all()
    return calls.group_by("rank").agg(pl.col("flops").sum(), ideal_ns=pl.when(every).then(pl.col("ideal_ns").sum()))
