"""SQL over the tables of a trace and over its analyses: the process that answers is sent what the query names, and nothing else."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping

import msgspec
import polars as pl
import polars.selectors as cs

from stepscope import parameters, schema
from stepscope.errors import UsageError
from stepscope.query_plan import Need, Plan
from stepscope.query_process import MEMORY, QueryProcess, gigabytes
from stepscope.trace import Trace, analysis, analysis_names

ROWS = 20_000_000
_LONGEST = 100_000
_BATCH = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large an answer may be."""

    rows: int = ROWS
    size: int = MEMORY


def answer(trace: Trace, sql: str, *, memory: int = MEMORY) -> pl.DataFrame:
    """The answer to a query in SQL, which may use so many bytes; analyses that it names are computed."""
    with QueryProcess(memory) as process:
        return Query(process, sql).frame(trace)


class Query:
    """One query in a process: it is parsed and checked at once, before anything is read."""

    def __init__(self, process: QueryProcess, sql: str) -> None:
        if len(sql) > _LONGEST:
            raise UsageError(f"the query has {len(sql):,} characters; at most {_LONGEST:,} are allowed")
        self._process = process
        self._plan = Plan(process.ask("parse", sql))
        names = list(dict.fromkeys([*schema.TABLES, *analysis_names()]))
        self._named, unknown = self._plan.named(names)
        if unknown:
            raise UsageError(f"no table '{unknown[0]}'" + (parameters.nearest(unknown[0], names) or f"; there are {', '.join(names)}"))
        self._types = {name: _columns(name) for name in (names if self._plan.lists else self._named)}
        self._columns = self._check(self._types)

    def frame(self, trace: Trace) -> pl.DataFrame:
        """The answer."""
        content, _ = self.answer(trace, {name: trace.analyse(name) for name in self.analyses}, Limits(size=self._process.memory))
        return pl.read_ipc_stream(content)

    @property
    def analyses(self) -> list[str]:
        """The analyses that the query names."""
        return [name for name in self._named if name in analysis_names()]

    def answer(
        self, trace: Trace, analyses: Mapping[str, pl.DataFrame], limits: Limits, *, ended: Callable[[], bool] = lambda: False
    ) -> tuple[bytes, int]:
        """The answer as Arrow, and how many rows it has. `ended` stops the reading of tables."""
        size, memory = 0, self._process.memory
        for name, need in self._needs().items():
            table = analyses[name].lazy() if name in analyses else trace.table(name)
            for content in _batches(need.of(table)):
                if ended():
                    raise UsageError("the query was ended")
                size += len(content)
                if size > memory:
                    raise UsageError(
                        f"the tables that the query reads need more than {gigabytes(memory)} of memory; name fewer columns, choose steps "
                        "or a rank, or allow more with `stepscope query --memory`"
                    )
                self._process.send("batch", name, content=content)
        for name in self._types.keys() - self._named:  # of those that are only listed
            self._process.send("batch", name, content=_packed(pl.DataFrame(schema=self._types[name])))
        rows, answer = self._process.ask("answer", limits.rows, limits.size)
        return answer, rows

    def _needs(self) -> dict[str, Need]:
        """What to read of each table: all columns where the answer over the named ones alone would have other columns."""
        needs = {name: self._plan.need(name, self._types[name]) for name in self._named}
        narrow = {name: dict(need.of(pl.LazyFrame(schema=self._types[name])).collect_schema()) for name, need in needs.items()}
        with contextlib.suppress(UsageError):
            if self._check(self._types | narrow) == self._columns:
                return needs
        return {name: msgspec.structs.replace(need, columns=None) for name, need in needs.items()}

    def _check(self, types: Mapping[str, Mapping[str, pl.DataType]]) -> list[list[str]]:
        """The names and types of the answer over tables with these columns."""
        checked: list[list[str]] = self._process.ask("check", {name: bytes(_packed(pl.DataFrame(schema=of))) for name, of in types.items()})
        return checked


def _columns(name: str) -> dict[str, pl.DataType]:
    """The columns of an analysis or of a table; where both have the name, as `links`, the analysis is meant."""
    return dict(pl.DataFrame(schema=analysis(name).columns if name in analysis_names() else schema.TABLES[name]).schema)


def _batches(frame: pl.LazyFrame) -> Iterator[memoryview]:
    """The rows in portions, so that the whole table is in one place only; a table without rows is one empty portion."""
    empty = True
    for batch in frame.collect_batches(chunk_size=_BATCH, maintain_order=True):
        if batch.height:
            empty = False
            yield _packed(batch)
    if empty:
        yield _packed(frame.head(0).collect())


def _packed(frame: pl.DataFrame) -> memoryview:
    """A portion as Arrow. A column without a type, where nothing is known, becomes text: DuckDB has no such type."""
    buffer = io.BytesIO()
    frame.with_columns(cs.by_dtype(pl.Null).cast(pl.String)).write_ipc_stream(buffer)
    return buffer.getbuffer()
