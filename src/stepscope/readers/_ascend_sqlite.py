"""A database of Ascend's tools while it is open: its tables as typed columns, and the texts that its numbers stand for."""

import re
import sqlite3
import sys
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import schema, units
from stepscope.readers._kineto import Problem

_ROWS = 50_000  # at a time
# Seconds of this thread's processor time: three readings of every table of the slowest real database take 0.1 s per megabyte.
_LEAST_S, _PER_BYTE_S = 30.0, 4e-6
_CHECKED = 20_000  # instructions of SQLite's machine: well below a millisecond
_SMALLEST_ROW = 4  # bytes: a pointer to it, its length, and something in it


class Connection:
    """The tables of a database file and nothing else of it.

    Whoever wrote the file may have given views, generated columns or virtual tables the names of tables: none of their code runs.
    Pages may lead round in a circle: a table with more rows than its file has room for, and reading without end, are refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = path.stat().st_size
        self._end = time.thread_time() + _LEAST_S + self._size * _PER_BYTE_S
        self._too_long = False
        # Without taking locks and without writing beside it: the file may lie on a disk that is read-only.
        self._database = sqlite3.connect(f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        try:
            self._database.text_factory = lambda text: text.decode("utf-8", "replace")
            for setting in ("trusted_schema=off", "query_only=on", "cell_size_check=on"):
                self._database.execute(f"pragma {setting}")
            if sys.version_info >= (3, 11):  # no value is longer than its file; no statement of ours is long
                for limit, most in (
                    (sqlite3.SQLITE_LIMIT_LENGTH, max(self._size, 1 << 16)),
                    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
                    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
                ):
                    self._database.setlimit(limit, min(most, self._database.getlimit(limit)))
            self._database.set_progress_handler(self._is_over, _CHECKED)
            self._database.set_authorizer(_authorize)
            listed = self._run("select name, type, rootpage, sql from sqlite_master")
            kinds = {str(name): kind == "table" and bool(page) and not _VIRTUAL.match(str(sql)) for name, kind, page, sql in listed
                     if kind in ("table", "view")}  # fmt: skip
        except BaseException:
            self._database.close()
            raise
        self.tables = {name for name, is_table in kinds.items() if is_table}
        self.others = set(kinds) - self.tables  # views and virtual tables

    def close(self) -> None:
        self._database.close()

    def columns(self, table: str) -> list[str]:
        """The columns that the file holds: not those that are computed."""
        return [str(row[1]) for row in self._run(f"pragma table_info({_quoted(table)})")]

    def batches(self, table: str, columns: Iterable[str | None]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of these columns of a table, null where there is none; sqlite3.Error where they cannot be read."""
        chosen = ", ".join("null" if name is None else _quoted(name) for name in columns)
        count = 0
        for rows in self._fetched(f"select {chosen} from {_quoted(table)}"):
            count += len(rows)
            if count > self._size // _SMALLEST_ROW:
                raise sqlite3.DatabaseError(f"more rows than a file of {self._size:,} bytes can hold")
            yield rows

    def rows(self, table: str, columns: Iterable[str], problems: list[Problem]) -> list[tuple[Any, ...]] | None:
        """All rows of a table; None where the file has no such table, or not these columns, which not every version has."""
        if table in self.others:
            problems.append(Problem(f"{self.path.name} {table}", NOT_A_TABLE, 1))
        if table not in self.tables:
            return None
        have = {name.lower(): name for name in self.columns(table)}
        if any(name.lower() not in have for name in columns):
            return None
        try:
            return [row for rows in self.batches(table, [have[name.lower()] for name in columns]) for row in rows]
        except sqlite3.Error as error:
            problems.append(Problem(f"{self.path.name} {table}", f"the table cannot be read ({error})", 1))
            return None

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        return [row for rows in self._fetched(statement) for row in rows]

    def _fetched(self, statement: str) -> Iterator[list[tuple[Any, ...]]]:
        try:
            cursor = self._database.execute(statement)
            while rows := cursor.fetchmany(min(_ROWS, self._size // _SMALLEST_ROW + 1)):
                yield rows
        except UnicodeDecodeError as error:  # in the name of a column, or in a message about one
            raise sqlite3.DatabaseError(f"a name that is not UTF-8 ({error.reason})") from None
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            if self._too_long:
                raise sqlite3.DatabaseError(f"not read to its end in {_LEAST_S + self._size * _PER_BYTE_S:,.0f} s") from None
            raise KeyboardInterrupt from None  # raised within the handler: SQLite has no other word for it

    def _is_over(self) -> bool:
        """Asked now and then while a statement runs. Python sees a signal here, too."""
        self._too_long = time.thread_time() > self._end
        return self._too_long


NOT_A_TABLE = "a view or a virtual table, which is code and not data: it is not read"
_VIRTUAL = re.compile(r"\s*create\s+virtual\b", re.IGNORECASE)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Columns of tables may be read; not by way of a view or trigger (`inside`), and no function may be called."""
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
    return sqlite3.SQLITE_OK if allowed and inside is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Database:
    """One database while it is open."""

    def __init__(self, database: Connection, problems: list[Problem]) -> None:
        self.database, self.path, self.problems = database, database.path, problems
        self.names = database.tables | database.others
        self._refused: set[str] = set()
        strings = self.table("STRING_IDS", id=pl.Int64, value=pl.String).unique("id", keep="first")
        self.strings = strings.select(id="id", word=pl.col("value").cast(pl.Categorical))

    def table(self, name: str, /, **columns: Any) -> pl.DataFrame:
        """These columns of a table, typed; null where the table has no such column. A table that is not there has no rows."""
        if name in self.database.others:
            self._refuse(name, NOT_A_TABLE)
        if name not in self.database.tables:
            return pl.DataFrame(schema=columns)
        parts, count = [pl.DataFrame(schema=columns)], 0
        try:
            have = {column.lower(): column for column in self.database.columns(name)}
            for rows in self.database.batches(name, [have.get(column.lower()) for column in columns]):
                count += len(rows)
                series = [
                    _column(values, column, dtype) for (column, dtype), values in zip(columns.items(), zip(*rows, strict=True), strict=True)
                ]
                parts.append(pl.DataFrame(series))
        except sqlite3.Error as error:
            self._refuse(name, f"the table breaks off after {units.count(count, 'row')} ({error})")
        return pl.concat(parts)

    def columns(self, name: str) -> list[str]:
        """The names of a table's columns; none where it cannot be read, which is noted."""
        if name in self.database.others:
            self._refuse(name, NOT_A_TABLE)
        try:
            return self.database.columns(name) if name in self.database.tables else []
        except sqlite3.Error as error:
            self._refuse(name, f"the table cannot be read ({error})")
            return []

    def _refuse(self, name: str, why: str) -> None:
        """Once, though a table is asked for several times."""
        if name not in self._refused:
            self._refused.add(name)
            self.problems.append(Problem(name, why, 1))

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
