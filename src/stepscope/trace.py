"""Trace: the tables of one recording, of one rank or many, and what is known about where they came from."""

import html
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope import intervals, parameters, schema, units
from stepscope.errors import DataError, UsageError


class StepDurations(msgspec.Struct, kw_only=True, frozen=True):
    """Steps by their number, and how long each took."""

    step: list[int] = []
    dur_ns: list[int] = []


class UnprofiledSteps(msgspec.Struct, kw_only=True, frozen=True):
    """What steps of one rank took while nothing was recorded, on the host, from the end of one to the end of the next.

    Count, median and percentiles leave out the first steps of the process, where enough others are known; `before` and `after` the
    recorded window have them all.
    """

    rank: int
    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int
    before: StepDurations = StepDurations()
    after: StepDurations = StepDurations()


class Meta(msgspec.Struct, kw_only=True, omit_defaults=False):
    """What a run folder's run.json says."""

    source: str = ""  # the path that was read, as given
    format: str = ""  # the reader's name: chrome, xplane, ...
    framework: str = ""  # pytorch, jax, tensorflow, mindspore
    versions: dict[str, str] = {}
    world_size: int | None = None
    ranks: list[int] = []
    options: dict[str, Any] = {}  # how it was recorded: shapes, memory, stack
    extra: dict[str, Any] = {}  # what else the source's header said
    unprofiled_steps: list[UnprofiledSteps] = []  # of each rank where they are known


