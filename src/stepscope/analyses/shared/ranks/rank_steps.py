"""Per rank and step: the time that the rank needs for itself, and its parts. Comparing them across ranks needs no common clock."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.analyses.shared.steps.host_phases import main_threads, on_host
from stepscope.analyses.steps.overlap import device_parts
from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import TABLES, stored_rows
from stepscope.model.trace import Trace

PARTS = ("compute", "input", "collection", "host")
COLUMNS = TABLES["rank_steps"]


@memoized
def rank_steps(trace: Trace) -> pl.DataFrame:
    """The steps of all ranks whose work is completely recorded; others are unknown and have no row."""
    if (stored := stored_rows(trace, "rank_steps")) is not None:
        return stored
    input_times, collections = _input_times(trace), _collections(trace)
    complete = coverage(trace).steps.filter("complete").select("rank", "step")
    host_ranks = {rank for rank, data in coverage(trace).data.items() if data == "host"}
    parts: list[pl.DataFrame] = []
    for rank, steps, times in device_parts(trace):
        waits, pauses = input_times.get(rank, intervals.NONE), collections.get(rank, intervals.NONE)
        waits = intervals.subtract(waits, pauses)
        computing = times["computing"]
        if rank in host_ranks:
            computing = intervals.subtract(computing, intervals.join(waits, pauses))
        start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
        named = {"exposed": times["exposed"], "compute": computing, "input": waits, "collection": pauses}
        parts.append(
            steps.select("rank", "step", total_ns=pl.col("end_ns") - pl.col("start_ns")).with_columns(
                pl.Series(f"{name}_ns", intervals.covered(part, start, end)) for name, part in named.items()
            )
        )
    if not parts:
        return _recorded(trace)
    in_pipeline = trace.table("stage_operations").select(pl.col("rank").unique()).collect()["rank"].to_list()
    rows = pl.concat(parts).group_by("rank", "step").mean().join(complete, on=["rank", "step"], how="semi")
    known_parts = pl.col("compute_ns") + pl.col("input_ns") + pl.col("collection_ns")
    # Of pipeline stages only operations are recorded: the rest of a step may be a wait for another stage.
    alone = pl.col("rank").is_in(in_pipeline)
    rows = rows.with_columns(own_ns=pl.when(alone).then(known_parts).otherwise(pl.col("total_ns") - pl.col("exposed_ns")))
    rows = rows.with_columns(host_ns=pl.when(~alone).then((pl.col("own_ns") - known_parts).clip(0)))
    rows = rows.join(_work_counts(trace, host_ranks), on=["rank", "step"], how="left")
    known = _conform(rows)
    return pl.concat([known, _recorded(trace).join(known, on="rank", how="anti")]).sort("rank", "step")


def _conform(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        pl.col(name).round().cast(dtype) if name.endswith("_ns") else pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()
    )


def _recorded(trace: Trace) -> pl.DataFrame:
    """Steps of sources that have the step without exposed communication as a figure; its parts are unknown."""
    steps = trace.steps.filter(pl.col("computation_ns").is_not_null()).collect()
    total = pl.col("end_ns") - pl.col("start_ns")
    rows = steps.select("rank", "step", total_ns=total, own_ns=pl.min_horizontal("computation_ns", total))
    return rows.select(
        pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name) for name, dtype in COLUMNS.items()
    )


def _input_times(trace: Trace) -> dict[int, intervals.Set]:
    """Waits for input of the thread that runs the steps, by rank; of all threads where that thread is not known."""
    main = main_threads(trace)
    rows = on_host(trace.spans.filter(pl.col("kind") == "data"), trace)
    of_main = rows.join(main.lazy(), on=["rank", "thread"], how="semi")
    return _times(pl.concat([of_main, rows.join(main.lazy(), on="rank", how="anti")]))


def _collections(trace: Trace) -> dict[int, intervals.Set]:
    return _times(trace.spans.filter(pl.col("category").cast(pl.String) == "gc"))


def _times(rows: pl.LazyFrame) -> dict[int, intervals.Set]:
    rows_of_ranks = rows.select("rank", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    return {
        int(str(rank)): intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        for (rank,), part in rows_of_ranks.partition_by("rank", as_dict=True).items()
    }


def _work_counts(trace: Trace, host_ranks: set[int]) -> pl.DataFrame:
    """Number of kernels, or of operators on ranks without a device, by rank and step."""
    is_work = pl.when(pl.col("rank").is_in(sorted(host_ranks))).then(pl.col("kind") == "op").otherwise(pl.col("kind") == "kernel")
    counted = trace.spans.filter(is_work & pl.col("step").is_not_null()).group_by("rank", "step").agg(work=pl.len())
    rows_of_ranks: pl.DataFrame = counted.collect()
    return rows_of_ranks


class Matrix:
    """Figures of all ranks by row and of all steps by column; NaN where one is unknown."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.ranks, self.steps = sorted(rows["rank"].unique()), sorted(rows["step"].unique())
        self._at = np.searchsorted(self.ranks, rows["rank"]), np.searchsorted(self.steps, rows["step"])
        self._rows = rows

    def of(self, column: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        values = np.full((len(self.ranks), len(self.steps)), np.nan)
        values[self._at] = self._rows[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return values
