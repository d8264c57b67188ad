"""The files of one rank in a `profiler` folder of MindInsight, and the columns and names that the readers share."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import read_json, read_table
from stepscope.readers.ascend.prof.files import number as fraction
from stepscope.readers.common.documents import as_dict, parse_json
from stepscope.readers.common.problems import Problem

COUNT_NS = 10  # nanoseconds per count of the system clock
SPANS = {
    "kind": pl.String, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "op_type": pl.String, "scope": pl.String,
    "category": pl.String, "shapes": pl.String, "dtypes": pl.String, "flops": pl.Int64, "step": pl.Int32, "args": pl.String,
    "group": pl.String, "label": pl.String, "track_kind": pl.String, "device": pl.Int32, "tid": pl.String,
    "column": pl.String,  # of the step trace
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
            self.problems.append(
                Problem(f"profiler_info_{rank}.json", "diff_time is not a number: the clock of this rank is not shifted", 0)
            )

    def file(self, name: str) -> Path | None:
        file = self.path / name.format(self.rank)
        return file if file.is_file() else None

    def table(self, name: str) -> pl.DataFrame:
        file = self.file(name)
        return read_table(file, self.problems) if file else pl.DataFrame()

    def object(self, name: str) -> dict[str, Any]:
        file = self.file(name)
        return as_dict(read_json(file, self.problems)) if file else {}

    def track(self, kind: str, label: str | pl.Expr, tid: str | pl.Expr, device: str = "NPU") -> dict[str, pl.Expr]:
        """The columns of a track of this rank's device, or of its host where `device` is empty."""
        return {
            "group": pl.lit(f"{device} {self.rank}" if device else "operators"),
            "label": pl.lit(label) if isinstance(label, str) else label,
            "track_kind": pl.lit(kind),
            "device": pl.lit(self.rank if device else None, pl.Int32),
            "tid": pl.lit(tid) if isinstance(tid, str) else tid,
        }


def type_in_name(column: str) -> pl.Expr:
    """The operator type at the end of a full name: `Conv2D` of `Default/network/Conv2D-op12`."""
    return pl.col(column).str.extract(r"([^/]*?)(?:-op[0-9]+)?$")


def scope_in_name(column: str) -> pl.Expr:
    return pl.col(column).str.extract(r"^(.*)/[^/]*$")


def is_number(value: object) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and np.isfinite(float(str(value)))
    except ValueError:
        return False


def parse_cell(text: object) -> Any:
    """A cell with JSON, also with the quotes of Python; None if it is neither."""
    for attempt in (text, text.replace("'", '"')) if isinstance(text, str) else ():
        try:
            return parse_json(attempt.encode())
        except (ValueError, RecursionError):
            continue
    return None