class Trace:
    """Immutable tables (`trace.spans`, lazy) and analyses (`trace.operators()`, a Polars frame)."""

    def __init__(
        self, tables: Mapping[str, pl.LazyFrame | pl.DataFrame], meta: Meta | None = None, *, said: Sequence[pl.Series | int] = ()
    ) -> None:
        """`said` is for a reader of much: in place of the spans' `args`, its fields as structs, for one run of spans after the other,
        or the length of a run of which nothing is said."""
        unknown = set(tables) - set(schema.TABLES)
        if unknown:
            raise UsageError(f"no such table: {', '.join(sorted(unknown))}")
        self.meta = meta or Meta()
        self._said = _numbered(said)
        self._whole: Trace | None = None
        if said and "spans" in tables:
            tables = {**tables, "spans": _with_args(tables["spans"], said)}
        self._tables = {name: schema.conform(tables[name].lazy(), name) if name in tables else schema.empty(name) for name in schema.TABLES}

    def table(self, name: str) -> pl.LazyFrame:
        """One of the tables of the schema, lazily: only the columns asked for are read."""
        if name not in self._tables:
            raise UsageError(f"no table '{name}'; expected {', '.join(self._tables)}")
        return self._tables[name]

    @property
    def tables(self) -> dict[str, pl.LazyFrame]:
        return dict(self._tables)

    @property
    def spans(self) -> pl.LazyFrame:
        return self.table("spans")

    @property
    def tracks(self) -> pl.LazyFrame:
        return self.table("tracks")

    @property
    def steps(self) -> pl.LazyFrame:
        return self.table("steps")

    @property
    def counters(self) -> pl.LazyFrame:
        return self.table("counters")

    @property
    def allocations(self) -> pl.LazyFrame:
        return self.table("allocations")

    @property
    def devices(self) -> pl.LazyFrame:
        return self.table("devices")

    @property
    def problems(self) -> pl.LazyFrame:
        return self.table("problems")

    def said(self, spans: pl.Series, fields: Mapping[str, Any]) -> pl.DataFrame:
        """Fields of the `args` of spans of a trace of one rank, by the spans' numbers: a row for each of them, in their order."""
        if self._said:
            return self._packed(spans, fields)
        wanted = pl.DataFrame({"span": spans}).with_row_index("at")
        parts = [pl.DataFrame(schema={"at": pl.UInt32, **fields})]
        texts = self.spans.select("span", "args").join(wanted.lazy(), on="span", maintain_order="right")
        for batch in texts.select("at", "args").collect_batches(chunk_size=_BATCH, maintain_order=True):
            parts.append(_fields(batch["args"], fields).select(batch["at"], *fields))
        found = pl.concat(parts)
        if found.height != wanted.height:  # numbers that no span has, or two
            found = wanted.select("at").join(found.unique("at", keep="first"), on="at", how="left")
        return found.sort("at").drop("at")

    def _packed(self, spans: pl.Series, fields: Mapping[str, Any]) -> pl.DataFrame:
        """`said` of structs: field by field, so that no more than one is there twice, and of spans in a row without a copy."""
        parts, order = [], [np.empty(0, np.int64)]
        for first, said in self._said:
            at = ((spans >= first) & (spans < first + said.len())).arg_true()
            if at.len():
                parts.append((said, _run(spans.gather(at) - first)))
                order.append(at.to_numpy().astype(np.int64))
        place = _places(np.concatenate(order), spans.len())
        columns = []
        for name, dtype in fields.items():
            found = pl.concat([pl.Series(dtype=dtype), *(_field(said, name, dtype, rows) for said, rows in parts)])
            columns.append((found if place is None else found.gather(place)).alias(name))
        return pl.DataFrame(columns)

    @property
    def whole(self) -> "Trace":
        """The trace that this one is a part of: all its ranks, steps and times; itself where it is no part."""
        return self if self._whole is None else self._whole

    def part(self, tables: Mapping[str, pl.LazyFrame | pl.DataFrame]) -> "Trace":
        """A trace with some of the rows of this one: these tables instead of its own."""
        found = Trace({**self._tables, **tables}, self.meta)
        found._whole = self.whole
        return found

    def of_rank(self, rank: int) -> "Trace":
        """The same trace with one rank's rows."""
        rank = parameters.checked(int, "rank", rank)
        if self.meta.ranks and rank not in self.meta.ranks:
            ranks = f"rank{'s' if len(self.meta.ranks) > 1 else ''} {_span_of(self.meta.ranks)}"
            raise UsageError(f"no rank {rank} in {self.meta.source or 'this trace'}; it has {ranks}")
        unprofiled = [steps for steps in self.meta.unprofiled_steps if steps.rank == rank]
        meta = msgspec.structs.replace(self.meta, ranks=[rank], unprofiled_steps=unprofiled)
        found = self.part({name: frame.filter(pl.col("rank") == rank) for name, frame in self._tables.items()})
        found.meta = meta
        return found

    def of_steps(self, first: int, last: int) -> "Trace":
        """The same trace with what belongs to these steps, the last one included, on every rank that made them.

        What no step claims is kept where it falls into their time, and an allocation where it was alive in it. Devices, tracks, the
        pipeline and problems stay.
        """
        first, last = (parameters.checked(int, "step", step) for step in (first, last))
        within = pl.col("step").is_between(first, last)
        steps = self.steps.filter(within).collect()
        if steps.is_empty():
            there = self.steps.select(pl.col("step").min().alias("low"), pl.col("step").max().alias("high")).collect().row(0)
            known = (
                "it has no steps"
                if there[0] is None
                else f"it has step {there[0]}"
                if there[0] == there[1]
                else f"it has steps {there[0]} to {there[1]}"
            )
            raise UsageError(f"no steps {first} to {last} in {self.meta.source or 'this trace'}; {known}")
        # From the first start to the last end of a rank: what lies between two of the steps is part of the range.
        time = steps.group_by("rank").agg(from_ns=pl.col("start_ns").min(), to_ns=pl.col("end_ns").max()).lazy()
        begin, end = steps["start_ns"].min(), steps["end_ns"].max()
        # Said before the times are joined, so that of a large file the parts that hold other steps are not read.
        start, at = pl.col("start_ns"), pl.col("at_ns")
        about = {
            **self._tables,
            "spans": self.spans.filter(within | (pl.col("step").is_null() & (start >= begin) & (start < end))),
            "counters": self.counters.filter(at >= begin, at < end),
        }
        of_step = {name: frame.join(time, on="rank", how="left", maintain_order="left") for name, frame in about.items()}
        rules = {
            "spans": pl.when(pl.col("step").is_null()).then(_in_time("start_ns")).otherwise(within),
            "links": pl.col("step").is_null() | within,
            "counters": _in_time("at_ns"),
            "allocations": pl.col("from_ns").is_not_null()
            & (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") < pl.col("to_ns")))
            & (pl.col("free_ns").is_null() | (pl.col("free_ns") > pl.col("from_ns"))),
        }
        kept = {name: of_step[name].filter(rule).drop("from_ns", "to_ns") for name, rule in rules.items()}
        return self.part({**kept, "steps": steps})

    def with_problems(self, rows: Sequence[Mapping[str, Any]]) -> "Trace":
        """The same trace with more rows of `problems`."""
        if not rows:
            return self
        # Names of files need not be UTF-8; then they hold what no text may hold.
        plain = [
            {key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for key, value in row.items()}
            for row in rows
        ]
        return Trace({**self._tables, "problems": pl.concat([self.problems, schema.conform(pl.LazyFrame(plain), "problems")])}, self.meta)

    def as_rank(self, rank: int) -> "Trace":
        """The same trace, of one rank, as another rank; the size of its world is then unknown."""
        new = pl.lit(rank, pl.Int32).alias("rank")
        windows = [[rank, *times] for _, *times in self.meta.extra.get("windows", [])]
        extra = self.meta.extra | ({"windows": windows} if windows else {})
        unprofiled = [msgspec.structs.replace(steps, rank=rank) for steps in self.meta.unprofiled_steps]
        meta = msgspec.structs.replace(self.meta, ranks=[rank], world_size=None, extra=extra, unprofiled_steps=unprofiled)
        return Trace({name: frame.with_columns(new) for name, frame in self._tables.items()}, meta)

    def with_steps(self, choice: str) -> "Trace":
        """The same trace with other steps: `annotation:NAME`, `function:NAME`, `operator:NAME`, `kernel:NAME`, or a name alone.

        Each occurrence of an annotation or function is a step; an operator or a kernel begins one, up to the next. * and ? match as in
        file names.
        """
        chosen: Trace = importlib.import_module("stepscope.step_choice").with_steps(self, choice)
        return chosen

    def of_time(self, start_ns: int, end_ns: int) -> "Trace":
        """The same trace with what reaches into a time, whole; blocks of memory that were there before, or stayed, are said to.

        Devices, tracks, the pipeline, links and problems stay.
        """
        start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
        alloc, free = pl.col("alloc_ns"), pl.col("free_ns")
        kept = {
            "spans": self.spans.filter(start < end_ns, (end > start_ns) | (start >= start_ns)),
            "steps": self.steps.filter(start < end_ns, pl.col("end_ns") > start_ns),
            "counters": self.counters.filter(pl.col("at_ns") >= start_ns, pl.col("at_ns") < end_ns),
            "allocations": self.allocations.filter(alloc.is_null() | (alloc < end_ns), free.is_null() | (free >= start_ns)).with_columns(
                pl.when(alloc >= start_ns).then(alloc), pl.when(free < end_ns).then(free)
            ),
        }
        return self.part(kept)

    def ends(self) -> tuple[int, int]:
        """The first and the last moment of anything in it; 0 and 0 where there is nothing."""
        within = {
            "spans": (pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")),
            "steps": (pl.col("start_ns"), pl.col("end_ns")),
            "counters": (pl.col("at_ns"), pl.col("at_ns")),
            "allocations": (pl.col("alloc_ns"), pl.max_horizontal("alloc_ns", "free_ns")),
        }
        found = [
            self.table(name).select(first.min().alias("first"), last.max().alias("last")).collect(engine="streaming").row(0)
            for name, (first, last) in within.items()
        ]
        firsts, lasts = ([ends[at] for ends in found if ends[at] is not None] for at in (0, 1))
        return min(firsts, default=0), max(lasts, default=0)

    def analyse(self, name: str, *, rank: int | None = None, steps: tuple[int, int] | None = None, **given: Any) -> pl.DataFrame:
        """Run an analysis by name. `rank` restricts any analysis to one rank, `steps` to the steps from a first to a last one."""
        found = analysis(name)
        trace = self if rank is None else self.of_rank(rank)
        trace = trace if steps is None else trace.of_steps(*steps)
        try:
            result: pl.DataFrame = found.function(trace, **parameters.all_checked(given, found.parameters))
        except TypeError as error:
            if unknown := set(given) - set(found.parameters):
                raise UsageError(f"{name} has no parameter {', '.join(sorted(unknown))}") from error
            raise
        except pl.exceptions.PolarsError as error:
            raise importlib.import_module("stepscope.store").named_damage(error) from error
        return result

    def view(self, page: str = "overview", *, height: int = 720) -> Any:
        """A page of the web UI inside a notebook: everything it shows is in the cell, and needs no server."""
        return importlib.import_module("stepscope.web.notebook").view(self, page=page, height=height)

    def __getattr__(self, name: str) -> Callable[..., pl.DataFrame]:
        if name.startswith("_") or name not in analysis_names():
            raise AttributeError(f"a trace has no '{name}'; analyses: {', '.join(analysis_names())}")
        return lambda **given: self.analyse(name, **given)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *analysis_names()]

    def __repr__(self) -> str:
        return f"Trace({self.meta.source!r}, framework={self.meta.framework!r}, ranks={_span_of(self.meta.ranks) or None})"

    def _repr_html_(self) -> str:
        """What a notebook shows: how long the steps are, what takes their time, and what could not be read."""
        facts = [self.meta.source, self.meta.framework, f"rank {_span_of(self.meta.ranks)}" if self.meta.ranks else ""]
        parts = [f"<p>{' · '.join(html.escape(fact) for fact in facts if fact)}</p>"]
        types = self.analyse("operator_types")
        parts += [_html_table(self.analyse("overview")), _html_table(types.head(_TOP)), _html_table(self.problems.collect())]
        if types.height > _TOP:
            parts.insert(3, f"<p>{_TOP} of {types.height:,} operator types: trace.operator_types()</p>")
        return "\n".join(part for part in parts if part)


_TOP = 10


class Analysis(msgspec.Struct, frozen=True):
    """One module of `analyses/`: its question, its function, the columns of its answer and its parameters."""

    name: str
    question: str
    function: Callable[..., pl.DataFrame]
    columns: dict[str, Any]
    parameters: dict[str, Any]  # keyword-only parameters of the function: inspect.Parameter by name


def analysis_names() -> list[str]:
    """Every analysis there is: the modules of `analyses/` that do not start with an underscore."""
    import stepscope

    folder = Path(stepscope.__file__).parent / "analyses"
    return sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if not module.name.startswith("_"))


