"""Executions on the device, joined with the launches on the host that caused them."""

from typing import Any

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.model.intervals import Ints
from stepscope.readers.ascend.common.kinds import KERNEL_CORES
from stepscope.readers.ascend.prof.device.records import NO_CONTEXT, Device
from stepscope.readers.ascend.prof.host.records import Host

_KEY = ["stream", "task", "batch"]
_NO_KERNELS = ["WRITE_BACK", "INVALID", "COMMUNICATION"]
_COPIES = ["MEMCPY_ASYNC", "MEMCPY", "PCIE_DMA_SQE", "SDMA", "SDMA_SQE"]


def join_launches(device: Device, host: Host | None) -> pl.DataFrame:
    """One row per execution, sorted by start: time, device, stream, `kind`, `category`, and the columns of the host's tasks.

    `nth` numbers the executions of one host task: a graph is loaded once and runs many times.
    """
    rows = _parts(device.tasks).with_columns(device=pl.lit(device.number, pl.Int64)).with_row_index("execution")
    rows = rows.hstack(_launches(rows, host, device.number))
    if not rows["start_ns"].is_sorted():
        rows = rows.sort("start_ns", maintain_order=True)
    rows = rows.with_columns(pl.Series("nth", _nth(rows)))
    if device.blocks.height:
        rows = _real_blocks(rows, device.blocks)
    return _with_kinds(rows)


def _nth(rows: pl.DataFrame) -> Ints:
    """Number of each execution among those of its task."""
    keys = [rows[name].to_numpy() for name in (*_KEY, "context")]
    order = np.lexsort(keys)  # stable: rows are by start
    new = np.ones(len(order), np.bool_)
    if len(order) > 1:
        new[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    place = np.arange(len(order))
    nth = np.empty(len(order), np.int64)
    nth[order] = place - place[new][np.cumsum(new) - 1] + 1
    return nth


def _parts(tasks: pl.DataFrame) -> pl.DataFrame:
    """Tasks, or the parts of tasks that have parts. `whole_ns` and `whole_end_ns` are the bounds of the whole task.

    The first part of a kernel on both kinds of core (MIX) is the kernel.
    """
    whole = tasks.filter(pl.col("context") == NO_CONTEXT).with_columns(whole_ns="start_ns", whole_end_ns="end_ns", whole_type="type")
    parts = tasks.filter(pl.col("context") != NO_CONTEXT)
    if parts.is_empty():
        return whole
    whole = whole.with_row_index("of")
    parts = (
        parts.sort("start_ns", maintain_order=True)
        .join_asof(
            whole.select(*_KEY, "of", "start_ns", "whole_ns", "whole_end_ns", "whole_type").sort("start_ns"),
            on="start_ns",
            by=_KEY,
            check_sortedness=False,
        )
        .with_columns(
            of=pl.when(pl.col("start_ns") <= pl.col("whole_end_ns")).then("of"),
            mix=pl.col("type").is_in(["MIX_AIC", "MIX_AIV"]),
        )
    )
    first = pl.col("context") == pl.col("context").min().over("of")
    parts = parts.filter(pl.col("of").is_null() | ~pl.col("mix") | first)
    whole = whole.join(parts.select("of").unique(), on="of", how="anti", maintain_order="left")
    return pl.concat([whole.drop("of"), parts.select(whole.drop("of").columns)]).sort("start_ns", maintain_order=True)


def _launches(rows: pl.DataFrame, host: Host | None, device: int) -> pl.DataFrame:
    """The launch of each execution: the last one before it with the same stream, task and batch, else the first one after it."""
    keys = rows.select("execution", *_KEY, "start_ns").sort("start_ns")
    if host is None:
        return pl.DataFrame(schema=_HOST_COLUMNS).clear(rows.height)
    tasks = host.tasks.drop("device", *_KEY).rename({"type": "host_type"})
    known = host.tasks.select("device", *_KEY, start_ns="at_ns").with_row_index("row").filter(pl.col("device") == device)
    known = known.drop("device").sort("start_ns", maintain_order=True)
    row = keys.join_asof(known, on="start_ns", by=_KEY, check_sortedness=False)
    unknown = row.filter(pl.col("row").is_null()).select(keys.columns)
    if unknown.height:  # the clocks are not aligned exactly
        after = unknown.join_asof(known, on="start_ns", by=_KEY, strategy="forward", check_sortedness=False)
        row = pl.concat([row.filter(pl.col("row").is_not_null()), after])
    return _gather_rows(tasks, row.sort("execution")["row"])


def _gather_rows(rows: pl.DataFrame, at: pl.Series) -> pl.DataFrame:
    """The rows at these indices, null for a null index. Texts become categorical, because they repeat."""
    rows = rows.with_columns(pl.col(pl.String).cast(schema.Text))
    return rows.select(pl.all().gather(at)) if rows.height else rows.clear(at.len())


_HOST_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("host_type", "kernel", "node_item", "part", "op", "op_type", "core", "attributes", "shapes", "dtypes"), schema.Text),
    **dict.fromkeys(
        ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"), schema.Text
    ),
    **dict.fromkeys(("at_ns", "thread", "node", "model", "communication", "acl", "runtime", "request", "blocks", "mix_blocks"), pl.Int64),
    **dict.fromkeys(("bytes", "direction", "connection"), pl.Int64),
    **dict.fromkeys(("hf32", "static", "static_op"), pl.Boolean),
    "model_id": pl.UInt64,
}


