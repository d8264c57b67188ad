"""Communication in databases of Ascend's tools: operators, their tasks on planes, and the transfers between ranks."""

import polars as pl

from stepscope import schema
from stepscope.readers._ascend_sqlite import Database


def spans(database: Database) -> tuple[pl.DataFrame, list[str]]:
    """Operators and their tasks on planes, and the names of the groups where they are known by them."""
    operators = database.words(
        database.table("COMMUNICATION_OP", opName=pl.Int64, startNs=pl.Int64, endNs=pl.Int64, connectionId=pl.Int64, groupName=pl.Int64,
                   opId=pl.Int64, dataType=pl.Int64, algType=pl.Int64, count=pl.Int64, opType=pl.Int64, deviceId=pl.Int32,
                   step=pl.Int32),
        "opName", "groupName", "algType", "opType",
    )  # fmt: skip
    operators = database.with_steps(operators, "STEPSCOPE_OPERATORS", "opId")
    devices = database.table("TASK", deviceId=pl.Int32)["deviceId"].drop_nulls().unique()
    device = int(devices[0]) if len(devices) == 1 else 0
    groups = {name: number for number, name in enumerate(operators["groupName"].cast(pl.String).unique(maintain_order=True))}
    named = [name or "" for name in groups] if "STEPSCOPE_META" in database.names else []  # others number them
    group = pl.col("groupName").cast(pl.String).replace_strict(groups, default=0, return_dtype=pl.Int64)
    data_type = pl.col("dataType").replace_strict(database.named("ENUM_HCCL_DATA_TYPE"), default=None, return_dtype=pl.String)
    args = pl.struct(
        data_type.alias("data_type"), pl.col("algType").cast(pl.String).alias("alg_type"), pl.col("count"),
        pl.col("groupName").cast(pl.String).alias("Process Group Name"),
    ).struct.json_encode()  # fmt: skip
    whole = operators.select(
        layer=pl.lit("group"),
        pid=pl.lit(None, pl.Int64),
        lane=group,
        device=pl.col("deviceId").fill_null(device),
        kind=pl.lit("communication").cast(schema.Kind),
        name="opName",
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.lit("COMMUNICATION", pl.Categorical),
        correlation="connectionId",
        op_type=unless_na(pl.col("opType").cast(pl.String)),
        module=pl.lit(None, pl.String),
        args=args,
        step="step",
    )
    # At level 0 the planes are not known; the tasks stand on their streams then.
    tasks = _planes(database).filter((pl.col("planeId") < 2**32 - 1).fill_null(True))
    name = pl.col("taskType").cast(pl.String).fill_null("?")
    planes = tasks.select(
        layer=pl.lit("plane"),
        pid=pl.lit(None, pl.Int64),
        lane=pl.col("planeId").fill_null(0)
        + 1000 * pl.col("groupName").cast(pl.String).replace_strict(groups, default=0, return_dtype=pl.Int64),
        device=pl.col("deviceId").fill_null(device),
        kind=pl.when(name.str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")).cast(schema.Kind),
        name=name.cast(pl.Categorical),
        start_ns="startNs",
        dur_ns=pl.col("endNs") - pl.col("startNs"),
        category=pl.lit("communication task", pl.Categorical) if named else pl.col("taskType"),
        bytes=pl.when(pl.col("size") > 0).then("size"),
        step="step",
        module=pl.lit(None, pl.String),
        args=_told_of_plane(database, tasks),
    )
    return pl.concat([whole, planes], how="diagonal_relaxed"), named


def _told_of_plane(database: Database, tasks: pl.DataFrame) -> pl.Series:
    """In the words of the raw data, which know most of it."""
    operators = database.words(database.table("COMMUNICATION_OP", opName=pl.Int64, opId=pl.Int64), "opName").unique("opId", keep="first")
    rdma = pl.col("rdmaType").replace_strict(database.named("ENUM_HCCL_RDMA_TYPE"), default=None, return_dtype=pl.String)
    told = {
        "operator": pl.col("opName").cast(pl.String),
        "master": pl.col("isMaster") == 1,
        "notify_id": pl.col("notifyId").cast(pl.String),
        "stream id": pl.col("streamId"),
        "task id": pl.col("taskId"),
        "context id": pl.col("contextId"),
        "task type": pl.col("taskType").cast(pl.String),
        "src rank": pl.col("srcRank"),
        "dst rank": pl.col("dstRank"),
        "transport type": pl.col("transport"),
        "size(Byte)": pl.col("size"),
        "link type": pl.col("link"),
        "bandwidth(GB/s)": pl.col("bandwidth") / 1e9,
        "rdma type": rdma,
        "model id": pl.col("modelId"),
    }
    rows = tasks.join(operators, on="opId", how="left", maintain_order="left")
    return rows.select(pl.struct(words.alias(name) for name, words in told.items()).struct.json_encode()).to_series()


def _planes(database: Database) -> pl.DataFrame:
    """The tasks that carry out communication, with their times."""
    tasks = database.words(
        database.table("COMMUNICATION_TASK_INFO", name=pl.Int64, globalTaskId=pl.Int64, taskType=pl.Int64, planeId=pl.Int64,
                   groupName=pl.Int64,
                   notifyId=pl.Int64, srcRank=pl.Int64, dstRank=pl.Int64, transportType=pl.Int64, size=pl.Int64, linkType=pl.Int64,
                   opId=pl.Int64, rdmaType=pl.Int64, isMaster=pl.Int64, bandwidth=pl.Float64),
        "name", "taskType", "groupName",
    )  # fmt: skip
    times = database.table(
        "TASK", globalTaskId=pl.Int64, startNs=pl.Int64, endNs=pl.Int64, deviceId=pl.Int32, step=pl.Int32, streamId=pl.Int64,
        taskId=pl.Int64, contextId=pl.Int64, modelId=pl.Int64,
    )  # fmt: skip
    times = database.with_steps(times, "STEPSCOPE_TASKS", "globalTaskId")
    return tasks.join(times, on="globalTaskId", how="inner", maintain_order="left").with_columns(
        transport=pl.col("transportType").replace_strict(database.named("ENUM_HCCL_TRANSPORT_TYPE"), default=None, return_dtype=pl.String),
        link=pl.col("linkType").replace_strict(database.named("ENUM_HCCL_LINK_TYPE"), default=None, return_dtype=pl.String),
    )


def links(database: Database, spans: pl.DataFrame) -> pl.DataFrame:
    tasks = _planes(database)
    operators = database.words(database.table("COMMUNICATION_OP", opName=pl.Int64, opId=pl.Int64), "opName").unique("opId", keep="first")
    known = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED"]).not_()
    of_step = spans.filter(pl.col("kind") == "communication").select("step", opName=pl.col("name").cast(pl.String)).unique("opName")
    # A payload is on its way for longer than the task that sends it; newer versions say how fast it was.
    taken = pl.when(pl.col("bandwidth") > 0).then((pl.col("size") / pl.col("bandwidth") * 1e9).round().cast(pl.Int64, strict=False))
    moved = tasks.filter((pl.col("size") > 0) & (pl.col("dstRank") < 2**31) & (pl.col("srcRank") < 2**31))
    return (
        moved.join(operators, on="opId", how="left")
        .with_columns(pl.col("opName").cast(pl.String))
        .join(of_step, on="opName", how="left")
        .select(
            "step",
            op="opName",
            src="srcRank",
            dst="dstRank",
            transport=pl.when(pl.col("transport") == "RDMA")
            .then("transport")
            .otherwise(pl.coalesce(pl.when(known).then("link"), "transport")),
            bytes="size",
            dur_ns=pl.coalesce(taken, pl.col("endNs") - pl.col("startNs")),
        )
    )


def unless_na(text: pl.Expr) -> pl.Expr:
    return pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text)
