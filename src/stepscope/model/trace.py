"""Trace: the tables of a recording of one or many ranks, and its metadata."""

import copy
import importlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
import numpy as np
import polars as pl

from stepscope.errors import DataError, UsageError
from stepscope.model import intervals, parameters, rank_tables, schema
from stepscope.model.memo import Memo
from stepscope.model.output import notebook_cell
from stepscope.model.steps import selection

_P = ParamSpec("_P")
_T = TypeVar("_T")


class StepDurations(msgspec.Struct, kw_only=True, frozen=True):
    """The numbers of steps, and the duration of each."""

    step: list[int] = []
    dur_ns: list[int] = []


class UnprofiledSteps(msgspec.Struct, kw_only=True, frozen=True):
    """Durations of unrecorded steps of one rank, on the host, from the end of a step to the end of the next.

    Count, median and percentiles exclude the first steps of the process, where there are enough others; `before` and `after` the
    recorded window contain all of them.
    """

    rank: int
    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int
    before: StepDurations = StepDurations()
    after: StepDurations = StepDurations()


class Window(msgspec.Struct, frozen=True, array_like=True):
    """The time that a rank recorded without an interruption; in files, a list of three numbers."""

    rank: int
    from_ns: int
    to_ns: int


class Meta(msgspec.Struct, kw_only=True, frozen=True):
    """The metadata of a trace, stored in run.json."""

    source: str = ""  # the path that was read, as given
    format: str = ""  # the reader's name: chrome, xplane, ...
    framework: str = ""  # pytorch, jax, tensorflow, mindspore
    versions: dict[str, str] = {}
    world_size: int | None = None
    ranks: list[int] = []
    options: dict[str, Any] = {}  # options of the recording: shapes, memory, stack
    extra: dict[str, Any] = {}  # other fields of the source's header
    unprofiled_steps: list[UnprofiledSteps] = []  # per rank, where they are known
    windows: list[Window] = []  # of recordings with interruptions
    summary: bool = False  # the figures of each rank (`rank_tables`), without its spans


