"""Tables for msprof's files, from any trace: device tasks, communication operators, calls, iterations."""

import json
from typing import Any, NamedTuple

import polars as pl

from stepscope.model import schema
from stepscope.model.columns import span_details
from stepscope.model.columns.span_details import details
from stepscope.model.trace import Trace
from stepscope.readers.ascend.common.kinds import SERVING

NO_CONTEXT = NO_MODEL = 2**32 - 1
_DEVICE_KINDS = ["kernel", "copy", "set", "sync", "other", "communication"]
_CALL_KINDS = ["api", "sync", "op", "annotation", "communication"]
_TASK_TYPES = {"copy": "MEMCPY_ASYNC", "set": "MEMSET_ASYNC", "sync": "EVENT_WAIT"}
_STARS_CHIPS = {"5", "7", "8", "9", "11", "15", "16"}
_SAMPLE_LAYERS = ("HBM", "LLC", "HCCS", "PCIe", "NIC", "RoCE", "DDR", "QoS")
# msprof's names of the columns of tensors.
TENSORS = {
    "Input Shapes": "input_shapes",
    "Input Data Types": "input_dtypes",
    "Input Formats": "input_formats",
    "Output Shapes": "output_shapes",
    "Output Data Types": "output_dtypes",
    "Output Formats": "output_formats",
}
CACHE_COUNTERS = ("l2_hit_rate", "l2_victim_rate")
# Levels of calls, and their titles in the timeline.
LAYERS = {"acl": "AscendCL", "model": "Model", "node": "Node", "communication": "Communication", "runtime": "Runtime"}
_OPERATOR = ("span", "device", "name", "span_type", "start_ns", "dur_ns", "flow_in")
_THREAD = pl.col("tid").cast(pl.UInt64, strict=False).cast(pl.Int64, strict=False)


class Work(NamedTuple):
    """One rank. Device tables are sorted by device and start."""

    # span, device, track_stream, serves, kind, category, name, span_type, start_ns, dur_ns, flow_in, details and counters of the cores;
    # repeated texts are categorical
    tasks: pl.DataFrame
    counters: list[str]  # the columns of `tasks` that are counters of the cores
    operators: pl.DataFrame  # communication operators: device, name, span_type, group, start_ns, dur_ns, flow_in and details
    planes: pl.DataFrame  # communication tasks: device, communication_group, plane, name, start_ns, dur_ns and details
    calls: pl.DataFrame  # span, thread, kind, name, start_ns, dur_ns, connection and details
    iterations: pl.DataFrame  # device, model, iteration, step, start_ns, end_ns, fp_start_ns, bp_end_ns
    ranges: pl.DataFrame  # collectives and GetNext between the tags of a graph: device, category, stream, step, start_ns, dur_ns
    clocks: pl.DataFrame  # clock of the cores: device, at_ns, mhz
    samples: pl.DataFrame  # other counters of devices: device, layer, counter, field, at_ns, value
    marks: pl.DataFrame  # marks of the program: device (null on the host), thread, name, start_ns, dur_ns and details
    chips: pl.DataFrame  # the table of devices
    aicpu: pl.DataFrame  # operators on AI CPUs that report their own times and whose tasks are lost: like `tasks`
    fusions: pl.DataFrame
    models: dict[int, str]
    devices: list[int]
    pid: int
    process: str
    stars: bool  # a chip whose kernels have mixed blocks and contexts
    brief: bool  # recorded without details of operators (level 0)
    current: bool  # recorded by current CANN, whose msprof (in C++) differs from earlier ones in some figures


def work(trace: Trace) -> Work:
    tracks = trace.tracks.with_columns(pl.col("kind").cast(pl.String)).collect()
    on_device = tracks.filter(pl.col("device").is_not_null())
    chips = trace.devices.collect()
    devices = sorted({*on_device["device"], *chips["device"].drop_nulls()})
    tasks, counters = _tasks(trace, on_device)
    extra, level = trace.meta.extra, str(trace.meta.options.get("profLevel", ""))
    stars = str(extra.get("platform_version", "")) in _STARS_CHIPS or any(name.startswith(("aic_", "aiv_")) for name in counters)
    pid = str(extra.get("pid", ""))
    return Work(
        tasks=tasks,
        counters=counters,
        operators=_operators(trace, on_device, tasks, devices),
        planes=_planes(trace, on_device),
        calls=_calls(trace, tracks),
        iterations=_iterations(trace, devices),
        ranges=_ranges(trace, on_device),
        clocks=_clocks(trace, stars),
        samples=_samples(trace),
        marks=_marks(trace, tracks),
        chips=chips,
        aicpu=_aicpu_without_task(trace, on_device),
        fusions=trace.table("fusions").collect(),
        models=dict(trace.table("models").select("model", "name").collect().iter_rows()),
        devices=devices,
        pid=int(pid) if pid.isascii() and pid.isdecimal() and len(pid) <= 10 else 0,  # a damaged one may be any text
        process=str(extra.get("pid_name") or trace.meta.framework),
        stars=stars,
        brief=level in ("l0", "level0", "0"),
        current=level.startswith("level"),
    )


