"""How long are the steps, and how well do they use the device?"""

import polars as pl

from stepscope.analyses.shared.memory.peak_memory import peak_memory
from stepscope.analyses.shared.steps.coverage import complete_steps, coverage, ranks_without_copies, step_ranges
from stepscope.analyses.shared.steps.overhead import with_overhead
from stepscope.analyses.shared.steps.step_usage import known_sum, step_usage
from stepscope.analyses.shared.steps.warmup import counting_steps, host_steps
from stepscope.analyses.steps.overlap import overlap
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "steps": pl.Int64,  # that the figures cover
    "left_out": pl.Int64,  # steps: warm-up
    "steps_how": pl.String,
    "step_ns": pl.Int64,
    "p90_ns": pl.Int64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "first_step_ns": pl.Int64,
    "device_data": pl.String,  # complete, partial, none (not recorded) or host (no device: operators count); null if unknown
    "device_steps": pl.Int64,  # that shares and rates of the device cover: their device work is completely recorded
    "device_step_ranges": pl.String,  # their numbers, if these are not all steps
    "lost_launches": pl.Int64,  # launch calls of these steps without recorded work: idle time may be work; null without launch calls
    "launches": pl.Int64,  # launch calls of these steps; null if all have work: which calls launch differs by format
    "compute_share": pl.Float64,  # of the device time in these steps; the four add up to 1
    "communication_share": pl.Float64,  # without computation at the same time
    "copy_share": pl.Float64,  # without either; null if the source has only operators, and the other three add up to 1
    "idle_share": pl.Float64,
    "busy_share": pl.Float64,  # all but idle
    "input_wait_ns": pl.Int64,  # per step, on average
    "input_wait_share": pl.Float64,
    "exposed_communication_share": pl.Float64,
    "peak_memory_bytes": pl.Int64,
    "flops_per_s": pl.Float64,
    "utilization": pl.Float64,
    "unprofiled_step_ns": pl.Int64,  # median of steps while nothing was recorded; null if unknown
    "idle_unprofiled_share": pl.Float64,  # of the device, without recording overhead: see recording_overhead
    "idle_unprofiled_low_share": pl.Float64,  # its range, as unprofiled steps vary
    "idle_unprofiled_high_share": pl.Float64,
    "overhead": pl.String,  # recording overhead: most of the idle time, part of the idle time, steps, small, likely; null: unknown
    "slowed_by": pl.String,  # recorded data that slows the host: stacks, shapes, memory
}


