"""What ran, in databases of Ascend's tools: as spans on tracks."""

from typing import Any

import polars as pl

from stepscope import schema, units
from stepscope.readers import _ascend_database_communication
from stepscope.readers._ascend_database_communication import unless_na
from stepscope.readers._ascend_kinds import KERNEL_CORES, SERVING, TASK_KINDS
from stepscope.readers._ascend_pmu_names import in_text, microseconds
from stepscope.readers._ascend_sqlite import Database
from stepscope.readers._ascend_texts import json_list
from stepscope.readers._kineto import Problem


def spans(database: Database) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What ran, and the tracks it ran on."""
    found = [_framework(database), _cann(database), _tasks(database)]
    communication, groups = _ascend_database_communication.spans(database)
    marks = _marks(database)
    others, own_lanes = _others(database)
    spans = pl.concat([*found, communication, marks, others], how="diagonal_relaxed")  # with all columns, though a part may have no rows
    if spans.is_empty():
        return pl.DataFrame(), pl.DataFrame()
    place = ["layer", "pid", "lane", "device"]
    lanes = spans.select(place).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
    spans = spans.join(lanes, on=place, how="left", nulls_equal=True, maintain_order="left").drop(place)
    whole = spans.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0))
    if lost := spans.height - whole.height:
        database.problems.append(Problem("", f"{units.count(lost, 'row')} without a start, or that end before they start", lost))
    return whole.with_columns(pl.col("module").cast(pl.Categorical)), _tracks(lanes, own_lanes, groups)


def _framework(database: Database) -> pl.DataFrame:
    rows = database.table(
        "PYTORCH_API", startNs=pl.Int64, endNs=pl.Int64, globalTid=pl.Int64, connectionId=pl.Int64, name=pl.Int64,
        inputDtypes=pl.Int64, inputShapes=pl.Int64, type=pl.Int64, callchainId=pl.Int64,
    )  # fmt: skip
    rows = database.words(rows, "name", "inputDtypes", "inputShapes")
    types = database.named("ENUM_API_TYPE")
    category = {"op": "cpu_op", "queue": "queue", "trace": "python_function", "mstx": "user_annotation"}
    word = pl.col("type").replace_strict(
        types or {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"}, default="op", return_dtype=pl.String
    )
    name = pl.col("name").cast(pl.String)
    # Some versions write each of the two in the other's column: only types have letters.
    letters = pl.col("inputShapes", "inputDtypes").cast(pl.String).str.contains("[a-zA-Z]").any()
    shapes, dtypes = ("inputDtypes", "inputShapes") if rows.select(letters).row(0) == (True, False) else ("inputShapes", "inputDtypes")
    rows = rows.with_columns(category=word.replace(category), dtypes=_json(dtypes), shapes=_json(shapes))
    # The shape of a scalar is empty text, which is not written.
    rows = rows.with_columns(shapes=pl.when(pl.col("dtypes").is_not_null()).then(pl.col("shapes").fill_null("[[]]")).otherwise("shapes"))
    kind = (
        pl.when(name.str.contains(r"^ProfilerStep#\d+"))
        .then(pl.lit("step"))
        .when(name.str.starts_with("enumerate(DataLoader)#"))
        .then(pl.lit("data"))
        .when(name.str.starts_with("Optimizer."))
        .then(pl.lit("annotation"))
        .when(pl.col("category") == "queue")
        .then(pl.lit("api"))
        .when(name.str.starts_with("nn.Module: "))
        .then(pl.lit("scope"))
        .otherwise(
            pl.col("category").replace_strict(
                {"cpu_op": "op", "python_function": "python", "user_annotation": "annotation"}, default="other"
            )
        )
    )
    said = _number(name, "Dequeue") | _number(name, "Enqueue")
    return rows.select(
        layer=pl.lit("host"),
        pid=_pid(),
        lane=_tid(),
        device=pl.lit(None, pl.Int32),
        kind=kind.cast(schema.Kind),
        name=pl.coalesce("name", pl.lit("?", pl.Categorical)),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.when(said).then(name.str.extract("^(Dequeue|Enqueue)").str.to_lowercase()).otherwise("category").cast(pl.Categorical),
        shapes=pl.col("shapes").cast(pl.Categorical),
        dtypes=pl.col("dtypes").cast(pl.Categorical),
        module=pl.lit(None, pl.String),
        connections="connectionId",
    )


def _cann(database: Database) -> pl.DataFrame:
    rows = database.words(
        database.table(
            "CANN_API",
            startNs=pl.Int64,
            endNs=pl.Int64,
            type=pl.Int64,
            globalTid=pl.Int64,
            connectionId=pl.Int64,
            name=pl.Int64,
            step=pl.Int32,
        ),
        "name",
    ).with_row_index("call")
    rows = database.with_steps(rows, "STEPSCOPE_CALLS", "call")
    level = pl.col("type").replace_strict(database.named("ENUM_API_TYPE"), default=None, return_dtype=pl.String)
    level = level.replace({"hccl": "communication"})  # as earlier versions called it
    name = pl.col("name").cast(pl.String).fill_null("?")
    return rows.select(
        layer=pl.lit("cann"),
        pid=_pid(),
        lane=_tid(),
        device=pl.lit(None, pl.Int32),
        kind=pl.when(name.str.contains("(?i)synchronize")).then(pl.lit("sync")).otherwise(pl.lit("api")).cast(schema.Kind),
        name=name.cast(pl.Categorical),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=level.cast(pl.Categorical),
        correlation="connectionId",
        step="step",
        module=pl.lit(None, pl.String),
    )


def _tasks(database: Database) -> pl.DataFrame:
    tasks = database.table(
        "TASK", startNs=pl.Int64, endNs=pl.Int64, deviceId=pl.Int32, connectionId=pl.Int64, globalTaskId=pl.Int64, taskType=pl.Int64,
        streamId=pl.Int64, taskId=pl.Int64, contextId=pl.Int64, modelId=pl.Int64, step=pl.Int32,
    )  # fmt: skip
    text = ("inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes", "outputFormats")
    kernels = database.words(
        database.table("COMPUTE_TASK_INFO", globalTaskId=pl.Int64, name=pl.Int64, taskType=pl.Int64, opType=pl.Int64, blockDim=pl.Int64,
                   mixBlockDim=pl.Int64, blockNum=pl.Int64, mixBlockNum=pl.Int64, **dict.fromkeys(text, pl.Int64)),
        "name", "taskType", "opType", *text,
    ).rename({"taskType": "core"}).unique("globalTaskId", keep="first")  # fmt: skip
    # Newer versions say Num, and mean something else by Dim.
    kernels = kernels.with_columns(blockDim=pl.coalesce("blockNum", "blockDim"), mixBlockDim=pl.coalesce("mixBlockNum", "mixBlockDim"))
    copies = database.table("MEMCPY_INFO", globalTaskId=pl.Int64, size=pl.Int64).drop_nulls().unique("globalTaskId", keep="first")
    tasks = database.with_steps(tasks, "STEPSCOPE_TASKS", "globalTaskId")
    tasks = _without_wholes(database.words(tasks, "taskType"), kernels).join(kernels, on="globalTaskId", how="left", maintain_order="left")
    tasks = tasks.join(_joined(_counters(database)), on="globalTaskId", how="left", maintain_order="left")
    tasks = tasks.join(copies, on="globalTaskId", how="left", maintain_order="left")
    type_ = pl.col("taskType").cast(pl.String).fill_null("?")
    task = pl.lit("other")
    for pattern, kind in reversed(TASK_KINDS):
        if kind != "kernel":  # a kernel is what COMPUTE_TASK_INFO describes
            task = pl.when(type_.str.contains(pattern)).then(pl.lit(kind)).otherwise(task)
    # A transfer's own copies are part of the transfer; its waits are waits.
    carried = database.table("COMMUNICATION_TASK_INFO", globalTaskId=pl.Int64)["globalTaskId"].unique()
    of_transfer = pl.col("globalTaskId").is_in(carried.implode()) & task.is_in(["copy", "set"])
    task = pl.when(of_transfer).then(pl.lit("other")).otherwise(task)
    told = pl.col("core").is_not_null() | pl.col("name").is_not_null()
    own = {
        "blockDim": "Block Dim",
        "mixBlockDim": "Mix Block Dim",
        "streamId": "Stream ID",
        "taskId": "Task ID",
        "modelId": "Model ID",
        "contextId": "Context ID",
    }
    arguments = [pl.col(key).alias(word) for key, word in own.items()]
    arguments += [pl.col(key).cast(pl.String) for key in text[1:]]
    args = pl.struct(arguments).struct.json_encode()
    measured = pl.col("measured")
    name = pl.col("name").cast(pl.String)
    return tasks.select(
        layer=pl.lit("stream"),
        pid=pl.lit(None, pl.Int64),
        lane=pl.col("streamId"),
        device=pl.col("deviceId"),
        kind=pl.when(told & ~name.str.contains(SERVING).fill_null(False))
        .then(pl.lit("kernel"))
        .when(told)
        .then(pl.lit("other"))
        .otherwise(task)
        .cast(schema.Kind),
        name=pl.coalesce(name, type_).cast(pl.Categorical),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.coalesce(unless_na(pl.col("core").cast(pl.String)), pl.when(told).then(type_.replace(KERNEL_CORES)), type_).cast(
            pl.Categorical
        ),
        correlation="connectionId",
        op_type=unless_na(pl.col("opType").cast(pl.String)),
        shapes=_json("inputShapes").cast(pl.Categorical),
        dtypes=_json("inputDataTypes").cast(pl.Categorical),
        module=pl.when(told & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$")),
        args=pl.when(measured.is_null())
        .then(args)
        .otherwise(pl.concat_str(args.str.strip_suffix("}"), pl.lit(","), measured, pl.lit("}"))),
        task="globalTaskId",
        bytes="size",
        step="step",
    )


_NO_CONTEXT = 2**32 - 1


def _without_wholes(tasks: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """A kernel on both kinds of core (MIX) is there twice: as a task, and as a part of it, which is the kernel. Only that one ran."""
    place = ["deviceId", "streamId", "taskId"]
    rows = tasks.with_row_index("row")
    parts = rows.filter(pl.col("contextId") < _NO_CONTEXT, pl.col("globalTaskId").is_in(kernels["globalTaskId"].implode()))
    if parts.is_empty():
        return tasks
    whole = rows.filter(pl.col("contextId") == _NO_CONTEXT, ~pl.col("globalTaskId").is_in(kernels["globalTaskId"].implode()))
    around = parts.select(*place, "startNs", part_end="endNs").sort("startNs").join_asof(
        whole.select(*place, "startNs", "endNs", "row").sort("startNs"), on="startNs", by=place, check_sortedness=False
    )  # fmt: skip
    again = around.filter(pl.col("part_end") <= pl.col("endNs"))["row"].unique()
    return rows.filter(~pl.col("row").is_in(again.implode())).drop("row")


def _marks(database: Database) -> pl.DataFrame:
    rows = database.words(
        database.table(
            "MSTX_EVENTS",
            startNs=pl.Int64,
            endNs=pl.Int64,
            eventType=pl.Int64,
            message=pl.Int64,
            globalTid=pl.Int64,
            connectionId=pl.Int64,
        ),
        "message",
    )
    return rows.select(
        layer=pl.lit("mark"),
        pid=_pid(),
        lane=_tid(),
        device=pl.lit(None, pl.Int32),
        kind=pl.when(pl.col("endNs") > pl.col("startNs")).then(pl.lit("annotation")).otherwise(pl.lit("instant")).cast(schema.Kind),
        name=pl.coalesce("message", pl.lit("?", pl.Categorical)),
        start_ns="startNs",
        dur_ns=pl.max_horizontal(pl.col("endNs") - pl.col("startNs"), 0),
        category=pl.lit("mstx", pl.Categorical),
        correlation="connectionId",
        module=pl.lit(None, pl.String),
    )


def _others(database: Database) -> tuple[pl.DataFrame, dict[int, dict[str, Any]]]:
    """Spans that the exporter could not put into Ascend's tables, on tracks of their own."""
    lane = {"label": pl.String, "group": pl.String, "device": pl.Int32, "pid": pl.String, "tid": pl.String, "track_kind": pl.String}
    names = (
        *("start_ns", "dur_ns", "name", "step", "op_type", "correlation"),
        *("shapes", "dtypes", "flops", "bytes", "category", "args"),
    )
    rows = database.table("STEPSCOPE_SPANS", kind=pl.String, **{name: schema.TABLES["spans"][name] for name in names}, **lane)
    lanes = rows.select(list(lane)).unique(maintain_order=True).with_row_index("lane").with_columns(pl.col("lane").cast(pl.Int64))
    own = {row["lane"]: row for row in lanes.iter_rows(named=True)}
    kind = pl.when(pl.col("kind").is_in(schema.KINDS)).then("kind").otherwise(pl.lit("other")).cast(schema.Kind)
    placed = rows.join(lanes, on=list(lane), how="left", nulls_equal=True, maintain_order="left").select(
        *names,
        kind=kind,
        layer=pl.lit("own"),
        pid=pl.lit(None, pl.Int64),
        lane="lane",
        device="device",
        module=pl.lit(None, pl.String),
    )
    return placed, own