def filter_rows(rows: pl.DataFrame, *where: pl.Expr) -> pl.DataFrame:
    """The rows for which the conditions are true; not copied if these are all, because there may be millions."""
    wanted = rows.select(pl.all_horizontal(*where)).to_series()
    return rows if wanted.all() else rows.filter(wanted)


def with_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with strings instead of categories. Only for portions, because strings need much more memory."""
    return rows.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


# Tasks


def _tasks(trace: Trace, tracks: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    streams = tracks.filter(pl.col("kind") == "stream", pl.col("communication_group").is_null())
    category = pl.col("category").cast(pl.String)
    spans = trace.spans.filter(pl.col("kind").is_in(_DEVICE_KINDS), (category != "Reduce").fill_null(True))
    tasks = (
        spans.join(streams.select("track", "device", "stream").lazy(), on="track", maintain_order="left")
        .select(
            *("span", "track", "device", "kind", "category", "name", "start_ns", "dur_ns", "flow_in", "op", "shapes", "dtypes"),
            span_type="op_type",
        )
        .sort("device", "start_ns", maintain_order=True)
        .collect()
    )
    used = streams.join(tasks.select("track").unique(), on="track", how="semi", maintain_order="left")
    tasks = tasks.join(_numbered_streams(used), on="track", how="left", maintain_order="left").drop("track")
    tasks = tasks.with_columns(category=task_type().cast(schema.Text))
    kernels = tasks.filter(pl.col("kind") == "kernel").unique("device", keep="first", maintain_order=True)["span"]
    cores = span_details.core_counters(trace, tasks["span"], kernels)
    counters = [name for name in cores.columns if name not in CACHE_COUNTERS]
    if not any(name.endswith(("total_cycles", "core_time(us)", "aiv_time(us)")) for name in counters):
        cores, counters = cores.drop(counters), []
    tasks = tasks.hstack(details(trace, "tasks", tasks["span"])).hstack(cores)
    # An operator that serves communication and computes nothing is in all tables of operators. Raw data contain the operator of a task; in
    # other sources the names of HCCL's kernels show it.
    hccl = pl.col("span_type").is_not_null() & pl.col("name").cast(pl.String).str.contains(SERVING)
    serves = (pl.col("kind") == "other") & (pl.col("op_name").is_not_null() | hccl)
    tasks = tasks.with_columns(
        stream=pl.coalesce("stream", "track_stream"),
        serves=serves,
        kind=pl.when(serves).then(pl.lit("kernel", schema.Kind)).otherwise("kind"),
    )
    return _with_tensors(trace, tasks), counters


def task_type() -> pl.Expr:
    """msprof's type of a task (in capitals) by `kind` and `category`, also for copies with the names of other tools."""
    category, known = pl.col("category").cast(pl.String), r"^[A-Z0-9_]+$|^(?i:memcpy|memset)|(?i:wait)"
    word = category
    for kind, name in _TASK_TYPES.items():
        word = pl.when((pl.col("kind") == kind) & ~category.str.contains(known).fill_null(False)).then(pl.lit(name)).otherwise(word)
    return word


def _numbered_streams(streams: pl.DataFrame) -> pl.DataFrame:
    """track and track_stream: the number of the stream; without one, or with that of another track, a number after all others."""
    number = pl.when(pl.struct("device", "stream").is_first_distinct()).then("stream")
    rows = streams.select("track", track_stream=number)
    unused = pl.col("track_stream").max().fill_null(-1) + pl.col("track_stream").is_null().cum_sum()
    return rows.with_columns(track_stream=pl.coalesce("track_stream", unused))


