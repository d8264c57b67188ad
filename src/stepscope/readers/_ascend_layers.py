"""From columns of Chrome events to the tables, for what Ascend's tools write: msprof, torch_npu and MindSpore.

The name of a process tells its layer (its number differs from version to version):

    Ascend Hardware             streams of a device; beside them a thread of iterations, `Step Trace(Model ID:1)`
    HCCL, Communication         operators (`Group 0 Communication`, `Communication Kernel`) and the planes that carry them out
    CANN                        calls of the host into Ascend's libraries
    Overlap Analysis            unions of the above: left out, our own analyses make them
    AI Core Freq, HBM, ...      counters
    CPU OP, Scope Layer         MindSpore's operators on the host, and the scopes of what ran
    anything else               the framework: Python, MindSpore
"""

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.errors import DataError
from stepscope.readers import Options, _ascend_steps, _kineto
from stepscope.readers._chrome_events import Report
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace

_LAYERS = {
    "Ascend Hardware": "hardware",
    "HCCL": "communication",
    "Communication": "communication",
    "CANN": "cann",
    "Overlap Analysis": "overlap",
    "Step Trace": "iterations",
    "CPU OP": "host",
    "Scope Layer": "scopes",
}
_TELLING = {"Ascend Hardware", "CANN", "HCCL", "Overlap Analysis", "Scope Layer", "CPU OP"}

# The level of a call of CANN, as databases and raw data say it, by the word before its name.
_LEVELS = {"AscendCL": "acl", "Model": "model", "Node": "node", "Hccl": "hccl", "Communication": "communication", "Runtime": "runtime"}
# The kind of a task on a stream, by its type (or its name, where a task has no operator), first match first.
TASK_KINDS = (
    (r"^MEMCPY|^Memcpy|^(SDMA|PCIE_DMA)_SQE$", "copy"),
    (r"^MEMSET|^Memset", "set"),
    (r"(?i)^(EVENT|NOTIFY)[_ ]WAIT|^STREAM_WAIT_EVENT", "sync"),
    (r"^(AI_CORE|AI_VECTOR_CORE|AI_CPU|AIV|AICPU|MIX_AIC|MIX_AIV|DSA|DSA_SQE|DVPP|HOST_CPU|KERNEL_\w+|VECTOR_CORE|Other)$", "kernel"),
)


class Details(NamedTuple):
    """What a table of kernels (kernel_details.csv, op_summary_*.csv) says; and how its rows are found on the timeline."""

    rows: pl.DataFrame  # of DETAILS
    file: str = ""


DETAILS: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "device": pl.Int32,
    "stream": pl.String,
    "op_type": pl.String,
    "core": pl.String,  # AI_CORE, AI_VECTOR_CORE, AI_CPU, HCCL, ...
    "shapes": pl.String,
    "dtypes": pl.String,
    "details": pl.String,  # JSON text of the other columns
}
NO_DETAILS = Details(pl.DataFrame(schema=DETAILS))
COMMUNICATION_CORES = ["HCCL", "COMMUNICATION"]
# A table of kernels and a timeline round the same moment each in its own way.
_ROUNDING_NS = 2


def claims(reports: list[Report]) -> bool:
    """Whether a file of Chrome events is of Ascend's tools."""
    return any(name == "process_name" and _first(args) in _TELLING for report in reports for name, _, _, args in report.metadata)


def assemble(
    path: Path,
    reports: list[Report],
    problems: list[Problem],
    options: Options,
    *,
    format: str,
    details: Details = NO_DETAILS,
    rank: int | None = None,
    device: int = 0,
    offset_ns: int = 0,
) -> Trace:
    """The trace of decoded events whose columns lie in the scratch folder. `offset_ns` brings their times to the time of day.

    `device` is the one that streams are of where the file itself does not number them.
    """
    scratch = options.scratch
    tracks: dict[tuple[int | str, int | str, str], int] = {}
    local = [np.array([tracks.setdefault(tuple(key), len(tracks)) for key in report.tracks], np.int32) for report in reports]  # type: ignore[arg-type]
    problems = [*problems, *(_kineto.close_pairs(scratch, local) if _kineto.files(scratch, "spans") else [])]
    lanes = _lanes(tracks, reports, device)
    matches, lanes = _with_details(scratch, local, lanes, details, problems)
    if not _kineto.files(scratch, "spans"):
        raise DataError(path, "nothing that ran is in it")
    spans = _kineto.load(scratch, "spans", local).drop("external")
    spans, lanes = _with_collectives(spans, lanes)
    said = _said(scratch, local, lanes, spans.height)
    spans = _classified(spans.with_columns(correlation=said["connection"]), lanes, said, matches)
    spans, _ = _kineto.nested(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
    spans = _linked(spans, _kineto.load(scratch, "flows", local), lanes, matches)
    spans = _kineto.scoped(spans)
    iterations = _iterations(spans, said, lanes)
    if iterations.height and options.step_name is None:
        steps, remark, on_device = iterations, None, True
    else:
        (steps, remark), on_device = _kineto.steps_of(spans, options), False
        if (steps["how"] == "whole").all() and not (spans["kind"] == "op").any():  # of CANN alone, as raw data is
            steps = _ascend_steps.whole(spans)
    problems += [remark] if remark else []
    spans = _stepped(spans, steps, on_device)
    unplaced = pl.col("track").is_in(_of_layers(lanes, "elsewhere"))
    spans = spans.with_columns(step=pl.when(~unplaced).then("step"))
    rank = next((number for number in (rank, options.rank) if number is not None and number >= 0), 0)
    links = _links(spans, said, lanes)
    drop = _left_out(spans, lanes)
    at = pl.col("start_ns") + offset_ns
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": _with_passing(spans, scratch, matches, said).filter(~pl.Series(drop)).with_columns(start_ns=at),
        "tracks": _tracks(lanes, spans.filter(~pl.Series(drop))),
        "steps": steps.with_columns(pl.col(name) + offset_ns for name in steps.columns if name.endswith("_ns")),
        "counters": _counters(_kineto.load(scratch, "counters", local), lanes).with_columns(at_ns=pl.col("at_ns") + offset_ns),
        "links": links,
        "devices": _devices(lanes),
        "problems": pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path))
        ),
    }
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    words = set(lanes["process"].drop_nulls())
    framework = "mindspore" if words & {"MindSpore", "CPU OP", "Scope Layer"} else "pytorch" if (spans["kind"] == "op").any() else ""
    return Trace(ranked, Meta(format=format, framework=framework, ranks=[rank]))


