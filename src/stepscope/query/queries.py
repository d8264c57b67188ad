"""SQL over the tables and analyses of a trace. Only the tables that a query names are sent to the process that answers."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping

import msgspec
import polars as pl
import polars.selectors as cs

from stepscope.errors import UsageError
from stepscope.model import parameters, schema
from stepscope.model.trace import Trace, analysis, analysis_names
from stepscope.query.plan import Need, Plan
from stepscope.query.process import MEMORY, QueryProcess, gigabytes

ROWS = 20_000_000
_LONGEST = 100_000
_BATCH = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest answer."""

    rows: int = ROWS
    size: int = MEMORY


def answer(trace: Trace, sql: str, *, memory: int = MEMORY) -> pl.DataFrame:
    """The answer to a query in SQL that may use `memory` bytes. Analyses that it names are computed."""
    with QueryProcess(memory) as process:
        return Query(process, sql).frame(trace)


class Query:
    """One query in a process. It is parsed and checked before any table is read."""

    def __init__(self, process: QueryProcess, sql: str) -> None:
        if len(sql) > _LONGEST:
            raise UsageError(f"the query has {len(sql):,} characters; at most {_LONGEST:,} are allowed")
        try:
            sql.encode()
        except UnicodeEncodeError as error:  # words of a command line that are not UTF-8, half a pair in JSON
            raise UsageError(f"the query has an invalid character at position {error.start + 1}") from error
        self._process = process
        self._plan = Plan(process.call("parse", sql))
        names = list(dict.fromkeys([*schema.TABLES, *analysis_names()]))
        self._named, unknown = self._plan.tables(names)
        if unknown:
            raise UsageError(f"no table '{unknown[0]}'" + (parameters.nearest(unknown[0], names) or f"; there are {', '.join(names)}"))
        self._types = {name: _columns(name) for name in (names if self._plan.lists else self._named)}
        self._columns = self._check(self._types)

    def frame(self, trace: Trace) -> pl.DataFrame:
        content, _ = self.answer(trace, {name: trace.analyse(name) for name in self.analyses}, Limits(size=self._process.memory))
        return pl.read_ipc_stream(content)

    @property
    def analyses(self) -> list[str]:
        """The analyses that the query names."""
        return [name for name in self._named if name in analysis_names()]

    def answer(
        self, trace: Trace, analyses: Mapping[str, pl.DataFrame], limits: Limits, *, ended: Callable[[], bool] = lambda: False
    ) -> tuple[bytes, int]:
        """The answer as Arrow, and its number of rows. Tables are read until `ended` returns True."""
        size, memory = 0, self._process.memory
        for name, need in self._needs().items():
            table = analyses[name].lazy() if name in analyses else trace.table(name)
            for content in _batches(need.apply(table)):
                if ended():
                    raise UsageError("the query was ended")
                size += len(content)
                if size > memory:
                    raise UsageError(
                        f"the tables that the query reads need more than {gigabytes(memory)} of memory; name fewer columns, choose steps "
                        "or a rank, or allow more with `stepscope query --memory`"
                    )
                self._process.send_batch(name, content)
        for name in self._types.keys() - self._named:  # tables that are only listed
            self._process.send_batch(name, _arrow_bytes(pl.DataFrame(schema=self._types[name])))
        rows, answer = self._process.call("answer", limits.rows, limits.size)
        return answer, rows

    def _needs(self) -> dict[str, Need]:
        """The part of each table to read: all columns where the named ones alone would give an answer with other columns."""
        needs = {name: self._plan.need(name, self._types[name]) for name in self._named}
        narrow = {name: dict(need.apply(pl.LazyFrame(schema=self._types[name])).collect_schema()) for name, need in needs.items()}
        with contextlib.suppress(UsageError):
            if self._check(self._types | narrow) == self._columns:
                return needs
        return {name: msgspec.structs.replace(need, columns=None) for name, need in needs.items()}

    def _check(self, types: Mapping[str, Mapping[str, pl.DataType]]) -> list[list[str]]:
        """The names and types of the answer from tables with these columns."""
        checked: list[list[str]] = self._process.call(
            "check", {name: bytes(_arrow_bytes(pl.DataFrame(schema=columns))) for name, columns in types.items()}
        )
        return checked


def _columns(name: str) -> dict[str, pl.DataType]:
    """The columns of an analysis or a table. Where both have the name, as `links`, those of the analysis."""
    return dict(pl.DataFrame(schema=analysis(name).columns if name in analysis_names() else schema.TABLES[name]).schema)


def _batches(frame: pl.LazyFrame) -> Iterator[memoryview]:
    """The rows in batches, so that this process never holds the whole table. A table without rows is one empty batch."""
    empty = True
    for batch in frame.collect_batches(chunk_size=_BATCH, maintain_order=True):
        if batch.height:
            empty = False
            yield _arrow_bytes(batch)
    if empty:
        yield _arrow_bytes(frame.head(0).collect())


def _arrow_bytes(frame: pl.DataFrame) -> memoryview:
    """A batch as Arrow. A column of type Null becomes text: DuckDB has no such type."""
    buffer = io.BytesIO()
    frame.with_columns(cs.by_dtype(pl.Null).cast(pl.String)).write_ipc_stream(buffer)
    return buffer.getbuffer()
