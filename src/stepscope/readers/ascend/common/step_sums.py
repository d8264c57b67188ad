"""Sums of each step that Ascend's tools write next to a timeline, and the work that a timeline lacks beside them.

step_trace_time.csv, StepTraceTime of analysis.db     per step: Computing, Communication, Overlapped, Free, Preparing, in us
op_statistic.csv                                      per type of kernel: number of calls
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model import intervals, units
from stepscope.readers.ascend.ascend_db.sqlite import ANALYSIS_FILES, read_rows
from stepscope.readers.ascend.common.tables import COMMUNICATION_CORES, column, drop_invalid, nanoseconds, number, read_table
from stepscope.readers.common.problems import Problem

STEPS_FILE = "step_trace_time.csv"
STATISTIC_FILE = "op_statistic.csv"
_TIMES = ("computing", "communication", "overlapped", "free", "preparing")  # preparing: before the first device work of the step
SUMS = {"step": pl.Int32, **dict.fromkeys(_TIMES, pl.Int64)}
_ENOUGH = 0.95  # of the kernels that op_statistic.csv counts
_LOST = 0.05  # of a step: shorter gaps may be in it
ALWAYS = intervals.Set(np.array([-(2**62)]), np.array([2**62]))


def step_sums(output: Path, problems: list[Problem]) -> pl.DataFrame:
    """The sums of each step: columns SUMS, without rows where there are none."""
    file = output / STEPS_FILE
    rows = read_table(file, problems) if file.is_file() else pl.DataFrame()
    return _typed_rows(rows, problems) if rows.height else database_sums(output, problems)


def database_sums(output: Path, problems: list[Problem]) -> pl.DataFrame:
    """The sums of each step in analysis.db alone."""
    columns = [name.capitalize() for name in SUMS]
    texts = text_rows(output, "StepTraceTime", columns, [])
    if not texts:
        columns.remove("Preparing")
        texts = text_rows(output, "StepTraceTime", columns, problems)
    return _typed_rows(pl.DataFrame(texts, dict.fromkeys(columns, pl.String), orient="row"), problems)


def _typed_rows(rows: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    sums = rows.select(
        step=column(rows, "Step").str.extract(r"([0-9]{1,9})").cast(pl.Int32, strict=False).fill_null(0),
        **{name: nanoseconds(column(rows, name.capitalize())) for name in _TIMES},
    )
    is_valid = pl.all_horizontal(pl.col(name) >= 0 for name in SUMS if name != "preparing") & (pl.col("preparing").fill_null(0) >= 0)
    is_valid &= pl.col("overlapped") <= pl.col("computing")
    valid = drop_invalid(sums, is_valid.fill_null(False), problems, STEPS_FILE, "step", "without valid times")
    return valid.sort("step").unique("step", keep="first", maintain_order=True)


def text_rows(output: Path, table: str, columns: Any, problems: list[Problem]) -> list[tuple[Any, ...]]:
    """The rows of the first database of the analysis that has the table, each cell as text."""
    for name in ANALYSIS_FILES:
        if (output / name).is_file() and (rows := read_rows(output / name, table, tuple(columns), problems)) is not None:
            return [tuple(None if cell is None else str(cell) for cell in row) for row in rows]
    return []


class DeviceSums(NamedTuple):
    """What the files next to a timeline say about the device work that it should contain."""

    steps: pl.DataFrame  # columns: SUMS; preparing is null in tables of older tools
    kernels: int | None = None  # calls of kernels without communication; null: unknown
    cut: bool = False  # the table of kernels ends inside a row
    gaps: intervals.Set = intervals.NONE  # when device work ran that is missing from the timeline or the table of kernels

    @property
    def durations(self) -> pl.DataFrame:
        """step, preparing, total_ns: from the first device work of the step to its last."""
        total = pl.col("computing") + pl.col("communication") - pl.col("overlapped") + pl.col("free")
        return self.steps.select("step", "preparing", total_ns=total)


NO_SUMS = DeviceSums(pl.DataFrame(schema=SUMS))


def counted_kernels(output: Path) -> int | None:
    """The calls of kernels in op_statistic.csv, without communication."""
    file = output / STATISTIC_FILE
    rows = read_table(file, []) if file.is_file() else pl.DataFrame()
    if not {"Count", "Core Type"} <= set(rows.columns):
        return None
    rows = rows.filter(~pl.col("Core Type").is_in(COMMUNICATION_CORES).fill_null(False))
    return int(rows.select(number(pl.col("Count")).sum()).item() or 0)


def with_step_sums(steps: pl.DataFrame, sums: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """The steps with their sums; steps of the sums that the timeline lacks are a problem."""
    if sums.is_empty() or (steps["how"] == "whole").all():
        return steps
    absent = sums.filter(~pl.col("step").is_in(steps["step"].implode()))
    if absent.height:
        text = f"not in the timeline: {absent.height:,} of {units.count(sums.height, 'step')}; only their sums are recorded"
        problems.append(Problem(STEPS_FILE, text, absent.height))
    added = sums.select("step", device_computing_ns="computing", device_communication_ns="communication")
    return steps.join(added, on="step", how="left", maintain_order="left")


def with_lost_kernels(steps: pl.DataFrame, sums: DeviceSums, recorded: int, problems: list[Problem]) -> pl.DataFrame:
    """The steps, marked where the tables show that kernels are missing and no sum of the step shows which.

    The table of kernels has the order of time: where it is cut off, its last step and those after it are not complete. More kernels in
    op_statistic.csv may be missing in any step.
    """
    starts, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    lost = pl.lit(pl.Series(intervals.covered(sums.gaps, starts, ends) > _LOST * (ends - starts)))
    if sums.cut:
        lost |= pl.col("step") == pl.col("step").max()
    if sums.kernels is not None and recorded < _ENOUGH * sums.kernels:
        texts = f"{sums.kernels:,} calls of kernels are counted in it, {recorded:,} are recorded"
        problems.append(Problem(STATISTIC_FILE, texts, sums.kernels - recorded))
        lost = pl.lit(True)
    return steps.with_columns(device_work_lost=pl.when(lost & pl.col("device_computing_ns").is_null()).then(True))