def _first(args: object) -> object:
    return next(iter(args.values()), None) if isinstance(args, dict) else None


_LANES = {
    "track": pl.Int32,
    "pid": pl.String,
    "tid": pl.String,
    "apart": pl.String,
    "process": pl.String,
    "label": pl.String,
    "layer": pl.String,
    "device": pl.Int32,
    "sort": pl.Int64,
}


def _lanes(tracks: dict[tuple[int | str, int | str, str], int], reports: list[Report], device: int) -> pl.DataFrame:
    """What the metadata says of each track: its process, its name, its layer, and the device it is of."""
    said: dict[tuple[str, int | str, int | str | None], Any] = {}
    for report in reports:
        for name, pid, tid, args in report.metadata:
            said[(name, pid, tid if name.startswith("thread") else None)] = _first(args)
    rows = []
    for (pid, tid, apart), track in tracks.items():
        process = str(said.get(("process_name", pid, None), "")).strip()
        label = str(said.get(("thread_name", pid, tid), tid)).strip()
        layer = _LAYERS.get(process, "host")
        if layer == "hardware" and not label.startswith("Stream") and "Model ID" in label:
            layer = "iterations"
        elif layer == "communication" and label.startswith("Plane"):
            layer = "planes"
        elif layer == "iterations" and not isinstance(pid, int):
            layer = "host"
        labels = str(said.get(("process_labels", pid, None), ""))
        number = _device(labels, pid, layer, device)
        rows.append((track, str(pid), str(tid), apart, process, label, layer, number, _kineto.order(said, pid, tid)))
    return pl.DataFrame(rows, _LANES, orient="row")


def _device(labels: str, pid: int | str, layer: str, usual: int) -> int | None:
    """`NPU 3`; else the low bits of the process number, where msprof keeps it."""
    word, _, number = labels.partition(" ")
    if word != "NPU":
        return usual if layer in ("hardware", "communication", "planes") else None
    if re.fullmatch(r"[0-9]{1,9}", number.strip()):
        return int(number)
    return pid & 31 if isinstance(pid, int) and pid >= 1 << 24 and pid & 31 != 31 else usual


def _of_layers(lanes: pl.DataFrame, *layers: str) -> list[int]:
    return lanes.filter(pl.col("layer").is_in(layers))["track"].to_list()


# What the arguments of tasks say, and which layers' do.
_SAID = {
    "connection": (r'"connection_id":\s*"?(\d+)', pl.Int64),
    "task_type": (r'"[Tt]ask [Tt]ype":\s*"([^"]*)"', pl.String),
    "bytes": (r'"size\((?:Byte|B)\)":\s*"?(\d+)', pl.Int64),
    "src": (r'"src rank":\s*"?(\d+)', pl.Int64),
    "dst": (r'"dst rank":\s*"?(\d+)', pl.Int64),
    "transport": (r'"transport type":\s*"([^"]*)"', pl.String),
    "link": (r'"link type":\s*"([^"]*)"', pl.String),
    "iteration": (r'"Iteration ID":\s*"?(\d+)', pl.Int64),
    "fp": (r'"FP Start":\s*"?(\d+(?:\.\d+)?)', pl.String),
    "bp": (r'"BP End":\s*"?(\d+(?:\.\d+)?)', pl.String),
}