@memoized
def overview(trace: Trace, *, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank. `step_ns` is the median and `p90_ns` the 90th percentile of its steps.

    The first step of each rank is left out if it took more than 1.5 times the median of the others and longer than 90 % of them, as in
    `step_times`; `warmup` is the number of first steps to leave out instead, 0 for none. `first_step_ns` is always the time of the first
    step. Shares and rates cover the remaining steps; shares of the device cover the `device_steps` among them, whose device work is
    completely recorded, and are null if there is none.

    Compute, communication, copy and idle are shares of the device, as in `overlap`, and add up to 1: communication counts while nothing
    computes, copies while neither runs; busy is all but idle. If the source cannot contain copies (MindInsight, cluster tables of Ascend),
    the share of copies is null. They are of the step on the device if the source has steps there (`steps_how` then adds device ranges), and
    of the host if a rank has no device. Exposed communication also includes transfers on the host while the device is idle. Input wait is
    the time that the thread that runs the steps waits for data, per step on average and as a share; null if the input is not recorded.
    Peak memory is the maximum allocated on the device, or on the host if device memory is not recorded, over the whole recording. FLOPs are
    those of all operators in steps that `flops` can count, null if there is none; utilization is the time that the chip would need for them
    at its dense peaks over the time in steps, null if a peak is unknown. All figures are those while recording; the last six columns, as
    in `recording_overhead`, estimate the unprofiled step.
    """
    every_step = host_steps(trace)
    steps = counting_steps(trace, warmup)
    firsts = every_step.group_by("rank").agg(all=pl.len(), first_step_ns=pl.col("total_ns").first())
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
    device_steps = recorded.select("rank", "step")
    for part in (
        firsts,
        _device_names(trace),
        _device_steps(trace, steps, recorded),
        _device_shares(trace, device_steps),
        _launches(trace, device_steps),
        _usage(trace, steps, device_steps),
        peak_memory(trace),
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
    device_ranges = pl.when(pl.col("clock") == "device").then(pl.lit("device ranges"))
    figures = with_overhead(figures, trace).with_columns(
        steps_how=pl.concat_str("steps_how", device_ranges, separator=", ", ignore_nulls=True)
    )
    return figures.select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())


def _device_names(trace: Trace) -> pl.DataFrame:
    """The chips with streams, or the processors of the host."""
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
    """Coverage of each rank in the counted steps, and the time of the covered steps."""
    data = coverage(trace).data
    covered = recorded.group_by("rank").agg(pl.col("step"), recorded_ns=pl.col("total_ns").sum())
    rows = steps.group_by("rank", maintain_order=True).agg(all=pl.len()).join(covered, on="rank", how="left")
    numbers = [[] if steps is None else steps.to_list() for steps in rows["step"]]
    return rows.select(
        "rank",
        "recorded_ns",
        pl.Series("device_data", [data[rank] for rank in rows["rank"]], dtype=pl.String),
        pl.Series(
            "device_steps",
            [None if data[rank] is None else len(steps) for rank, steps in zip(rows["rank"], numbers, strict=True)],
            pl.Int64,
        ),
        pl.Series(
            "device_step_ranges",
            [step_ranges(steps) if 0 < len(steps) < count else None for steps, count in zip(numbers, rows["all"], strict=True)],
            dtype=pl.String,
        ),
    )


def _launches(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Launch calls of these steps, and those without recorded work."""
    rows = coverage(trace).steps.join(steps, on=["rank", "step"], how="semi")
    sums = rows.group_by("rank").agg(known_sum("launches"), known_sum("lost_launches"))
    return sums.with_columns(launches=pl.when(pl.col("lost_launches") > 0).then("launches"))


def _device_shares(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """The parts of these steps as shares of the device time."""
    parts = {
        "compute_share": "computing_ns",
        "communication_share": "device_exposed_ns",
        "copy_share": "copy_ns",
        "idle_share": "free_ns",
        "exposed_communication_share": "exposed_ns",
    }
    sums = (
        overlap(trace)
        .join(steps, on=["rank", "step"], how="semi")
        .group_by("rank")
        .agg(pl.col("device_ns", *parts.values()).sum(), pl.col("clock").first())
        .filter(pl.col("device_ns") > 0)
    )
    shares = sums.select("rank", "clock", **{name: pl.col(part) / pl.col("device_ns") for name, part in parts.items()})
    copies = pl.when(~pl.col("rank").is_in(ranks_without_copies(trace))).then("copy_share")
    return shares.with_columns(busy_share=1 - pl.col("idle_share"), copy_share=copies)


def _usage(trace: Trace, steps: pl.DataFrame, device_steps: pl.DataFrame) -> pl.DataFrame:
    """Waits for input in these steps, and FLOPs in the steps whose device work is completely recorded; null where they are unknown."""
    usage = step_usage(trace)
    waits = usage.join(steps, on=["rank", "step"], how="semi").group_by("rank").agg(waited_ns=known_sum("input_wait_ns"))
    counted = usage.join(device_steps, on=["rank", "step"], how="semi").group_by("rank").agg(
        known_sum("flops"), known_sum("chip_ns"), pl.col("chip_calls", "chip_unknown").sum()
    )  # fmt: skip
    every = (pl.col("chip_unknown") == 0) & (pl.col("chip_calls") > 0)
    flops = counted.select("rank", "flops", ideal_ns=pl.when(every).then("chip_ns"))
    return waits.join(flops, on="rank", how="left")