class Trace:
    """Immutable tables (`trace.spans`, lazy) and analyses (`trace.operators()`, a Polars frame)."""

    def __init__(self, tables: Mapping[str, pl.LazyFrame | pl.DataFrame], meta: Meta | None = None) -> None:
        unknown = set(tables) - set(schema.TABLES)
        if unknown:
            raise UsageError(f"no such table: {', '.join(sorted(unknown))}")
        self.meta = meta or Meta()
        self._whole: Trace | None = None
        self._memo, self._narrowing = Memo(), tuple[Hashable, ...]()
        self._tables = {name: schema.conform(tables[name].lazy(), name) if name in tables else schema.empty(name) for name in schema.TABLES}

    def table(self, name: str) -> pl.LazyFrame:
        """A table of the schema, lazily: only the columns that are used are read."""
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

    def span_args(self, spans: pl.Series, keys: Mapping[str, Any]) -> pl.DataFrame:
        """Values of `args` by key and type, of spans of a trace of one rank: one row per span, in their order."""
        if spans.is_empty() or not keys:
            return pl.DataFrame(schema=dict(keys))
        wanted = pl.DataFrame({"span": spans}).with_row_index("at")
        parts = [pl.DataFrame(schema={"at": pl.UInt32, **keys})]
        texts = self.spans.select("span", "args").join(wanted.lazy(), on="span", maintain_order="right")
        for batch in texts.select("at", "args").collect_batches(chunk_size=_BATCH, maintain_order=True):
            parts.append(_decode_args(batch["args"], keys).select(batch["at"], *keys))
        values = pl.concat(parts)
        if values.height != wanted.height:  # numbers without a span, or of two
            values = wanted.select("at").join(values.unique("at", keep="first"), on="at", how="left")
        return values.sort("at").drop("at")

    @property
    def whole(self) -> "Trace":
        """The trace that this one was narrowed from, with all ranks, steps and times; itself where it is not narrowed."""
        return self if self._whole is None else self._whole

    @property
    def of_all_ranks(self) -> "Trace":
        """The same steps on all ranks; itself where it is not narrowed to a rank."""
        if not any(isinstance(part, tuple) and part[0] == "rank" for part in self._narrowing):
            return self
        trace = self.whole
        for part in self._narrowing:
            trace = trace.of_steps(*part[1:]) if isinstance(part, tuple) and part[0] == "steps" else trace
        return trace

    @property
    def is_part_of_steps(self) -> bool:
        """Whether the trace has only some of the steps (`of_steps`)."""
        return any(isinstance(part, tuple) and part[0] == "steps" for part in self._narrowing)

    def part(self, tables: Mapping[str, pl.LazyFrame | pl.DataFrame]) -> "Trace":
        """A narrowed trace: these tables, with some of the rows of this one."""
        part = self.with_tables(**tables)
        part._whole = self.whole
        return part

    def with_meta(self, **fields: Any) -> "Trace":
        """The same trace with other values in some fields of `meta`."""
        changed = copy.copy(self)
        changed.meta = msgspec.structs.replace(self.meta, **fields)
        changed._memo, changed._narrowing = Memo(), ()  # results may depend on `meta`
        return changed

    def with_tables(self, **tables: pl.LazyFrame | pl.DataFrame) -> "Trace":
        """The same recording with these tables instead of the previous ones."""
        return Trace({**self._tables, **tables}, self.meta)

    def of_rank(self, rank: int) -> "Trace":
        """The same trace with one rank's rows."""
        rank = parameters.checked(int, "rank", rank)
        if self.meta.ranks and rank not in self.meta.ranks:
            ranks = f"rank{'s' if len(self.meta.ranks) > 1 else ''} {_span_of(self.meta.ranks)}"
            raise UsageError(f"no rank {rank} in {self.meta.source or 'this trace'}; it has {ranks}")
        unprofiled = [steps for steps in self.meta.unprofiled_steps if steps.rank == rank]
        part = self.part({name: frame.filter(pl.col("rank") == rank) for name, frame in self._tables.items()})
        return self._share_memo(part.with_meta(ranks=[rank], unprofiled_steps=unprofiled), ("rank", rank))

    def memo(self, function: "Callable[Concatenate[Trace, _P], _T]", *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """`function(trace, ...)`, computed once for this trace and for each rank and range of steps of it (`memoized`)."""
        key = (function, args, tuple(sorted(kwargs.items())), self._narrowing)
        return self._memo.get(key, lambda: function(self, *args, **kwargs))

    def _share_memo(self, narrowed: "Trace", narrowing: Hashable) -> "Trace":
        narrowed._memo, narrowed._narrowing = self._memo, (*self._narrowing, narrowing)
        return narrowed

    def of_steps(self, first: int, last: int) -> "Trace":
        """The same trace with the rows of these steps, the last one included, on every rank that has them.

        Rows without a step stay where they are within the time of the steps, allocations where they were alive in it. Devices, tracks, the
        pipeline and problems stay.
        """
        first, last = (parameters.checked(int, "step", step) for step in (first, last))
        tables = selection.rows_of_steps(self._tables, first, last)
        if not tables:
            low, high = self.steps.select(pl.col("step").min().alias("low"), pl.col("step").max().alias("high")).collect().row(0)
            present = "no steps" if low is None else f"step {low}" if low == high else f"steps {low} to {high}"
            raise UsageError(f"no steps {first} to {last} in {self.meta.source or 'this trace'}; it has {present}")
        return self._share_memo(self.part(tables), ("steps", first, last))

    def with_problems(self, rows: Sequence[Mapping[str, Any]]) -> "Trace":
        """The same trace with more rows of `problems`."""
        if not rows:
            return self
        # Names of files need not be UTF-8: then they contain surrogates, which no table can hold.
        valid = [
            {key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for key, value in row.items()}
            for row in rows
        ]
        return self.with_tables(problems=pl.concat([self.problems, schema.conform(pl.LazyFrame(valid), "problems")]))

    def as_rank(self, rank: int) -> "Trace":
        """The same trace of one rank with another rank number; its world size is then unknown."""
        new = pl.lit(rank, pl.Int32).alias("rank")
        windows = [msgspec.structs.replace(window, rank=rank) for window in self.meta.windows]
        unprofiled = [msgspec.structs.replace(steps, rank=rank) for steps in self.meta.unprofiled_steps]
        trace = Trace({name: frame.with_columns(new) for name, frame in self._tables.items()}, self.meta)
        return trace.with_meta(ranks=[rank], world_size=None, windows=windows, unprofiled_steps=unprofiled)

    def with_steps(self, choice: str) -> "Trace":
        """The same trace with other steps: `annotation:NAME`, `function:NAME`, `operator:NAME`, `kernel:NAME`, or a name alone.

        Each occurrence of an annotation or function is a step; an operator or a kernel starts a step, which lasts until the next. * and ?
        match as in file names.
        """
        chosen: Trace = importlib.import_module("stepscope.model.steps.step_choice").with_steps(self, choice)
        return chosen

    def of_time(self, start_ns: int, end_ns: int) -> "Trace":
        """The same trace with the rows that overlap a range of time, unclipped. Devices, tracks, the pipeline, links and problems stay.

        An allocation that was made before the range has no start in it, and one that was freed after it has no end.
        """
        return self.part(selection.rows_of_time(self._tables, start_ns, end_ns))

    def ends(self) -> tuple[int, int]:
        """The first and the last timestamp; 0 and 0 for an empty trace."""
        return selection.time_range(self._tables)

    def analyse(self, name: str, *, rank: int | None = None, steps: tuple[int, int] | None = None, **arguments: Any) -> pl.DataFrame:
        """The table of an analysis. `rank` restricts it to one rank, `steps` to the steps from a first to a last one, inclusive."""
        entry = analysis(name)
        if self.meta.summary and not rank_tables.is_answered(name, entry.topic):
            rank_tables.refuse_summary(self, f"data for {name}")
        trace = self if rank is None else self.of_rank(rank)
        trace = trace if steps is None else trace.of_steps(*steps)
        try:
            result: pl.DataFrame = entry.function(trace, **parameters.all_checked(arguments, entry.parameters))
        except TypeError as error:
            if unknown := set(arguments) - set(entry.parameters):
                raise UsageError(f"{name} has no parameter {', '.join(sorted(unknown))}") from error
            raise
        except pl.exceptions.PolarsError as error:
            raise importlib.import_module("stepscope.io.store").named_damage(error) from error
        return result

    def view(self, page: str = "overview", *, height: int = 720) -> Any:
        """A page of the web UI inside a notebook cell, with all its data: it needs no server."""
        return importlib.import_module("stepscope.server.notebook").view(self, page=page, height=height)

    def __getattr__(self, name: str) -> Callable[..., pl.DataFrame]:
        if name.startswith("_") or name not in analysis_names():
            raise AttributeError(f"a trace has no '{name}'; analyses: {', '.join(analysis_names())}")
        return lambda **arguments: self.analyse(name, **arguments)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *analysis_names()]

    def __repr__(self) -> str:
        return f"Trace({self.meta.source!r}, framework={self.meta.framework!r}, ranks={_span_of(self.meta.ranks) or None})"

    def _repr_html_(self) -> str:
        """The trace in a notebook: steps, operator types and problems."""
        title = [self.meta.source, self.meta.framework, f"rank {_span_of(self.meta.ranks)}" if self.meta.ranks else ""]
        return notebook_cell.trace_html(self, title)


