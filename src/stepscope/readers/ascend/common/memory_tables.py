"""Memory tables of Ascend's tools: memory_record.csv, operator_memory.csv, npu_module_mem.csv."""

from pathlib import Path

import polars as pl

from stepscope.model.columns.counters import COLUMNS, device_columns, of_device
from stepscope.readers.ascend.common.tables import column, drop_invalid, nanoseconds, number, read_table
from stepscope.readers.common.documents import files
from stepscope.readers.common.problems import Problem

_BLOCKS = {
    "device": pl.String,
    "owner": pl.String,
    "number": pl.Int64,
    "bytes": pl.Int64,
    "alloc_ns": pl.Int64,
    "free_ns": pl.Int64,
    "op": pl.String,
}


def memory_counters(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Memory that the framework and Ascend's modules have allocated and reserved on the device."""
    parts = [pl.DataFrame(schema=COLUMNS)]
    for rows in _tables(folder, "memory_record*.csv", problems):
        parts.append(
            record_counters(
                rows.select(
                    component=column(rows, "Component").fill_null(""),
                    at_ns=_timestamp(rows),
                    allocated=_size(rows, "Total Allocated"),
                    reserved=_size(rows, "Total Reserved"),
                    active=_size(rows, "Total Active"),
                    npu=_npu(column(rows, "Device Type", "Device")),
                )
            )
        )
    for rows in _tables(folder, "npu_module_mem*.csv", problems):
        series = pl.format("{} reserved", column(rows, "Component").fill_null("?"))
        counter = of_device(series, "npu", _npu(column(rows, "Device", "Device Type")))
        parts.append(rows.select(**counter, at_ns=_timestamp(rows), value=_size(rows, "Total Reserved"), unit=pl.lit("bytes")))
    return pl.concat(parts, how="diagonal").filter(pl.col("at_ns").is_not_null() & pl.col("value").is_not_null())


def record_counters(rows: pl.DataFrame) -> pl.DataFrame:
    """Counters of memory records (component, at_ns, npu, and bytes: allocated, reserved, active).

    `allocated npu 0` is the total of the framework: the sum of its allocator (PTA, MindSpore) and the graph engine's (GE) where the source
    has that sum.
    """
    components = set(rows["component"])
    preferred = [*(word for word in components if "+" in word), *(word for word in ("PTA", "MindSpore", "MS", "GE") if word in components)]
    total = next(iter([*preferred, *sorted(components - {"APP"})]), None)
    parts = []
    for measure in ("allocated", "reserved", "active"):
        series = (
            pl.when(pl.col("component") == "APP")
            .then(pl.lit("process memory"))
            .when(pl.lit(measure != "active") & (pl.col("component") == pl.lit(total)))
            .then(pl.lit(measure))
            .otherwise(pl.format("{} {}", "component", pl.lit(measure)))
        )
        samples = rows.filter(pl.col(measure).is_not_null())
        counter = of_device(series, "npu", pl.col("npu"))
        parts.append(samples.select(**counter, at_ns="at_ns", value=pl.col(measure), unit=pl.lit("bytes")))
    return pl.concat(parts).sort("at_ns", maintain_order=True)


def allocations(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Blocks with the operator that allocated them."""
    parts = [pl.DataFrame(schema=_BLOCKS)]
    for rows in _tables(folder, "operator_memory*.csv", problems):
        parts.append(
            rows.select(
                **device_columns("npu", _npu(column(rows, "Device Type", "Device"))),
                bytes=_size(rows, "Size").abs().round().cast(pl.Int64),
                alloc_ns=nanoseconds(column(rows, "Allocation Time(us)")),
                free_ns=nanoseconds(column(rows, "Release Time(us)")),
                op=column(rows, "Name").str.strip_prefix("cann::"),
            )
        )
    blocks = pl.concat(parts)
    is_valid = pl.any_horizontal(pl.col("alloc_ns", "free_ns").is_not_null()) & pl.col("bytes").is_not_null()
    return drop_invalid(blocks, is_valid, problems, "operator_memory", "block", "without a size or a time")


def _tables(folder: Path, pattern: str, problems: list[Problem]) -> list[pl.DataFrame]:
    return [rows for file in files(folder, pattern) if (rows := read_table(file, problems)).width]


def _timestamp(rows: pl.DataFrame) -> pl.Expr:
    return nanoseconds(column(rows, "Timestamp(us)", "Timestamp"))


def _size(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Bytes, from a column in MB or KB."""
    return number(column(rows, f"{name}(KB)", f"{name}(MB)"), 1024.0 if f"{name}(KB)" in rows.columns else float(1 << 20))


def _npu(device: pl.Expr) -> pl.Expr:
    """The number in `NPU:0`; 0 for none."""
    return device.str.extract(r"([0-9]{1,18})\s*$").cast(pl.Int64).fill_null(0)
