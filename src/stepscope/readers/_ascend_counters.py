"""Samples over time in databases of Ascend's tools: memory, clocks and bandwidths."""

from collections.abc import Iterator

import polars as pl

from stepscope.readers import _ascend_tables
from stepscope.readers._ascend_sqlite import Database


def counters(tables: Database) -> Iterator[pl.DataFrame]:
    """name, at_ns, value, unit."""
    yield pl.DataFrame(schema={"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String})
    record = tables.words(
        tables.table("MEMORY_RECORD", component=pl.Int64, timestamp=pl.Int64, totalAllocated=pl.Float64, totalReserved=pl.Float64,
                   totalActive=pl.Float64, deviceId=pl.Int64), "component",
    )  # fmt: skip
    if record.height:
        yield _ascend_tables.record_counters(
            record.select(
                component=pl.col("component").cast(pl.String).fill_null(""),
                at_ns="timestamp",
                allocated="totalAllocated",
                reserved="totalReserved",
                active="totalActive",
                device=pl.format("npu {}", pl.col("deviceId").fill_null(0)),
            )
        )
    modules = tables.named("ENUM_MODULE")
    rows = tables.table("NPU_MODULE_MEM", moduleId=pl.Int64, timestampNs=pl.Int64, totalReserved=pl.Float64, deviceId=pl.Int64)
    module = pl.col("moduleId").replace_strict(modules, default="?", return_dtype=pl.String)
    yield _samples(rows, pl.format("{} reserved", module), "totalReserved", "bytes")
    usage = tables.words(
        tables.table("NPU_MEM", type=pl.Int64, ddr=pl.Float64, hbm=pl.Float64, timestampNs=pl.Int64, deviceId=pl.Int64), "type"
    )
    usage = usage.with_columns(type=pl.col("type").cast(pl.String), whole=pl.col("ddr").fill_null(0) + pl.col("hbm").fill_null(0))
    yield _samples(usage.filter(pl.col("type") == "device"), pl.lit("memory used"), "whole", "bytes")
    yield _samples(usage.filter(pl.col("type") != "device"), pl.lit("process memory"), "whole", "bytes")
    frequency = tables.table("AICORE_FREQ", timestampNs=pl.Int64, freq=pl.Float64, deviceId=pl.Int64)
    yield _samples(frequency.with_columns(pl.col("freq") * 1e6), pl.lit("aicore clock"), "freq", "Hz")
    hbm = tables.words(
        tables.table("HBM", timestampNs=pl.Int64, bandwidth=pl.Float64, hbmId=pl.Int64, type=pl.Int64, deviceId=pl.Int64), "type"
    )
    way = pl.col("type").cast(pl.String).str.to_titlecase()
    yield _samples(hbm, pl.format("HBM {} {}", "hbmId", way), "bandwidth", "bytes/s")
    llc = tables.words(
        tables.table(
            "LLC", timestampNs=pl.Int64, llcId=pl.Int64, hitRate=pl.Float64, throughput=pl.Float64, mode=pl.Int64, deviceId=pl.Int64
        ),
        "mode",
    )
    way = pl.col("mode").cast(pl.String).str.to_titlecase()
    yield _samples(llc, pl.format("LLC {} {} Hit Rate", "llcId", way), "hitRate", "percent")
    yield _samples(llc, pl.format("LLC {} {} Throughput", "llcId", way), "throughput", "bytes/s")
    acc = {
        "readBwLevel": "read_bandwidth",
        "writeBwLevel": "write_band_width",
        "readOstLevel": "read_ost",
        "writeOstLevel": "write_ost",
    }
    rows = tables.table("ACC_PMU", accId=pl.Int64, timestampNs=pl.Int64, deviceId=pl.Int64, **dict.fromkeys(acc, pl.Float64))
    for column, word in acc.items():
        yield _samples(rows, pl.format("{} acc {}", pl.lit(word), "accId"), column, None)
    levels = {"l2BufferBwLevel": "L2 Buffer Bw Level", "mataBwLevel": "Mata Bw Level"}
    rows = tables.table("SOC_BANDWIDTH_LEVEL", timestampNs=pl.Int64, deviceId=pl.Int64, **dict.fromkeys(levels, pl.Float64))
    for column, word in levels.items():
        yield _samples(rows, pl.lit(word), column, None)
    for table, word in (("DDR", "DDR"), ("HCCS", "HCCS"), ("PCIE", "PCIe"), ("NIC", "NIC"), ("ROCE", "RoCE")):
        yield from _numbers(tables, table, word)


def _numbers(tables: Database, table: str, word: str) -> Iterator[pl.DataFrame]:
    """Any other table of samples: every number of it under its own name."""
    columns = tables.columns(table)
    values = [name for name in columns if name not in ("deviceId", "timestampNs") and not name.lower().endswith("id")]
    rows = tables.table(table, timestampNs=pl.Int64, deviceId=pl.Int64, **dict.fromkeys(values, pl.Float64))
    for name in values:
        yield _samples(rows, pl.lit(f"{word} {name}"), name, None)


def _samples(rows: pl.DataFrame, name: pl.Expr, value: str, unit: str | None) -> pl.DataFrame:
    return rows.filter(pl.col(value).is_not_null() & pl.col("timestampNs").is_not_null()).select(
        name=pl.format("{} npu {}", name, pl.col("deviceId").fill_null(0)),
        at_ns="timestampNs",
        value=pl.col(value).cast(pl.Float64),
        unit=pl.lit(unit, pl.String),
    )
