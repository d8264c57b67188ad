"""An open database of Ascend's tools: its tables as typed columns, with the texts of STRING_IDS in place of their ids."""

import re
import sqlite3
import sys
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model import schema, units
from stepscope.readers.common.problems import Problem

ANALYSIS_FILES = ("analysis.db", "communication_analyzer.db")  # what torch_npu's analysis writes next to a database
_ROWS = 50_000  # at a time
# Seconds of this thread's processor time: three readings of every table of the slowest real database take 0.1 s per megabyte.
_LEAST_S, _PER_BYTE_S = 30.0, 4e-6
_CHECKED = 20_000  # instructions of SQLite's machine: well below a millisecond
_SMALLEST_ROW = 4  # bytes: a pointer to it, its length, and something in it


class Connection:
    """The tables of a database file, safe against hostile and damaged files.

    Views, generated columns and virtual tables may have the names of tables: their code never runs.
    Pages may form a cycle: a table with more rows than its file has room for, and reading without end, raise an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = path.stat().st_size
        self._end = time.thread_time() + _LEAST_S + self._size * _PER_BYTE_S
        self._too_long = False
        # Without locks and without files next to it: the disk may be read-only.
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
            self._database.set_progress_handler(self._out_of_time, _CHECKED)
            self._database.set_authorizer(_authorize)
            entries = self._run("select name, type, rootpage, sql from sqlite_master")
            kinds = {
                str(name): kind == "table" and bool(page) and not _VIRTUAL.match(str(sql))
                for name, kind, page, sql in entries
                if kind in ("table", "view")
            }
        except BaseException:
            self._database.close()
            raise
        self.tables = {name for name, is_table in kinds.items() if is_table}
        self.others = set(kinds) - self.tables  # views and virtual tables

    def close(self) -> None:
        self._database.close()

    def columns(self, table: str) -> list[str]:
        """The stored columns, without generated ones."""
        return [str(row[1]) for row in self._run(f"pragma table_info({_quote(table)})")]

    def batches(self, table: str, columns: Iterable[str | None]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of these columns of a table, null for a column None; sqlite3.Error if they cannot be read."""
        selected = ", ".join("null" if name is None else _quote(name) for name in columns)
        count = 0
        for rows in self._fetch(f"select {selected} from {_quote(table)}"):
            count += len(rows)
            if count > self._size // _SMALLEST_ROW:
                raise sqlite3.DatabaseError(f"more rows than a file of {self._size:,} bytes can hold")
            yield rows

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        return [row for rows in self._fetch(statement) for row in rows]

    def _fetch(self, statement: str) -> Iterator[list[tuple[Any, ...]]]:
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
            raise KeyboardInterrupt from None  # raised in the handler, which SQLite reports as interrupted

    def _out_of_time(self) -> bool:
        """Called regularly while a statement runs. Python also handles signals here."""
        self._too_long = time.thread_time() > self._end
        return self._too_long