def analysis(name: str) -> Analysis:
    """The analysis of that name; a wrong name gets a suggestion."""
    import difflib

    names = analysis_names()
    if name not in names:
        near = difflib.get_close_matches(name.replace("-", "_"), names, 1)
        raise UsageError(f"no analysis '{name}'" + (f"; did you mean '{near[0]}'?" if near else f"; expected {', '.join(names)}"))
    module = importlib.import_module(f"stepscope.analyses.{name}")
    function = getattr(module, name)
    return Analysis(name, (module.__doc__ or "").strip(), function, dict(module.COLUMNS), parameters.of(function))


def complete(spans: pl.DataFrame) -> pl.DataFrame:
    """Fill in what every reader would otherwise compute: span ids, depth, parent and self time."""
    track = spans["track"].to_numpy().astype(np.int64)
    start = spans["start_ns"].to_numpy()
    ids = spans["span"].to_numpy() if "span" in spans.columns else np.arange(spans.height, dtype=np.int64)
    length = spans["dur_ns"].to_numpy()
    nesting = intervals.nest(track, start, start + length)
    # Kernels of one stream may overlap (programmatic dependent launch), but none is part of another.
    flat = spans["kind"].cast(pl.String).is_in(["kernel", "copy", "set"]).to_numpy()
    parent = pl.Series("parent", ids[nesting.parent]).set(pl.Series(flat | (nesting.parent < 0)), None)
    return spans.with_columns(
        pl.Series("span", ids),
        pl.Series("depth", nesting.depth, dtype=pl.Int32),
        parent,
        pl.Series("self_ns", np.where(flat, length, nesting.self_time)),
    )


