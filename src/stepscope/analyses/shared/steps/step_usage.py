"""Waits for input and floating-point operations of each step."""

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls, has_flops
from stepscope.analyses.shared.steps.host_phases import main_threads, on_host
from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import TABLES, stored_rows
from stepscope.model.trace import Trace

_KEY = ["rank", "step"]


@memoized
def step_usage(trace: Trace) -> pl.DataFrame:
    """The table `rank_usage`: one row per rank and step."""
    if (stored := stored_rows(trace, "rank_usage")) is not None:
        return stored
    steps = trace.steps.select(*_KEY, "start_ns", "end_ns").sort("rank", "start_ns").collect()
    rows = _input_waits(trace, steps).group_by(_KEY, maintain_order=True).agg(known_sum("input_wait_ns"))
    rows = rows.join(_flops(trace), on=_KEY, how="left", maintain_order="left")
    return rows.select(pl.col(name).cast(dtype) for name, dtype in TABLES["rank_usage"].items())


def _input_waits(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with `input_wait_ns`, the time that the thread that runs the steps waits for data; null if the input is not recorded."""
    loading = (
        on_host(trace.spans.filter(pl.col("kind") == "data"), trace)
        .select("rank", "thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    if loading.is_empty():
        return steps.with_columns(input_wait_ns=pl.lit(None, pl.Int64))
    waits = loading.join(main_threads(trace), on=["rank", "thread"], how="semi").partition_by("rank", as_dict=True)
    recorded, parts = set(loading["rank"]), [steps.clear().with_columns(input_wait_ns=pl.lit(None, pl.Int64))]
    for (rank,), rows in steps.partition_by("rank", as_dict=True, maintain_order=True).items():
        spans = waits.get((rank,), loading.clear())
        times = intervals.merge(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())
        waited = pl.Series("input_wait_ns", intervals.covered(times, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()))
        parts.append(rows.with_columns(waited if rank in recorded else pl.lit(None, pl.Int64).alias("input_wait_ns")))
    return pl.concat(parts)


def _flops(trace: Trace) -> pl.DataFrame:
    if not has_flops(trace):
        names = [*_KEY, "flops", "chip_ns", "chip_calls", "chip_unknown"]
        return pl.DataFrame(schema={name: TABLES["rank_usage"][name] for name in names})
    calls = flop_calls(trace).filter(pl.col("flops") > 0, pl.col("step").is_not_null())
    # Operators on the CPU of a job that uses a device are no use of the chip.
    on_chip = (pl.col("device") != "cpu").fill_null(True)
    ideal = pl.col("ideal_ns").filter(on_chip)
    return calls.group_by(_KEY).agg(
        pl.col("flops").sum(), chip_ns=ideal.sum(), chip_calls=on_chip.sum(), chip_unknown=ideal.is_null().sum()
    )


def known_sum(name: str) -> pl.Expr:
    """The sum of a column; null if no value is known."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
