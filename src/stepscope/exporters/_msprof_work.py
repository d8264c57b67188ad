"""What msprof's files are made of, out of the tables of any trace: tasks of devices, communication operators, calls, iterations."""

import json
import re
from typing import Any, NamedTuple

import polars as pl

from stepscope import schema
from stepscope.readers._ascend_kinds import SERVING
from stepscope.trace import Trace

NO_CONTEXT = NO_MODEL = 2**32 - 1
_DEVICE_KINDS = ["kernel", "copy", "set", "sync", "other", "communication"]
_CALL_KINDS = ["api", "sync", "op", "annotation", "communication"]
_WORDS = {"copy": "MEMCPY_ASYNC", "set": "MEMSET_ASYNC", "sync": "EVENT_WAIT"}
_STARS_CHIPS = {"5", "7", "8", "9", "11", "15", "16"}
# What the source of a task says of it, in msprof's words.
TEXTS = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats")
_OF_TASK: dict[str, Any] = {
    **dict.fromkeys(("Model Id", "Physic Stream Id", "Task Id", "Batch Id", "Subtask Id", "connection_id", "launched_ns"), pl.Int64),
    **dict.fromkeys(("stream", "task start_ns", "task dur_ns", "received_ns", "aicpu start_ns"), pl.Int64),
    **dict.fromkeys(("compute_us", "memcpy_us", "dispatch_us", "run_ns", "total_ns"), pl.Int64),
    **dict.fromkeys(("Block Num", "Mix Block Num", "size(B)"), pl.Int64),
    # They repeat, and there may be millions.
    **dict.fromkeys(("runtime type", "kernel_name", "Op Name", "OP Type", "OP State", "HF32 Eligible", "operation", *TEXTS), schema.Text),
}
# Columns of counters that a kernel may have: of the groups of metrics, or registers that the user chose.
COUNTER = re.compile(
    r"(aic_|aiv_)?(\w+_time\(us\)|\w+_ratio|total_cycles|icache_miss_rate|\w+_fops|\w+\(GB/s\)|\w+\(KB\)|\w+_cache_\w+|r[0-9a-f]+)"
    r"|memory_bound|cube_utilization\(%\)"
)
_OF_OPERATOR: dict[str, Any] = {
    **dict.fromkeys(("rank_size", "connection_id", "model id"), pl.Int64),
    **dict.fromkeys(("data_type", "alg_type", "Process Group Name", "count"), pl.String),
}
_OF_PLANE: dict[str, Any] = {
    **dict.fromkeys(("stream id", "task id", "context id", "src rank", "dst rank", "size(Byte)", "model id"), pl.Int64),
    **dict.fromkeys(("duration estimated(us)", "bandwidth(GB/s)"), pl.Float64),
    **dict.fromkeys(("notify_id", "task type", "transport type", "data type", "link type"), pl.String),
}
# Levels of calls, and what they are called in the timeline.
LAYERS = {"acl": "AscendCL", "model": "Model", "node": "Node", "communication": "Communication", "runtime": "Runtime"}
_OF_CALL: dict[str, Any] = {
    **dict.fromkeys(("level", "id", "Mode"), schema.Text),
    "event": pl.Boolean,
}