def _said(scratch: Path, local: list[NDArray[np.int32]], lanes: pl.DataFrame, height: int) -> pl.DataFrame:
    """The words of _SAID of every span; null on the framework's tracks, whose arguments are not looked at."""
    wanted = _of_layers(lanes, "hardware", "communication", "planes", "cann", "iterations")
    parts = []
    for file in _kineto.files(scratch, "spans"):
        number = int(file.suffixes[0][1:])
        frame = pl.read_ipc(file, columns=["track", "args"])
        track = local[number][frame["track"].to_numpy()] if number < len(local) else frame["track"].to_numpy()
        text = frame["args"].set(pl.Series(~np.isin(track, wanted)), None)
        parts.append(pl.select(_cast(text.str.extract(pattern), dtype).alias(name) for name, (pattern, dtype) in _SAID.items()))
    return pl.concat(parts)


def _cast(text: pl.Series, dtype: type[pl.DataType]) -> pl.Series:
    return text if dtype == pl.String else text.cast(dtype, strict=False)


class _Matches(NamedTuple):
    """Spans that a table of kernels tells of, by row."""

    row: pl.Series
    columns: pl.DataFrame  # core, op_type, shapes, dtypes, details

    def of(self, column: str, height: int) -> pl.Series:
        return pl.Series(column, [None], dtype=pl.String).new_from_index(0, height).scatter(self.row, self.columns[column])


def _with_details(
    scratch: Path, local: list[NDArray[np.int32]], lanes: pl.DataFrame, details: Details, problems: list[Problem]
) -> tuple[_Matches, pl.DataFrame]:
    """Which spans the table of kernels tells of. Rows of it that the timeline lacks are written as one more piece of spans."""
    told = ["core", "op_type", "shapes", "dtypes", "details"]
    rows = details.rows.with_row_index("detail").sort("start_ns")
    found = _kineto.load(scratch, "spans", local) if _kineto.files(scratch, "spans") else None
    matched = pl.DataFrame(schema={"detail": pl.UInt32, "row": pl.UInt32})
    before = 0
    if found is not None:
        before = found.height
        places = lanes.filter(pl.col("layer").is_in(["hardware", "communication"])).select("track", "layer", "device")
        tasks = found.select("track", "start_ns", end_ns=end(), name=pl.col("name").cast(pl.String)).with_row_index("row")
        tasks = tasks.join(places, on="track").sort("start_ns")
        if rows.height and tasks.height:
            by = ["name", "device"] if rows["device"].null_count() == 0 else ["name"]
            matched = _matched(rows.select("detail", "start_ns", *by, until_ns=end()), tasks, by)
    missing = rows.join(matched, on="detail", how="anti")
    if missing.height:
        missing = _placed(missing, found)
        lanes, more = _more_spans(missing, lanes, found)
        more.write_ipc(scratch / f"spans.{max(len(local), len(_kineto.files(scratch, 'spans'))):06d}.arrow", compression="lz4")
        unplaced = int(missing["elsewhere"].sum())
        if found is not None and missing.height > unplaced:
            what = f"{missing.height - unplaced:,} kernels of {details.file} are not on the timeline: drawn as the table has them"
            problems.append(Problem("", what, 0))
        if unplaced:
            what = f"{unplaced:,} kernels of {details.file} ran long before or after all of the timeline: shown without their place in time"
            problems.append(Problem("", what, 0))
        added = missing.select("detail").with_columns(row=pl.int_range(before, before + missing.height, dtype=pl.UInt32, eager=True))
        matched = pl.concat([matched, added])
    columns = matched.join(rows.select("detail", *told), on="detail", how="left", maintain_order="left")
    return _Matches(columns["row"], columns.select(told)), lanes


def _matched(rows: pl.DataFrame, tasks: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """detail, row: a table's row and the task of its name that begins with it; else the one within it, as of kernels with parts the table
    has the whole, and the timeline the part that computes."""

    def nearest(rows: pl.DataFrame, tasks: pl.DataFrame, strategy: Literal["nearest", "forward"], tolerance: int | None) -> pl.DataFrame:
        found = rows.join_asof(
            tasks.drop("track", *({"device"} - set(by))),
            on="start_ns",
            by=by,
            strategy=strategy,
            tolerance=tolerance,
            check_sortedness=False,
        )
        return found.filter(pl.col("row").is_not_null()).unique("row", keep="first", maintain_order=True)

    exact = nearest(rows, tasks, "nearest", _ROUNDING_NS).select("detail", "row")
    rows, tasks = rows.join(exact, on="detail", how="anti"), tasks.join(exact, on="row", how="anti")
    within = nearest(rows, tasks, "forward", None).filter(pl.col("end_ns") <= pl.col("until_ns") + _ROUNDING_NS)
    return pl.concat([exact, within.select("detail", "row")])


def _placed(missing: pl.DataFrame, found: pl.DataFrame | None) -> pl.DataFrame:
    """With `elsewhere`: what is of another time than the timeline, as a table of another recording is, gets a place on it, one by one."""
    if found is None or found.is_empty():
        return missing.with_columns(elsewhere=pl.lit(False))
    first, last = found.select(pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("dur_ns")).max().alias("last")).row(0)
    most = np.iinfo(np.int64)
    far = (pl.col("start_ns") > min(last + (last - first), most.max)) | (end() < max(first - (last - first), most.min))
    missing = missing.with_columns(elsewhere=far)
    behind = (pl.col("dur_ns").cum_sum() - pl.col("dur_ns")).over("elsewhere") + first
    return missing.with_columns(start_ns=pl.when("elsewhere").then(behind).otherwise("start_ns"))