NOT_A_TABLE = "a view or a virtual table, which is code and not data: it is not read"
_VIRTUAL = re.compile(r"\s*create\s+virtual\b", re.IGNORECASE)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Allows reading columns of tables; no views or triggers (`inside`), no functions."""
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
    return sqlite3.SQLITE_OK if allowed and inside is None else sqlite3.SQLITE_DENY


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def read_rows(file: Path, table: str, columns: Iterable[str], problems: list[Problem]) -> list[tuple[Any, ...]] | None:
    """All rows of a table of a database file; None if it cannot be read, or if it lacks the table or a column: versions differ."""
    try:
        with closing(Connection(file)) as connection:
            if table in connection.others:
                problems.append(Problem(f"{file.name} {table}", NOT_A_TABLE, 1))
            names = {name.lower(): name for name in connection.columns(table)} if table in connection.tables else {}
            if any(name.lower() not in names for name in columns):
                return None
            return [row for rows in connection.batches(table, [names[name.lower()] for name in columns]) for row in rows]
    except sqlite3.Error as error:
        problems.append(Problem(f"{file.name} {table}", f"not readable ({error})", 1))
        return None


class Database:
    """An open database of Ascend's tools."""

    def __init__(self, connection: Connection, problems: list[Problem]) -> None:
        self.connection, self.path, self.problems = connection, connection.path, problems
        self.names = connection.tables | connection.others
        self._refused: set[str] = set()
        strings = self.table("STRING_IDS", id=pl.Int64, value=pl.String).unique("id", keep="first")
        self._strings = strings.select(id="id", text=pl.col("value").cast(pl.Categorical))

    def select(self, table: str, integers: str, /, *, texts: str = "", **columns: Any) -> pl.DataFrame:
        """Columns of a table, with space-separated names: integers of 64 bits, texts by their id in STRING_IDS, and others by type."""
        names = dict.fromkeys([*integers.split(), *texts.split()], pl.Int64)
        rows = self.table(table, **names, **columns)
        for name in texts.split():
            rows = (
                rows.join(self._strings, left_on=name, right_on="id", how="left", maintain_order="left").drop(name).rename({"text": name})
            )
        return rows

    def table(self, name: str, /, **columns: Any) -> pl.DataFrame:
        """Typed columns of a table; null for a column that the table lacks. A missing table has no rows."""
        have = {column.lower(): column for column in self.columns(name)}
        parts, count = [pl.DataFrame(schema=columns)], 0
        if not have:
            return parts[0]
        try:
            for rows in self.connection.batches(name, [have.get(column.lower()) for column in columns]):
                count += len(rows)
                values = zip(*rows, strict=True)
                parts.append(pl.DataFrame([_column(cells, *column) for cells, column in zip(values, columns.items(), strict=True)]))
        except sqlite3.Error as error:
            self._refuse(name, f"the table breaks off after {units.count(count, 'row')} ({error})")
        return pl.concat(parts)

    def columns(self, name: str) -> list[str]:
        """The names of a table's columns; none if there is no such table, or if it cannot be read, which is a problem."""
        if name in self.connection.others:
            self._refuse(name, NOT_A_TABLE)
        try:
            return self.connection.columns(name) if name in self.connection.tables else []
        except sqlite3.Error as error:
            self._refuse(name, f"the table cannot be read ({error})")
            return []

    def _refuse(self, name: str, why: str) -> None:
        """One problem per table, though a table may be read several times."""
        if name not in self._refused:
            self._refused.add(name)
            self.problems.append(Problem(name, why, 1))

    def add_steps(self, rows: pl.DataFrame, table: str, key: str) -> pl.DataFrame:
        """The rows with their steps, which our exporter writes into an additional table (earlier releases: into `rows`)."""
        steps = self.table(table, **{key: rows.schema[key], "step": pl.Int32}).drop_nulls().unique(key, keep="first")
        rows = rows.join(steps.rename({"step": "added_step"}), on=key, how="left", maintain_order="left")
        return rows.with_columns(step=pl.coalesce("added_step", "step")).drop("added_step")

    def enum(self, table: str) -> dict[int, str]:
        return dict(self.table(table, id=pl.Int64, name=pl.String).drop_nulls().iter_rows())

    def enum_text(self, column: str, table: str, default: str | None = None) -> pl.Expr:
        """The text of a column of numbers that a table ENUM_* explains."""
        return pl.col(column).replace_strict(self.enum(table), default=default, return_dtype=pl.String)

    def exported(self, table: str) -> pl.DataFrame:
        """A table of our schema that our exporter added."""
        columns = {name: dtype for name, dtype in schema.TABLES[table].items() if name != "rank"}
        texts = (pl.Categorical, pl.Enum)
        return self.table(f"STEPSCOPE_{table.upper()}", **{name: pl.String if dtype in texts else dtype for name, dtype in columns.items()})


def _column(values: tuple[Any, ...], name: str, dtype: Any) -> pl.Series:
    """A typed column. SQLite does not enforce types: numbers may be text, and text may be numbers. It has no booleans, but 0 and 1."""
    if dtype == pl.Boolean:
        return _column(values, name, pl.Int64).cast(pl.Boolean)
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, pl.exceptions.PolarsError, OverflowError):
        text = pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
        return text if dtype == pl.String else text.cast(dtype, strict=False)