def _real_blocks(rows: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of blocks that the scheduler reports after the execution: the device may decide it."""
    reports = (
        blocks.sort("start_ns")
        .with_columns(reported_ns="start_ns")
        .join_asof(
            rows.select("execution", "stream", "task", "start_ns").sort("start_ns"),
            on="start_ns",
            by=["stream", "task"],
            check_sortedness=False,
        )
        .filter(pl.col("execution").is_not_null())
        .unique("execution", keep="first", maintain_order=True)
        .select("execution", real="blocks")
    )
    return (
        rows.join(reports, on="execution", how="left", maintain_order="left")
        .with_columns(blocks=pl.coalesce("real", "blocks"))
        .drop("real")
    )


def _with_kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """Executions with `kind` and `category`. Only the computation of an operator is a kernel; tasks of the scheduler are not."""
    kernel_task = pl.col("host_type").replace_strict(KERNEL_CORES, default=None, return_dtype=pl.String)
    # The runtime also uses AI CPUs: its tasks have no operator and no name.
    nameless = pl.all_horizontal(pl.col("op", "node_item", "kernel").is_null())
    kernel_task = pl.when(~((kernel_task == "AI_CPU") & nameless)).then(kernel_task)
    in_collective = pl.col("communication").is_not_null()
    core = pl.when(in_collective & kernel_task.is_not_null()).then(pl.lit("COMMUNICATION")).otherwise(
        pl.coalesce("core", pl.when(~in_collective).then(kernel_task))
    )  # fmt: skip
    part = pl.col("context") != NO_CONTEXT
    collective_part = pl.col("core") == "COMMUNICATION"
    kernel = pl.coalesce(
        pl.when(in_collective).then(kernel_task.is_not_null()),
        (pl.col("core").is_not_null() & ~pl.col("core").is_in(_NO_KERNELS)) | kernel_task.is_not_null(),
    )
    category = (
        pl.when(kernel)
        .then(core)
        .when(part)
        .then(pl.col("type"))
        .otherwise(pl.coalesce(pl.when(collective_part | pl.col("core").is_null()).then("host_type"), "core", "host_type", "type"))
    )
    rows = rows.with_columns(kernel_=kernel.fill_null(False), category=category)
    word = pl.col("category").str.to_uppercase().str.replace_all(" ", "_", literal=True)
    kind = (
        pl.when("kernel_")
        .then(pl.lit("kernel"))
        .when(word.str.contains("WAIT"))
        .then(pl.lit("sync"))
        .when(~in_collective & word.is_in(_COPIES))
        .then(pl.lit("copy"))
        .otherwise(pl.lit("other"))
    )
    return rows.with_columns(pl.col("category").cast(schema.Text), kind=kind.cast(schema.Kind)).drop("kernel_")
