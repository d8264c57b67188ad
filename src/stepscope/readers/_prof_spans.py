"""Raw Ascend data as spans on tracks: calls on the host, and of each device tasks, communication, marks and iterations."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from stepscope import schema
from stepscope.readers import _prof_marks, _prof_steps, _prof_usage
from stepscope.readers._prof_files import Notes, Side, begin
from stepscope.readers._prof_found import AICPU, Found
from stepscope.readers._prof_host import Host
from stepscope.trace import complete

NO_MODEL = 2**32 - 1


_SYNCHRONIZING = r"(?i)synchronize"


def calls(host: Host, steps: pl.DataFrame, info: dict[str, Any]) -> pl.DataFrame:
    """Calls on the host, in their own order: the row of a call is its span."""
    rows = host.calls.with_columns(pl.col("row").cast(pl.Int64), pl.col(pl.String).cast(schema.Text))
    model = host.around.find("model", rows["thread"].to_numpy(), rows["start_ns"].to_numpy())
    rows = rows.with_columns(around=pl.Series(model))
    if steps.height:
        runs = host.calls.filter(pl.col("level") == "model").select(
            around=pl.col("row").cast(pl.Int64), model_id=pl.col("item_number").cast(pl.Int64, strict=False), iteration="request"
        )
        runs = runs.join(
            steps.select("model_id", "iteration", "step").unique(["model_id", "iteration"], keep="first"),
            on=["model_id", "iteration"],
            how="left",
        )
        rows = rows.join(runs.select("around", "step"), on="around", how="left", maintain_order="left")
    name = pl.when(pl.col("level") == "communication").then(pl.coalesce("item", "name")).otherwise("name")
    names = rows["name"].unique().cast(pl.String)
    kind = (
        pl.when(pl.col("name").is_in(names.filter(names.str.contains(_SYNCHRONIZING)).to_list()))
        .then(pl.lit("sync"))
        .when(pl.col("level") == "msproftx")
        .then(pl.lit("annotation"))
        .otherwise(pl.lit("api"))
    )
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        name=name,
        kind=kind.cast(schema.Kind),
        category="level",
        correlation="connection",
        start_ns="start_ns",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        said=pl.struct("level", "request", "event", type="name", id="item", item_id="item_number", Mode=pl.coalesce(_family(), "name")),
        group=pl.lit(process(info), schema.Text),
        lane=pl.format("Thread {}", "thread").cast(schema.Text),
        track_kind=pl.lit("thread", schema.Text),
        pid=pl.lit(str(info.get("pid", "")), schema.Text),
        tid=pl.col("thread").cast(pl.String).cast(schema.Text),
    )


def process(info: dict[str, Any]) -> str:
    return f"{info.get('pid_name') or 'host'} {info.get('pid', '')}".strip()


def system_calls(side: Side, info: dict[str, Any], notes: Notes) -> list[pl.DataFrame]:
    rows = _prof_usage.calls(side, begin(side, notes), notes)
    if rows.is_empty():
        return []
    return [
        rows.select(
            "name",
            "category",
            "start_ns",
            "dur_ns",
            kind=pl.lit("api"),
            group=pl.lit(process(info)),
            lane=pl.format("Thread {} system", "thread"),
            track_kind=pl.lit("thread"),
            pid=pl.lit(str(info.get("pid", ""))),
            tid=pl.format("{} system", "thread"),
        )
    ]


def _family() -> pl.Expr:
    """What kind of call a call of AscendCL is."""
    words = {1: "ACL_OP", 2: "ACL_MODEL", 3: "ACL_RTS", 4: "ACL_OTHERS", 5: "ACL_NN", 6: "ACL_ASCENDC"}
    words |= {7: "HOST_HCCL", 9: "ACL_DVPP", 10: "ACL_GRAPH"}
    number = (pl.col("type") // 65536).cast(pl.Int64, strict=False)
    return pl.when(pl.col("level") == "acl").then(number.replace_strict(words, default=None, return_dtype=schema.Text))


def of_device(one: Found, steps: pl.DataFrame, marks: pl.DataFrame) -> list[pl.DataFrame]:
    lane = {
        "group": pl.lit(f"NPU {one.device.number}", schema.Text),
        "pid": pl.lit(str(one.device.number), schema.Text),
        "device": pl.lit(one.device.number),
    }
    mine = steps.filter(pl.col("device") == one.device.number) if steps.height else steps
    parts = [part.with_columns(**lane) for part in _tasks(one, mine)]
    operators, planes = one.communication
    if operators.height:
        parts.append(in_steps(_collectives(operators), mine).with_columns(**lane))
    if planes.height:
        parts.append(in_steps(_planes(planes, operators), mine).with_columns(**lane))
    ranges = one.steps.ranges
    if ranges.height:
        parts.append(in_steps(_tagged(ranges, operators.height > 0), mine).with_columns(**lane))
    if one.aicpu.height:
        parts.append(in_steps(_alone(one.aicpu), mine).with_columns(**lane))
    marked = _prof_marks.on_device(marks, one.device)
    if marked.height:
        parts.append(in_steps(marked, mine).with_columns(**lane))
    if mine.height:
        track = {"lane": pl.format("Step Trace ({})", "model"), "tid": pl.format("model {}", "model_id")}
        parts.append(_prof_steps.as_spans(mine, "iteration", **track).with_columns(**lane))
    return parts


def in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """With the step in which each started: that of its own model where it is known, as models may run at the same time."""
    if steps.is_empty():
        return rows
    rows = rows.with_row_index("order").sort("start_ns", maintain_order=True)
    windows = steps.select("step", "start_ns", "model_id", until="end_ns").sort("start_ns")
    if "model_id" in rows.columns:
        rows = rows.join_asof(windows, on="start_ns", by="model_id", check_sortedness=False).rename({"step": "own", "until": "own_until"})
    rows = rows.join_asof(windows.drop("model_id"), on="start_ns")
    step: pl.Expr = pl.when(pl.col("start_ns") < pl.col("until")).then("step")
    if "own" in rows.columns:
        step = pl.coalesce(pl.when(pl.col("start_ns") < pl.col("own_until")).then("own"), pl.when(pl.col("own").is_null()).then(step))
    return rows.with_columns(step=step).sort("order").drop("order", "until", "own", "own_until", strict=False)


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
    **{
        name: pl.col(name)
        for name in ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats")
    },
    "attributes": pl.col("attributes"),
}


def _tasks(one: Found, steps: pl.DataFrame) -> list[pl.DataFrame]:
    rows = one.executions.with_columns(pl.col("model_id").cast(pl.Int64, strict=False), dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = _only(rows, pl.col("dur_ns") >= 0)
    if steps.height:
        rows = rows.with_columns(in_steps(rows.select("start_ns", "model_id"), steps)["step"])
    kernels = _only(rows, pl.col("kind") == "kernel")
    others = rows.filter(pl.col("kind") != "kernel")
    told = dict(_TASK_ARGS) | ({"original stream": pl.col("original")} if "original" in rows.columns else {})
    parts = []
    if kernels.height:
        about = told | _KERNEL_ARGS
        if one.pmu.height:
            kernels = kernels.join(one.pmu, on="execution", how="left", maintain_order="left")
            about |= {name: pl.col(name) for name in one.pmu.columns if name != "execution"}
        if kernels["run_ns"].count():
            about |= {name: pl.col(name) for name in AICPU}
        outside = (pl.col("whole_ns") != pl.col("start_ns")) | (pl.col("whole_end_ns") != pl.col("end_ns"))
        if kernels.select(outside.any()).item():
            about |= {
                "task start_ns": pl.when(outside).then("whole_ns"),
                "task dur_ns": pl.when(outside).then(pl.col("whole_end_ns") - pl.col("whole_ns")),
            }
        parts.append(kernels.with_columns(said=_packed(about)))
    if others.height:
        about = told | (_COPY_ARGS if others["bytes"].count() else {})
        about |= {"received_ns": pl.col("received_ns")} if others["received_ns"].count() else {}
        about |= {name: pl.col(name) for name in AICPU} if others["run_ns"].count() else {}
        parts.append(others.with_columns(said=_packed(about)))
    op = pl.coalesce("op", "node_item", "kernel")
    is_kernel = pl.col("kind") == "kernel"
    in_collective = pl.col("category") == "COMMUNICATION"
    name = pl.when(is_kernel & ~in_collective).then(op).when(is_kernel).then(pl.coalesce("part", "kernel", op))
    columns = [column for column in ("step",) if column in rows.columns]
    # What serves the communication of others is shown as what it is, and counts for nothing.
    kind = pl.when("serving").then(pl.lit("other", schema.Kind)).otherwise("kind") if "serving" in rows.columns else pl.col("kind")
    stream = pl.col("logic" if "logic" in rows.columns else "stream")
    return [
        part.select(
            *columns,
            *("category", "start_ns", "dur_ns", "bytes", "shapes", "dtypes", "said"),
            kind=kind,
            name=pl.coalesce(name, "category"),
            scope=pl.when(is_kernel & ~in_collective).then(_scopes(part.select(op).to_series())),
            op_type=pl.when(is_kernel).then(pl.when(in_collective).then(pl.lit(None, schema.Text)).otherwise(pl.coalesce("op_type", op))),
            flow_in=pl.coalesce("runtime", "node", "acl"),
            lane=pl.format("Stream {}", stream).cast(schema.Text),
            track_kind=pl.lit("stream", schema.Text),
            tid=stream.cast(pl.String).cast(schema.Text),
        )
        for part in parts
    ]


def _scopes(operators: pl.Series) -> pl.Series:
    """What stands before an operator's own name, of each distinct one once."""
    distinct = operators.drop_nulls().unique()
    scopes = distinct.cast(pl.String).str.extract(r"^(.*)/[^/]*$").cast(schema.Text)
    return operators.replace_strict(distinct, scopes, default=None, return_dtype=schema.Text)