class Analysis(msgspec.Struct, frozen=True):
    """One module of `analyses/`: its question, its function, the columns of its table and its parameters."""

    name: str
    question: str
    function: Callable[..., pl.DataFrame]
    columns: dict[str, Any]
    topic: str
    parameters: dict[str, Any]  # keyword-only parameters of the function: inspect.Parameter by name


def analysis_names() -> list[str]:
    """The names of all analyses."""
    names: list[str] = importlib.import_module("stepscope.analyses").names()
    return names


def analysis(name: str) -> Analysis:
    """The analysis of that name. The error for a wrong name has a suggestion."""
    import difflib

    names = analysis_names()
    if name not in names:
        near = difflib.get_close_matches(name.replace("-", "_"), names, 1)
        raise UsageError(f"no analysis '{name}'" + (f"; did you mean '{near[0]}'?" if near else f"; expected {', '.join(names)}"))
    path = importlib.import_module("stepscope.analyses").module_name(name)
    module = importlib.import_module(path)
    function = getattr(module, name)
    return Analysis(name, (module.__doc__ or "").strip(), function, dict(module.COLUMNS), path.split(".")[2], parameters.of(function))


def complete(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with ids, depth, parent and self time, for readers."""
    track = spans["track"].to_numpy().astype(np.int64)
    start = spans["start_ns"].to_numpy()
    ids = spans["span"].to_numpy() if "span" in spans.columns else np.arange(spans.height, dtype=np.int64)
    length = spans["dur_ns"].to_numpy()
    nesting = intervals.nest(track, start, start + length)
    # Kernels of one stream may overlap (programmatic dependent launch), but do not enclose each other.
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
    """The row of `problems` for a rank that cannot be read. The number of lost rows is not known, so it counts as one."""
    who = "" if rank is None else f"rank {rank} is "
    return {"rank": rank, "file": error.path, "where": error.where, "what": f"{who}{UNREAD}{error.what}", "lost": 1}


def combine(traces: list[Trace]) -> Trace:
    """Several ranks as one trace."""
    if len(traces) == 1:
        return traces[0]
    first = traces[0].meta
    if other := next((trace.meta.source for trace in traces if trace.meta.summary != first.summary), None):
        raise DataError(other, f"a summary and recordings of ranks cannot be one run; the other is {first.source}")
    meta = Meta(
        source=first.source,
        format=first.format,
        framework=first.framework,
        versions=first.versions,
        world_size=_world_size(traces),
        ranks=sorted({rank for t in traces for rank in t.meta.ranks}),
        options=first.options | {key: True for t in traces for key, value in t.meta.options.items() if value is True},
        extra=first.extra,
        windows=[window for t in traces for window in t.meta.windows],
        unprofiled_steps=[steps for t in traces for steps in t.meta.unprofiled_steps],
        summary=first.summary,
    )
    return Trace({name: pl.concat([t.table(name) for t in traces]) for name in schema.TABLES}, meta)


def _world_size(traces: list[Trace]) -> int | None:
    """The number of ranks of the job: what the recordings say, or more if there is a recording of a higher rank."""
    size = max((trace.meta.world_size or 0 for trace in traces), default=0)
    return (
        max(size, 1 + max(rank for trace in traces for rank in trace.meta.ranks))
        if size and any(t.meta.ranks for t in traces)
        else size or None
    )


_BATCH = 50_000


def _decode_args(texts: pl.Series, keys: Mapping[str, Any]) -> pl.DataFrame:
    """Values of JSON objects. Decoding them as lines of one document is many times as fast as one by one."""
    lines = texts.fill_null("{}").str.replace_all("\n", " ", literal=True)
    types = {name: pl.String if dtype == schema.Text else dtype for name, dtype in keys.items()}  # an object becomes text, too
    try:
        values = pl.read_ndjson(lines.str.join("\n").item().encode(), schema=types, ignore_errors=True)
    except pl.exceptions.ComputeError:  # one text that is no JSON spoils the others
        objects = [text if _is_object(text) else "{}" for text in lines]
        values = pl.read_ndjson("\n".join(objects).encode(), schema=types, ignore_errors=True)
    return values.select(pl.col(name).cast(dtype) for name, dtype in keys.items())


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _span_of(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{len(ranks)} from {ranks[0]} to {ranks[-1]}"