def _pid() -> pl.Expr:
    return pl.col("globalTid").fill_null(0) // 2**32


def _tid() -> pl.Expr:
    return pl.col("globalTid").fill_null(0) % 2**32


def _number(name: pl.Expr, word: str) -> pl.Expr:
    return name.str.starts_with(word)


def _json(column: str) -> pl.Expr:
    """`2,3;4` as JSON, once for each distinct text."""

    def listed(values: pl.Series) -> pl.Series:
        distinct = values.unique().drop_nulls()
        words = [None if one == "N/A" else json_list(one) for one in distinct]
        return values.replace_strict(distinct, pl.Series(words, dtype=pl.String), default=None, return_dtype=pl.String)

    return pl.col(column).cast(pl.String).map_batches(listed, return_dtype=pl.String)


def _counters(database: Database) -> pl.DataFrame:
    """globalTaskId, name and value, as op_summary names and counts them."""
    found = database.words(database.table("TASK_PMU_INFO", globalTaskId=pl.Int64, name=pl.Int64, value=pl.Float64), "name")
    found = found.with_columns(pl.col("name").cast(pl.String))
    names = {name: in_text(name) for name in found["name"].drop_nulls().unique()}
    # Databases of earlier releases of ours have the names of op_summary.
    value = pl.when(~pl.col("name").str.ends_with(")")).then(microseconds(pl.col("name"), pl.col("value"))).otherwise("value")
    found = found.with_columns(name=pl.col("name").replace(names), value=value)
    return pl.concat(
        [found, database.table("STEPSCOPE_PMU", globalTaskId=pl.Int64, name=pl.String, value=pl.Float64).select(found.columns)]
    )


