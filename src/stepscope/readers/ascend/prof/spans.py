"""Raw Ascend data as spans on tracks: calls on the host, and of each device tasks, communication, marks and iterations."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from stepscope.model import schema
from stepscope.model.columns import span_details
from stepscope.model.trace import complete
from stepscope.readers.ascend.prof import steps as prof_steps
from stepscope.readers.ascend.prof.device_data import AICPU, DeviceData
from stepscope.readers.ascend.prof.files import Notes, Side, begin
from stepscope.readers.ascend.prof.host import marks as prof_marks
from stepscope.readers.ascend.prof.host import usage
from stepscope.readers.ascend.prof.host.records import Host

NO_MODEL = 2**32 - 1
_SYNCHRONIZING = r"(?i)synchronize"
_TRACK_TEXTS = ["group", "label", "track_kind", "pid", "tid", "communication_group"]
_TRACK_NUMBERS = ["device", "stream", "plane"]


class Part(NamedTuple):
    """Spans of one kind, with the columns of their tracks; `args` is a struct, whose fields are also rows of a table of details."""

    spans: pl.DataFrame
    table: str = ""


def calls(host: Host, steps: pl.DataFrame, info: dict[str, Any]) -> Part:
    """Calls on the host, in the order of `host.calls`: the row of a call is its span."""
    rows = host.calls.with_columns(pl.col("row").cast(pl.Int64), pl.col(pl.String).cast(schema.Text))
    model = host.around.find("model", rows["thread"].to_numpy(), rows["start_ns"].to_numpy())
    rows = rows.with_columns(around=pl.Series(model))
    if steps.height:
        runs = host.calls.filter(pl.col("level") == "model").select(
            around=pl.col("row").cast(pl.Int64), model_id=pl.col("item_number").cast(pl.Int64, strict=False), iteration="request"
        )
        numbers = steps.select("model_id", "iteration", "step").unique(["model_id", "iteration"], keep="first")
        runs = runs.join(numbers, on=["model_id", "iteration"], how="left")
        rows = rows.join(runs.select("around", "step"), on="around", how="left", maintain_order="left")
    names = rows["name"].unique().cast(pl.String)
    kind = (
        pl.when(pl.col("name").is_in(names.filter(names.str.contains(_SYNCHRONIZING)).to_list()))
        .then(pl.lit("sync"))
        .when(pl.col("level") == "msproftx")
        .then(pl.lit("annotation"))
        .otherwise(pl.lit("api"))
    )
    spans = rows.select(
        *(["step"] if "step" in rows.columns else []),
        name=pl.when(pl.col("level") == "communication").then(pl.coalesce("item", "name")).otherwise("name"),
        kind=kind.cast(schema.Kind),
        category="level",
        correlation="connection",
        start_ns="start_ns",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        args=pl.struct("level", "request", "event", type="name", id="item", item_id="item_number", Mode=pl.coalesce(_acl_family(), "name")),
        group=pl.lit(process(info), schema.Text),
        label=pl.format("Thread {}", "thread").cast(schema.Text),
        track_kind=pl.lit("thread", schema.Text),
        pid=pl.lit(str(info.get("pid", "")), schema.Text),
        tid=pl.col("thread").cast(pl.String).cast(schema.Text),
    )
    return Part(spans, "calls")


def process(info: dict[str, Any]) -> str:
    """Name and number of the process that was recorded."""
    return f"{info.get('pid_name') or 'host'} {info.get('pid', '')}".strip()


def system_calls(side: Side, info: dict[str, Any], notes: Notes) -> list[Part]:
    rows = usage.calls(side, begin(side), notes)
    if rows.is_empty():
        return []
    spans = rows.select(
        "name",
        "category",
        "start_ns",
        "dur_ns",
        kind=pl.lit("api"),
        group=pl.lit(process(info)),
        label=pl.format("Thread {} system", "thread"),
        track_kind=pl.lit("thread"),
        pid=pl.lit(str(info.get("pid", ""))),
        tid=pl.format("{} system", "thread"),
    )
    return [Part(spans)]


def _acl_family() -> pl.Expr:
    """The family of a call of AscendCL."""
    words = {1: "ACL_OP", 2: "ACL_MODEL", 3: "ACL_RTS", 4: "ACL_OTHERS", 5: "ACL_NN", 6: "ACL_ASCENDC"}
    words |= {7: "HOST_HCCL", 9: "ACL_DVPP", 10: "ACL_GRAPH"}
    number = (pl.col("type") // 65536).cast(pl.Int64, strict=False)
    return pl.when(pl.col("level") == "acl").then(number.replace_strict(words, default=None, return_dtype=schema.Text))


def device_parts(device: DeviceData, steps: pl.DataFrame, marks: pl.DataFrame) -> list[Part]:
    """All spans of one device."""
    number = device.device.number
    steps = steps.filter(pl.col("device") == number) if steps.height else steps
    operators, planes = device.communication
    parts = _tasks(device, steps)
    if operators.height:
        parts.append(Part(in_steps(_collectives(operators), steps), "collectives"))
    if planes.height:
        parts.append(Part(in_steps(_planes(planes, operators), steps), "communication_tasks"))
    if device.steps.ranges.height:
        parts.append(Part(in_steps(_tag_ranges(device.steps.ranges, operators.height > 0), steps), "ranges"))
    if device.aicpu.height:
        parts.append(Part(in_steps(_aicpu_without_task(device.aicpu), steps), "tasks"))
    marked = prof_marks.on_device(marks, device.device)
    if marked.height:
        parts.append(Part(in_steps(marked, steps), "marks"))
    if steps.height:
        track = {"label": pl.format("Step Trace ({})", "model"), "tid": pl.format("model {}", "model_id")}
        parts.append(Part(prof_steps.as_spans(steps, "iteration", **track), "iterations"))
    place = {
        "group": pl.lit(f"NPU {number}", schema.Text),
        "pid": pl.lit(str(number), schema.Text),
        "device": pl.lit(number, pl.Int64),
    }
    return [part._replace(spans=part.spans.with_columns(**place)) for part in parts]


def in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Rows with the step in which they start: of their model if it is known, because models may run concurrently."""
    if steps.is_empty():
        return rows
    rows = rows.with_row_index("order").sort("start_ns", maintain_order=True)
    windows = steps.select("step", "start_ns", "model_id", until="end_ns").sort("start_ns")
    of_model = "model_id" in rows.columns
    if of_model:
        rows = rows.join_asof(windows, on="start_ns", by="model_id", check_sortedness=False)
        rows = rows.rename({"step": "model_step", "until": "model_until"})
    rows = rows.join_asof(windows.drop("model_id"), on="start_ns")
    step: pl.Expr = pl.when(pl.col("start_ns") < pl.col("until")).then("step")
    if of_model:
        model_step = pl.when(pl.col("start_ns") < pl.col("model_until")).then("model_step")
        step = pl.coalesce(model_step, pl.when(pl.col("model_step").is_null()).then(step))
    return rows.with_columns(step=step).sort("order").drop("order", "until", "model_step", "model_until", strict=False)