class Work(NamedTuple):
    """One rank. Device tables are by device and start."""

    # span, device, lane, serves, kind, category, name, op_type, start_ns, dur_ns, flow_in, _OF_TASK; texts that repeat as numbers
    tasks: pl.DataFrame
    counters: list[str]  # those of the columns of `tasks` that are counters of cores
    operators: pl.DataFrame  # of communication: device, name, op_type, group, start_ns, dur_ns, flow_in and _OF_OPERATOR
    planes: pl.DataFrame  # tasks of these: device, group, plane, name, start_ns, dur_ns and _OF_PLANE
    calls: pl.DataFrame  # span, thread, kind, name, start_ns, dur_ns, connection, _OF_CALL, item_id of events; texts as those of tasks
    iterations: pl.DataFrame  # device, model, iteration, start_ns, end_ns, fp_start_ns, bp_end_ns
    ranges: pl.DataFrame  # collectives and GetNext as a graph's tags bound them: device, what, model, stream, start_ns, dur_ns
    clocks: pl.DataFrame  # device, at_ns, mhz
    samples: pl.DataFrame  # of other counters of devices: device, layer, series, field, at_ns, value
    marks: pl.DataFrame  # that a program made: device (none of the host's), thread, name, start_ns, dur_ns and _OF_MARK
    counters_of_time: dict[int, dict[str, Any]]  # how the counter of a device tells the time
    aicpu: pl.DataFrame  # what operators on AI CPUs said of themselves whose tasks are lost: as `tasks`
    fusions: list[dict[str, Any]]
    models: dict[int, str]
    devices: list[int]
    pid: int
    process: str
    stars: bool  # a chip whose kernels have mixed blocks and contexts
    brief: bool  # recorded without details of operators (level 0)
    current: bool  # by current CANN, whose msprof exports in C++: it differs in places from that of earlier CANN


def work(trace: Trace) -> Work:
    tracks = trace.tracks.with_columns(pl.col("kind", "group").cast(pl.String)).collect()
    lanes = tracks.filter(pl.col("device").is_not_null()).with_columns(
        of_group=pl.col("label").str.extract(r"^Group (.*) Communication$"), plane=pl.col("label").str.extract(r"Plane (\d+)$")
    )
    streams = lanes.filter(pl.col("kind") == "stream", pl.col("of_group").is_null(), ~pl.col("label").str.starts_with("Reduce on stream"))
    extra = trace.meta.extra
    tasks, counters = _tasks(trace, streams)
    planes = _planes(trace, lanes)
    calls = _calls(trace, tracks)
    devices = sorted({*lanes["device"].to_list(), *trace.devices.select("device").drop_nulls().collect().to_series().to_list()})
    operators = _operators(trace, lanes, tasks, devices)
    iterations = _iterations(trace, lanes)
    if iterations.is_empty():
        iterations = _steps(trace, devices, iterations)
    chip = str(extra.get("platform_version", ""))
    stars = chip in _STARS_CHIPS or any(name.startswith(("aic_", "aiv_")) for name in counters)
    models = extra.get("models")
    level = str(trace.meta.options.get("profLevel", ""))
    return Work(
        tasks=tasks,
        counters=counters,
        operators=operators,
        planes=planes,
        calls=calls,
        iterations=iterations,
        ranges=_ranges(trace, lanes),
        clocks=_clocks(trace, stars),
        samples=_samples(trace),
        marks=_marks(trace, tracks),
        counters_of_time=_counters_of_time(extra.get("clocks")),
        aicpu=_aicpu(trace, lanes),
        fusions=[one for one in extra.get("fusions") or [] if isinstance(one, dict)],
        models={int(key): str(name) for key, name in models.items() if str(key).isdecimal()} if isinstance(models, dict) else {},
        devices=devices,
        pid=int(pid) if re.fullmatch(r"[0-9]{1,10}", pid := str(extra.get("pid", ""))) else 0,  # a damaged one may be any number
        process=str(extra.get("pid_name") or trace.meta.framework),
        stars=stars,
        brief=level in ("l0", "level0", "0"),
        current=level.startswith("level"),
    )


def _counters_of_time(said: object) -> dict[int, dict[str, Any]]:
    known = {int(key): one for key, one in said.items() if str(key).isdecimal()} if isinstance(said, dict) else {}
    needed = {"cntvct", "monotonic_ns", "start_ns", "hertz"}
    return {device: one for device, one in known.items() if isinstance(one, dict) and needed <= set(one) and one["hertz"] > 0}


