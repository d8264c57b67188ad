"""A database of Ascend's tools while it is open: its tables as typed columns, and the texts that its numbers stand for."""

import sqlite3
import urllib.parse
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import schema, units
from stepscope.readers._kineto import Problem

_ROWS = 50_000  # at a time


def connect(path: Path) -> sqlite3.Connection:
    """Without taking locks and without writing beside it: the file may lie on a disk that is read-only."""
    return sqlite3.connect(f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)


def table_names(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("select name from sqlite_master where type in ('table', 'view')")}


class Database:
    """One database while it is open."""

    def __init__(self, database: sqlite3.Connection, path: Path, problems: list[Problem]) -> None:
        self.database, self.path, self.problems = database, path, problems
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        self.names = table_names(database)
        strings = self.table("STRING_IDS", id=pl.Int64, value=pl.String).unique("id", keep="first")
        self.strings = strings.select(id="id", word=pl.col("value").cast(pl.Categorical))

    def table(self, name: str, /, **columns: Any) -> pl.DataFrame:
        """These columns of a table, typed; null where the table has no such column. A table that is not there has no rows."""
        if name not in self.names:
            return pl.DataFrame(schema=columns)
        have = {str(row[1]).lower(): str(row[1]) for row in self.database.execute(f'pragma table_info("{name}")')}
        chosen = ", ".join(f'"{have[column.lower()]}"' if column.lower() in have else "null" for column in columns)
        parts, count = [pl.DataFrame(schema=columns)], 0
        cursor = self.database.execute(f'select {chosen} from "{name}"')
        try:
            while rows := cursor.fetchmany(_ROWS):
                count += len(rows)
                series = [
                    _column(values, column, dtype) for (column, dtype), values in zip(columns.items(), zip(*rows, strict=True), strict=True)
                ]
                parts.append(pl.DataFrame(series))
        except sqlite3.Error as error:
            self.problems.append(Problem(name, f"the table breaks off after {units.count(count, 'row')} ({error})", 1))
        return pl.concat(parts)

    def words(self, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """The rows with the text behind these numbers in place of them."""
        for column in columns:
            rows = (
                rows.join(self.strings, left_on=column, right_on="id", how="left", maintain_order="left")
                .drop(column)
                .rename({"word": column})
            )
        return rows

    def with_steps(self, rows: pl.DataFrame, table: str, key: str) -> pl.DataFrame:
        """The rows with the step of each, where our exporter wrote it into a table of its own (earlier releases: into `rows`)."""
        steps = self.table(table, **{key: rows.schema[key], "step": pl.Int32}).drop_nulls().unique(key, keep="first")
        found = rows.join(steps.rename({"step": "own_step"}), on=key, how="left", maintain_order="left")
        return found.with_columns(step=pl.coalesce("own_step", "step")).drop("own_step")

    def named(self, table: str) -> dict[int, str]:
        return dict(self.table(table, id=pl.Int64, name=pl.String).drop_nulls().iter_rows())

    def own(self, table: str) -> pl.DataFrame:
        """A table of ours that the exporter added."""
        return self.table(
            f"STEPSCOPE_{table.upper()}",
            **{
                name: pl.String if dtype in (pl.Categorical, pl.Enum) else dtype
                for name, dtype in schema.TABLES[table].items()
                if name != "rank"
            },
        )


def _column(values: tuple[Any, ...], name: str, dtype: Any) -> pl.Series:
    """SQLite's columns hold what was put into them: numbers may be text, and text may be numbers."""
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, pl.exceptions.PolarsError, OverflowError):
        text = pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
        return text if dtype == pl.String else text.cast(dtype, strict=False)
