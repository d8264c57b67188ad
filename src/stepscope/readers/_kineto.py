"""From columns of Chrome events to the tables: what each event of torch.profiler means, and what belongs to what."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals, schema, units
from stepscope.readers import Options
from stepscope.readers._chrome_events import Report
from stepscope.step_assignment import DEVICE_WORK, NO_MARKERS, number_steps, steps_by_launch, steps_by_time, steps_on_device
from stepscope.trace import Meta, Trace, UnprofiledSteps

Ints = NDArray[np.int64]


class Problem(NamedTuple):
    where: str
    what: str
    lost: int


# Columns that only pass through: they are never in memory all at once.
_PASSING = ["correlation", "flops", "bytes", "shapes", "dtypes", "args"]


def assemble(path: Path, header: dict[str, Any], reports: list[Report], problems: list[Problem], options: Options) -> Trace:
    """The trace of decoded events whose columns lie in the scratch folder."""
    tracks: dict[tuple[int | str, int | str, str], int] = {}
    local = [np.array([tracks.setdefault(tuple(key), len(tracks)) for key in report.tracks], np.int32) for report in reports]  # type: ignore[arg-type]
    problems = [*problems, *close_pairs(options.scratch, local)]
    spans = load(options.scratch, "spans", local)
    spans = classified(spans)
    memory = load(options.scratch, "memory", local)
    spans, memory = nested(spans, memory)
    spans = linked(spans, load(options.scratch, "flows", local))
    spans = scoped(spans)
    exported = _exported(header, problems)
    if not _are_windows(header.get("windows", [])):
        problems.append(_odd_header("windows", header.pop("windows")))
    if exported.steps:
        steps, remark = exported.table("steps").sort("start_ns"), None
    else:
        steps, remark = steps_of(spans)
    problems += [remark] if remark else []
    if exported.steps:
        spans = spans.with_columns(step=steps_by_time(spans, steps)) if exported.steps_by_time else stepped(spans, steps)
    else:
        steps, spans = stepped_on_device(spans, steps)
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    if distributed is not header.get("distributedInfo", distributed):
        problems.append(_odd_header("distributedInfo", header["distributedInfo"]))
    rank = _header_number(distributed, "rank", problems, "distributedInfo: ")
    rank = next((number for number in (rank, options.rank) if number is not None), 0)
    world = _header_number(distributed, "world_size", problems, "distributedInfo: ")
    passing = pl.concat([pl.scan_ipc(file).select(_PASSING) for file in files(options.scratch, "spans")])
    if not exported.tracks:  # what we wrote ourselves is as it was
        passing = passing.with_columns(_laid_out(passing, name) for name in ("shapes", "dtypes"))
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": pl.concat([spans.select(pl.exclude(*_PASSING)).lazy(), passing], how="horizontal"),
        "tracks": _tracks(tracks, spans, reports, problems).pipe(_corrected, exported),
        "steps": steps,
        "counters": pl.concat(
            [load(options.scratch, "counters", local).drop("track").pipe(_with_units, exported.units), _memory_counters(memory)]
        ),
        "pipeline": exported.table("pipeline"),
        "links": exported.table("links"),
        "allocations": _allocations(memory, spans),
        "devices": exported.table("devices") if exported.devices else _devices(header, problems),
        "problems": pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path))
        ),
    }
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    meta = _meta(header, spans, rank, world)
    meta.options |= exported.options if exported.options is not None else _recorded(spans, memory, passing) | meta.options
    meta.unprofiled_steps = exported.unprofiled_steps
    meta.framework = exported.framework or meta.framework
    return Trace(ranked, meta)


_LAID_OUT = r"^\[.*([\n\r\t]|,[^ ]|,  |\[ | \])|^\[[\n\r\t]"


def _laid_out(rows: pl.LazyFrame, name: str) -> pl.Expr:
    """JSON lists as PyTorch writes them, `[[8, 3], []]`, however the file was laid out: the same shapes are one text."""
    distinct = rows.select(pl.col(name).drop_nulls().unique().cast(pl.String)).collect(engine="streaming").to_series()
    others = distinct.filter(distinct.str.contains(_LAID_OUT))
    if others.is_empty():
        return pl.col(name)
    written = pl.Series([_as_pytorch_writes(one) for one in others], dtype=pl.String)
    return pl.col(name).cast(pl.String).replace(others, written).cast(pl.Categorical)


def _as_pytorch_writes(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return text


def _odd_header(name: str, value: object) -> Problem:
    text = str(value)
    return Problem("header", f"{name} is unusable, and ignored: {text if len(text) <= 60 else f'{text[:59]}…'}", 0)


def _header_number(values: dict[str, Any], name: str, problems: list[Problem], of: str = "", bits: int = 31) -> int | None:
    """A number of the header that a column can hold."""
    value = values.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
        return value
    if name in values:
        problems.append(_odd_header(of + name, value))
    return None


class _Exported(msgspec.Struct):
    """What our own exporter says in the header of a trace of another source: small tables that the events alone do not tell."""

    framework: str = ""
    options: dict[str, Any] | None = None
    unprofiled_steps: list[UnprofiledSteps] = []
    steps: list[dict[str, Any]] = []
    steps_by_time: bool = False  # device work belongs to the step it runs in, not to that of its launch
    tracks: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    pipeline: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    units: dict[str, str] = {}  # of counters, by name

    def table(self, name: str) -> pl.DataFrame:
        columns = {column: dtype for column, dtype in schema.TABLES[name].items() if column != "rank"}
        return pl.DataFrame(getattr(self, name), schema=columns)


_Moment = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]


def _are_windows(value: object) -> bool:
    """Whether these are the windows of a recording, as our own exporter writes them: rank, start, end."""
    try:
        msgspec.convert(value, list[tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**31)], _Moment, _Moment]])
    except msgspec.ValidationError:
        return False
    return True


def _exported(header: dict[str, Any], problems: list[Problem]) -> _Exported:
    said = header.pop("stepscope", {})
    try:
        exported = msgspec.convert(said, _Exported)
        for name in ("steps", "tracks", "devices", "pipeline", "links"):
            exported.table(name)
    except (msgspec.ValidationError, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        problems.append(_odd_header("stepscope", said))
        return _Exported()
    return exported


def files(folder: Path, part: str) -> list[Path]:
    return sorted(folder.glob(f"{part}.*.arrow"))


_EMPTY: dict[str, dict[str, Any]] = {
    "flows": {"phase": pl.String, "category": pl.Categorical, "flow": pl.String, "track": pl.Int32, "at_ns": pl.Int64},
    "memory": {
        "track": pl.Int32,
        "at_ns": pl.Int64,
        "address": pl.UInt64,
        "bytes": pl.Int64,
        "device_type": pl.Int32,
        "device_id": pl.Int32,
        "device": pl.String,
        "allocated": pl.Int64,
        "reserved": pl.Int64,
    },
    "counters": {"track": pl.Int32, "name": pl.Categorical, "at_ns": pl.Int64, "value": pl.Float64},
}


def load(folder: Path, part: str, local: list[NDArray[np.int32]]) -> pl.DataFrame:
    """The columns of all pieces, with tracks numbered alike. Of spans, only what the joins need."""
    frames = []
    for file in files(folder, part):
        lazy = pl.scan_ipc(file)
        frame = lazy.select(pl.exclude("shapes", "dtypes", "args", "flops", "bytes")).collect() if part == "spans" else lazy.collect()
        if "track" in frame.columns:
            number = int(file.suffixes[0][1:])
            frame = frame.with_columns(pl.Series("track", local[number][frame["track"].to_numpy()])) if number < len(local) else frame
        frames.append(frame)
    return pl.concat(frames) if frames else pl.DataFrame(schema=_EMPTY[part])


def close_pairs(folder: Path, local: list[NDArray[np.int32]]) -> Iterator[Problem]:
    """Begin and end events as spans, written as one more piece. Such events are rare in training traces: one loop serves."""
    pairs = files(folder, "pairs")
    if not pairs:
        return
    rows = pl.concat(
        [
            pl.read_ipc(file).with_columns(
                pl.col("track").replace_strict(dict(enumerate(local[int(file.suffixes[0][1:])].tolist())), return_dtype=pl.Int32)
            )
            for file in pairs
        ]
    ).sort("start_ns", maintain_order=True)
    latest = int(rows["start_ns"].max())  # type: ignore[arg-type]
    open_ones: dict[tuple[object, ...], list[int]] = {}
    begins, lengths, unopened = [], [], 0
    for row, (phase, category, name, track, flow, at) in enumerate(
        rows.select("phase", "category", "name", "track", "flow", "start_ns").iter_rows()
    ):
        key: tuple[object, ...] = (track,) if phase in "BE" else (track, category, flow, name if phase in "SF" else "")
        if phase in "BbS":
            open_ones.setdefault(key, []).append(row)
        elif stack := open_ones.get(key):
            begin = stack.pop()
            begins.append(begin)
            lengths.append(at - rows["start_ns"][begin])
        else:
            unopened += 1
    left = [row for stack in open_ones.values() for row in stack]
    begins += left
    lengths += [latest - rows["start_ns"][row] for row in left]
    spans = rows[begins].drop("phase", "flow").with_columns(dur_ns=pl.Series(lengths, dtype=pl.Int64), instant=False, known=True)
    spans = spans.select(pl.scan_ipc(files(folder, "spans")[0]).collect_schema().names())
    spans.write_ipc(folder / f"spans.{len(local):06d}.arrow", compression="lz4")
    if left:
        yield Problem("", f"{units.count(len(left), 'range was', 'ranges were')} begun and never ended: drawn up to the last event", 0)
    if unopened:
        yield Problem("", f"{units.count(unopened, 'end')} of ranges that were never begun", unopened)


# The rules, first match first: category, name, kind. Older releases of PyTorch wrote categories in other words.
_RULES = (
    (r"cpu_op", r"^nn\.Module: ", "scope"),  # stepscope's own
    (r"cpu_op|operator|op", r"", "op"),
    (r"user_annotation", r"^ProfilerStep#\d+", "step"),
    (r"user_annotation|cpu_op", r"^enumerate\(DataLoader\)#", "data"),
    (r"user_annotation", r"^(gloo|mpi|ucc):", "communication"),
    (r"user_annotation|gpu_user_annotation|annotation", r"", "annotation"),
    (r"python_function", r"^nn\.Module: ", "scope"),
    (r"python_function|python|fee", r"", "python"),
    (r"kernel", r"(?i)^(void )?(nccl|rccl|hccl|hcom_|msccl|oneccl|mccl)", "communication"),
    (r"collective_comm|communication", r"", "communication"),
    (r"kernel|hpu_op|mtia_ccp_events", r"", "kernel"),
    (r"gpu_memcpy|memcpy|concurrent_kernel_memcpy", r"", "copy"),
    (r"gpu_memset|memset", r"", "set"),
    (r"(\w+_)?(runtime|driver)", r"(?i)synchronize", "sync"),
    (r"(\w+_)?(runtime|driver)", r"", "api"),
    (r"cuda_sync|\w+_sync", r"", "sync"),
)


def classified(spans: pl.DataFrame) -> pl.DataFrame:
    """The kind of each span, decided once per distinct category and name."""
    distinct = spans.select("category", "name").unique()
    category, name = pl.col("category").cast(pl.String).str.to_lowercase(), pl.col("name").cast(pl.String)
    kind = pl.lit("other")
    for categories, names, word in reversed(_RULES):
        matches = category.str.contains(f"^({categories})$") & (name.str.contains(names) if names else True)
        kind = pl.when(matches).then(pl.lit(word)).otherwise(kind)
    # Where stepscope itself marked the modules, PyTorch's own marks of them are frames like others.
    module = name.str.starts_with("nn.Module: ")
    kind = (
        pl.when(module & (category == "python_function") & (module & (category == "cpu_op")).any()).then(pl.lit("python")).otherwise(kind)
    )
    kinds = distinct.with_columns(kind=kind.cast(schema.Kind))
    found = spans.select("category", "name").join(kinds, on=["category", "name"], how="left", maintain_order="left")["kind"]
    said = pl.when(pl.col("said_kind").is_in(schema.KINDS)).then("said_kind")
    special = pl.coalesce(said, pl.when("instant").then(pl.lit("instant")).when(~pl.col("known")).then(pl.lit("other"))).cast(schema.Kind)
    return spans.with_columns(kind=special.fill_null(found).fill_null(pl.lit("other", schema.Kind))).drop("instant", "known")


def nested(spans: pl.DataFrame, memory: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Depth, parent and self time of the spans, and the span around each memory event."""
    start, at = spans["start_ns"].to_numpy(), memory["at_ns"].to_numpy()
    nesting = intervals.nest(
        np.concatenate((spans["track"].to_numpy(), memory["track"].to_numpy())).astype(np.int64),
        np.concatenate((start, at)),
        np.concatenate((start + spans["dur_ns"].to_numpy(), at)),
    )
    count = spans.height
    # Kernels of one stream may overlap (programmatic dependent launch), but none is part of another.
    launched = pl.col("kind").is_in(DEVICE_WORK) & pl.col("correlation").is_not_null()
    on_device = spans.select(launched | pl.col("kind").is_in(["kernel", "copy", "set"])).to_series().to_numpy()
    return (
        spans.with_columns(
            pl.Series("span", np.arange(count)),
            pl.Series("depth", nesting.depth[:count].astype(np.int32)),
            or_null("parent", np.where(on_device, -1, nesting.parent[:count])),
            pl.Series("self_ns", np.where(on_device, spans["dur_ns"].to_numpy(), nesting.self_time[:count])),
        ),
        memory.with_columns(or_null("parent", nesting.parent[count:])),
    )