def only(rows: pl.DataFrame, *where: pl.Expr) -> pl.DataFrame:
    """Those rows: not copied where that is all of them, as there may be millions."""
    wanted = rows.select(pl.all_horizontal(*where)).to_series()
    return rows if wanted.all() else rows.filter(wanted)


def spelled(rows: pl.DataFrame) -> pl.DataFrame:
    """With texts in place of their numbers: for a portion, as texts are many times as large."""
    return rows.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def _texts(spans: pl.LazyFrame) -> pl.LazyFrame:
    return spans.with_columns(pl.col("kind", "name", "op_type", "category", "shapes", "dtypes").cast(pl.String))


def _tasks(trace: Trace, streams: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    spans = trace.spans.join(_numbered(streams).lazy(), on="track", maintain_order="left").filter(pl.col("kind").is_in(_DEVICE_KINDS))
    own = (
        spans.select(
            *("span", "device", "lane", "kind", "category", "name", "op_type"),
            *("start_ns", "dur_ns", "flow_in", "op", "shapes", "dtypes"),
        )
        .sort("device", "start_ns", maintain_order=True)
        .collect()
    )
    own = own.with_columns(category=task_word().cast(schema.Text))
    told = _told(trace, own)
    counters = _counters(told)
    measured = [*counters, *(name for name in OF_CACHE if name in told)]
    columns = _OF_TASK | {name: pl.Int64 if name.endswith("_cycles") else pl.Float64 for name in measured}
    found = own.hstack(trace.said(own["span"], columns)).with_columns(stream=pl.coalesce("Physic Stream Id", "stream", "lane"))
    # An operator that computes nothing, as it serves communication, is in all tables of operators.
    # Raw data says which operator a task is of; of other sources the names of HCCL's own kernels tell.
    hccl = pl.col("op_type").is_not_null() & pl.col("name").cast(pl.String).str.contains(SERVING)
    serves = (pl.col("kind") == "other") & (pl.col("Op Name").is_not_null() | hccl)
    found = found.with_columns(serves=serves, kind=pl.when(serves).then(pl.lit("kernel", schema.Kind)).otherwise("kind"))
    return _with_operators(trace, found), counters


def task_word() -> pl.Expr:
    """The type of a task, by `kind` and `category`: a copy by another tool's word is one by msprof's own, too, which are in capitals."""
    said, known = pl.col("category").cast(pl.String), r"^[A-Z0-9_]+$|^(?i:memcpy|memset)|(?i:wait)"
    word = said
    for kind, own in _WORDS.items():
        word = pl.when((pl.col("kind") == kind) & ~said.str.contains(known).fill_null(False)).then(pl.lit(own)).otherwise(word)
    return word


def _numbered(streams: pl.DataFrame) -> pl.DataFrame:
    """track, device, and lane: the number in a stream's name; where there is none, or it is another's, one behind all of them."""
    said = streams.select("track", "device", lane=pl.col("tid").str.extract(r"(\d{1,9})\s*$").cast(pl.Int64))
    said = said.with_columns(lane=pl.when(pl.struct("device", "lane").is_first_distinct()).then("lane"))
    free = pl.col("lane").max().fill_null(-1) + pl.col("lane").is_null().cum_sum()
    return said.with_columns(lane=pl.coalesce("lane", free))


OF_CACHE = ("l2_hit_rate", "l2_victim_rate")


def _told(trace: Trace, tasks: pl.DataFrame) -> list[str]:
    """What is said of kernels: of all of a device the same, if in vain."""
    firsts = tasks.filter(pl.col("kind") == "kernel").unique("device", keep="first", maintain_order=True)["span"].to_list()
    texts = trace.spans.filter(pl.col("span").is_in(firsts)).select("args").collect().to_series().drop_nulls()
    return list(dict.fromkeys(name for text in texts for name in told_keys(text)))


def _counters(said: list[str]) -> list[str]:
    told = [name for name in said if name not in _OF_TASK and COUNTER.fullmatch(name)]
    return told if any(name.endswith(("total_cycles", "core_time(us)", "aiv_time(us)")) for name in told) else []


def told_keys(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return list(found) if isinstance(found, dict) else []


def _with_operators(trace: Trace, tasks: pl.DataFrame) -> pl.DataFrame:
    """Shapes and types as msprof writes them, also where only the operator that launched a kernel has them."""
    if tasks["op"].null_count() < tasks.height:
        operators = trace.spans.select(op="span", op_shapes="shapes", op_dtypes="dtypes")
        tasks = tasks.join(operators.filter(pl.col("op_shapes").is_not_null()).collect(), on="op", how="left", maintain_order="left")
        tasks = tasks.with_columns(shapes=pl.coalesce("shapes", "op_shapes"), dtypes=pl.coalesce("dtypes", "op_dtypes"))
        tasks = tasks.drop("op_shapes", "op_dtypes")
    return tasks.with_columns(
        pl.coalesce("Input Shapes", _flat(tasks["shapes"]).alias("flat")).alias("Input Shapes"),
        pl.coalesce("Input Data Types", _flat(tasks["dtypes"]).alias("flat")).alias("Input Data Types"),
    ).drop("op", "shapes", "dtypes")


def _flat(texts: pl.Series) -> pl.Series:
    """`[[2,3],[4]]` as `2,3;4`, each distinct one once."""
    distinct = texts.drop_nulls().unique()
    flat = pl.Series([_joined(text) for text in distinct], dtype=schema.Text)
    return texts.replace_strict(distinct, flat, default=None, return_dtype=schema.Text)


def _joined(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, list):
        return None
    return ";".join(",".join(map(str, one)) if isinstance(one, list) else str(one) for one in found)


def _operators(trace: Trace, lanes: pl.DataFrame, tasks: pl.DataFrame, devices: list[int]) -> pl.DataFrame:
    """Communication: on lanes of groups, or, where a source has none, the tasks that communicate, or what the host does."""
    groups = lanes.filter(pl.col("of_group").is_not_null()).select("track", "device", lane_group="of_group")
    if groups.height:
        spans = _texts(trace.spans).join(groups.lazy(), on="track", maintain_order="left").filter(pl.col("kind") == "communication")
        spans = spans.sort("device", "start_ns", maintain_order=True)
        own = spans.select("span", "device", "name", "op_type", "start_ns", "dur_ns", "flow_in", "lane_group").collect()
        about = trace.said(own["span"], _OF_OPERATOR)
        return own.hstack(about).with_columns(group=pl.coalesce("lane_group", "Process Group Name")).drop("lane_group")
    found = spelled(tasks.filter(pl.col("kind") == "communication")).select(*_COLLECTIVE, "connection_id")
    if found.is_empty() and devices:  # by the host, as gloo does it
        host = trace.tracks.filter(pl.col("device").is_null()).select("track")
        spans = _texts(trace.spans.filter(pl.col("kind") == "communication")).join(host, on="track", how="semi", maintain_order="left")
        spans = spans.with_columns(device=pl.lit(devices[0], tasks.schema["device"]), connection_id=pl.lit(None, pl.Int64))
        found = spans.select(found.columns).sort("start_ns", maintain_order=True).collect()
    about = trace.said(found["span"], _OF_OPERATOR).drop("connection_id")
    return found.hstack(about).with_columns(group=pl.col("Process Group Name"))


_COLLECTIVE = ("span", "device", "name", "op_type", "start_ns", "dur_ns", "flow_in")


def _planes(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    planes = lanes.filter(pl.col("kind") == "communication", pl.col("plane").is_not_null()).select(
        "track", "device", pl.col("plane").cast(pl.Int64), group=pl.col("label").str.extract(r"^Group (.*) Plane \d+$")
    )
    spans = _texts(trace.spans).join(planes.lazy(), on="track", maintain_order="left").sort("device", "start_ns", maintain_order=True)
    own = spans.select("span", "device", "group", "plane", "name", "start_ns", "dur_ns").collect()
    return own.hstack(trace.said(own["span"], _OF_PLANE))


def _calls(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    """Calls on the host. Operators of a framework are its calls."""
    threads = tracks.filter(pl.col("kind") == "thread", pl.col("device").is_null()).select(
        "track", thread=pl.coalesce(pl.col("tid").str.extract(r"^(\d+)$").cast(pl.Int64, strict=False), pl.col("track").cast(pl.Int64))
    )
    spans = trace.spans.join(threads.lazy(), on="track", maintain_order="left").filter(pl.col("kind").is_in(_CALL_KINDS))
    own = spans.select("span", "thread", "kind", "name", "category", "start_ns", "dur_ns", connection="correlation").collect()
    of_cann = pl.col("category").cast(pl.String)
    own = own.with_columns(category=pl.when(of_cann.is_in(list(LAYERS))).then(of_cann).cast(schema.Text))
    framework = pl.lit(trace.meta.framework or "framework", schema.Text)
    level = pl.when(pl.col("kind").is_in(["api", "sync"])).then(pl.lit("runtime", schema.Text)).otherwise(framework)
    found = own.hstack(trace.said(own["span"], _OF_CALL))
    events = found.filter("event").select("span")
    items = trace.said(events["span"], {"item_id": schema.Text}) if events.height else pl.DataFrame(schema={"item_id": schema.Text})
    found = found.join(events.hstack(items), on="span", how="left", maintain_order="left")
    # Run folders of earlier releases name calls as msprof's own timeline does: `Node@launch`.
    layers = "AscendCL|Model|Node|Communication|Hccl|Runtime"
    words = pl.col("name").cast(pl.String).str.extract_groups(rf"^(?<layer>{layers})@(?<rest>.+)$").struct
    known_words = {"Hccl": "communication"} | {word: key for key, word in LAYERS.items()}
    layer = words.field("layer").replace_strict(known_words, default=None, return_dtype=schema.Text)
    known = pl.col("level").is_null() & layer.is_not_null()
    if found.select(known.any()).item():
        name = pl.when(known).then(words.field("rest").cast(schema.Text)).otherwise("name")
        found = found.with_columns(level=pl.when(known).then(layer).otherwise("level"), name=name)
    return found.with_columns(level=pl.coalesce("level", "category", level)).drop("category")


def _iterations(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    """Steps of a model on a device: where the source marks them so."""
    marks = lanes.filter(pl.col("tid").str.contains(r"^model \d+$")).select(
        "track", "device", model=pl.col("tid").str.extract(r"(\d+)$").cast(pl.Int64)
    )
    spans = trace.spans.filter(pl.col("kind") == "step").join(marks.lazy(), on="track", maintain_order="left")
    steps = trace.steps.select("step", "fp_start_ns", "bp_end_ns")
    number = pl.col("name").cast(pl.String).str.extract(r"(\d+)\s*$").cast(pl.Int64)
    return (
        spans.select("device", "model", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), iteration=number)
        .join(steps, on="step", how="left", maintain_order="left")
        .sort("device", "model", "iteration")
        .collect()
    )


def _steps(trace: Trace, devices: list[int], like: pl.DataFrame) -> pl.DataFrame:
    """Steps that a framework marks: of each device, and of no model."""
    found = trace.step_trace().filter(pl.col("how") != "whole")
    rows = pl.DataFrame({"device": devices}, {"device": like.schema["device"]}).join(found.drop("device", strict=False), how="cross")
    return rows.select(
        *("device", "step", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns"), model=pl.lit(NO_MODEL, pl.Int64), iteration=pl.col("step")
    ).select(pl.col(name).cast(dtype) for name, dtype in like.schema.items())


def _ranges(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    spans = trace.spans.with_columns(what=pl.col("category").cast(pl.String)).filter(pl.col("what").is_in(["Reduce", "GetNext Time"]))
    spans = spans.join(lanes.lazy().select("track", "device"), on="track", maintain_order="left")
    own = spans.select("span", "device", "what", "step", "start_ns", "dur_ns").collect()
    return own.hstack(trace.said(own["span"], {"model": pl.Int64, "stream": pl.Int64})).sort("start_ns", maintain_order=True)


def _clocks(trace: Trace, stars: bool) -> pl.DataFrame:
    """How fast the cores ran: at the beginning as is usual for the chip, and when that changed."""
    device = pl.col("name").cast(pl.String).str.extract(r"^aicore clock npu (\d+)$").cast(pl.Int32)
    found = trace.counters.select(device=device, at_ns="at_ns", mhz=pl.col("value") / 1e6).filter(pl.col("device").is_not_null()).collect()
    if stars:
        begin, _ = trace.ends()
        usual = trace.devices.filter(pl.col("clock_hz") > 0).select("device", at_ns=pl.lit(begin, pl.Int64), mhz=pl.col("clock_hz") / 1e6)
        found = pl.concat([usual.collect().join(found.filter(pl.col("at_ns") <= begin), on="device", how="anti"), found])
    return found.sort("device", "at_ns", maintain_order=True)


def _samples(trace: Trace) -> pl.DataFrame:
    """Counters of devices: `HBM 0 Read npu 1` is of the layer HBM, its series `HBM 0`, and there `Read`."""
    parts = pl.col("name").cast(pl.String).str.extract_groups(r"^(?<what>.*) npu (?<device>\d+)$")
    rows = trace.counters.select("at_ns", "value", parts.alias("parts")).collect().unnest("parts")
    rows = rows.filter(pl.col("device").is_not_null(), pl.col("what") != "aicore clock", pl.col("value").is_finite())
    memory = pl.col("what").is_in(["memory used", "process memory"])
    layer = pl.coalesce(
        pl.when(memory).then(pl.lit("NPU MEM")), pl.col("what").str.extract(r"^(HBM|LLC|HCCS|PCIe|NIC|RoCE|DDR|QoS)\b"), pl.lit("Counters")
    )
    split = pl.col("what").str.extract_groups(r"^(?:(?<series>.*) )?(?<field>.*)$")
    rows = rows.select("at_ns", "value", pl.col("device").cast(pl.Int32), split.alias("split"), layer=layer).unnest("split")
    return rows.with_columns(pl.coalesce("series", "layer").alias("series")).sort("device", "layer", "at_ns", maintain_order=True)


_OF_MARK: dict[str, Any] = {
    **dict.fromkeys(("event_type", "domain"), pl.String),
    **dict.fromkeys(("mark_id", "Category", "Payload_type", "Payload_value", "Message_type", "Physic Stream Id", "Task Id"), pl.Int64),
}


def _marks(trace: Trace, tracks: pl.DataFrame) -> pl.DataFrame:
    threads = tracks.select("track", "device", thread=pl.col("tid").str.extract(r"^(\d{1,18})$").cast(pl.Int64).fill_null(0))
    spans = _texts(trace.spans).filter(pl.col("category") == "mstx").join(threads.lazy(), on="track", maintain_order="left")
    rows = spans.select("span", "device", "thread", "name", "start_ns", "dur_ns").collect()
    return rows.hstack(trace.said(rows["span"], _OF_MARK)).sort("start_ns", maintain_order=True)


def _aicpu(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    own = lanes.filter(pl.col("label").str.starts_with("AI CPU of stream")).select("track", "device")
    spans = _texts(trace.spans).join(own.lazy(), on="track", maintain_order="left")
    rows = spans.select("span", "device", "start_ns", "dur_ns").collect()
    return rows.hstack(trace.said(rows["span"], _OF_TASK)).with_columns(stream="Physic Stream Id")