def _only(rows: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """Not copied where that is all of them: there may be millions, of many columns."""
    wanted = rows.select(where).to_series()
    return rows if wanted.all() else rows.filter(wanted)


def _packed(about: Mapping[str, pl.Expr]) -> pl.Expr:
    """What is said of a span: as JSON text it would be many times as large, so it becomes that when it is asked for."""
    return pl.struct(column.alias(name) for name, column in about.items())


def _alone(aicpu: pl.DataFrame) -> pl.DataFrame:
    """Operators on AI CPUs that said something of themselves, and whose tasks the log has lost."""
    about = {"Physic Stream Id": pl.col("stream"), "Task Id": pl.col("task"), **{name: pl.col(name) for name in AICPU}}
    return aicpu.select(
        "start_ns",
        name=pl.lit("AI CPU"),
        kind=pl.lit("other"),
        category=pl.lit("AI_CPU"),
        dur_ns="run_ns",
        said=_packed(about),
        lane=pl.format("AI CPU of stream {}", "stream"),
        track_kind=pl.lit("annotation"),
        tid=pl.format("aicpu {}", "stream"),
    ).filter(pl.col("dur_ns") >= 0)


def _collectives(operators: pl.DataFrame) -> pl.DataFrame:
    about = {
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
        pl.col("model_id").cast(pl.Int64, strict=False),
        kind=pl.lit("communication"),
        category=pl.lit("COMMUNICATION"),
        flow_in="node",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        said=_packed(about),
        lane=pl.format("Group {} Communication", "group"),
        track_kind=pl.lit("stream"),
        tid=pl.col("group"),
    ).drop("model_id")


def _planes(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    about = {
        "operator": pl.col("of"),
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
    return of_operators(tasks, operators).select(
        "start_ns",
        "dur_ns",
        name=pl.coalesce("task_name", "category"),
        kind=pl.when(pl.col("task_name").str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")),
        category=pl.lit("communication task"),
        bytes=pl.when(pl.col("size") > 0).then("size"),
        flow_in=pl.coalesce("communication", "node"),
        said=_packed(about),
        lane=pl.format("Group {} Plane {}", "group", "plane"),
        track_kind=pl.lit("communication"),
        tid=pl.format("{} plane {}", "group", "plane"),
    )


def of_operators(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """With `of`, the name of the operator that each task is part of."""
    if operators.is_empty():
        return tasks.with_columns(of=pl.lit(None, pl.String))
    return tasks.join(operators.select("node", "nth", of="name"), on=["node", "nth"], how="left", maintain_order="left")


def _tagged(ranges: pl.DataFrame, known: bool) -> pl.DataFrame:
    """Collectives and GetNext as the graph's tags bound them. Where the collectives themselves are recorded, tags only mark them."""
    reduce = pl.col("what") == "reduce"
    return ranges.select(
        "start_ns",
        model_id="model",
        name=pl.when(reduce).then(pl.format("Reduce {}", "number")).otherwise(pl.lit("GetNext")),
        kind=pl.when(~reduce).then(pl.lit("data")).otherwise(pl.lit("annotation" if known else "communication")),
        category=pl.when(reduce).then(pl.lit("Reduce")).otherwise(pl.lit("GetNext Time")),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        lane=pl.when(reduce).then(pl.format("Reduce on stream {}", "stream")).otherwise(pl.lit("GetNext")),
        track_kind=pl.when(reduce & ~pl.lit(known)).then(pl.lit("stream")).otherwise(pl.lit("annotation")),
        tid=pl.when(reduce).then(pl.format("reduce {}", "stream")).otherwise(pl.lit("getnext")),
        said=pl.struct("stream", "model"),
    ).filter(pl.col("dur_ns") >= 0)


def placed(parts: list[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans on tracks, in the order of the parts, and the tracks: the host's threads, then each device's streams, its groups of
    communication, each with its planes, and marks.
    """
    if not parts:
        return pl.DataFrame(), pl.DataFrame()
    key = ["group", "lane", "track_kind", "pid", "tid", "device"]
    texts = pl.col("group", "lane", "track_kind", "pid", "tid")
    parts = [part.drop("said", strict=False).with_columns(texts.cast(schema.Text)) for part in parts]
    parts = [part if "device" in part.columns else part.with_columns(device=pl.lit(None, pl.Int64)) for part in parts]
    lanes = pl.concat([part.select(key).unique(maintain_order=True) for part in parts], how="vertical_relaxed").unique(maintain_order=True)
    lanes = lanes.with_columns(texts.cast(pl.String))
    order = {"thread": 0, "stream": 1, "communication": 1, "annotation": 2}
    lanes = lanes.sort(
        pl.col("device").fill_null(-1),
        pl.col("track_kind").replace_strict(order, default=9, return_dtype=pl.Int32),
        pl.col("tid").cast(pl.Int64, strict=False),
        "tid",
        nulls_last=True,
        maintain_order=True,
    ).with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32))
    label = ["group", "lane", "track_kind"]
    tracked = lanes.select(pl.col(label).cast(schema.Text), "track").unique(label, keep="first", maintain_order=True)
    on_tracks = [_small(part.join(tracked, on=label, how="left", maintain_order="left").drop(*key)) for part in parts]
    spans = _numbered(complete(pl.concat(on_tracks, how="diagonal_relaxed")))
    tracks = lanes.select("track", "group", "device", "pid", "tid", label="lane", kind="track_kind", sort="track")
    return spans, tracks


def _small(spans: pl.DataFrame) -> pl.DataFrame:
    """Texts that repeat as numbers, a quarter of their size."""
    return spans.with_columns(
        pl.col(name).cast(dtype)
        for name, dtype in schema.TABLES["spans"].items()
        if name in spans.columns and dtype in (schema.Kind, schema.Text)
    )


def _numbered(spans: pl.DataFrame) -> pl.DataFrame:
    """With the number of its call for whatever a call launched. Calls come first: the row of a call is its span."""
    if "flow_in" not in spans.columns or "correlation" not in spans.columns:
        return spans
    return spans.with_columns(correlation=pl.coalesce("correlation", pl.col("correlation").gather(pl.col("flow_in").cast(pl.UInt32))))
