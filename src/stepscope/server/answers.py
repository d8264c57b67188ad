"""Tables for the client: computed once, then sorted, cut and encoded for each request."""

import contextlib
import gzip
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import StepscopeError
from stepscope.io import answers as answers_cache
from stepscope.io import cache
from stepscope.model import parameters, schema
from stepscope.model.memo import Memo
from stepscope.model.output import tables
from stepscope.model.trace import Trace, analysis, analysis_names
from stepscope.timeline.cache import entry_key

MEMO_BYTES = 256 << 20
# Tables that take longer and are smaller are kept in the cache, so that a page opens at once the next time.
_KEPT_S, _KEPT_BYTES, _TABLE = 0.05, 32 << 20, "table.arrow"
# An entity tag identifies the question, the files, and this server: another one may be another release.
_SERVER = secrets.token_hex(8)
NUMBERS = ("rank", "offset", "limit")  # of every table
TYPES = {
    "arrow": "application/vnd.apache.arrow.stream",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


class Question(msgspec.Struct, frozen=True):
    """A selection of rows and columns of a table, and a format."""

    kind: str  # analyses or tables
    name: str
    options: dict[str, Any]
    rank: int | None = None
    steps: tuple[int, int] | None = None
    sort: str | None = None
    descending: bool = False
    offset: int = 0
    limit: int | None = None
    columns: str | None = None
    find: str | None = None
    format: str = "arrow"

    @property
    def table_key(self) -> tuple[Any, ...]:
        """Identifies the whole table, before it is sorted and cut."""
        return self.kind, self.name, self.rank, self.steps, tuple(sorted(self.options.items()))

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the bytes of the answer for given files."""
        return *self.table_key, self.sort, self.descending, self.offset, self.limit, self.columns, self.find, self.format

    def part(self, trace: Trace) -> Trace:
        return part_of_trace(trace, self.rank, self.steps)


def part_of_trace(trace: Trace, rank: int | None, steps: tuple[int, int] | None) -> Trace:
    trace = trace if rank is None else trace.of_rank(rank)
    return trace if steps is None else trace.of_steps(*steps)


def parse_question(kind: str, name: str, words: Mapping[str, str]) -> Question:
    """The question of a URL; an unknown word is refused."""
    rest = dict(words)
    numbers: dict[str, int] = {key: parameters.value(int, key, rest.pop(key)) for key in NUMBERS if key in rest}
    format_name = rest.pop("format", "arrow")
    parameters.check_word("format", format_name, TYPES)
    common: dict[str, Any] = {
        **numbers,
        "steps": parameters.steps(rest.pop("steps")) if "steps" in rest else None,
        "sort": rest.pop("sort", None),
        "descending": parameters.value(bool, "descending", rest.pop("descending", "0")),
        "columns": rest.pop("columns", None),
        "find": rest.pop("find", None),
        "format": format_name,
    }
    if kind == "analyses":
        return Question(kind, name, parameters.values(rest, analysis(name).parameters, name), **common)
    parameters.check_word("table", name, schema.TABLES)
    return Question(kind, name, parameters.values(rest, {}, name), **common)


class Answer(msgspec.Struct, frozen=True):
    """The body of a response: bytes, or a file that is removed afterwards."""

    content: bytes
    rows: int
    media_type: str
    filename: str | None = None
    file: Path | None = None
    fixed_name: bool = False  # other tools expect this file name: it gets no prefix


class Answers:
    """Answers from tables that were computed before, up to a total size."""

    def __init__(self, limit: int = MEMO_BYTES) -> None:
        self._tables = Memo(limit)

    def answer(
        self,
        trace: Trace,
        question: Question,
        run_key: tuple[Any, ...],
        scratch: Path,
        source: str,
        *,
        kept: tuple[Any, ...] | None = None,
    ) -> Answer:
        """`kept` identifies the files and how they were opened: with it, tables that take long are kept in the cache."""
        if question.kind == "tables":
            frame = question.part(trace).table(question.name)
            rows = self._tables.get((*run_key, *question.table_key, "rows"), lambda: frame.select(pl.len()).collect()).item()
        else:
            table = self.analysis(trace, question, run_key, kept)
            frame, rows = table.lazy(), table.height
        if question.find is not None:
            frame = tables.matching(frame, question.find)
            rows = frame.select(pl.len()).collect().item()
        frame = tables.chosen(frame, sort=question.sort, descending=question.descending, columns=question.columns)
        if question.offset or question.limit is not None:
            frame = frame.slice(question.offset, question.limit)
        header = {question.kind: question.name, "source": source, "rows_in_all": rows}
        return encode(frame, question.format, rows, scratch, question.name, header)

    def analysis(self, trace: Trace, question: Question, run_key: tuple[Any, ...], kept: tuple[Any, ...] | None = None) -> pl.DataFrame:
        """All rows of an analysis."""

        def compute() -> pl.DataFrame:
            return trace.analyse(question.name, rank=question.rank, steps=question.steps, **question.options)

        key = kept and entry_key("table", *kept, *question.table_key)
        return self._tables.get((*run_key, *question.table_key), lambda: _cached(key, compute) if key else compute())


def _cached(key: str, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The table from the cache, or computed; it is kept if it took long."""
    try:
        table = cache.load(key, _read_table)
    except (OSError, StepscopeError):
        return compute()
    if table is None:
        began = time.perf_counter()
        table = compute()
        if time.perf_counter() - began >= _KEPT_S and table.estimated_size() <= _KEPT_BYTES:
            computed = table
            with contextlib.suppress(cache.UnusableError):
                cache.get_or_build(key, lambda room: _write_table(room, computed), _read_table, on_built=lambda entry: None)
    return table


def _read_table(entry: Path) -> pl.DataFrame:
    try:
        return pl.read_ipc((entry / _TABLE).read_bytes())
    except pl.exceptions.PolarsError as error:
        raise ValueError("damaged table") from error


def _write_table(room: Path, table: pl.DataFrame) -> Path:
    folder = room / "table"
    folder.mkdir()
    (folder / answers_cache.HEADER).write_text(json.dumps({"source": "a table of the pages"}))
    table.write_ipc(folder / _TABLE, compression="lz4")
    return folder


def entity_tag(*identity: object) -> str:
    """A strong entity tag: the same question about the same files has the same answer, byte for byte."""
    return hashlib.sha256(repr((_SERVER, identity)).encode()).hexdigest()[:32]


def encode(frame: pl.LazyFrame, format_name: str, rows: int, scratch: Path, name: str, header: Mapping[str, Any]) -> Answer:
    """The rows in a format. All formats but Arrow may be long and go through a file."""
    media_type = TYPES[format_name]
    if format_name == "arrow":
        return Answer(tables.arrow(frame.collect()), rows, media_type)
    file = scratch / f"{secrets.token_hex(8)}.{format_name}"
    try:
        if format_name == "parquet":
            frame.collect().write_parquet(file)
        else:
            with file.open("x", encoding="utf-8", newline="") as text:
                tables.write_json(frame, text, header) if format_name == "json" else tables.write_csv(frame, text)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Answer(b"", rows, media_type, None if format_name == "json" else f"{name}.{format_name}", file)


def compress(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def list_analyses() -> list[dict[str, Any]]:
    """Every analysis with its question, columns and parameters."""
    return [_describe(name) for name in analysis_names()]


def _describe(name: str) -> dict[str, Any]:
    about = analysis(name)
    return {
        "name": name,
        "question": about.question,
        "about": (about.function.__doc__ or "").strip(),
        "columns": [{"name": column, "type": str(dtype).split("(")[0]} for column, dtype in about.columns.items()],
        "parameters": [
            {
                "name": key,
                "type": parameters.type_of(parameter).__name__,
                "default": None if parameter.default is parameter.empty else parameter.default,
            }
            | parameters.bounds(key, parameter)
            for key, parameter in about.parameters.items()
        ],
    }
