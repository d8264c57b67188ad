"""Counters in Ascend's databases: memory, clocks and bandwidths."""

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from stepscope.model.columns.counters import COLUMNS, of_device
from stepscope.readers.ascend.ascend_db.sqlite import Database
from stepscope.readers.ascend.common.memory_tables import record_counters

_ACC_LEVELS = {
    "readBwLevel": "read_bandwidth",
    "writeBwLevel": "write_band_width",
    "readOstLevel": "read_ost",
    "writeOstLevel": "write_ost",
}
_SOC_LEVELS = {"l2BufferBwLevel": "L2 Buffer Bw Level", "mataBwLevel": "Mata Bw Level"}
_OTHERS = {"DDR": "DDR", "HCCS": "HCCS", "PCIE": "PCIe", "NIC": "NIC", "ROCE": "RoCE"}


def counters(database: Database) -> Iterator[pl.DataFrame]:
    """Frames with the columns of counters."""
    yield pl.DataFrame(schema=COLUMNS)
    yield from _memory(database)
    frequency = database.select("AICORE_FREQ", _SAMPLED, freq=pl.Float64)
    yield _samples(frequency.with_columns(pl.col("freq") * 1e6), pl.lit("aicore clock"), "freq", "Hz")
    hbm = database.select("HBM", f"{_SAMPLED} hbmId", texts="type", bandwidth=pl.Float64)
    yield _samples(hbm, pl.format("HBM {} {}", "hbmId", _title("type")), "bandwidth", "bytes/s")
    llc = database.select("LLC", f"{_SAMPLED} llcId", texts="mode", hitRate=pl.Float64, throughput=pl.Float64)
    yield _samples(llc, pl.format("LLC {} {} Hit Rate", "llcId", _title("mode")), "hitRate", "percent")
    yield _samples(llc, pl.format("LLC {} {} Throughput", "llcId", _title("mode")), "throughput", "bytes/s")
    rows = database.select("ACC_PMU", f"{_SAMPLED} accId", **_floats(_ACC_LEVELS))
    for column, name in _ACC_LEVELS.items():
        yield _samples(rows, pl.format("{} acc {}", pl.lit(name), "accId"), column, None)
    rows = database.select("SOC_BANDWIDTH_LEVEL", _SAMPLED, **_floats(_SOC_LEVELS))
    for column, name in _SOC_LEVELS.items():
        yield _samples(rows, pl.lit(name), column, None)
    for table, name in _OTHERS.items():  # every column that is a measurement, under its own name
        columns = [column for column in database.columns(table) if column != "timestampNs" and not column.lower().endswith("id")]
        rows = database.select(table, _SAMPLED, **_floats(columns))
        for column in columns:
            yield _samples(rows, pl.lit(f"{name} {column}"), column, None)


_SAMPLED = "timestampNs deviceId"


def _memory(database: Database) -> Iterator[pl.DataFrame]:
    record = database.select(
        "MEMORY_RECORD", "timestamp deviceId", texts="component", **_floats(("totalAllocated", "totalReserved", "totalActive"))
    )
    if record.height:
        yield record_counters(
            record.select(
                component=pl.col("component").cast(pl.String).fill_null(""),
                at_ns="timestamp",
                allocated="totalAllocated",
                reserved="totalReserved",
                active="totalActive",
                npu=pl.col("deviceId").fill_null(0),
            )
        )
    rows = database.select("NPU_MODULE_MEM", f"{_SAMPLED} moduleId", totalReserved=pl.Float64)
    module = database.enum_text("moduleId", "ENUM_MODULE", default="?")
    yield _samples(rows, pl.format("{} reserved", module), "totalReserved", "bytes")
    usage = database.select("NPU_MEM", _SAMPLED, texts="type", ddr=pl.Float64, hbm=pl.Float64)
    usage = usage.with_columns(type=pl.col("type").cast(pl.String), total=pl.col("ddr").fill_null(0) + pl.col("hbm").fill_null(0))
    yield _samples(usage.filter(pl.col("type") == "device"), pl.lit("memory used"), "total", "bytes")
    yield _samples(usage.filter(pl.col("type") != "device"), pl.lit("process memory"), "total", "bytes")


def _floats(names: Iterable[str]) -> dict[str, Any]:
    return dict.fromkeys(names, pl.Float64)


def _title(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String).str.to_titlecase()


def _samples(rows: pl.DataFrame, series: pl.Expr, value: str, unit: str | None) -> pl.DataFrame:
    return rows.filter(pl.col(value).is_not_null() & pl.col("timestampNs").is_not_null()).select(
        **of_device(series, "npu", pl.col("deviceId").fill_null(0)),
        at_ns="timestampNs",
        value=pl.col(value).cast(pl.Float64),
        unit=pl.lit(unit, pl.String),
    )