def _joined(counters: pl.DataFrame) -> pl.DataFrame:
    """The counters of each task as the inside of a JSON object."""
    one = pl.format('"{}":{}', pl.col("name").cast(pl.String).fill_null("?"), pl.col("value").cast(pl.String).fill_null("null"))
    finite = counters.filter(pl.col("value").is_finite())
    return finite.with_columns(measured=one).group_by("globalTaskId").agg(pl.col("measured").str.join(","))


_ORDER = {"host": 0, "mark": 1, "cann": 2, "stream": 3, "group": 4, "plane": 5, "own": 6}


def _tracks(lanes: pl.DataFrame, own: dict[int, dict[str, Any]], groups: list[str]) -> pl.DataFrame:
    rows = []
    for track, layer, pid, lane, device in lanes.select("track", "layer", "pid", "lane", "device").iter_rows():
        if layer == "own":
            said = own[lane]
            kind = said["track_kind"] if said["track_kind"] in schema.TRACK_KINDS else "other"
            rows.append((track, said["group"], said["label"], kind, device, (_ORDER[layer], lane), said["pid"], said["tid"]))
            continue
        number = lane or 0
        label = {
            "host": f"Thread {lane}", "cann": f"Thread {lane} CANN", "mark": f"Thread {lane} marks", "stream": f"Stream {lane}",
            "group": f"Group {lane} Communication", "plane": f"Plane {(lane or 0) % 1000}",
        }[layer]  # fmt: skip
        if groups and layer in ("group", "plane"):
            name = groups[(lane or 0) // (1000 if layer == "plane" else 1)]
            label = f"Group {name} {label.split(' ', 2)[-1] if layer == 'group' else label}"
        kind = {"stream": "stream", "group": "stream", "plane": "communication", "mark": "annotation"}.get(layer, "thread")
        group = f"Python {pid}" if layer in ("host", "cann", "mark") else f"NPU {device or 0}"
        place = pid if layer in ("host", "mark") else {"cann": "CANN", "stream": "Ascend Hardware"}.get(layer, "Communication")
        thread = groups[number] if groups and layer == "group" else lane
        rows.append((track, group, label, kind, device, (_ORDER[layer], number), str(place), str(thread)))
    rows.sort(key=lambda row: row[5])
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    types = {name: schema.TABLES["tracks"][name] for name in columns}
    return pl.DataFrame([(*row[:5], place, *row[6:]) for place, row in enumerate(rows)], schema=types, orient="row")
