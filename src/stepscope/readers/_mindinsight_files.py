"""The files of one rank in a `profiler` folder of MindInsight, and what its readers share."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.readers import Options
from stepscope.readers._ascend_tables import read_json, read_table
from stepscope.readers._kineto import Problem
from stepscope.readers._prof_files import number as fraction

COUNT_NS = 10
COUNTERS = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
SPANS = {
    "kind": pl.String, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "op_type": pl.String, "scope": pl.String,
    "category": pl.String, "shapes": pl.String, "dtypes": pl.String, "flops": pl.Int64, "step": pl.Int32, "args": pl.String,
    "group": pl.String, "label": pl.String, "track_kind": pl.String, "device": pl.Int32, "tid": pl.String,
    "column": pl.String,  # of the step trace that it is from
}  # fmt: skip


class Folder:
    """The files of one rank."""

    def __init__(self, path: Path, rank: int, options: Options) -> None:
        self.path, self.rank, self.options = path, rank, options
        self.problems: list[Problem] = []
        self.info = self.object(f"profiler_info_{rank}.json")
        offset = self.info.get("diff_time")  # microseconds; a float of nanoseconds could not hold the time of day
        usable = is_number(offset) and abs(float(str(offset))) < 2**52
        self.shift_ns = -round(1000 * fraction(offset)) if usable else 0
        if offset is not None and not usable:
            self.problems.append(Problem(f"profiler_info_{rank}.json", "diff_time is no number: times of this rank are not moved by it", 0))

    def file(self, name: str) -> Path | None:
        file = self.path / name.format(self.rank)
        return file if file.is_file() else None

    def table(self, name: str) -> pl.DataFrame:
        file = self.file(name)
        return read_table(file, self.problems) if file else pl.DataFrame()

    def object(self, name: str) -> dict[str, Any]:
        file = self.file(name)
        found = read_json(file, self.problems) if file else None
        return found if isinstance(found, dict) else {}

    def noted(self) -> pl.DataFrame:
        rows = pl.DataFrame(self.problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
        return rows.with_columns(file=pl.lit(str(self.path)))


def type_of(column: str) -> pl.Expr:
    return pl.col(column).str.extract(r"([^/]*?)(?:-op\d+)?$")


def scope_of(column: str) -> pl.Expr:
    return pl.col(column).str.extract(r"^(.*)/[^/]*$")


def is_number(value: object) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and np.isfinite(float(str(value)))
    except ValueError:
        return False
