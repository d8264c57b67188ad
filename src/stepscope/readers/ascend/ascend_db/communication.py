"""Communication in Ascend's databases: operators, their tasks on planes, and the transfers between ranks."""

import polars as pl

from stepscope.model import schema
from stepscope.readers.ascend.ascend_db.sqlite import Database
from stepscope.readers.ascend.common.kinds import transfer_task_kind
from stepscope.readers.ascend.common.texts import json_object

_NO_PLANE = 2**32 - 1


def communication_spans(database: Database) -> tuple[pl.DataFrame, list[str]]:
    """Operators and their tasks on planes; and the names of the groups, if tracks are named after them."""
    operators = database.select(
        "COMMUNICATION_OP", "startNs endNs connectionId opId dataType count", texts="opName groupName algType opType",
        deviceId=pl.Int32, step=pl.Int32,
    )  # fmt: skip
    operators = database.add_steps(operators, "STEPSCOPE_OPERATORS", "opId")
    devices = database.table("TASK", deviceId=pl.Int32)["deviceId"].drop_nulls().unique()
    device = pl.col("deviceId").fill_null(int(devices[0]) if len(devices) == 1 else 0)
    group_name = pl.col("groupName").cast(pl.String)
    numbers = {name: number for number, name in enumerate(operators["groupName"].cast(pl.String).unique(maintain_order=True))}
    group = group_name.replace_strict(numbers, default=0, return_dtype=pl.Int64)
    # Only databases of our own exporter have tracks named after groups; Ascend's tools number them.
    names = [name or "" for name in numbers] if "STEPSCOPE_META" in database.names else []
    args: dict[str, pl.Expr | str] = {
        "data_type": database.enum_text("dataType", "ENUM_HCCL_DATA_TYPE"),
        "alg_type": pl.col("algType").cast(pl.String),
        "count": "count",
        "Process Group Name": group_name,
    }
    whole = operators.select(
        layer=pl.lit("group"),
        thread=group,
        device=device,
        kind=pl.lit("communication").cast(schema.Kind),
        name="opName",
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.lit("COMMUNICATION", pl.Categorical),
        correlation="connectionId",
        op_type=unless_na(pl.col("opType").cast(pl.String)),
        args=json_object(args),
        step="step",
    )
    # Recordings of level 0 do not have planes; their tasks are on streams.
    tasks = _plane_tasks(database).filter((pl.col("planeId") < _NO_PLANE).fill_null(True))
    task_type = pl.col("taskType").cast(pl.String).fill_null("?")
    planes = tasks.select(
        layer=pl.lit("plane"),
        thread=pl.col("planeId").fill_null(0) + 1000 * group,
        device=device,
        kind=transfer_task_kind(task_type).cast(schema.Kind),
        name=task_type.cast(pl.Categorical),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.lit("communication task", pl.Categorical) if names else pl.col("taskType"),
        bytes=pl.when(pl.col("size") > 0).then("size"),
        step="step",
        args=_plane_args(database),
    )
    return pl.concat([whole, planes], how="diagonal_relaxed"), names


def _plane_args(database: Database) -> pl.Expr:
    """Args with the keys of raw data, which has the most of them."""
    return json_object(
        {
            "operator": "opName",
            "master": pl.col("isMaster") == 1,
            "notify_id": pl.col("notifyId").cast(pl.String),
            "stream id": "streamId",
            "task id": "taskId",
            "context id": "contextId",
            "task type": pl.col("taskType").cast(pl.String),
            "src rank": "srcRank",
            "dst rank": "dstRank",
            "transport type": "transport",
            "size(Byte)": "size",
            "link type": "link",
            "bandwidth(GB/s)": pl.col("bandwidth") / 1e9,
            "rdma type": database.enum_text("rdmaType", "ENUM_HCCL_RDMA_TYPE"),
            "model id": "modelId",
        }
    )


def _plane_tasks(database: Database) -> pl.DataFrame:
    """The tasks that carry out communication, with their times and their operator."""
    tasks = database.select(
        "COMMUNICATION_TASK_INFO", "globalTaskId planeId notifyId srcRank dstRank transportType size linkType opId rdmaType isMaster",
        texts="taskType groupName", bandwidth=pl.Float64,
    )  # fmt: skip
    times = database.select(
        "TASK", "globalTaskId startNs endNs streamId taskId contextId modelId", deviceId=pl.Int32, step=pl.Int32
    )  # fmt: skip
    times = database.add_steps(times, "STEPSCOPE_TASKS", "globalTaskId")
    operators = database.select("COMMUNICATION_OP", "opId", texts="opName").unique("opId", keep="first")
    tasks = tasks.join(times, on="globalTaskId", how="inner", maintain_order="left")
    return tasks.join(operators, on="opId", how="left", maintain_order="left").with_columns(
        pl.col("opName").cast(pl.String),
        transport=database.enum_text("transportType", "ENUM_HCCL_TRANSPORT_TYPE"),
        link=database.enum_text("linkType", "ENUM_HCCL_LINK_TYPE"),
    )


def links(database: Database, spans: pl.DataFrame) -> pl.DataFrame:
    """The table `links`: the tasks on planes that move bytes."""
    valid = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED"]).not_()
    steps = spans.filter(pl.col("kind") == "communication").select(pl.col("name").cast(pl.String).alias("opName"), op_step="step")
    # A payload is on its way for longer than the task that sends it; newer versions have the bandwidth.
    transit = pl.when(pl.col("bandwidth") > 0).then((pl.col("size") / pl.col("bandwidth") * 1e9).round().cast(pl.Int64, strict=False))
    moves_bytes = (pl.col("size") > 0) & (pl.col("dstRank") < 2**31) & (pl.col("srcRank") < 2**31)
    link = pl.coalesce(pl.when(valid).then("link"), "transport")
    return (
        _plane_tasks(database)
        .filter(moves_bytes)
        .join(steps.unique("opName"), on="opName", how="left")
        .select(
            step=pl.coalesce("step", "op_step"),
            op="opName",
            src="srcRank",
            dst="dstRank",
            transport=pl.when(pl.col("transport") == "RDMA").then("transport").otherwise(link),
            bytes="size",
            dur_ns=pl.coalesce(transit, pl.col("endNs") - pl.col("startNs")),
        )
    )


def unless_na(text: pl.Expr) -> pl.Expr:
    return pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text)