_TASK_ARGS = {
    "Model Id": pl.col("model_id").fill_null(NO_MODEL),
    "Task Type": pl.col("category"),
    "Physic Stream Id": pl.col("stream"),
    "Task Id": pl.col("task"),
    "Batch Id": pl.col("batch"),
    "Subtask Id": pl.col("context"),
    "connection_id": pl.col("connection"),
    "runtime type": pl.col("host_type"),
    "kernel_name": pl.col("kernel"),
    "launched_ns": pl.col("at_ns"),
}
_DIRECTIONS = (
    *("host to host", "host to device", "device to host", "device to device", "managed memory"),
    *("address device to device", "host to device ex", "device to host ex"),
)
_COPY_ARGS = {
    "size(B)": pl.col("bytes"),
    "operation": pl.col("direction").replace_strict(dict(enumerate(_DIRECTIONS)), default=None, return_dtype=pl.String),
}
_KERNEL_ARGS = {
    "Op Name": pl.coalesce("part", "op", "node_item", "kernel"),
    "OP Type": pl.col("op_type"),
    "OP State": pl.when(pl.col("static_op")).then(pl.lit("static")).when(~pl.col("static_op")).then(pl.lit("dynamic")).cast(schema.Text),
    "Block Num": pl.col("blocks"),
    "Mix Block Num": pl.col("mix_blocks"),
    "HF32 Eligible": pl.when(pl.col("hf32")).then(pl.lit("YES")).when(~pl.col("hf32")).then(pl.lit("NO")).cast(schema.Text),
    **{f"{side} {detail}": pl.col(f"{side} {detail}") for side in ("Input", "Output") for detail in ("Shapes", "Data Types", "Formats")},
    "attributes": pl.col("attributes"),
}
_AICPU_ARGS = {name: pl.col(name) for name in AICPU}