def _with_tensors(trace: Trace, tasks: pl.DataFrame) -> pl.DataFrame:
    """Shapes and types as msprof writes them, also where only the operator that launched a kernel has them."""
    if tasks["op"].null_count() < tasks.height:
        operators = trace.spans.select(op="span", op_shapes="shapes", op_dtypes="dtypes")
        tasks = tasks.join(operators.filter(pl.col("op_shapes").is_not_null()).collect(), on="op", how="left", maintain_order="left")
        tasks = tasks.with_columns(shapes=pl.coalesce("shapes", "op_shapes"), dtypes=pl.coalesce("dtypes", "op_dtypes"))
        tasks = tasks.drop("op_shapes", "op_dtypes")
    return tasks.with_columns(
        input_shapes=pl.coalesce("input_shapes", _flat(tasks["shapes"]).alias("flat")),
        input_dtypes=pl.coalesce("input_dtypes", _flat(tasks["dtypes"]).alias("flat")),
    ).drop("op", "shapes", "dtypes")


def _flat(texts: pl.Series) -> pl.Series:
    """`[[2,3],[4]]` as `2,3;4`; each distinct text is converted once."""
    distinct = texts.drop_nulls().unique()
    flat = pl.Series([_join_dimensions(text) for text in distinct], dtype=schema.Text)
    return texts.replace_strict(distinct, flat, default=None, return_dtype=schema.Text)


def _join_dimensions(text: str) -> str | None:
    try:
        tensors = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tensors, list):
        return None
    return ";".join(",".join(map(str, tensor)) if isinstance(tensor, list) else str(tensor) for tensor in tensors)


