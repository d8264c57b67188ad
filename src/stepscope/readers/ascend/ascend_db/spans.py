"""Spans and tracks of Ascend's databases."""

from typing import Any

import polars as pl

from stepscope.model import schema
from stepscope.readers.ascend.ascend_db.communication import communication_spans, unless_na
from stepscope.readers.ascend.ascend_db.sqlite import Database
from stepscope.readers.ascend.common.communication_tables import merged_args
from stepscope.readers.ascend.common.kinds import KERNEL_CORES, SERVING, cann_call_kind, first_match, host_call_kind, task_kind
from stepscope.readers.ascend.common.pmu_names import microseconds, text_name
from stepscope.readers.ascend.common.tables import drop_invalid
from stepscope.readers.ascend.common.texts import json_lists
from stepscope.readers.ascend.common.tracks import number_tracks
from stepscope.readers.common.name_parts import add_track_columns
from stepscope.readers.common.problems import Problem

_ORDER = {"host": 0, "mark": 1, "cann": 2, "stream": 3, "group": 4, "plane": 5, "exporter": 6}
_PLACE = ["layer", "pid", "thread", "device"]
_API_TYPES = {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"}
_CATEGORIES = {"op": "cpu_op", "queue": "queue", "trace": "python_function", "mstx": "user_annotation"}
_CATEGORY_KINDS = {"cpu_op": "op", "python_function": "python", "user_annotation": "annotation"}
_KERNEL_TEXTS = ("inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes", "outputFormats")
_TASK_ARGS = {
    "blockDim": "Block Dim",
    "mixBlockDim": "Mix Block Dim",
    "streamId": "Stream ID",
    "taskId": "Task ID",
    "modelId": "Model ID",
    "contextId": "Context ID",
}
_NO_CONTEXT = 2**32 - 1


def load_spans(database: Database) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All spans, and their tracks."""
    communication, groups = communication_spans(database)
    exporter_spans, exporter_tracks = _exporter_spans(database)
    parts = [_framework_calls(database), _cann_calls(database), _tasks(database), communication, _marks(database), exporter_spans]
    spans = pl.concat(parts, how="diagonal_relaxed")
    if spans.is_empty():
        return pl.DataFrame(), pl.DataFrame()
    spans, places = number_tracks(spans, _PLACE)
    is_valid = pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0)
    valid = drop_invalid(spans, is_valid, database.problems, "", "row", "without a start, or with an end before the start")
    return valid.with_columns(pl.col("module").cast(pl.Categorical)), _tracks(places, exporter_tracks, groups)


def _call_columns() -> dict[str, Any]:
    """Columns of all calls on a host thread."""
    global_tid = pl.col("globalTid").fill_null(0)
    return {
        "pid": global_tid // 2**32,
        "thread": global_tid % 2**32,
        "device": pl.lit(None, pl.Int32),
        "start_ns": pl.col("startNs"),
        "dur_ns": pl.col("endNs") - pl.col("startNs"),
    }


def _framework_calls(database: Database) -> pl.DataFrame:
    rows = database.select("PYTORCH_API", "startNs endNs globalTid connectionId type", texts="name inputDtypes inputShapes")
    types = database.enum("ENUM_API_TYPE") or _API_TYPES
    category = pl.col("type").replace_strict(types, default="op", return_dtype=pl.String).replace(_CATEGORIES)
    # Some versions swap the two columns: only types have letters.
    letters = pl.col("inputShapes", "inputDtypes").cast(pl.String).str.contains("[a-zA-Z]").any()
    shapes, dtypes = ("inputDtypes", "inputShapes") if rows.select(letters).row(0) == (True, False) else ("inputShapes", "inputDtypes")
    rows = rows.with_columns(category=category, dtypes=_lists(dtypes), shapes=_lists(shapes))
    # The shape of a scalar is an empty text, which is not written.
    rows = rows.with_columns(shapes=pl.when(pl.col("dtypes").is_not_null()).then(pl.col("shapes").fill_null("[[]]")).otherwise("shapes"))
    name = pl.col("name").cast(pl.String)
    kind = first_match(
        (pl.col("category") == "queue", "api"),
        (name.str.starts_with("nn.Module: "), "scope"),
        default=pl.col("category").replace_strict(_CATEGORY_KINDS, default="other"),
    )
    queue = name.str.extract("^(Dequeue|Enqueue)").str.to_lowercase()
    return rows.select(
        layer=pl.lit("host"),
        kind=host_call_kind(name, kind).cast(schema.Kind),
        name=pl.coalesce("name", pl.lit("?", pl.Categorical)),
        category=pl.coalesce(queue, "category").cast(pl.Categorical),
        shapes=pl.col("shapes").cast(pl.Categorical),
        dtypes=pl.col("dtypes").cast(pl.Categorical),
        connections="connectionId",
        **_call_columns(),
    )


def _cann_calls(database: Database) -> pl.DataFrame:
    rows = database.select("CANN_API", "startNs endNs type globalTid connectionId", texts="name", step=pl.Int32).with_row_index("call")
    rows = database.add_steps(rows, "STEPSCOPE_CALLS", "call")
    level = database.enum_text("type", "ENUM_API_TYPE").replace({"hccl": "communication"})  # the word of earlier versions
    name = pl.col("name").cast(pl.String).fill_null("?")
    return rows.select(
        layer=pl.lit("cann"),
        kind=cann_call_kind(name).cast(schema.Kind),
        name=name.cast(pl.Categorical),
        category=level.cast(pl.Categorical),
        correlation="connectionId",
        step="step",
        **_call_columns(),
    )


def _marks(database: Database) -> pl.DataFrame:
    rows = database.select("MSTX_EVENTS", "startNs endNs globalTid connectionId", texts="message")
    is_range = pl.col("endNs") > pl.col("startNs")
    columns = _call_columns()
    return rows.select(
        layer=pl.lit("mark"),
        kind=first_match((is_range, "annotation"), default="instant").cast(schema.Kind),
        name=pl.coalesce("message", pl.lit("?", pl.Categorical)),
        category=pl.lit("mstx", pl.Categorical),
        correlation="connectionId",
        **columns | {"dur_ns": pl.max_horizontal(columns["dur_ns"], 0)},
    )


def _tasks(database: Database) -> pl.DataFrame:
    """Tasks on streams. Tasks that COMPUTE_TASK_INFO describes are kernels; without it, their types tell."""
    tasks = database.select(
        "TASK", "startNs endNs connectionId globalTaskId streamId taskId contextId modelId", texts="taskType", deviceId=pl.Int32,
        step=pl.Int32,
    )  # fmt: skip
    tasks = database.add_steps(tasks, "STEPSCOPE_TASKS", "globalTaskId")
    kernels = _kernels(database)
    copies = database.select("MEMCPY_INFO", "globalTaskId size").drop_nulls().unique("globalTaskId", keep="first")
    tasks = _drop_wholes(tasks, kernels)
    for columns in (kernels, _counter_args(database), copies):
        tasks = tasks.join(columns, on="globalTaskId", how="left", maintain_order="left")
    task_type, name = pl.col("taskType").cast(pl.String).fill_null("?"), pl.col("name").cast(pl.String)
    kind = task_kind(task_type).replace({"kernel": "other"})
    # Copies of a transfer are part of it; its waits are waits.
    transfers = database.select("COMMUNICATION_TASK_INFO", "globalTaskId")["globalTaskId"].unique()
    is_transfer = pl.col("globalTaskId").is_in(transfers.implode())
    is_kernel = pl.col("core").is_not_null() | pl.col("name").is_not_null()
    if kernels.is_empty():  # only the types of tasks show which are kernels
        # A task that carries out a whole transfer is linked to the same call.
        carries = pl.col("connectionId").is_in(database.select("COMMUNICATION_OP", "connectionId")["connectionId"].implode())
        is_kernel = (task_kind(task_type) == "kernel") & ~is_transfer & ~carries.fill_null(False)
        if tasks.select(is_kernel.any()).item():
            database.problems.append(Problem("COMPUTE_TASK_INFO", "no rows: kernels have the names of their task types", 0))
    kind = first_match(
        (is_kernel & name.str.contains(SERVING), "other"),
        (is_kernel, "kernel"),
        (is_transfer & kind.is_in(["copy", "set"]), "other"),
        default=kind,
    )
    core = pl.coalesce(unless_na(pl.col("core").cast(pl.String)), pl.when(is_kernel).then(task_type.replace(KERNEL_CORES)), task_type)
    args = [*(pl.col(column).alias(key) for column, key in _TASK_ARGS.items()), *(pl.col(key).cast(pl.String) for key in _KERNEL_TEXTS[1:])]
    return tasks.select(
        layer=pl.lit("stream"),
        thread="streamId",
        device="deviceId",
        kind=kind.cast(schema.Kind),
        name=pl.coalesce(name, task_type).cast(pl.Categorical),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=core.cast(pl.Categorical),
        correlation="connectionId",
        op_type=unless_na(pl.col("opType").cast(pl.String)),
        shapes=_lists("inputShapes").cast(pl.Categorical),
        dtypes=_lists("inputDataTypes").cast(pl.Categorical),
        module=pl.when(is_kernel & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$")),
        args=merged_args(pl.struct(args).struct.json_encode(), pl.col("counters"), ","),
        task="globalTaskId",
        bytes="size",
        step="step",
    )


def _kernels(database: Database) -> pl.DataFrame:
    texts = f"name taskType opType {' '.join(_KERNEL_TEXTS)}"
    rows = database.select("COMPUTE_TASK_INFO", "globalTaskId blockDim mixBlockDim blockNum mixBlockNum", texts=texts)
    rows = rows.rename({"taskType": "core"})
    # Newer versions write Num, and mean something else by Dim.
    rows = rows.with_columns(blockDim=pl.coalesce("blockNum", "blockDim"), mixBlockDim=pl.coalesce("mixBlockNum", "mixBlockDim"))
    return rows.unique("globalTaskId", keep="first")


def _drop_wholes(tasks: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """The tasks without those whose part is the kernel: a kernel on both kinds of core (MIX) is recorded as a task and as its part."""
    place = ["deviceId", "streamId", "taskId"]
    rows = tasks.with_row_index("row")
    is_kernel = pl.col("globalTaskId").is_in(kernels["globalTaskId"].implode())
    parts = rows.filter(pl.col("contextId") < _NO_CONTEXT, is_kernel)
    if parts.is_empty():
        return tasks
    wholes = rows.filter(pl.col("contextId") == _NO_CONTEXT, ~is_kernel)
    pairs = parts.select(*place, "startNs", part_end="endNs").sort("startNs").join_asof(
        wholes.select(*place, "startNs", "endNs", "row").sort("startNs"), on="startNs", by=place, check_sortedness=False
    )  # fmt: skip
    repeated = pairs.filter(pl.col("part_end") <= pl.col("endNs"))["row"].unique()
    return rows.filter(~pl.col("row").is_in(repeated.implode())).drop("row")


def _exporter_spans(database: Database) -> tuple[pl.DataFrame, dict[int, dict[str, Any]]]:
    """Spans that our exporter could not put into Ascend's tables, and their tracks by number."""
    place = {"label": pl.String, "group": pl.String, "device": pl.Int32, "pid": pl.String, "tid": pl.String, "track_kind": pl.String}
    names = (
        *("start_ns", "dur_ns", "name", "step", "op_type", "correlation"),
        *("shapes", "dtypes", "flops", "bytes", "category", "args"),
    )
    rows = database.table("STEPSCOPE_SPANS", kind=pl.String, **{name: schema.TABLES["spans"][name] for name in names}, **place)
    tracks = rows.select(list(place)).unique(maintain_order=True).with_row_index("thread").with_columns(pl.col("thread").cast(pl.Int64))
    kind = pl.when(pl.col("kind").is_in(schema.KINDS)).then("kind").otherwise(pl.lit("other")).cast(schema.Kind)
    spans = rows.join(tracks, on=list(place), how="left", nulls_equal=True, maintain_order="left")
    return spans.select(*names, "thread", "device", kind=kind, layer=pl.lit("exporter")), {
        row["thread"]: row for row in tracks.iter_rows(named=True)
    }


def _lists(column: str) -> pl.Expr:
    return json_lists(pl.col(column).cast(pl.String).replace("N/A", None))


def _counter_args(database: Database) -> pl.DataFrame:
    """globalTaskId, counters: the core counters of each task as a JSON object, named and scaled as in op_summary."""
    rows = database.select("TASK_PMU_INFO", "globalTaskId", texts="name", value=pl.Float64).with_columns(pl.col("name").cast(pl.String))
    names = {name: text_name(name) for name in rows["name"].drop_nulls().unique()}
    # Databases of our earlier releases have the names of op_summary.
    value = pl.when(~pl.col("name").str.ends_with(")")).then(microseconds(pl.col("name"), pl.col("value"))).otherwise("value")
    rows = rows.with_columns(name=pl.col("name").replace(names), value=value)
    exported = database.table("STEPSCOPE_PMU", globalTaskId=pl.Int64, name=pl.String, value=pl.Float64)
    finite = pl.concat([rows, exported.select(rows.columns)]).filter(pl.col("value").is_finite())
    entry = pl.format('"{}":{}', pl.col("name").fill_null("?"), pl.col("value").cast(pl.String).fill_null("null"))
    return finite.group_by("globalTaskId").agg(counters=pl.concat_str(pl.lit("{"), entry.str.join(","), pl.lit("}")))


def _tracks(places: pl.DataFrame, exporter_tracks: dict[int, dict[str, Any]], groups: list[str]) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for track, layer, pid, thread, device in places.select("track", *_PLACE).iter_rows():
        number = thread or 0
        if layer == "exporter":
            row = exporter_tracks[thread]
            kind = row["track_kind"] if row["track_kind"] in schema.TRACK_KINDS else "other"
            rows.append(
                (track, row["group"], row["label"], kind, device, (_ORDER[layer], number), row["pid"], row["tid"], None, None, None)
            )
            continue
        stream = number if layer == "stream" and device is not None else None
        group = groups[number] if groups and layer == "group" else str(thread) if layer == "group" else None
        group = groups[number // 1000] if groups and layer == "plane" else group
        plane = number % 1000 if layer == "plane" else None
        label = {
            "host": f"Thread {thread}", "cann": f"Thread {thread} CANN", "mark": f"Thread {thread} marks", "stream": f"Stream {thread}",
            "group": f"Group {group} Communication", "plane": f"Plane {plane}" if group is None else f"Group {group} Plane {plane}",
        }[layer]  # fmt: skip
        kind = {"stream": "stream", "group": "stream", "plane": "communication", "mark": "annotation"}.get(layer, "thread")
        owner = f"Python {pid}" if layer in ("host", "cann", "mark") else f"NPU {device or 0}"
        process = pid if layer in ("host", "mark") else {"cann": "CANN", "stream": "Ascend Hardware"}.get(layer, "Communication")
        tid = group if layer == "group" else thread
        rows.append((track, owner, label, kind, device, (_ORDER[layer], number), str(process), str(tid), stream, group, plane))
    rows.sort(key=lambda row: row[5])
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid", "stream", "communication_group", "plane")
    types = {name: schema.TABLES["tracks"][name] for name in columns}
    frame = pl.DataFrame([(*row[:5], sort, *row[6:]) for sort, row in enumerate(rows)], schema=types, orient="row")
    if not exporter_tracks:
        return frame
    is_exporters = frame["track"].is_in(places.filter(pl.col("layer") == "exporter")["track"].to_list())
    return pl.concat([frame.filter(~is_exporters), add_track_columns(frame.filter(is_exporters).lazy()).collect()]).sort("sort")
