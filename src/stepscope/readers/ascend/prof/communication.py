"""Communication operators, their tasks on planes, and the transfers between ranks."""

import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.readers.ascend.prof.device.records import code_names
from stepscope.readers.ascend.prof.host.records import Host

_DTYPES = {
    0: "INT8",
    1: "INT16",
    2: "INT32",
    3: "FP16",
    4: "FP32",
    5: "INT64",
    6: "UINT64",
    7: "UINT8",
    8: "UINT16",
    9: "UINT32",
    10: "FP64",
    11: "BFP16",
    12: "INT128",
    14: "HIF8",
    15: "FP8E4M3",
    16: "FP8E5M2",
    17: "FP8E8M0",
}
_LINKS = {0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE", 7: "UB", 8: "UBoE"}
_TRANSPORTS = {0: "SDMA", 1: "RDMA", 2: "LOCAL", 3: "UB", 4: "ROCE"}
_RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD"}
_ODD = {255: "RESERVED", 2**32 - 1: "INVALID_TYPE"}


class Communication(NamedTuple):
    operators: pl.DataFrame  # node, nth, name, op_type, group, start_ns, end_ns, ...
    tasks: pl.DataFrame  # tasks on planes: group, plane, name, start_ns, end_ns, ...


def read(executions: pl.DataFrame, host: Host | None) -> Communication:
    ran = _with_strings(executions.filter(pl.col("communication").is_not_null()))
    if host is None or ran.is_empty():
        return Communication(pl.DataFrame(), pl.DataFrame())
    calls = host.calls.select(pl.col("row").cast(pl.Int64), "name", "connection", "item").pipe(_with_strings)
    ran = ran.join(calls.select(communication="row", role="name"), on="communication", how="left", maintain_order="left")
    details, groups = _details(host), _groups(host)
    tasks = ran.join(details, on=["communication", "context"], how="inner", maintain_order="left", suffix="_of_details")
    ran = ran.join(groups, on="node", how="left", maintain_order="left", suffix="_of_group")
    if tasks.height:  # tasks contain the group of operators without one
        task_groups = tasks.select("execution", "group", "group_number", "ranks").unique("execution", keep="first")
        ran = ran.join(task_groups, on="execution", how="left", maintain_order="left", suffix="_of_task")
        ran = ran.with_columns(
            group=pl.coalesce("group", "group_of_task"), group_number=pl.coalesce("group_number", "group_number_of_task")
        )
    else:
        ran = ran.with_columns(ranks=pl.lit(None, pl.Int64))
    return Communication(_operators(ran, calls), _planes(tasks))


def _with_strings(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _details(host: Host) -> pl.DataFrame:
    """hccl_info: ranks, link, transport and size of each task of a collective."""
    raw = host.streams["additional.hccl_info"]
    call = host.around.find("communication", raw["thread"].astype(np.int64), host.clock.ns(raw["at"]))
    rows = pl.DataFrame(
        {
            "communication": call,
            "context": raw["context"].astype(np.int64),
            "task_name": host.words.names_of(raw["item"]).cast(pl.String),
            "group": host.words.names_of(raw["group"]).cast(pl.String),
            "group_number": raw["group"],
            "src": raw["local"].astype(np.int64),
            "dst": raw["remote"].astype(np.int64),
            "ranks": raw["ranks"].astype(np.int64),
            "plane": raw["plane"].astype(np.int64),
            "notify": raw["notify"].astype(np.uint64),
            "estimated": raw["estimated"].astype(np.float64),
            "size": raw["bytes"].astype(np.int64),
            "data_type": code_names(raw["dtype"], _DTYPES | _ODD),
            "link": code_names(raw["link"], _LINKS | _ODD),
            "transport": code_names(raw["transport"], _TRANSPORTS | _ODD),
            "rdma": code_names(raw["rdma"], _RDMA | _ODD),
        }
    )
    return rows.filter(pl.col("communication") >= 0).unique(["communication", "context"], keep="first", maintain_order=True)


def _groups(host: Host) -> pl.DataFrame:
    """hccl_op_info: group, algorithm, elements of each operator."""
    raw = host.streams["compact.hccl_op_info"]
    node = host.around.find("node", raw["thread"].astype(np.int64), host.clock.ns(raw["at"]))
    rows = pl.DataFrame(
        {
            "node": node,
            "group": host.words.names_of(raw["group"]).cast(pl.String),
            "group_number": raw["group"],
            "op_data_type": code_names(raw["dtype"], _DTYPES | _ODD),
            "algorithm": host.words.names_of(raw["algorithm"]).cast(pl.String),
            "count": raw["count"].astype(np.int64),
            "relay": raw["flags"] & 1 == 1,
            "retry": raw["flags"] & 2 == 2,
        }
    )
    return rows.filter(pl.col("node") >= 0).unique("node", keep="first", maintain_order=True)


def _operators(ran: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """An operator lasts from the first start to the last end of its master tasks: tasks of other streams may run longer."""
    master = (pl.col("role") == "master") | ~(pl.col("role") == "master").any().over("device", "node", "nth")
    rows = (
        ran.filter(pl.col("node").is_not_null())
        .filter(master)
        .group_by("device", "node", "nth", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("runtime").first(),
            pl.col("model_id").first(),
            pl.col("op_type").first(),
            pl.col("group", "group_number", "op_data_type", "algorithm", "count", "relay", "retry", "ranks").drop_nulls().first(),
            op=pl.coalesce("op", "node_item").first(),
        )
        .sort("start_ns", maintain_order=True)
        .join(calls.select("connection", node="row"), on="node", how="left", maintain_order="left")
    )
    suffix = (pl.col("group_number") % 1000).cast(pl.String).str.zfill(3).fill_null("000")
    place = pl.int_range(pl.len()).over("device", "group_number")
    return rows.with_columns(
        group=pl.col("group").fill_null("unknown"),
        op_type=pl.coalesce("op_type", "op"),
        name=pl.format("{}_{}_{}_{}", pl.col("op").fill_null("communication"), suffix, place, "nth"),
    )


def _planes(tasks: pl.DataFrame) -> pl.DataFrame:
    """Tasks with the duration of each transfer: an RDMA payload is in transit until the tasks that close it, longer than its own task."""
    if tasks.is_empty():
        return tasks
    tasks = tasks.sort("start_ns", maintain_order=True).with_columns(
        group=pl.col("group").fill_null("unknown"), dur_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    lasted = tasks["dur_ns"].to_numpy().astype(np.float64)
    payload = tasks.with_row_index("at").filter((pl.col("rdma") == _RDMA[1]).any().over("device", "node", "nth", "plane"))
    for _, part in payload.group_by("device", "node", "nth", "plane", maintain_order=True):
        _close(part, lasted)
    tasks = tasks.with_columns(pl.Series("transfer_ns", lasted))
    rate = pl.when(pl.col("transfer_ns") > 0).then(pl.col("size") / pl.col("transfer_ns")).otherwise(0.0)
    return tasks.with_columns(bandwidth=rate, transfer_ns=pl.col("transfer_ns").round().cast(pl.Int64))


def _close(part: pl.DataFrame, lasted: "np.ndarray[Any, Any]") -> None:
    """Set the duration of consecutive payloads: the time from the first start to the end of the closing task, shared by size."""
    point_to_point = bool(re.search("send|receive", str(part["op_type"][0] or part["node_item"][0]).lower()))
    closing = _WITHOUT_BARRIER if point_to_point else _WITH_BARRIER
    rows = part.select("at", "size", "start_ns", "end_ns", sends=pl.col("rdma") == _RDMA[1]).rows()
    first = 0
    while first < len(rows):
        last = first
        while last < len(rows) and rows[last][4]:
            last += 1
        end = last + closing - 2  # counted from the first task after the payloads
        if last > first and end < len(rows):
            total = sum(row[1] for row in rows[first:last])
            for at, size, _, _, _ in rows[first:last]:
                lasted[at] = (rows[end][3] - rows[first][2]) * size / total if total else 0.0
            first = end + 1
        else:
            first = max(last, first + 1)


# Number of tasks after the payloads that close a transfer.
_WITHOUT_BARRIER, _WITH_BARRIER = 3, 5