UNREAD = "not shown: "  # in the row of `problems` of a rank that cannot be read


def unread_problem(error: DataError, rank: int | None) -> dict[str, Any]:
    """The row of `problems` for a rank of a job that cannot be read; how many rows that loses is not known, so it counts as one."""
    who = "" if rank is None else f"rank {rank} is "
    return {"rank": rank, "file": error.path, "where": error.where, "what": f"{who}{UNREAD}{error.what}", "lost": 1}


def combine(traces: list[Trace]) -> Trace:
    """Several ranks as one trace."""
    if len(traces) == 1:
        return traces[0]
    first = traces[0].meta
    meta = Meta(
        source=first.source,
        format=first.format,
        framework=first.framework,
        versions=first.versions,
        world_size=max((t.meta.world_size or 0 for t in traces), default=0) or None,
        ranks=sorted({rank for t in traces for rank in t.meta.ranks}),
        options=first.options | {key: True for t in traces for key, value in t.meta.options.items() if value is True},
        extra=first.extra | ({"windows": windows} if (windows := [row for t in traces for row in t.meta.extra.get("windows", [])]) else {}),
        unprofiled_steps=[steps for t in traces for steps in t.meta.unprofiled_steps],
    )
    return Trace({name: pl.concat([t.table(name) for t in traces]) for name in schema.TABLES}, meta)


