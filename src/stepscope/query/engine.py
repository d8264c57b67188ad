"""Inside the process that answers SQL: DuckDB without access to files, in a process that may open none."""

import os
import re
from typing import Any

import duckdb
import polars as pl

from stepscope.errors import UsageError
from stepscope.model.output.tables import arrow
from stepscope.process.worker import Parent
from stepscope.query import sandbox
from stepscope.query.process import too_large

_THREADS = min(os.cpu_count() or 1, 4)
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # otherwise a query could read the variables of this module
    "temp_directory": "",
    "max_temp_directory_size": "0B",
    "threads": "1",
}
_RESERVE = 1 << 28  # bytes for the stacks of threads and the libraries
# Functions whose result has the unit of their column: without AS, the result also gets its name.
_SAME_UNIT = re.compile(r"(?:sum|min|max|avg|mean|median|any_value|first|last|abs|mode)\((?:DISTINCT )?(\w+)\)", re.IGNORECASE)
# Types that Python, Arrow, CSV, the pages and JSON can hold; others are shown as text. Python has no year after 9999.
_PORTABLE_TYPE = re.compile(r"(?:BOOLEAN|U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|DECIMAL\(.*\))(?:\[\])*")


def serve(parent: Parent, memory: int, cpu_s: float | None) -> None:
    """Lock the process, then answer one query after another."""
    engine = Engine(memory)
    locks = sandbox.lock(memory * 5 // 2 + _RESERVE)  # the tables, the query, and the answer
    engine.lock()
    for (function, *values), content in parent.requests():
        if cpu_s is not None:
            sandbox.limit_cpu(cpu_s)
        if function == "batch":
            engine.batch(values[0], content)
            continue
        try:
            if function == "answer":
                parent.reply(*engine.answer(*values))
            else:
                parent.reply(locks if function == "sandbox" else getattr(engine, function)(*values))
        except (duckdb.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException, MemoryError, ValueError) as error:
            parent.fail(UsageError(_line(error, memory)))


class Engine:
    """A database in memory, and the one query that is being answered."""

    def __init__(self, memory: int) -> None:
        self._database = duckdb.connect(":memory:", config=_SETTINGS | {"memory_limit": f"{memory}B"})
        self._query: Any = None
        self._sql = ""
        self._tables: dict[str, list[pl.DataFrame]] = {}
        # Modules that are imported on first use must be loaded before the process is locked.
        arrow(pl.DataFrame(self._database.sql("select 1.5 as x, 'a' as y")).with_columns(pl.col("x").cast(pl.Float64)))
        self._database.execute("select json_serialize_sql('select 1')").fetchall()

    def lock(self) -> None:
        """Start more threads, which inherit the sandbox, and forbid changes of settings."""
        self._database.execute(f"set threads = {_THREADS}")
        self._database.execute("set lock_configuration = true")

    def parse(self, sql: str) -> str:
        """The query's syntax tree, as JSON. Only one query is allowed."""
        self._end()
        statements = self._database.extract_statements(sql)
        kinds = [_statement_kind(statement) for statement in statements]
        # Without its values PIVOT is several statements: DuckDB 2 calls them MULTI, DuckDB 1 lists them.
        if kinds == ["MULTI"] or (len(kinds) > 1 and re.match(r"\s*pivot\b", sql, re.IGNORECASE)):
            raise ValueError("PIVOT needs the values: pivot spans on kind in ('op', 'kernel') using count(*)")
        if len(kinds) != 1:
            raise ValueError(f"{len(kinds)} statements; expected one query" if kinds else "empty; expected a query")
        kind = kinds[0]
        if kind not in ("SELECT", "EXPLAIN"):
            raise ValueError(f"{kind} is not a query; expected SELECT, WITH, FROM, VALUES, SHOW TABLES, DESCRIBE or EXPLAIN")
        self._sql = sql
        starts = [0] if kind == "SELECT" else [at for at, _ in duckdb.tokenize(sql)][1:8]  # the query begins after the words of EXPLAIN
        characters = sql.encode()
        trees = (self._tree(characters[start:].decode(errors="replace")) for start in starts)
        return next((tree for tree in trees if '"error":true' not in tree[:40]), "{}")

    def check(self, tables: dict[str, bytes]) -> list[tuple[str, str]]:
        """The names and types of the answer, from tables without rows. A query that does not fit the tables raises an error."""
        query = self._database.cursor()
        try:
            for name, content in tables.items():
                query.register(name, _Stream(pl.read_ipc_stream(content)))
            answer = query.sql(self._sql)
            return [] if answer is None else [(name, str(kind)) for name, kind in zip(answer.columns, answer.types, strict=True)]
        finally:
            query.close()

    def batch(self, table: str, content: bytes) -> None:
        """Add rows to a table."""
        self._tables.setdefault(table, []).append(pl.read_ipc_stream(content))

    def answer(self, rows: int, largest: int) -> tuple[int, bytes]:
        """The number of rows of the answer, and its rows as Arrow. A larger answer than these limits raises an error."""
        try:
            query = self._query = self._database.cursor()
            for name, batches in self._tables.items():
                query.register(name, _Stream(pl.concat(batches, rechunk=False)))
            answer = query.sql(self._sql)
            if answer is None:
                raise ValueError("has no answer; expected a query")
            columns = ", ".join(
                f"{f'#{at}' if _PORTABLE_TYPE.fullmatch(str(kind)) else f'#{at}::varchar'} as {_quoted(name)}"
                for at, (name, kind) in enumerate(zip(_names(answer.columns), answer.types, strict=True), 1)
            )
            frame = _plain(pl.DataFrame(answer.project(columns).limit(rows + 1)))
        finally:
            self._end()
        if frame.height > rows:
            raise ValueError(f"the answer has more than {rows:,} rows: add a LIMIT, or aggregate")
        if (size := frame.estimated_size()) > largest:
            raise ValueError(f"the answer has {frame.height:,} rows, {size / 1e9:.1f} GB: add a LIMIT, or name fewer columns")
        return frame.height, arrow(frame)

    def _tree(self, sql: str) -> str:
        return str(self._database.execute("select json_serialize_sql(?::varchar)", [sql]).fetchall()[0][0])

    def _end(self) -> None:
        if self._query is not None:
            self._query.close()
        self._query = None
        self._tables.clear()


class _Stream:
    """A frame as an Arrow stream: for a Polars frame, DuckDB would need pyarrow."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def _statement_kind(statement: Any) -> str:
    try:
        return str(statement.type.name)
    except ValueError:  # DuckDB's own list of kinds lacks some, such as UPDATE EXTENSIONS
        return "this statement"


def _names(columns: list[str]) -> list[str]:
    """A unique name for each column of the answer. The suffix of a name is its unit."""
    plain = [match[1] if (match := _SAME_UNIT.fullmatch(name)) else name for name in columns]
    plain = [short if plain.count(short) == 1 else name for short, name in zip(plain, columns, strict=True)]
    names: list[str] = []
    for name in plain:
        taken = {other.lower() for other in names}
        numbered = (f"{name}_{count}" for count in range(1, len(plain) + 1))
        names.append(name if name.lower() not in taken else next(other for other in numbered if other.lower() not in taken))
    return names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """DuckDB sums integers in 128 bits: 64 where they fit. Its decimals become floating-point numbers."""
    return frame.with_columns(_number(column) for column in frame if column.dtype == pl.Decimal)


def _number(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Decimal(38, 0):
        whole = column.cast(pl.Int64, strict=False)
        if whole.null_count() == column.null_count():
            return whole
    return column.cast(pl.Float64)


def _line(error: BaseException, memory: int) -> str:
    """DuckDB's error as one line, without its class and without the excerpt of the query."""
    text = str(error).strip()
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
        return too_large(memory)
    if isinstance(error, duckdb.PermissionException) or "are disabled by configuration" in text:
        return "the query reaches for a file or the network; only the tables of the trace can be queried"
    if "Max expression depth limit" in text:
        return "the query is nested too deeply"
    line = text.split("\n\nLINE ")[0].split(" Please try installing")[0]  # of an extension: there are none here
    line = re.sub(r"^(?:\w+ )+Error: ", "", line) if isinstance(error, duckdb.Error) else line
    return " ".join(line.split()) or type(error).__name__
