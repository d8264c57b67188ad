"""Tables on their way to the client: computed once, kept within a bound, sorted and cut as asked, in the form that was asked for."""

import gzip
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import parameters, schema, tables
from stepscope.trace import Trace, analysis, analysis_names

KEPT_BYTES = 256 << 20
# The client knows an answer by the question, by the files it is of, and by this server: another one may be of another release.
_SERVER = secrets.token_hex(8)
NUMBERS = ("rank", "offset", "limit")  # of every table
TYPES = {
    "arrow": "application/vnd.apache.arrow.stream",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


class Question(msgspec.Struct, frozen=True):
    """Which rows, of which columns, in which form."""

    kind: str  # analyses or tables
    name: str
    given: dict[str, Any]
    rank: int | None = None
    steps: tuple[int, int] | None = None
    sort: str | None = None
    descending: bool = False
    offset: int = 0
    limit: int | None = None
    columns: str | None = None
    find: str | None = None
    format: str = "arrow"

    def of_table(self) -> tuple[Any, ...]:
        """What decides the whole table, before it is sorted and cut."""
        return self.kind, self.name, self.rank, self.steps, tuple(sorted(self.given.items()))


def question(kind: str, name: str, words: Mapping[str, str]) -> Question:
    """The question of a URL; a word that it cannot have is refused."""
    own = dict(words)
    numbers: dict[str, int] = {key: parameters.value(int, key, own.pop(key)) for key in NUMBERS if key in own}
    form = own.pop("format", "arrow")
    parameters.check_word("format", form, TYPES)
    common: dict[str, Any] = {
        **numbers,
        "steps": parameters.steps(own.pop("steps")) if "steps" in own else None,
        "sort": own.pop("sort", None),
        "descending": parameters.value(bool, "descending", own.pop("descending", "0")),
        "columns": own.pop("columns", None),
        "find": own.pop("find", None),
        "format": form,
    }
    if kind == "analyses":
        return Question(kind, name, parameters.values(own, analysis(name).parameters, name), **common)
    parameters.check_word("table", name, schema.TABLES)
    return Question(kind, name, parameters.values(own, {}, name), **common)


class Answer(msgspec.Struct, frozen=True):
    """What goes over the wire: bytes, or a file that is removed afterwards."""

    content: bytes
    rows: int
    media_type: str
    filename: str | None = None
    file: Path | None = None
    known_by_name: bool = False  # other tools know the file by its name: the run's is not put before it


class Answers:
    """Tables that were computed, the longest unused forgotten first."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[Any, ...], pl.DataFrame] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._under_way: dict[tuple[Any, ...], threading.Lock] = {}

    def answer(self, trace: Trace, asked: Question, key: tuple[Any, ...], scratch: Path, source: str) -> Answer:
        if asked.kind == "tables":
            frame = _restricted(trace, asked).table(asked.name)
            rows = self._once((*key, *asked.of_table(), "rows"), lambda: frame.select(pl.len()).collect()).item()
        else:
            whole = self.analysis(trace, asked, key)
            frame, rows = whole.lazy(), whole.height
        if asked.find is not None:
            frame = tables.matching(frame, asked.find)
            rows = frame.select(pl.len()).collect().item()
        frame = tables.chosen(frame, sort=asked.sort, descending=asked.descending, columns=asked.columns)
        if asked.offset or asked.limit is not None:
            frame = frame.slice(asked.offset, asked.limit)
        return written(frame, asked.format, rows, scratch, asked.name, {asked.kind: asked.name, "source": source, "rows_in_all": rows})

    def analysis(self, trace: Trace, asked: Question, key: tuple[Any, ...]) -> pl.DataFrame:
        """All rows of an analysis."""
        return self._once((*key, *asked.of_table()), lambda: trace.analyse(asked.name, rank=asked.rank, steps=asked.steps, **asked.given))

    def _once(self, key: tuple[Any, ...], compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """The table of this key; of several who ask at the same time, one computes it."""
        with self._lock:
            turn = self._under_way.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            try:
                frame = compute()
            finally:
                with self._lock:
                    self._under_way.pop(key, None)
            with self._lock:
                self._kept[key] = frame
                self._size += int(frame.estimated_size())
                while self._size > self._limit and len(self._kept) > 1:
                    self._size -= int(self._kept.popitem(last=False)[1].estimated_size())
        return frame


def identity(asked: Question) -> tuple[Any, ...]:
    """Everything that decides the bytes of an answer, but the files that are asked."""
    return *asked.of_table(), asked.sort, asked.descending, asked.offset, asked.limit, asked.columns, asked.find, asked.format


def tag(*said: object) -> str:
    """A strong entity tag: the same question of the same files has the same answer, byte for byte."""
    return hashlib.sha256(repr((_SERVER, said)).encode()).hexdigest()[:32]


def written(frame: pl.LazyFrame, form: str, rows: int, scratch: Path, name: str, about: Mapping[str, Any]) -> Answer:
    """The rows in that form. What is for a spreadsheet may be long, and goes through a file."""
    media_type = TYPES[form]
    if form == "arrow":
        return Answer(tables.arrow(frame.collect()), rows, media_type)
    file = scratch / f"{secrets.token_hex(8)}.{form}"
    try:
        if form == "parquet":
            frame.collect().write_parquet(file)
        else:
            with file.open("x", encoding="utf-8", newline="") as text:
                tables.write_json(frame, text, about) if form == "json" else tables.write_csv(frame, text)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Answer(b"", rows, media_type, None if form == "json" else f"{name}.{form}", file)


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def listed() -> list[dict[str, Any]]:
    """Every analysis with its question, columns and parameters."""
    found = []
    for name in analysis_names():
        one = analysis(name)
        found.append(
            {
                "name": name,
                "question": one.question,
                "about": (one.function.__doc__ or "").strip(),
                "columns": [{"name": column, "type": str(dtype).split("(")[0]} for column, dtype in one.columns.items()],
                "parameters": [
                    {
                        "name": key,
                        "type": parameters.type_of(said).__name__,
                        "default": None if said.default is said.empty else said.default,
                    }
                    | parameters.bounds(key, said)
                    for key, said in one.parameters.items()
                ],
            }
        )
    return found


def _restricted(trace: Trace, asked: Question) -> Trace:
    trace = trace if asked.rank is None else trace.of_rank(asked.rank)
    return trace if asked.steps is None else trace.of_steps(*asked.steps)