def _tasks(device: DeviceData, steps: pl.DataFrame) -> list[Part]:
    rows = device.executions.with_columns(pl.col("model_id").cast(pl.Int64, strict=False), dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = _filter_rows(rows, pl.col("dur_ns") >= 0)
    if steps.height:
        rows = rows.with_columns(in_steps(rows.select("start_ns", "model_id"), steps)["step"])
    task_args = dict(_TASK_ARGS) | ({"original stream": pl.col("original")} if "original" in rows.columns else {})
    kernels = _filter_rows(rows, pl.col("kind") == "kernel")
    others = rows.filter(pl.col("kind") != "kernel")
    parts = []
    if kernels.height:
        parts.append(_with_kernel_args(kernels, device.pmu, task_args))
    if others.height:
        args = task_args | (_COPY_ARGS if others["bytes"].count() else {})
        args |= {"received_ns": pl.col("received_ns")} if others["received_ns"].count() else {}
        args |= _AICPU_ARGS if others["run_ns"].count() else {}
        parts.append(others.with_columns(args=_struct(args)))
    return [Part(_task_spans(part), "tasks") for part in parts]


def _with_kernel_args(kernels: pl.DataFrame, pmu: pl.DataFrame, task_args: dict[str, pl.Expr]) -> pl.DataFrame:
    args = task_args | _KERNEL_ARGS
    if pmu.height:
        kernels = kernels.join(pmu, on="execution", how="left", maintain_order="left")
        args |= {name: pl.col(name) for name in pmu.columns if name != "execution"}
    args |= _AICPU_ARGS if kernels["run_ns"].count() else {}
    outside = (pl.col("whole_ns") != pl.col("start_ns")) | (pl.col("whole_end_ns") != pl.col("end_ns"))
    if kernels.select(outside.any()).item():
        args |= {
            "task start_ns": pl.when(outside).then("whole_ns"),
            "task dur_ns": pl.when(outside).then(pl.col("whole_end_ns") - pl.col("whole_ns")),
        }
    return kernels.with_columns(args=_struct(args))


def _task_spans(rows: pl.DataFrame) -> pl.DataFrame:
    op = pl.coalesce("op", "node_item", "kernel")
    is_kernel = pl.col("kind") == "kernel"
    in_collective = pl.col("category") == "COMMUNICATION"
    name = pl.when(is_kernel & ~in_collective).then(op).when(is_kernel).then(pl.coalesce("part", "kernel", op))
    # A task that serves the communication of other kernels is no kernel.
    kind = pl.when("serving").then(pl.lit("other", schema.Kind)).otherwise("kind") if "serving" in rows.columns else pl.col("kind")
    stream = pl.col("logic" if "logic" in rows.columns else "stream")
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        *("category", "start_ns", "dur_ns", "bytes", "shapes", "dtypes", "args"),
        kind=kind,
        name=pl.coalesce(name, "category"),
        scope=pl.when(is_kernel & ~in_collective).then(_scopes(rows.select(op).to_series())),
        op_type=pl.when(is_kernel).then(pl.when(in_collective).then(pl.lit(None, schema.Text)).otherwise(pl.coalesce("op_type", op))),
        flow_in=pl.coalesce("runtime", "node", "acl"),
        label=pl.format("Stream {}", stream).cast(schema.Text),
        track_kind=pl.lit("stream", schema.Text),
        tid=stream.cast(pl.String).cast(schema.Text),
        stream=stream.cast(pl.Int64),
    )


def _scopes(operators: pl.Series) -> pl.Series:
    """The scopes of operators: the path before their names. Each distinct operator is split once."""
    distinct = operators.drop_nulls().unique()
    scopes = distinct.cast(pl.String).str.extract(r"^(.*)/[^/]*$").cast(schema.Text)
    return operators.replace_strict(distinct, scopes, default=None, return_dtype=schema.Text)