def _aicpu_without_task(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    tracks = tracks.filter(pl.col("kind") == "annotation").select("track", "device")
    spans = trace.spans.filter(pl.col("kind") == "other", pl.col("category").cast(pl.String) == "AI_CPU")
    rows = spans.join(tracks.lazy(), on="track", maintain_order="left").select("span", "device", "start_ns", "dur_ns").collect()
    return rows.hstack(details(trace, "tasks", rows["span"]))


# Communication


def _operators(trace: Trace, tracks: pl.DataFrame, tasks: pl.DataFrame, devices: list[int]) -> pl.DataFrame:
    """Communication operators: on tracks of groups; in sources without these, communication tasks, or communication of the host."""
    communication = trace.spans.filter(pl.col("kind") == "communication").rename({"op_type": "span_type"})
    groups = tracks.filter(pl.col("communication_group").is_not_null(), pl.col("plane").is_null())
    if groups.height:
        groups = groups.select("track", "device", "communication_group")
        spans = communication.join(groups.lazy(), on="track", maintain_order="left").sort("device", "start_ns", maintain_order=True)
        rows = with_texts(spans.select(*_OPERATOR, "communication_group").collect())
        rows = rows.hstack(with_texts(details(trace, "collectives", rows["span"])))
        return rows.with_columns(group=pl.coalesce("communication_group", "group")).drop("communication_group")
    rows = with_texts(tasks.filter(pl.col("kind") == "communication").select(*_OPERATOR, "connection"))
    if rows.is_empty() and devices:  # on the host, as with gloo
        host = trace.tracks.filter(pl.col("device").is_null()).select("track")
        spans = communication.join(host, on="track", how="semi", maintain_order="left")
        spans = spans.with_columns(device=pl.lit(devices[0], tasks.schema["device"]), connection=pl.lit(None, pl.Int64))
        rows = with_texts(spans.select(rows.columns).sort("start_ns", maintain_order=True).collect())
    return rows.hstack(with_texts(details(trace, "collectives", rows["span"]).drop("connection")))


def _planes(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    planes = tracks.filter(pl.col("kind") == "communication", pl.col("plane").is_not_null())
    planes = planes.select("track", "device", "communication_group", pl.col("plane").cast(pl.Int64))
    spans = trace.spans.join(planes.lazy(), on="track", maintain_order="left").sort("device", "start_ns", maintain_order=True)
    rows = spans.select("span", "device", "communication_group", "plane", "name", "start_ns", "dur_ns").collect()
    return with_texts(rows.hstack(details(trace, "communication_tasks", rows["span"])))


# The host


def _calls(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    """Calls on the host, and operators of the framework."""
    threads = tracks.filter(pl.col("kind") == "thread", pl.col("device").is_null())
    threads = threads.select("track", thread=pl.coalesce(_THREAD, pl.col("track").cast(pl.Int64)))
    spans = trace.spans.join(threads.lazy(), on="track", maintain_order="left").filter(pl.col("kind").is_in(_CALL_KINDS))
    rows = spans.select("span", "thread", "kind", "name", "category", "start_ns", "dur_ns", connection="correlation").collect()
    rows = rows.hstack(details(trace, "calls", rows["span"]))
    category = pl.col("category").cast(pl.String)
    framework = pl.lit(trace.meta.framework or "framework", schema.Text)
    return rows.with_columns(
        level=pl.coalesce(
            "level",
            pl.when(category.is_in(list(LAYERS))).then(category).cast(schema.Text),
            pl.when(pl.col("kind").is_in(["api", "sync"])).then(pl.lit("runtime", schema.Text)),
            framework,
        )
    ).drop("category")


def _marks(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    threads = tracks.select("track", "device", thread=_THREAD.fill_null(0))
    spans = trace.spans.filter(pl.col("category").cast(pl.String) == "mstx").join(threads.lazy(), on="track", maintain_order="left")
    rows = spans.select("span", "device", "thread", "name", "start_ns", "dur_ns").collect()
    return with_texts(rows.hstack(details(trace, "marks", rows["span"])).sort("start_ns", maintain_order=True))


# Iterations


def _iterations(trace: Trace, devices: list[int]) -> pl.DataFrame:
    """Iterations of models on devices; in sources without these, the steps of the framework, on each device and without a model."""
    columns: dict[str, Any] = {"device": pl.Int32, "step": pl.Int32}
    columns |= dict.fromkeys(("model", "iteration", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns"), pl.Int64)
    rows = span_details.iterations(trace)
    if rows.height:
        steps = trace.steps.select("step", "fp_start_ns", "bp_end_ns").collect()
        rows = rows.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        rows = rows.join(steps, on="step", how="left", maintain_order="left").sort("device", "model", "iteration")
    else:
        steps = trace.step_trace().filter(pl.col("how") != "whole").drop("device", strict=False)
        rows = pl.DataFrame({"device": devices}, {"device": pl.Int32}).join(steps, how="cross")
        rows = rows.with_columns(model=pl.lit(NO_MODEL, pl.Int64), iteration=pl.col("step"))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items())


def _ranges(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    spans = trace.spans.with_columns(pl.col("category").cast(pl.String)).filter(pl.col("category").is_in(["Reduce", "GetNext Time"]))
    spans = spans.join(tracks.lazy().select("track", "device"), on="track", maintain_order="left")
    rows = spans.select("span", "device", "category", "step", "start_ns", "dur_ns").collect()
    return rows.hstack(details(trace, "tasks", rows["span"], ["stream"])).sort("start_ns", maintain_order=True)


# Counters


def npu_samples(trace: Trace) -> pl.DataFrame:
    """Counters of NPUs: device, series, at_ns, value."""
    return (
        trace.counters.filter(pl.col("owner").cast(pl.String) == "npu", pl.col("number").is_not_null())
        .select("at_ns", "value", device=pl.col("number").cast(pl.Int32, strict=False), series=pl.col("series").cast(pl.String))
        .collect()
    )


def _clocks(trace: Trace, stars: bool) -> pl.DataFrame:
    """The clock of the cores: at the beginning the usual one of the chip, and each change."""
    clocks = npu_samples(trace).filter(pl.col("series") == "aicore clock").select("device", "at_ns", mhz=pl.col("value") / 1e6)
    if stars:
        begin, _ = trace.ends()
        usual = trace.devices.filter(pl.col("clock_hz") > 0).select("device", at_ns=pl.lit(begin, pl.Int64), mhz=pl.col("clock_hz") / 1e6)
        clocks = pl.concat([usual.collect().join(clocks.filter(pl.col("at_ns") <= begin), on="device", how="anti"), clocks])
    return clocks.sort("device", "at_ns", maintain_order=True)


def _samples(trace: Trace) -> pl.DataFrame:
    """Counters of NPUs: device, at_ns, value, and their layer, counter and field in msprof."""
    rows = npu_samples(trace).filter(pl.col("series") != "aicore clock", pl.col("value").is_finite())
    words = [(series, *_layer_and_field(series)) for series in rows["series"].unique()]
    names = pl.DataFrame(words, schema=dict.fromkeys(("series", "layer", "counter", "field"), pl.String), orient="row")
    return rows.join(names, on="series", how="left", maintain_order="left").sort("device", "layer", "at_ns", maintain_order=True)


def _layer_and_field(series: str) -> tuple[str, str, str]:
    """The series `HBM 0 Read` is the field `Read` of the counter `HBM 0` in the layer HBM."""
    counter, _, field = series.rpartition(" ")
    word = series.partition(" ")[0]
    layer = "NPU MEM" if series in ("memory used", "process memory") else word if word in _SAMPLE_LAYERS else "Counters"
    return layer, counter or layer, field