def or_null(name: str, rows: Ints) -> pl.Series:
    """Row numbers, -1 as null."""
    return pl.Series(name, rows).set(pl.Series(rows < 0), None)


def linked(spans: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """What caused what: kernels to their launch calls and operators, ends of flows to their starts."""
    ids = spans.lazy().select("span", "kind", "correlation", "external")
    device = ids.filter(pl.col("kind").is_in(DEVICE_WORK) & pl.col("correlation").is_not_null()).collect()

    def first(kinds: list[str], key: str, found: str) -> pl.DataFrame:
        """For each device span, the first span of these kinds that has the same key."""
        candidates = ids.filter(pl.col("kind").is_in(kinds)).select(key, pl.col("span").alias(found))
        wanted = candidates.join(device.lazy().select(key), on=key, how="semi").collect()
        return device.select(key).join(wanted.unique(key, keep="first", maintain_order=True), on=key, how="left", maintain_order="left")

    device = device.with_columns(first(["api", "sync"], "correlation", "cause")["cause"], first(["op"], "external", "op")["op"])
    flow_in = np.full(spans.height, -1, np.int64)
    for ends, starts in _flow_links(spans, flows):
        flow_in[ends] = starts
    launched = device.filter(pl.col("cause").is_not_null())
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    op = np.full(spans.height, -1, np.int64)
    # Some releases write the correlation where the operator's number should be; the launch call then tells the operator.
    known = device.filter(pl.col("op").is_not_null() & pl.col("external").ne_missing(pl.col("correlation")))
    op[known["span"].to_numpy()] = known["op"].to_numpy()
    # Where the source numbers no operators, the operator is the one around the launch call.
    is_op = (spans["kind"] == "op").to_numpy()
    parent = spans["parent"].fill_null(-1).to_numpy()
    missing = np.flatnonzero(spans.select(pl.col("kind").is_in(DEVICE_WORK)).to_series().to_numpy() & (op < 0) & (flow_in >= 0))
    op[missing] = nearest(is_op, parent, flow_in[missing])
    op[is_op] = -1
    names = spans["name"].gather(np.where(op >= 0, op, 0))
    return spans.with_columns(
        or_null("flow_in", flow_in),
        or_null("op", op),
        op_type=pl.when(pl.col("said_kind").is_not_null())
        .then(pl.col("said_type").cast(pl.Categorical))
        .when(pl.Series(is_op))
        .then("name")
        .when(pl.Series(op >= 0))
        .then(names),
    )


def nearest(wanted: NDArray[np.bool_], parent: Ints, rows: Ints) -> Ints:
    """For each row, itself or the nearest span around it that is wanted; -1 for none."""
    if not len(wanted):
        return np.full_like(rows, -1)
    at = rows.copy()
    while True:
        climb = (at >= 0) & ~wanted[at]
        if not climb.any():
            return at
        at[climb] = parent[at[climb]]


def _flow_links(spans: pl.DataFrame, flows: pl.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of span rows: where flows end, and where they start."""
    # Launches are matched by correlation, which every release writes; their flows say the same again.
    flows = flows.filter(pl.col("category").cast(pl.String) != "ac2g") if spans["correlation"].null_count() < spans.height else flows
    if flows.height == 0:
        return
    bound = bound_spans(spans, flows).with_columns(at_ns=flows["at_ns"]).with_row_index("row")
    bound = pl.concat([bound, flows.select("phase", "category", "flow")], how="horizontal")
    starts = bound.filter(pl.col("phase").is_in(["s", "t"]) & (pl.col("bound") >= 0)).sort("at_ns")
    ends = bound.filter(pl.col("phase").is_in(["t", "f"]) & (pl.col("bound") >= 0)).sort("at_ns")
    joined = ends.join_asof(
        starts.select("category", "flow", "at_ns", cause="bound", start_row="row"),
        on="at_ns",
        by=["category", "flow"],
        check_sortedness=False,
    ).filter(pl.col("cause").is_not_null() & (pl.col("start_row") != pl.col("row")) & (pl.col("cause") != pl.col("bound")))
    yield joined["bound"].to_numpy(), joined["cause"].to_numpy()


def bound_spans(spans: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """The span each flow event belongs to: the outermost that starts at that moment on that track, else the innermost around it."""
    start, moments = spans["start_ns"].to_numpy(), np.unique(flows["at_ns"].to_numpy())
    at_flow = moments[np.minimum(np.searchsorted(moments, start), len(moments) - 1)] == start  # a search is far leaner than a join
    starting = (
        spans.select("track", "depth", at_ns="start_ns", bound="span")
        .filter(pl.Series(at_flow))
        .sort("depth")
        .unique(["track", "at_ns"], keep="first", maintain_order=True)
    )
    exact = flows.select("track", "at_ns").join(starting, on=["track", "at_ns"], how="left", maintain_order="left")
    bound = exact["bound"].fill_null(-1).to_numpy().copy()
    rest = np.flatnonzero(bound < 0)
    if len(rest):
        at = flows["at_ns"].to_numpy()[rest]
        nesting = intervals.nest(
            np.concatenate((spans["track"].to_numpy(), flows["track"].to_numpy()[rest])).astype(np.int64),
            np.concatenate((start, at)),
            np.concatenate((start + spans["dur_ns"].to_numpy(), at)),
        )
        bound[rest] = nesting.parent[spans.height :]
    return pl.DataFrame({"bound": bound})


def scoped(spans: pl.DataFrame) -> pl.DataFrame:
    """The module path of each span: the modules around it, or those of the operator or forward pass it belongs to."""
    is_scope = (spans["kind"] == "scope").to_numpy()
    given = spans["module"]
    if not is_scope.any() and given.null_count() == spans.height:
        return spans.with_columns(scope=pl.lit(None, dtype=pl.Categorical)).drop("module")
    code = np.zeros(spans.height, np.int64)  # 0 is no scope
    paths = [""]
    parent, depth = spans["parent"].fill_null(-1).to_numpy(), spans["depth"].to_numpy()
    names = spans["name"].to_physical().to_numpy()
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
    for level in range(len(edges) - 1):
        rows = order[edges[level] : edges[level + 1]]
        code[rows] = np.where(parent[rows] >= 0, code[parent[rows]], 0)
        inner = rows[is_scope[rows]]
        if len(inner):
            pairs, first, inverse = np.unique(
                np.stack((code[inner], names[inner].astype(np.int64))), axis=1, return_index=True, return_inverse=True
            )
            labels = spans["name"].gather(inner[first]).cast(pl.String).str.strip_prefix("nn.Module: ").to_list()
            new = len(paths) + np.arange(pairs.shape[1])
            whole = spans["category"].gather(inner[first]).cast(pl.String).eq("cpu_op").to_list()  # stepscope's say the whole path
            paths += [
                label if path else f"{paths[above]}/{label}".lstrip("/")
                for above, label, path in zip(pairs[0].tolist(), labels, whole, strict=True)
            ]
            code[inner] = new[inverse.reshape(-1)]
    if given.null_count() < spans.height:
        distinct = given.unique().drop_nulls().cast(pl.String).to_list()
        number = {text: len(paths) + index for index, text in enumerate(distinct)}
        paths += distinct
        said = given.cast(pl.String).replace_strict(number, default=None, return_dtype=pl.Int64)
        code = np.where(said.is_not_null().to_numpy(), said.fill_null(0).to_numpy(), code)
    flow_in, op = spans["flow_in"].fill_null(-1).to_numpy(), spans["op"].fill_null(-1).to_numpy()
    is_op = (spans["kind"] == "op").to_numpy()
    backward = np.flatnonzero(is_op & (code == 0) & (flow_in >= 0))
    code[backward] = code[flow_in[backward]]
    for level in range(1, len(edges) - 1):
        rows = order[edges[level] : edges[level + 1]]
        bare = rows[(code[rows] == 0) & is_op[rows]]
        code[bare] = code[parent[bare]]
    launched = np.flatnonzero((code == 0) & ((op >= 0) | (flow_in >= 0)) & ~is_op)
    code[launched] = code[np.where(op[launched] >= 0, op[launched], flow_in[launched])]
    text = pl.Series(paths).cast(pl.Categorical).gather(code)
    return spans.with_columns(scope=text.set(pl.Series(code == 0), None)).drop("module")


def steps_of(spans: pl.DataFrame) -> tuple[pl.DataFrame, Problem | None]:
    """The steps, and a remark where they are not the framework's own."""
    ranges = spans.select("kind", pl.col("name").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    if (marked := ranges.filter(pl.col("kind") == "step")).height:
        return number_steps(marked, "marker"), None
    guessed = ranges.filter((pl.col("kind") == "annotation") & pl.col("name").str.contains(STEP_LIKE))
    if guessed.height:
        name = guessed["name"].str.replace_all(r"\d+", "N").mode().sort()[0]
        chosen = guessed.filter(pl.col("name").str.replace_all(r"\d+", "N") == name)
        return number_steps(chosen, "inferred"), Problem("", f"{NO_MARKERS}: each '{name}' annotation is taken as a step", 0)
    body = ranges.filter(pl.col("kind") != "other")
    body = body if body.height else ranges
    if body.is_empty():
        return number_steps(body, "whole"), Problem("", "the trace holds no spans: there are no steps", 0)
    whole = body.select(pl.col("start_ns").min(), pl.col("end_ns").max()).with_columns(name=pl.lit("0"))
    return number_steps(whole, "whole"), Problem("", f"{NO_MARKERS}: the whole trace is one step", 0)


STEP_LIKE = r"(?i)^\W*(train(ing)?|eval(uation)?|inference|profiler?)?[\s_:#.-]*(step|iter|iteration|batch)[\s_:#.-]*\d*\W*$"


def stepped(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The step of each span: by its start on the host, by its launch on a device."""
    return spans.with_columns(step=steps_by_launch(spans, steps))


def stepped_on_device(spans: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, with their time on the device where Kineto draws the profiler's steps there, too, and the spans with their step."""
    name = pl.col("name").cast(pl.String)
    marked = spans.filter(pl.col("kind") == "step")["name"]
    drawn = (
        spans.filter(pl.col("kind") == "annotation")
        .filter(
            pl.col("category").cast(pl.String).str.to_lowercase() == "gpu_user_annotation", name.is_in(marked.cast(pl.String).implode())
        )
        .select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), step=name.str.extract(r"#(\d+)").cast(pl.Int32, strict=False))
        .filter(pl.col("step").is_in(steps["step"].implode()))
    )
    if drawn.is_empty() or not marked.is_unique().all():  # of names that repeat, which range is of which step is not known
        return steps, stepped(spans, steps)
    work = pl.col("kind").is_in(["kernel", "copy", "set"]) | ((pl.col("kind") == "communication") & pl.col("correlation").is_not_null())
    steps, numbers = steps_on_device(spans, steps, drawn, work)
    return steps, spans.with_columns(step=numbers)


_DEVICE_NAMES = {0: "cpu", 1: "gpu", 6: "gpu", 12: "xpu", 13: "mps", 19: "mtia", 20: "npu"}


def _device(rows: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("device_type").replace_strict(_DEVICE_NAMES, default="device", return_dtype=pl.String)
    label = pl.when(pl.col("device_id") >= 0).then(pl.format("{} {}", kind, "device_id")).otherwise(kind)
    return rows.with_columns(pl.coalesce("device", pl.when(kind == "cpu").then(pl.lit("cpu")).otherwise(label)))


def _with_units(counters: pl.DataFrame, units: dict[str, str]) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    return counters.with_columns(
        unit=name.replace_strict(units, default=None, return_dtype=pl.String) if units else pl.lit(None, pl.String)
    )


def _memory_counters(memory: pl.DataFrame) -> pl.DataFrame:
    labelled = _device(memory)
    return pl.concat(
        labelled.filter(pl.col(column).is_not_null()).select(
            name=pl.format("{} {}", pl.lit(column), "device").cast(pl.Categorical),
            at_ns="at_ns",
            value=pl.col(column).cast(pl.Float64),
            unit=pl.lit("bytes"),
        )
        for column in ("allocated", "reserved")
    )


ALLOCATORS = r"^aten::((new_)?empty(_strided|_like|_permuted|_quantized|_affine_quantized)?|_?resize(_as)?_|set_)$"


def _of_span(spans: pl.DataFrame, column: str, rows: Ints) -> pl.Series:
    """A column's value of each of these spans; null for -1."""
    if not spans.height:
        return pl.Series(column, [None] * len(rows), pl.Categorical)
    return spans[column].gather(np.maximum(rows, 0)).set(pl.Series(rows < 0), None)


def _allocations(memory: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Each allocation with the release that follows it at the same address."""
    is_op, parent = (spans["kind"] == "op").to_numpy(), spans["parent"].fill_null(-1).to_numpy()
    around = memory["parent"].fill_null(-1).to_numpy()
    # Every operator that makes a tensor calls aten::empty or the like: the one that wanted the memory is further out.
    names = spans["name"].unique().drop_nulls() if memory.height else spans["name"].clear()
    allocators = names.filter(names.cast(pl.String).str.contains(ALLOCATORS)).to_physical()
    wants = is_op & ~np.isin(spans["name"].to_physical().fill_null(2**32 - 1).to_numpy(), allocators.to_numpy())
    op = nearest(wants, parent, around)
    op = np.where(op >= 0, op, nearest(is_op, parent, around))
    rows = _device(memory).with_columns(_of_span(spans, "name", op).alias("op"), _of_span(spans, "scope", np.where(op >= 0, op, around)))
    rows = rows.sort("device", "address", "at_ns", maintain_order=True)
    block, released = ["device", "address"], pl.col("bytes") < 0
    following = pl.when(released.shift(-1).over(block)).then(pl.col("at_ns").shift(-1).over(block))
    orphan = released & ~(~released).shift(1, fill_value=False).over(block)
    return (
        rows.select(
            device="device",
            address="address",
            bytes=pl.col("bytes").abs(),
            alloc_ns=pl.when(~released).then("at_ns"),
            free_ns=pl.when(released).then("at_ns").otherwise(following),
            op=pl.when(~released).then("op"),
            scope=pl.when(~released).then("scope"),
            kept=~released | orphan,
        )
        .filter("kept")
        .drop("kept")
        .sort(pl.coalesce("alloc_ns", "free_ns"), maintain_order=True)
    )


def _tracks(
    tracks: dict[tuple[int | str, int | str, str], int], spans: pl.DataFrame, reports: list[Report], problems: list[Problem]
) -> pl.DataFrame:
    """Lanes with the names and the order that the metadata events give them."""
    said: dict[tuple[str, int | str, int | str | None], Any] = {}
    odd: list[str] = []
    for report in reports:
        for name, pid, tid, args in report.metadata:
            if isinstance(args, dict) and args:
                value = next(iter(args.values()))
                if name not in _METADATA or (isinstance(value, _METADATA[name]) and not isinstance(value, bool)):
                    said[(name, pid, tid if name.startswith("thread") else None)] = value
                else:
                    odd.append(f"{name} of {pid}: {value}")
    if odd:
        example = odd[0] if len(odd[0]) <= 60 else f"{odd[0][:59]}…"
        problems.append(
            Problem("", f"{len(odd):,} names or sort indices of processes and threads are unusable, and ignored, for example {example}", 0)
        )
    # A stream of its own for communication has nothing but that; on the host, communication is a range that someone marked.
    transfers = (pl.col("kind") == "communication") & ~pl.col("category").cast(pl.String).str.contains("annotation")
    streams = set(spans.filter(pl.col("kind").is_in(["kernel", "copy", "set"]) | transfers)["track"].unique())
    used = set(spans["track"].unique())
    on_device = {(pid, tid) for (pid, tid, _), track in tracks.items() if track in streams}
    rows = []
    for (pid, tid, apart), track in tracks.items():
        if track not in used:
            continue
        number = re.fullmatch(r"-?\d+", str(tid))
        nameless = f"{'stream' if (pid, tid) in on_device else 'thread'} {tid}" if number else tid
        label = str(said.get(("thread_name", pid, tid), nameless)).strip()
        process, labels = said.get(("process_name", pid, None), ""), str(said.get(("process_labels", pid, None), ""))
        rows.append(
            {
                "track": track,
                "group": labels if labels and labels != "CPU" else f"{process or 'process'} {pid}".strip(),
                "label": {"": label, "annotation": f"{label} annotations"}.get(apart, apart.removeprefix("async ")),
                "kind": "stream" if track in streams else "annotation" if apart == "annotation" else "async" if apart else "thread",
                "device": pid if track in streams and isinstance(pid, int) and 0 <= pid < 1 << 31 else None,
                "sort": order(said, pid, tid),
                "pid": str(pid),
                "tid": str(tid),
            }
        )
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    if far := {str(pid) for pid, _ in on_device if isinstance(pid, int) and pid >= 1 << 31}:
        problems.append(Problem("", f"{len(far):,} devices have unusable numbers, for example {min(far)[:60]}", 0))
    frame = pl.DataFrame(rows, schema={name: schema.TABLES["tracks"][name] for name in columns}, strict=False)
    return frame.sort("sort", "track").with_columns(sort=pl.int_range(pl.len(), dtype=pl.Int32))


_METADATA: dict[str, type | tuple[type, ...]] = {
    "process_name": (str, int, float),
    "process_labels": str,
    "thread_name": (str, int, float),
    "process_sort_index": int,
    "thread_sort_index": int,
}


def _corrected(tracks: pl.DataFrame, exported: _Exported) -> pl.DataFrame:
    """Lanes as the source had them, where the exporter says so."""
    if not exported.tracks:
        return tracks
    lane, beside = ["pid", "tid", "beside"], pl.col("kind") == "annotation"
    said = exported.table("tracks").drop("track").with_columns(beside=beside).unique(lane, keep="first")
    placed = tracks.with_columns(beside=beside)
    known = placed.select("track", *lane).join(said, on=lane, how="inner")
    others = placed.join(said.select(lane), on=lane, how="anti")
    return pl.concat([known.select(tracks.columns), others.select(tracks.columns)]).sort("sort", "track")


def order(said: dict[tuple[str, int | str, int | str | None], Any], pid: int | str, tid: int | str) -> int:
    process, thread = said.get(("process_sort_index", pid, None), 0), said.get(("thread_sort_index", pid, tid), 0)
    small = [value if isinstance(value, int) else 0 for value in (process, thread)]
    return max(min(small[0], 20_000), -20_000) * 100_000 + max(min(small[1], 49_999), -49_999)


def _devices(header: dict[str, Any], problems: list[Problem]) -> pl.DataFrame:
    properties = header.get("deviceProperties", [])
    chips = properties if isinstance(properties, list) else []
    if chips is not properties:
        problems.append(_odd_header("deviceProperties", properties))
    found = []
    for chip in chips:
        if isinstance(chip, dict):
            found.append(chip)
        else:
            problems.append(_odd_header("deviceProperties", chip))

    def numbers(name: str, bits: int = 31) -> list[int | None]:
        return [_header_number(chip, name, problems, "deviceProperties: ", bits) for chip in found]

    return pl.DataFrame(
        {
            "device": numbers("id"),
            "name": [str(chip.get("name", "")) for chip in found],
            "kind": ["gpu"] * len(found),
            "cores": numbers("numSms"),
            "memory_bytes": numbers("totalGlobalMem", 63),
        },
        schema={"device": pl.Int32, "name": pl.String, "kind": pl.String, "cores": pl.Int32, "memory_bytes": pl.Int64},
    )


def _recorded(spans: pl.DataFrame, memory: pl.DataFrame, passing: pl.LazyFrame) -> dict[str, Any]:
    """Options that were on, by what is in the trace: not every version of PyTorch names them in the header."""
    shapes = pl.concat([spans.select("kind").lazy(), passing.select("shapes")], how="horizontal").filter(pl.col("kind") == "op")
    found = {
        "record_shapes": bool(shapes.select(pl.col("shapes").is_not_null().any()).collect().item()),
        "profile_memory": memory.height > 0,
        "with_stack": bool((spans["kind"] == "python").any()),
    }
    return {name: True for name, there in found.items() if there}


_OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


def _meta(header: dict[str, Any], spans: pl.DataFrame, rank: int, world: int | None) -> Meta:
    pytorch = "schemaVersion" in header or (spans["kind"] == "op").any()
    return Meta(
        format="chrome",
        framework="pytorch" if pytorch else "",
        versions={key: str(value) for key, value in header.items() if key.endswith("_version")},
        world_size=world,
        ranks=[rank],
        options={key: bool(header[key]) for key in _OPTIONS if key in header},
        extra={key: value for key, value in header.items() if key not in ("deviceProperties", *_OPTIONS)},
    )