def _filter_rows(rows: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """The rows for which `where` is true; not copied if these are all: there may be millions, with many columns."""
    wanted = rows.select(where).to_series()
    return rows if wanted.all() else rows.filter(wanted)


def _struct(args: Mapping[str, pl.Expr]) -> pl.Expr:
    return pl.struct(column.alias(name) for name, column in args.items())


def _aicpu_without_task(aicpu: pl.DataFrame) -> pl.DataFrame:
    """Operators on the AI CPU that report their own times and whose tasks are lost."""
    return aicpu.select(
        "start_ns",
        name=pl.lit("AI CPU"),
        kind=pl.lit("other"),
        category=pl.lit("AI_CPU"),
        dur_ns="run_ns",
        args=_struct({"Physic Stream Id": pl.col("stream"), "Task Id": pl.col("task"), **_AICPU_ARGS}),
        label=pl.format("AI CPU of stream {}", "stream"),
        track_kind=pl.lit("annotation"),
        tid=pl.format("aicpu {}", "stream"),
    ).filter(pl.col("dur_ns") >= 0)


def _collectives(operators: pl.DataFrame) -> pl.DataFrame:
    args = {
        "Process Group Name": pl.col("group"),
        "rank_size": pl.col("ranks"),
        "connection_id": pl.col("connection"),
        "model id": pl.col("model_id").fill_null(NO_MODEL),
        "data_type": pl.col("op_data_type"),
        "alg_type": pl.col("algorithm"),
        "count": pl.col("count"),
        "relay": pl.col("relay"),
        "retry": pl.col("retry"),
    }
    return operators.select(
        "name",
        "op_type",
        "start_ns",
        kind=pl.lit("communication"),
        category=pl.lit("COMMUNICATION"),
        flow_in="node",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        args=_struct(args),
        label=pl.format("Group {} Communication", "group"),
        track_kind=pl.lit("stream"),
        tid=pl.col("group"),
        communication_group=pl.col("group"),
    )


def _planes(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    args = {
        "operator": pl.col("operator"),
        "master": pl.col("role") == "master",
        "notify_id": pl.col("notify").cast(pl.String),
        "duration estimated(us)": pl.col("estimated"),
        "stream id": pl.col("stream"),
        "task id": pl.col("task"),
        "context id": pl.col("context"),
        "task type": pl.col("task_name"),
        "src rank": pl.col("src"),
        "dst rank": pl.col("dst"),
        "transport type": pl.col("transport"),
        "size(Byte)": pl.col("size"),
        "data type": pl.col("data_type"),
        "link type": pl.col("link"),
        "bandwidth(GB/s)": pl.col("bandwidth"),
        "rdma type": pl.col("rdma"),
        "model id": pl.col("model_id").fill_null(NO_MODEL),
    }
    return with_operators(tasks, operators).select(
        "start_ns",
        "dur_ns",
        name=pl.coalesce("task_name", "category"),
        kind=pl.when(pl.col("task_name").str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")),
        category=pl.lit("communication task"),
        bytes=pl.when(pl.col("size") > 0).then("size"),
        flow_in=pl.coalesce("communication", "node"),
        args=_struct(args),
        label=pl.format("Group {} Plane {}", "group", "plane"),
        track_kind=pl.lit("communication"),
        tid=pl.format("{} plane {}", "group", "plane"),
        communication_group=pl.col("group"),
        plane=pl.col("plane").cast(pl.Int64),
    )


def with_operators(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Tasks of planes with `operator`, the name of their communication operator."""
    if operators.is_empty():
        return tasks.with_columns(operator=pl.lit(None, pl.String))
    return tasks.join(operators.select("node", "nth", operator="name"), on=["node", "nth"], how="left", maintain_order="left")


def _tag_ranges(ranges: pl.DataFrame, recorded: bool) -> pl.DataFrame:
    """Collectives and GetNext between the tags of the graph. If the collectives themselves are `recorded`, tags only annotate them."""
    reduce = pl.col("tag") == "reduce"
    return ranges.select(
        "start_ns",
        model_id="model",
        name=pl.when(reduce).then(pl.format("Reduce {}", "number")).otherwise(pl.lit("GetNext")),
        kind=pl.when(~reduce).then(pl.lit("data")).otherwise(pl.lit("annotation" if recorded else "communication")),
        category=pl.when(reduce).then(pl.lit("Reduce")).otherwise(pl.lit("GetNext Time")),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        label=pl.when(reduce).then(pl.format("Reduce on stream {}", "stream")).otherwise(pl.lit("GetNext")),
        track_kind=pl.when(reduce & ~pl.lit(recorded)).then(pl.lit("stream")).otherwise(pl.lit("annotation")),
        tid=pl.when(reduce).then(pl.format("reduce {}", "stream")).otherwise(pl.lit("getnext")),
        args=pl.struct("stream", "model"),
    ).filter(pl.col("dur_ns") >= 0)


def tables(parts: list[Part]) -> dict[str, pl.DataFrame | pl.LazyFrame]:
    """The tables of spans, in the order of the parts, of their details and of their tracks.

    Tracks are sorted: the threads of the host, then for each device its streams, its communication groups with their planes, and marks.
    """
    parts = [part for part in parts if part.spans.height]
    if not parts:
        return {}
    frames = [_with_track_columns(part.spans) for part in parts]
    tracks = _sorted_tracks(frames)
    label = ["group", "label", "track_kind"]
    numbers = tracks.select(pl.col(label).cast(schema.Text), "track").unique(label, keep="first", maintain_order=True)
    spans = pl.concat(
        [_compact(frame.join(numbers, on=label, how="left", maintain_order="left")) for frame in frames], how="diagonal_relaxed"
    )
    spans = _with_correlations(complete(spans))
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {"tracks": tracks.rename({"track_kind": "kind"}).with_columns(sort="track")}
    with_args: list[pl.LazyFrame] = []
    details: dict[str, list[pl.DataFrame]] = {}
    first = 0
    for part in parts:
        rows = spans[first : first + part.spans.height]
        if "args" in part.spans.columns:
            # Encoded when they are read, in portions: as text they are several times as large.
            with_args.append(rows.with_columns(part.spans["args"]).lazy().with_columns(pl.col("args").struct.json_encode()))
        else:
            with_args.append(rows.lazy().with_columns(args=pl.lit(None, pl.String)))
        for name, frame in _details(part, rows["span"]).items():
            details.setdefault(name, []).append(frame)
        first += part.spans.height
    tables |= {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in details.items()}
    return tables | {"spans": pl.concat(with_args)}


def _details(part: Part, spans: pl.Series) -> dict[str, pl.DataFrame]:
    if part.table == "iterations":
        marks = part.spans.select(spans, "kind", model="model_id", iteration="iteration").filter(pl.col("kind") == "step")
        return {"tasks": marks.drop("kind")}
    if part.table == "ranges":
        return {"tasks": part.spans["args"].struct.unnest().select(spans, "model", "stream")}
    return span_details.tables_of(part.spans["args"].struct.unnest().with_columns(spans), part.table) if part.table else {}


def _with_track_columns(spans: pl.DataFrame) -> pl.DataFrame:
    texts = [pl.col(name).cast(schema.Text) if name in spans.columns else pl.lit(None, schema.Text).alias(name) for name in _TRACK_TEXTS]
    numbers = [pl.col(name) if name in spans.columns else pl.lit(None, pl.Int64).alias(name) for name in _TRACK_NUMBERS]
    return spans.drop("args", "model_id", "iteration", strict=False).with_columns(*texts, *numbers)


def _sorted_tracks(frames: list[pl.DataFrame]) -> pl.DataFrame:
    columns = [*_TRACK_TEXTS, *_TRACK_NUMBERS]
    tracks = pl.concat([frame.select(columns).unique(maintain_order=True) for frame in frames], how="vertical_relaxed")
    order = {"thread": 0, "stream": 1, "communication": 1, "annotation": 2}
    return (
        tracks.unique(maintain_order=True)
        .with_columns(pl.col(_TRACK_TEXTS).cast(pl.String))
        .sort(
            pl.col("device").fill_null(-1),
            pl.col("track_kind").replace_strict(order, default=9, return_dtype=pl.Int32),
            pl.col("tid").cast(pl.Int64, strict=False),
            "tid",
            nulls_last=True,
            maintain_order=True,
        )
        .with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32))
    )


def _compact(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans without the columns of tracks and with categorical texts: a quarter of the size."""
    spans = spans.drop(*_TRACK_TEXTS, *_TRACK_NUMBERS)
    return spans.with_columns(
        pl.col(name).cast(dtype)
        for name, dtype in schema.TABLES["spans"].items()
        if name in spans.columns and dtype in (schema.Kind, schema.Text)
    )


def _with_correlations(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with the correlation of the call that launched them. Calls are first: the row of a call is its span."""
    if "flow_in" not in spans.columns or "correlation" not in spans.columns:
        return spans
    return spans.with_columns(correlation=pl.coalesce("correlation", pl.col("correlation").gather(pl.col("flow_in").cast(pl.UInt32))))