def _more_spans(missing: pl.DataFrame, lanes: pl.DataFrame, found: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernels as columns like those of decoded events, on the stream they name."""
    communication = pl.col("core").is_in(COMMUNICATION_CORES).fill_null(False)
    missing = missing.with_columns(
        layer=pl.when("elsewhere")
        .then(pl.lit("elsewhere"))
        .when(communication)
        .then(pl.lit("communication"))
        .otherwise(pl.lit("hardware")),
        label=pl.when("elsewhere")
        .then(pl.lit("Kernels of another time"))
        .when(communication)
        .then(pl.lit("Communication"))
        .otherwise(pl.format("Stream {}", pl.col("stream").fill_null("?"))),
        device=pl.col("device").fill_null(0),
    )
    place = ["layer", "label", "device"]
    known = lanes.filter(pl.col("layer").is_in(["hardware", "communication"])).unique(place, keep="first", maintain_order=True)
    new = missing.select(place).unique(maintain_order=True).join(known, on=place, how="anti").with_row_index("nth")
    # In a few files the timeline is of one device and the table names it otherwise.
    first = (lanes["track"].max() if lanes.height else None) or 0
    more = new.select(
        track=(pl.col("nth") + (int(str(first)) + 1 if lanes.height else 0)).cast(pl.Int32),
        pid=pl.lit("Ascend Hardware"),
        tid=pl.col("label").str.strip_prefix("Stream "),
        apart=pl.lit(""),
        process=pl.lit("Ascend Hardware"),
        label="label",
        layer="layer",
        device="device",
        sort=pl.when(pl.col("layer") == "elsewhere").then(pl.lit(1 << 40, pl.Int64)).otherwise(pl.lit(0, pl.Int64)),
    )
    lanes = pl.concat([lanes, more.select(pl.col(name).cast(dtype) for name, dtype in _LANES.items())])
    tracks = pl.concat([known.select(*place, "track"), more.select(*place, "track")])
    spans = missing.join(tracks, on=place, how="left", maintain_order="left").select(
        category=pl.lit("", pl.Categorical),
        name=pl.col("name").cast(pl.Categorical),
        track=pl.col("track").cast(pl.Int32),
        start_ns="start_ns",
        dur_ns="dur_ns",
        correlation=pl.lit(None, pl.Int64),
        external=pl.lit(None, pl.Int64),
        flops=pl.lit(None, pl.Int64),
        bytes=pl.lit(None, pl.Int64),
        shapes=pl.lit(None, pl.Categorical),
        dtypes=pl.lit(None, pl.Categorical),
        module=pl.lit(None, pl.Categorical),
        args=pl.lit("{}"),
        said_kind=pl.lit(None, pl.String),
        said_type=pl.lit(None, pl.String),
        instant=pl.lit(False),
        known=pl.lit(True),
    )
    return lanes, spans


def _with_collectives(spans: pl.DataFrame, lanes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Collectives that only the tags of a graph tell, `Reduce_ITERATION_NUMBER` among its iterations: on lanes of their own."""
    tags = (spans["category"].cast(pl.String) == "Reduce").fill_null(False) & spans["track"].is_in(_of_layers(lanes, "iterations"))
    if not tags.any() or spans["track"].is_in(_of_layers(lanes, "communication")).any():
        return spans, lanes
    more = lanes.filter(pl.col("track").is_in(spans["track"].filter(tags).unique().to_list())).with_row_index("nth")
    more = more.with_columns(old="track", track=(pl.col("nth") + 1).cast(pl.Int32) + lanes["track"].max())
    model = pl.col("label").str.extract(r"Model ID:\s*(\d+)")
    own = more.with_columns(layer=pl.lit("communication"), label=pl.format("Reduce of model {}", model.fill_null("?")))
    tracks = spans["track"].replace(more["old"], more["track"])
    name = spans["name"].cast(pl.String).str.replace(r"^Reduce_\d+_(\d+)$", "Reduce $1").cast(pl.Categorical)
    spans = spans.with_columns(track=pl.when(tags).then(tracks).otherwise("track"), name=pl.when(tags).then(name).otherwise(pl.col("name")))
    return spans, pl.concat([lanes, own.select(pl.col(column).cast(dtype) for column, dtype in _LANES.items())])


def _classified(spans: pl.DataFrame, lanes: pl.DataFrame, said: pl.DataFrame, matches: _Matches) -> pl.DataFrame:
    """The kind of each span: by layer, then by what the framework, the task type or the table of kernels says."""
    layer = spans.select("track").join(lanes.select("track", "layer", "process"), on="track", how="left", maintain_order="left")
    name, category = pl.col("name").cast(pl.String), pl.col("category").cast(pl.String)
    marked = spans.with_columns(
        category=pl.when(pl.Series(layer["process"] == "CPU OP")).then(pl.lit("cpu_op")).otherwise(category).cast(pl.Categorical)
    )
    framework = _kineto.classified(marked)["kind"].cast(pl.String)
    core = matches.of("core", spans.height)
    frame = spans.with_columns(
        layer["layer"], framework.alias("framework"), said["task_type"], core, pl.Series("told", np.zeros(spans.height, np.bool_))
    )
    frame = frame.with_columns(told=pl.Series("told", np.isin(np.arange(spans.height), matches.row.to_numpy())))
    word = pl.coalesce("task_type", name)
    task = pl.lit("other")
    for pattern, one in reversed(TASK_KINDS):
        task = pl.when(word.str.contains(pattern) | name.str.contains(pattern)).then(pl.lit(one)).otherwise(task)
    # A task that belongs to no operator bears the name of its type.
    nameless = name.str.contains(r"^[A-Z0-9_]+$|^Notify |^Write Value|^SDMA$|^Other$")
    told = pl.col("told")
    kind = (
        pl.when(pl.col("layer").is_in(["hardware", "elsewhere"]))
        .then(
            pl.when(told & pl.col("core").is_in(COMMUNICATION_CORES) & pl.col("task_type").is_null())
            .then(pl.lit("communication"))
            .when(told)
            .then(pl.lit("kernel"))
            .when((task == "kernel") & nameless)
            .then(pl.lit("other"))
            .otherwise(task)
        )
        .when(pl.col("layer") == "communication")
        .then(pl.lit("communication"))
        .when(pl.col("layer") == "planes")
        .then(pl.when(name.str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")))
        .when(pl.col("layer") == "cann")
        .then(pl.when(name.str.contains("(?i)synchronize")).then(pl.lit("sync")).otherwise(pl.lit("api")))
        .when(pl.col("layer") == "iterations")
        .then(
            pl.when(category == "Iteration Time")
            .then(pl.lit("step"))
            .when(category.str.starts_with("GetNext"))
            .then(pl.lit("data"))
            .otherwise(pl.lit("annotation"))
        )
        .when(pl.col("layer") == "scopes")
        .then(pl.lit("scope"))
        .when(name.str.contains(r"^ProfilerStep#\d+"))
        .then(pl.lit("step"))
        .when(name.str.starts_with("enumerate(DataLoader)#"))
        .then(pl.lit("data"))
        .when(name.str.starts_with("Optimizer."))
        .then(pl.lit("annotation"))
        .when(category.is_in(["enqueue", "dequeue"]))
        .then(pl.lit("api"))
        .otherwise("framework")
    )
    kinds = frame.select(kind.cast(schema.Kind).alias("kind")).to_series()
    # A transfer's own copies stand on a plane and on the stream behind it: they are part of the transfer.
    moment = ["start_ns", "dur_ns"]
    carried = frame.filter(pl.col("layer") == "planes").select(moment).unique().with_columns(carried=True)
    copies = frame.select(*moment, "layer", kinds.cast(pl.String)).join(carried, on=moment, how="left", maintain_order="left")
    again = copies.select((pl.col("layer") == "hardware") & pl.col("carried").is_not_null() & pl.col("kind").is_in(["copy", "set"]))
    kinds = kinds.set(again.to_series(), "other")
    device_work = kinds.cast(pl.String).is_in(["kernel", "communication"])
    scoped = pl.when(pl.Series(device_work) & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$").cast(pl.Categorical))
    level = name.str.extract(r"^(\w+)@").replace_strict(_LEVELS, default=None, return_dtype=pl.String)
    in_cann = pl.when(pl.Series(layer["layer"] == "cann")).then(level)
    words = pl.coalesce(pl.Series("core", core), pl.Series("task_type", said["task_type"]), in_cann, category)
    return spans.with_columns(kind=kinds, module=pl.coalesce("module", scoped), category=words.cast(pl.Categorical)).drop(
        "instant", "known"
    )


def _linked(spans: pl.DataFrame, flows: pl.DataFrame, lanes: pl.DataFrame, matches: _Matches) -> pl.DataFrame:
    """What caused what: a task's launch in CANN, the framework's operator behind it, a backward operator's forward one."""
    flow_in, op = np.full(spans.height, -1, np.int64), np.full(spans.height, -1, np.int64)
    is_op = (spans["kind"] == "op").to_numpy()
    if flows.height:
        of = (
            _kineto.bound_spans(spans, flows)
            .with_columns(flows["at_ns", "phase", "flow", "category"].get_columns())
            .filter(pl.col("bound") >= 0)
        )
        of = of.with_columns(pl.col("category").cast(pl.String)).filter(~pl.col("category").str.starts_with("Data_aug"))
        starts = of.filter(pl.col("phase") == "s").sort("at_ns")
        # A task never starts before its launch, but a backward operator's flow may end before it starts in some versions.
        ends = of.filter(pl.col("phase").is_in(["t", "f"])).select("category", "flow", end="bound")
        pairs = ends.join(
            starts.select("category", "flow", start="bound").unique(["category", "flow"], keep="first"), on=["category", "flow"]
        ).filter(pl.col("start") != pl.col("end"))
        to_operator = pairs["category"].is_in(["async_npu", "mindspore_to_npu"])
        for links, target in ((pairs.filter(~to_operator), flow_in), (pairs.filter(to_operator), op)):
            target[links["end"].to_numpy()] = links["start"].to_numpy()
    # Where there is no arrow, a launch and its task have the same connection.
    place = spans.select("track").join(lanes.select("track", "layer"), on="track", how="left", maintain_order="left")["layer"]
    numbered = spans.select("span", "correlation").with_columns(place).filter(pl.col("correlation").is_not_null())
    calls = numbered.filter(pl.col("layer") == "cann").unique("correlation", keep="first", maintain_order=True)
    tasks = numbered.filter(pl.col("layer").is_in(["hardware", "communication"]) & pl.Series(flow_in[numbered["span"].to_numpy()] < 0))
    launched = tasks.join(calls.select("correlation", cause="span"), on="correlation")
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    parent = spans["parent"].fill_null(-1).to_numpy()
    known = np.flatnonzero(op >= 0)
    op[known] = _kineto.nearest(is_op, parent, op[known])
    # Without a flow from the launch, the operator is at least the cause.
    bare = (flow_in < 0) & (op >= 0)
    flow_in[bare] = op[bare]
    op[is_op] = -1
    # What is done on the host has its own name as its type, unless that is a path; device work that of its operator.
    name = pl.col("name").cast(pl.String)
    own = pl.when(name.str.contains("/")).then(name.str.extract(r"([^/]*?)(?:-op\d+)?(?:_\d+)?$")).otherwise(name)
    of_op = spans["name"].cast(pl.String).gather(np.maximum(op, 0)).set(pl.Series(op < 0), None)
    told = pl.Series(matches.of("op_type", spans.height))
    # A kernel inside a transfer is told under the transfer's type; it is not one.
    inside = (spans["kind"] == "kernel") & matches.of("core", spans.height).is_in(COMMUNICATION_CORES).fill_null(False)
    told = told.zip_with(~inside, spans["name"].cast(pl.String))
    device = pl.col("kind").is_in(["kernel", "communication"])
    path = pl.when(device & name.str.contains("/")).then(own)
    op_type = pl.when(pl.Series(is_op)).then(own).when(device).then(pl.coalesce(told, path, of_op)).when(pl.Series(op >= 0)).then(name)
    return spans.with_columns(_kineto.or_null("flow_in", flow_in), _kineto.or_null("op", op), op_type=op_type.cast(pl.Categorical))


def _iterations(spans: pl.DataFrame, said: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Steps as the device marked them; those of several models are counted together, in the order in which they ended."""
    rows = spans.select("track", "kind", "start_ns", "dur_ns").with_columns(said["iteration", "fp", "bp"].get_columns())
    models = lanes.filter(pl.col("layer") == "iterations").select("track", model=pl.col("label").str.extract(r"Model ID:\s*(\d+)"))
    rows = (
        rows.filter((pl.col("kind") == "step") & pl.col("iteration").is_not_null())
        .join(models, on="track")
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"), fp_start_ns=_moment("fp"), bp_end_ns=_moment("bp"))
        .unique(["model", "iteration", "start_ns"], keep="first")
        .sort("end_ns", "start_ns")
    )
    small = (rows["iteration"] < 2**31).all()
    alone = rows["model"].n_unique() <= 1 and rows["iteration"].is_unique().all() and small
    return rows.select(
        step=(pl.col("iteration") if alone else pl.int_range(1, pl.len() + 1)).cast(pl.Int32),
        model="model",
        phase=pl.when(pl.col("bp_end_ns").is_not_null()).then(pl.lit("train")),
        start_ns="start_ns",
        end_ns="end_ns",
        fp_start_ns="fp_start_ns",
        bp_end_ns="bp_end_ns",
        how=pl.lit("marker"),
    )


def _moment(column: str) -> pl.Expr:
    """Microseconds as text, some with the noise of a float behind them; 0 is for none."""
    parts = pl.col(column).str.splitn(".", 2).struct
    whole, fraction = parts.field("field_0").cast(pl.Int64, strict=False), parts.field("field_1").fill_null("0")
    noise = fraction.str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    moment = whole * 1000 + (noise + 500_000) // 1_000_000
    return pl.when(moment > 0).then(moment)


def _stepped(spans: pl.DataFrame, steps: pl.DataFrame, on_device: bool) -> pl.DataFrame:
    """By its launch where steps are ranges of the host; where the device marked them, by its own start."""
    if not on_device:
        return _kineto.stepped(spans, steps)
    index = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), spans["start_ns"].to_numpy())
    return spans.with_columns(step=steps["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None))


def _links(spans: pl.DataFrame, said: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Transfers between two ranks: the tasks of planes that move bytes."""
    planes = _of_layers(lanes, "planes")
    rows = spans.select("track", "step", "start_ns", "dur_ns").with_columns(said["bytes", "src", "dst", "transport", "link"].get_columns())
    moved = rows.filter(pl.col("track").is_in(planes) & (pl.col("bytes") > 0) & (pl.col("dst") < 2**31) & (pl.col("src") < 2**31))
    operators = (
        spans.filter(pl.col("track").is_in(_of_layers(lanes, "communication"))).select("name", "start_ns", end_ns=end()).sort("start_ns")
    )
    if operators.height and moved.height:
        index = intervals.enclosing(operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy(), moved["start_ns"].to_numpy())
        moved = moved.with_columns(op=operators["name"].cast(pl.String).gather(np.maximum(index, 0)).set(pl.Series(index < 0), None))
    else:
        moved = moved.with_columns(op=pl.lit(None, pl.String))
    known = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED", ""]).not_()
    return moved.select("step", "op", "src", "dst", "bytes", "dur_ns", transport=pl.coalesce(pl.when(known).then("link"), "transport"))


def end() -> pl.Expr:
    return pl.col("start_ns") + pl.col("dur_ns")


def _left_out(spans: pl.DataFrame, lanes: pl.DataFrame) -> NDArray[np.bool_]:
    """Overlap tracks, which are sums of the others; and iterations that several files of one result tell."""
    layer = spans.select("track").join(lanes.select("track", "layer"), on="track", how="left", maintain_order="left")["layer"]
    marked = (layer == "iterations") | (spans["category"].cast(pl.String) == "Reduce").fill_null(False)
    again = marked.to_numpy() & ~spans.select(pl.struct("name", "start_ns", "dur_ns").is_first_distinct()).to_series().to_numpy()
    return np.asarray((layer == "overlap").to_numpy() | again)


def _with_passing(spans: pl.DataFrame, scratch: Path, matches: _Matches, said: pl.DataFrame) -> pl.LazyFrame:
    """The spans with the columns that were never in memory all at once, and what the table of kernels adds to them."""
    passing = ["flops", "bytes", "shapes", "dtypes", "args"]
    files = _kineto.files(scratch, "spans")
    columns = pl.concat([pl.scan_ipc(file).select(passing) for file in files])
    told = pl.DataFrame([matches.of(name, spans.height).alias(f"told_{name}") for name in ("shapes", "dtypes", "details")])
    told = told.with_columns(said_bytes=pl.when((said["bytes"] > 0).fill_null(False)).then(said["bytes"]))
    whole = pl.concat(
        [spans.select(pl.exclude("correlation")).lazy(), spans.select("correlation").lazy(), told.lazy(), columns], how="horizontal"
    )
    # torch_npu's text of shapes and types is in columns of its own, as everyone else writes it.
    args = pl.col("args").str.replace_all(r'"Input (?:Dims|type)":\s*"(?:[^"\\]|\\.)*"(?:,\s*)?', "").str.replace(r",\s*\}$", "}")
    details = pl.col("told_details")
    joined = pl.concat_str(args.str.strip_suffix("}"), pl.lit(", "), details.str.strip_prefix("{"))
    empty = args.is_null() | (args.str.len_bytes() <= 2)
    return whole.with_columns(
        shapes=pl.coalesce("told_shapes", _listed(pl.col("shapes").cast(pl.String))),
        dtypes=pl.coalesce("told_dtypes", _listed(pl.col("dtypes").cast(pl.String))),
        bytes=pl.coalesce("bytes", "said_bytes"),
        args=pl.when(details.is_null()).then(args).when(empty).then(details).otherwise(joined),
    ).drop("told_shapes", "told_dtypes", "told_details", "said_bytes")


def _listed(text: pl.Expr) -> pl.Expr:
    """torch_npu's text of arguments, `"2,3;\\r\\n;\\r\\n4"`, as the JSON that everyone else writes."""
    return pl.when(text.str.starts_with('"')).then(text.map_batches(_lists, return_dtype=pl.String)).otherwise(text)


def _lists(text: pl.Series) -> pl.Series:
    distinct = text.unique().drop_nulls()
    return text.replace_strict(
        distinct, pl.Series([json_list(one) for one in distinct], dtype=pl.String), default=None, return_dtype=pl.String
    )


def json_list(text: str) -> str:
    """`2,3;;4` gives [[2,3],[],[4]], `float;Scalar` gives ["float","Scalar"]."""
    body = text.strip().strip('"').replace("\\r\\n", "").replace("\\n", "").replace("\r\n", "").replace("\n", "").strip('"')
    parts = [part.strip() for part in body.split(";")]
    shapes = [[size.strip() for size in part.split(",") if size.strip()] for part in parts]
    if all(_SIZE.fullmatch(size) for shape in shapes for size in shape):
        return "[" + ",".join("[" + ",".join(shape) + "]" for shape in shapes) + "]"
    return msgspec.json.encode(parts).decode()


_SIZE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def _tracks(lanes: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    used = lanes.filter(pl.col("track").is_in(spans["track"].unique().to_list()))
    hosts = dict(used.filter(pl.col("layer") == "host").select("pid", "process").iter_rows())
    rows = []
    for track, pid, tid, apart, process, named, layer, number, sort in used.iter_rows():
        label, device = named, number
        own = _system_pid(pid, sort // 100_000)
        if layer in ("hardware", "communication", "planes", "elsewhere"):
            group, kind = f"NPU {device}", {"planes": "communication", "elsewhere": "other"}.get(layer, "stream")
        elif layer == "iterations":
            group, kind = f"NPU {device or 0}", "annotation"
        elif layer == "cann":
            group, kind, label, device = f"{hosts.get(own, 'CANN')} {own}", "thread", f"{label} CANN", None
        else:
            group, device = f"{process or 'process'} {pid}".strip(), None
            kind = "annotation" if apart == "annotation" or layer == "scopes" else "async" if apart else "thread"
        rows.append((track, group, label, kind, device, sort, pid, tid))
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    types = {name: schema.TABLES["tracks"][name] for name in columns} | {"sort": pl.Int64}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    return frame.sort("sort", "track").with_columns(sort=pl.int_range(pl.len(), dtype=pl.Int32))


def _system_pid(pid: str, sort: int) -> str:
    """msprof's number of a process holds that of the system and the layer's place: today shifted, before 2024 as decimals."""
    number = int(pid) if re.fullmatch(r"[0-9]{1,18}", pid) else 0
    if number >= 1 << 10 and number >> 5 & 31 == sort:
        return str(number >> 10)
    return pid[:-2] if number >= 100 and number % 100 == sort else pid


def _devices(lanes: pl.DataFrame) -> pl.DataFrame:
    numbers = lanes.filter(pl.col("layer").is_in(["hardware", "communication", "planes"]))["device"].unique().drop_nulls().sort()
    words = {name: pl.Series([word] * len(numbers), dtype=pl.String) for name, word in (("name", "Ascend"), ("kind", "aicore"))}
    return pl.DataFrame({"device": numbers, **words})


# Counters whose name here is another than the source's: pattern, name, unit, factor.
_COUNTERS = (
    (r"^AI Core Freq MHz$", "aicore clock", "Hz", 1e6),
    (r"^Device/Memory KB$", "memory used", "bytes", 1024.0),
    (r"^APP/Memory KB$", "process memory", "bytes", 1024.0),
)
_UNITS: dict[str, tuple[str | None, float]] = {
    "MB/s": ("bytes/s", 1e6),
    "KB/s": ("bytes/s", 1e3),
    "KB": ("bytes", 1024.0),
    "MB": ("bytes", 1048576.0),
    "%": ("percent", 1.0),
}


def _counters(counters: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Samples under names like those of other chips, with the device behind: `aicore clock npu 0`."""
    columns = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
    if counters.is_empty():
        return pl.DataFrame(schema=columns)
    # The accelerator that a sample is of stands behind the sample.
    which = pl.col("name").cast(pl.String).str.ends_with(" acc_id")
    behind = pl.when(which.shift(-1, fill_value=False) & ~which).then(pl.col("value").shift(-1).cast(pl.Int64, strict=False))
    name = pl.col("name").cast(pl.String).str.strip_suffix(" value")
    counters = counters.with_columns(
        name=pl.when(behind.is_not_null()).then(pl.format("{} acc {}", name, behind)).otherwise(pl.col("name").cast(pl.String))
    ).filter(~which)
    placed = counters.join(lanes.select("track", "device"), on="track", how="left", maintain_order="left")
    distinct = placed.select("name", "device").unique()
    named = [_counter(str(name), device) for name, device in distinct.iter_rows()]
    words = distinct.with_columns(pl.DataFrame(named, {"word": pl.String, "unit": pl.String, "factor": pl.Float64}, orient="row"))
    # The text of msprof says that a hit rate is in percent, and has shares; its database has percent.
    of_one = (pl.col("unit") == "percent") & pl.col("word").str.contains("Hit Rate") & (pl.col("value").max().over("word") <= 1)
    return placed.join(words, on=["name", "device"], how="left", nulls_equal=True, maintain_order="left").select(
        name="word", at_ns="at_ns", value=pl.col("value") * pl.col("factor") * pl.when(of_one).then(100.0).otherwise(1.0), unit="unit"
    )


def _counter(name: str, device: int | None) -> tuple[str, str | None, float]:
    where = "" if device is None else f" npu {device}"
    for pattern, word, unit, factor in _COUNTERS:
        if re.match(pattern, name):
            return word + where, unit, factor
    body, _, key = name.rpartition(" ")
    said = re.search(r"\(([^)]*)\)$", name)
    measure = said[1] if said else key if key in _UNITS else None
    if said:
        body = name[: said.start()].strip()
        repeated = re.match(r"^(.*[/ ](.+)) \2$", body)  # `HBM 0/Read Read(MB/s)`
        body = repeated[1] if repeated else body
    elif measure is None and key != "value":
        half = name[: len(name) // 2]
        body = half if name == f"{half} {half}" else name  # `Mata Bw Level Mata Bw Level`
    known, factor = _UNITS.get(measure or "", (measure, 1.0))
    return (body or name).replace("/", " ") + where, known, factor