_BATCH = 50_000


def _numbered(said: Sequence[pl.Series | int]) -> list[tuple[int, pl.Series]]:
    """Each part that says something, with the number of its first span."""
    lengths = [part if isinstance(part, int) else part.len() for part in said]
    firsts = accumulate(lengths, initial=0)
    return [(first, part) for first, part in zip(firsts, said, strict=False) if not isinstance(part, int)]


def _run(rows: pl.Series) -> pl.Series | slice:
    """Rows that follow one another as a slice, which need not be copied."""
    numbers = rows.to_numpy()
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if (np.diff(numbers) == 1).all() else rows


def _places(order: intervals.Ints, count: int) -> pl.Series | None:
    """Where each of so many rows is among those that came in this order: null where none did, None where each is in its place."""
    if len(order) == count and (np.diff(order) == 1).all():
        return None
    place = np.full(count, -1, np.int64)
    place[order] = np.arange(len(order))
    found = pl.Series(place)
    return found.set(found < 0, None)


def _field(said: pl.Series, name: str, dtype: Any, rows: pl.Series | slice) -> pl.Series:
    if name not in said.struct.fields:
        return pl.Series(dtype=dtype).clear(rows.stop - rows.start if isinstance(rows, slice) else rows.len())
    column = said.struct.field(name)
    column = column[rows] if isinstance(rows, slice) else column.gather(rows)
    number = dtype == schema.Text and column.dtype not in (pl.String, schema.Text)
    return (column.cast(pl.String) if number else column).cast(dtype, strict=False)


def _with_args(spans: pl.LazyFrame | pl.DataFrame, said: Sequence[pl.Series | int]) -> pl.LazyFrame:
    """Text is made when it is asked for, of those rows and in portions: it is several times as large."""
    frame, here, parts = spans.lazy().collect(), 0, []
    for part in said:
        length = part if isinstance(part, int) else part.len()
        rows = frame[here : here + length]
        if isinstance(part, int):
            parts.append(rows.lazy().with_columns(args=pl.lit(None, pl.String)))
        else:
            parts.append(rows.with_columns(part.alias("args")).lazy().with_columns(pl.col("args").struct.json_encode()))
        here += length
    return pl.concat(parts)


def _fields(texts: pl.Series, fields: Mapping[str, Any]) -> pl.DataFrame:
    """Fields of JSON texts. As lines they are read many times as fast as one by one."""
    lines = texts.fill_null("{}").str.replace_all("\n", " ", literal=True)
    read = {name: pl.String if dtype == schema.Text else dtype for name, dtype in fields.items()}  # an object is a text, too
    try:
        found = pl.read_ndjson(lines.str.join("\n").item().encode(), schema=read, ignore_errors=True)
    except pl.exceptions.ComputeError:  # a text that is no JSON says nothing, and spoils the others
        whole = [text if _is_object(text) else "{}" for text in lines]
        found = pl.read_ndjson("\n".join(whole).encode(), schema=read, ignore_errors=True)
    return found.select(pl.col(name).cast(dtype) for name, dtype in fields.items())


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def _in_time(column: str) -> pl.Expr:
    return (pl.col(column) >= pl.col("from_ns")) & (pl.col(column) < pl.col("to_ns"))


def _html_table(frame: pl.DataFrame) -> str:
    """Rows with units, without the columns that say nothing; empty for no rows."""
    columns = [column.name for column in frame if column.null_count() < frame.height]
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = [f"<tr>{cells}</tr>"]
    for row in frame.select(columns).iter_rows():
        cells = "".join(f"<td>{html.escape(units.cell(name, value))}</td>" for name, value in zip(columns, row, strict=True))
        rows.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(rows)}</table>" if columns else ""


def _span_of(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{len(ranks)} from {ranks[0]} to {ranks[-1]}"
