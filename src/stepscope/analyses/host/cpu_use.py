"""How much CPU do the machine, each process and each operator of the input pipeline use, on average and at most?"""

import polars as pl

from stepscope.analyses.host.cpu import KINDS, core_counts, cpu
from stepscope.model.parameters import check_word
from stepscope.model.steps.windows import with_windows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "of": pl.String,  # machine, process, operator (of the input pipeline)
    "name": pl.String,
    "samples": pl.Int64,  # with a share
    "covered_ns": pl.Int64,  # the time that the shares cover
    "cores": pl.Float64,  # of the machine
    "busy_cores": pl.Float64,  # user and system, on average
    "max_busy_cores": pl.Float64,  # in the busiest sample
    "user_share": pl.Float64,
    "system_share": pl.Float64,
    "io_share": pl.Float64,
    "idle_share": pl.Float64,
    "steal_share": pl.Float64,
    "context_switches_per_s": pl.Float64,
    "run_queue": pl.Float64,
    "max_run_queue": pl.Float64,
    "max_threads": pl.Float64,
    "max_memory_bytes": pl.Int64,
    "verdict": pl.String,  # of the machine: full (no core is left for more workers), waits for disks, crowded, free; null if unknown
}
_FULL, _DISKS, _CROWDED = 0.85, 0.15, 2  # of the cores busy; of the time; processes ready to run, per core
_TICK_NS = 10_000_000  # unit of Linux for the CPU time of the machine and of other processes
_SHARES = ("user_share", "system_share", "io_share", "idle_share", "steal_share")


def cpu_use(trace: Trace, *, of: str | None = None, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
    """Per rank and machine, process or operator: means over time of the samples of `cpu`, and maxima.

    `start_ns` and `end_ns` select samples; a sample covers the time before it. The mean of a share weighs each sample by the time that it
    covers; context switches and run queue are means of the samples. CPU time of the machine and of workers is counted in ticks of 10 ms:
    over less than two ticks, shares are unknown. The machine is full if more than 85 % of its cores are busy; else it waits for disks if
    it does for more than 15 % of the time; else it is crowded if more than two processes per core were ready to run. The CPU time of a
    process is exact: if its processes used more than the ticks of the machine show, the machine has the use of its processes.
    """
    if of is not None:
        check_word("kind of sample", of, KINDS)
    key = ["rank", "of", "name"]
    has_share = pl.col("user_share").is_not_null()
    series = [*key, "window"]
    samples = with_windows(cpu(trace), trace.meta, "at_ns").with_columns(
        # A sample of shares covers the time since the previous one; the first, since the first sample of all.
        covered_ns=pl.when(has_share).then(
            pl.col("at_ns")
            - pl.when(has_share).then("at_ns").forward_fill().shift(1).over(series).fill_null(pl.col("at_ns").first().over(series))
        )
    )
    if start_ns is not None:
        samples = samples.filter(pl.col("at_ns") >= start_ns)
    if end_ns is not None:
        samples = samples.filter(pl.col("at_ns") <= end_ns)
    # The time that a single sample covers is unknown: its weight is 1.
    weight = pl.when(pl.col("covered_ns") > 0).then("covered_ns").otherwise(1)
    exact = (pl.col("of") == "process") & pl.col("name").str.starts_with("process")
    in_ticks = (pl.col("of") != "operator") & ~exact
    return (
        samples.group_by(key, maintain_order=True)
        .agg(
            *((pl.col(name) * weight).sum() / weight.filter(pl.col(name).is_not_null()).sum() for name in (*_SHARES, "busy_cores")),
            pl.col("context_switches_per_s", "run_queue").mean(),
            pl.col("covered_ns").sum(),
            samples=has_share.sum(),
            max_busy_cores=pl.col("busy_cores").max(),
            max_run_queue=pl.col("run_queue").max(),
            max_threads=pl.col("threads").max(),
            max_memory_bytes=pl.col("memory_bytes").max(),
        )
        .with_columns(
            pl.when(~(in_ticks & pl.col("covered_ns").is_between(1, 2 * _TICK_NS - 1))).then(pl.col(name).fill_nan(None)).alias(name)
            for name in (*_SHARES, "busy_cores", "max_busy_cores")
        )
        .join(core_counts(trace), on="rank", how="left", maintain_order="left")
        .pipe(_at_least_its_processes)
        .with_columns(verdict=pl.when(pl.col("of") == "machine").then(_verdict()))
        .filter(True if of is None else pl.col("of") == of)
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )


def _at_least_its_processes(uses: pl.DataFrame) -> pl.DataFrame:
    """The machine with at least the use of its processes: the difference was user time, not idle."""
    exact = (pl.col("of") == "process") & pl.col("name").str.starts_with("process ")
    used = (pl.col("busy_cores") * pl.col("covered_ns")).filter(exact).sum().over("rank")
    missed = pl.when(pl.col("of") == "machine").then(used / pl.col("covered_ns") - pl.col("busy_cores")).clip(lower_bound=0).fill_nan(0)
    share = missed.fill_null(0) / pl.col("cores")
    return uses.with_columns(
        busy_cores=pl.col("busy_cores") + missed.fill_null(0),
        max_busy_cores=pl.max_horizontal("max_busy_cores", pl.col("busy_cores") + missed),
        user_share=pl.col("user_share") + share.fill_null(0),
        idle_share=(pl.col("idle_share") - share.fill_null(0)).clip(lower_bound=0),
    )


def _verdict() -> pl.Expr:
    busy = pl.coalesce(pl.col("user_share") + pl.col("system_share"), pl.col("busy_cores") / pl.col("cores"))
    return (
        pl.when(busy > _FULL)
        .then(pl.lit("full"))
        .when(pl.col("io_share") > _DISKS)
        .then(pl.lit("waits for disks"))
        .when(pl.col("max_run_queue") > _CROWDED * pl.col("cores"))
        .then(pl.lit("crowded"))
        .when(busy.is_not_null())
        .then(pl.lit("free"))
    )
