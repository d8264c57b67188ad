"""Reading the text tables that Ascend's tools write: CSV and JSON files, with microseconds as decimals.

Cells end with a tab, which keeps spreadsheets from rounding; a missing value is `N/A`; names of columns differ between versions.
"""

import csv
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model import schema, units
from stepscope.model.trace import Trace
from stepscope.readers.common.documents import as_dict, as_list, parse_json
from stepscope.readers.common.problems import Problem

COMMUNICATION_CORES = ["HCCL", "COMMUNICATION"]  # of rows of kernel tables
# Of the sums of steps; `Preparing` is the time before the first device work of a step.
NO_PREPARING = "no column Preparing: the time before the first device work of each step is missing, so steps took longer than shown"
_LONGEST_ROW = 1 << 20  # bytes


def read_table(file: Path, problems: list[Problem]) -> pl.DataFrame:
    """All columns as text without blanks around it; `N/A` and empty cells are null. A file that is no table is a problem."""
    rows = _json_rows(file, problems) if file.suffix == ".json" else _csv_rows(file, problems)
    names = [name.strip().lstrip("\ufeff") for name in rows.columns]
    rows = rows.rename(dict(zip(rows.columns, names, strict=True))) if len(set(names)) == len(names) else rows
    text = pl.all().str.strip_chars()
    return rows.select(pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text).name.keep())


def is_cut(file: Path) -> bool:
    """Whether a table ends inside its last row: without an end of line, and with fewer cells than the first row has."""
    with file.open("rb") as content:
        head = content.readline(_LONGEST_ROW)
        content.seek(max(file.stat().st_size - _LONGEST_ROW, 0))
        last = content.read().rpartition(b"\n")[2]
    if not last or file.suffix == ".json":
        return False
    try:
        first_row, last_row = (next(csv.reader([row.decode("utf-8", "replace").replace("\0", "")]), []) for row in (head, last))
    except csv.Error:  # a carriage return inside a row, or a cell beyond 128 KiB: the parser of the table decides
        return False
    return len(last_row) < len(first_row)


def _csv_rows(file: Path, problems: list[Problem]) -> pl.DataFrame:
    try:
        if is_cut(file):
            problems.append(Problem(file.name, "cut off: the last row is not complete, and rows after it are missing", 1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = pl.read_csv(file, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy", ignore_errors=True)
        problems += [Problem(file.name, str(warning.message).splitlines()[0], 1) for warning in caught]
    except (pl.exceptions.PolarsError, OSError) as error:
        problems.append(Problem(file.name, f"not a table ({str(error).splitlines()[0]})", 1))
        return pl.DataFrame()
    return rows


def _json_rows(file: Path, problems: list[Problem]) -> pl.DataFrame:
    """A list of objects, as `msprof --summary-format=json` writes a table."""
    entries = as_list(read_json(file, problems))
    rows = [entry for entry in entries if isinstance(entry, dict)]
    if len(rows) < len(entries):
        problems.append(Problem(file.name, "entries that are no rows", len(entries) - len(rows)))
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame({name: [None if (cell := row.get(name)) is None else str(cell) for row in rows] for name in names}, strict=False)


def read_json(file: Path, problems: list[Problem]) -> Any:
    try:
        return parse_json(file.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        problems.append(Problem(file.name, f"not JSON ({error})", 1))
        return None


def nested_items(document: Any, depth: int) -> Iterator[tuple[Any, ...]]:
    """Keys and value of each entry that many levels down in nested objects. Anything else in their place is skipped."""
    for key, value in as_dict(document).items():
        if depth == 1:
            yield key, value
        else:
            yield from ((key, *rest) for rest in nested_items(value, depth - 1))


def read_slices(files: Iterable[Path], problems: list[Problem]) -> pl.DataFrame:
    """A table that was written as several files."""
    parts = [rows for file in sorted(files) if (rows := read_table(file, problems)).width]
    return pl.concat(parts, how="diagonal") if parts else pl.DataFrame()


def column(rows: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of these columns that the table has; null where it has none."""
    return next((pl.col(name) for name in names if name in rows.columns), pl.lit(None, pl.String))


def nanoseconds(text: pl.Expr) -> pl.Expr:
    """Microseconds as text, exactly."""
    parts = text.str.extract_groups(r"^(-?)([0-9]+)(?:\.([0-9]*))?$").struct
    whole, fraction = parts.field("2").cast(pl.Int64, strict=False), parts.field("3").fill_null("").str.slice(0, 4).str.pad_end(4, "0")
    exact = whole * 1000 + (fraction.cast(pl.Int64, strict=False) + 5) // 10
    exact = pl.when(parts.field("1") == "-").then(-exact).otherwise(exact)
    other_notation = (text.cast(pl.Float64, strict=False) * 1000).round().cast(pl.Int64, strict=False)
    return pl.coalesce(exact, other_notation)


def number(text: pl.Expr, factor: float = 1.0) -> pl.Expr:
    """Null for text that is no number, and for a number too large for an integer: the file is damaged there."""
    value = text.cast(pl.Float64, strict=False) * factor
    return pl.when(value.abs() < 2**62).then(value)


def drop_invalid(rows: pl.DataFrame, valid: pl.Expr, problems: list[Problem], where: str, noun: str, fault: str) -> pl.DataFrame:
    """The valid rows. The others are a problem: `3 rows without a start`."""
    valid_rows = rows.filter(valid)
    report_lost(problems, where, rows.height - valid_rows.height, noun, fault)
    return valid_rows


def report_lost(problems: list[Problem], where: str, lost: int, noun: str, fault: str) -> None:
    if lost:
        problems.append(Problem(where, f"{units.count(lost, noun)} {fault}", lost))


def add_rows(trace: Trace, rows: dict[str, pl.DataFrame]) -> Trace:
    """The trace with more rows in some tables."""
    tables = trace.tables
    for name, added in rows.items():
        if added.height:
            tables[name] = pl.concat([tables[name], schema.conform(added.lazy(), name)])
    return Trace(tables, trace.meta)
