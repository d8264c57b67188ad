"""Operators without start times: means over calls, and the calls of each step with their shapes."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from stepscope.readers.ascend.common.tables import column, drop_invalid, number, report_lost
from stepscope.readers.common.documents import as_dict, as_list, to_index, to_int
from stepscope.readers.common.problems import Problem
from stepscope.readers.mindinsight.files import Folder, scope_in_name, type_in_name

_MAX_CALLS = 10**7  # of one operator: higher numbers are damage, and each call becomes a span


class _Table(NamedTuple):
    """A file with one row per operator, and its columns."""

    file: str
    kind: str
    category: str
    device: str  # empty: the host
    ns: float  # nanoseconds per unit of its times
    calls: str
    mean: tuple[str, ...]
    total: tuple[str, ...] = ()
    name: str = ""  # empty: the first column
    full_name: str = ""


_ASCEND_TABLES = (
    _Table("aicore_intermediate_{}_detail.csv", "kernel", "AI_CORE", "NPU", 1e6, "execution_frequency", ("execution_time",)),
    _Table("pynative_op_intermediate_{}_detail.csv", "kernel", "AI_CORE", "NPU", 1e6, "execution_frequency", ("execution_time",)),
)
_GPU_KERNELS = _Table(
    "gpu_activity_data_{}.csv", "kernel", "gpu kernel", "GPU", 1000.0, "occurrences", ("avg_duration(us)", "avg_duration"),
    ("total_duration(us)", "total_duration"), "name", "op_full_name",
)  # fmt: skip
_GPU_OPERATORS = _Table(
    "gpu_op_detail_info_{}.csv", "op", "Device", "", 1000.0, "op_occurrences", ("op_avg_time(us)",), ("op_total_time(us)",), "op_full_name"
)
_HOST_OPERATORS = _Table(
    "cpu_op_detail_info_{}.csv", "op", "HostCpuOps", "", 1e6, "op_occurrences", ("op_avg_time(ms)",), ("op_total_time(ms)",), "full_op_name"
)


def device_means(folder: Folder, operators: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Calls of device operators and kernels. `operators` has types, shapes and FLOPs by full name."""
    for table in _ASCEND_TABLES:
        rows = folder.table(table.file)
        if rows.width:  # older files have no frequency: each operator counts once, as in their sums by type
            yield _call_spans(folder, table, _means(rows, table).join(operators, on="name", how="left", maintain_order="left"))
    for table in (_GPU_KERNELS, _GPU_OPERATORS):
        rows = folder.table(table.file)
        if "op_side" in rows.columns and folder.file(_HOST_OPERATORS.file):
            rows = rows.filter(pl.col("op_side") != "Host")  # the other file has them, too
        yield from _table_spans(folder, table, rows)


def host_means(folder: Folder) -> Iterator[pl.DataFrame]:
    yield from _table_spans(folder, _HOST_OPERATORS, folder.table(_HOST_OPERATORS.file))


def _table_spans(folder: Folder, table: _Table, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    if table.name in rows.columns:
        full_name = rows.select(full=column(rows, table.full_name))
        more = rows.select(op_type=column(rows, "op_type"), args=pl.struct(pl.all()).struct.json_encode())
        if table.full_name:
            more = more.with_columns(full_name.select(op_type=type_in_name("full"), scope=scope_in_name("full")))
        yield _call_spans(folder, table, pl.concat([_means(rows, table), more], how="horizontal"))


def _means(rows: pl.DataFrame, table: _Table) -> pl.DataFrame:
    return rows.select(
        name=pl.col(table.name or rows.columns[0]),
        calls=number(column(rows, table.calls)).fill_null(1),
        mean_ns=number(column(rows, *table.mean), table.ns),
        total_ns=number(column(rows, *table.total), table.ns),
    )


def _call_spans(folder: Folder, table: _Table, rows: pl.DataFrame) -> pl.DataFrame:
    """One span per call; together they add up to the total."""
    file = table.file.partition("_{}")[0]
    total = pl.coalesce("total_ns", pl.col("mean_ns") * pl.col("calls"))
    timed = (pl.col("mean_ns") >= 0) & total.is_between(0, 2**62)
    is_valid = pl.col("name").is_not_null() & timed & pl.col("calls").is_between(1, _MAX_CALLS)
    valid = drop_invalid(rows, is_valid, folder.problems, file, "row", "without a name, a time or a valid number of calls")
    if valid.height:
        text = "only means over calls were recorded: each call is shown with the mean duration and without a start"
        folder.problems.append(Problem(file, text, 0))
    calls = valid.with_columns(calls=pl.col("calls").cast(pl.Int64), total=total.round().cast(pl.Int64))
    calls = calls.with_columns(nth=pl.int_ranges(0, "calls")).explode("nth")
    # A remainder of nanoseconds goes to the first calls, so that the sum is that of the file.
    duration = pl.col("total") // pl.col("calls") + (pl.col("nth") < pl.col("total") % pl.col("calls")).cast(pl.Int64)
    scope = pl.coalesce("scope", scope_in_name("name")) if "scope" in calls.columns else scope_in_name("name")
    passed = [name for name in ("shapes", "dtypes", "flops", "args") if name in calls.columns]
    return calls.select(
        "name",
        *passed,
        kind=pl.lit(table.kind),
        start_ns=pl.lit(None, pl.Int64),
        dur_ns=duration,
        op_type=pl.coalesce("op_type", type_in_name("name")),
        scope=scope,
        category=pl.lit(table.category),
        **folder.track("other", "means of calls, without start times", file, table.device),
    )


def dynamic_shapes(folder: Folder) -> Iterator[pl.DataFrame]:
    """Operators and kernels of each step with their shapes. Microseconds, no starts."""
    document = folder.object("dynamic_shape_info_{}.json")
    columns: dict[str, Any] = {"name": pl.String, "op_type": pl.String, "dur_ns": pl.Int64, "step": pl.Int32}
    columns |= {"shapes": pl.String, "args": pl.String}
    for key, on_device in (("operator", False), ("kernel", True)):
        rows, invalid = [], 0
        for step, calls in as_dict(document.get(key)).items():
            for call in map(as_dict, as_list(calls)):
                try:
                    rows.append(_dynamic_call(call, step, on_device))
                except (KeyError, TypeError, ValueError):
                    invalid += 1
        report_lost(folder.problems, "dynamic_shape_info", invalid, "call", "without a name or a duration")
        if rows:
            yield pl.DataFrame(rows, columns, orient="row").with_columns(
                kind=pl.lit("kernel" if on_device else "op"),
                scope=scope_in_name("name"),
                start_ns=pl.lit(None, pl.Int64),
                category=pl.lit("dynamic shape"),
                **folder.track("other", f"{key}s of each step, without start times", f"dynamic {key}", "GPU" if on_device else ""),
            )


def _dynamic_call(call: dict[str, Any], step: str, on_device: bool) -> tuple[Any, ...]:
    shapes = "[" + ",".join(str(shape) for shape in call.get("shape_info") or []) + "]"
    name = str(call.get("op_full_name") or call.get("op_name") or call.get("kernel_name") or call["op_type"])
    name = str(call.get("kernel_name") or call.get("name") or name) if on_device else name
    duration, op_type = to_int(call.get("dur", call.get("duration")), 1000), call.get("op_type")
    return name, str(op_type) if op_type else None, duration, to_index(call.get("step", step)), shapes, json.dumps(call)
