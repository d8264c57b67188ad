"""Rows of the table `problems`: parts of a recording that could not be read."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl


class Problem(NamedTuple):
    where: str
    what: str
    lost: int


def problem_frame(problems: Sequence[Problem], path: Path | str) -> pl.DataFrame:
    """The rows of the table `problems` for the recording at `path`, without a rank."""
    rows = pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
    return rows.with_columns(file=pl.lit(str(path)))


FileProblems = list[tuple[str, str, int]]  # file, what, lost
