"""Samples of a device's memories and links: HBM, DDR, HCCS, network cards, memory in use. Layouts as msprof's parsers have them."""

import re
from typing import Any

import numpy as np
import polars as pl

from stepscope.readers._prof_files import Notes, Records, Side, lines, number, records

_HBM = np.dtype([("at", "<u8"), ("count", "<u8"), ("event", "<u4"), ("unit", "<u4")])
_DDR = np.dtype([("at", "<u4"), ("count", "<u4"), ("event", "<u4"), ("unit", "<u4"), ("master", "<u4")])
_MEMORY = np.dtype([("at", "<u4"), ("event", "<u4"), ("pad", "<u8"), ("ddr", "<u8"), ("hbm", "<u8")])
_HBM_BYTES = 32  # each event moves 256 bits
_DDR_BITS = {"1": 256, "2": 256, "3": 256, "4": 256}
_NETWORK = ("bandwidth", "rxPacketRate", "rxByteRate", "rxPackets", "rxBytes", "rxErrors", "rxDropped")
_NETWORK_COLUMNS = (*_NETWORK, *(name.replace("rx", "tx") for name in _NETWORK[1:]))
_EVERYWHERE = 2**32 - 1
# What this reader makes something of; everything else in `data` is named in `problems`.
_READ = (
    r"(un)?aging\.(api_event\.data|compact\.(task_track|node_basic_info|node_attr_info|memcpy_info|hccl_op_info)"
    r"|additional\.(tensor_info|graph_id_map|fusion_op_info|context_id_info|hccl_info|hash_dic|type_info_dic))"
    r"|(stars_soc|hwts|ts_track|ffts_profile|aicore|aicpu|lpmFreqConv|hbm|ddr|hccs|nic|roce)\.data\.\d+"
    r"|hwts\.log\.data\.\d+.*|DATA_PREPROCESS\.AICPU\.\d+|npu_mem\.(data|app)\.\d+"
)


def read(side: Side, origin_ns: int, device_monotonic_ns: int, notes: Notes) -> pl.DataFrame:
    """name, at_ns, value, unit. Samples count microseconds from the start of the recording, or are on the device's monotonic clock."""
    number_ = side.device
    found = [
        *(_memory(records(side.slices(rf"npu_mem\.{file}\.\d+"), _MEMORY, notes), origin_ns, f"{word} npu {number_}")
          for file, word in (("data", "memory used"), ("app", "process memory"))),
        _flow(_hbm(side, notes), origin_ns, "HBM {} {} npu " + str(number_)),
        _flow(_ddr(side, notes), origin_ns, "DDR {} {} npu " + str(number_)),
        _hccs(side, origin_ns - device_monotonic_ns, number_),
        *(_network(side, kind, word, origin_ns - device_monotonic_ns, notes) for kind, word in (("nic", "NIC"), ("roce", "RoCE"))),
    ]  # fmt: skip
    rows = [frame.select("name", "at_ns", pl.col("value").cast(pl.Float64), "unit") for frame in found if frame.height]
    return pl.concat(rows).sort("name", "at_ns", maintain_order=True) if rows else pl.DataFrame(schema=_COLUMNS)


_COLUMNS = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}


def unread(side: Side, notes: Notes) -> None:
    """Say which files nothing was made of."""
    names = sorted({re.sub(r"(\.slice_)?\d*$", "", name) for name in side.raw if not re.fullmatch(rf"({_READ})(\.slice_\d+)?", name)})
    if names:
        notes.add(side.path / "data", f"not read: {', '.join(names)}")


def _memory(raw: Records, origin_ns: int, name: str) -> pl.DataFrame:
    value = raw["ddr"].astype(np.float64) + raw["hbm"].astype(np.float64)
    return _frame(name, raw["at"].astype(np.int64) * 1000 + origin_ns, value, "bytes")


def _frame(name: str, at_ns: Any, value: Any, unit: str) -> pl.DataFrame:
    return pl.DataFrame({"at_ns": at_ns, "value": value}).with_columns(name=pl.lit(name), unit=pl.lit(unit))


def _hbm(side: Side, notes: Notes) -> pl.DataFrame:
    files = side.slices(r"hbm\.data\.\d+")
    if files and str(side.info.get("version", "1.0")) not in ("1.0", ""):
        notes.add(files[0], f"samples of version {side.info.get('version')} are not read")
        return _NO_FLOW
    raw = records(files, _HBM, notes)
    return _moved(raw, raw["unit"], _HBM_BYTES)


def _ddr(side: Side, notes: Notes) -> pl.DataFrame:
    raw = records(side.slices(r"ddr\.data\.\d+"), _DDR, notes)
    raw = raw[raw["master"] == _EVERYWHERE]  # others are what single masters moved, and in the whole already
    return _moved(raw, raw["unit"], _DDR_BITS.get(side.chip, 128) // 8)


_NO_FLOW = pl.DataFrame(schema={"at": pl.Int64, "unit_": pl.Int64, "way": pl.String, "bytes": pl.Float64})


def _moved(raw: Records, unit: Records, size: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "at": raw["at"].astype(np.int64),
            "unit_": unit.astype(np.int64),
            "way": np.where(raw["event"] == 0, "Read", "Write").astype(str),
            "bytes": raw["count"].astype(np.float64) * size,
        },
        schema=_NO_FLOW.schema,
    )


def _flow(moved: pl.DataFrame, origin_ns: int, pattern: str) -> pl.DataFrame:
    """Bytes since the sample before, as a rate. The first sample has none before it."""
    since = pl.col("at") - pl.col("at").shift(1).over("unit_", "way")
    rows = moved.sort("at", maintain_order=True).with_columns(since=since).filter(pl.col("since") > 0)
    return rows.select(
        name=pl.format(pattern, "unit_", "way"),
        at_ns=pl.col("at") * 1000 + origin_ns,
        value=pl.col("bytes") * 1e6 / pl.col("since"),
        unit=pl.lit("bytes/s"),
    )


def _hccs(side: Side, offset_ns: int, device: int | None) -> pl.DataFrame:
    """Lines of `time: sent received`, bytes in all so far."""
    found = [
        match.groups()
        for line in lines(side.slices(r"hccs\.data\.\d+"))
        if (match := re.match(r"\s*(\d{1,18})\S*\s+(\d{1,18})\s+(\d{1,18})", line))
    ]
    rows = pl.DataFrame(
        [[int(part) for part in row] for row in found], schema={"at": pl.Int64, "tx": pl.Int64, "rx": pl.Int64}, orient="row"
    )
    rows = rows.sort("at").with_columns(since=pl.col("at").diff(), tx=pl.col("tx").diff(), rx=pl.col("rx").diff())
    rows = rows.filter(pl.col("since") > 0, pl.col("tx") >= 0, pl.col("rx") >= 0)  # a counter that ran over says nothing
    ways = (
        rows.select(
            name=pl.lit(f"HCCS {way}Throughput npu {device}"),
            at_ns=pl.col("at") + offset_ns,
            value=pl.col(way) * 1e9 / pl.col("since"),
            unit=pl.lit("bytes/s"),
        )
        for way in ("tx", "rx")
    )
    return pl.concat(list(ways))


def _network(side: Side, kind: str, word: str, offset_ns: int, notes: Notes) -> pl.DataFrame:
    """Lines of a time and the columns of a network card, the rates per second among them."""
    rows = []
    for line in lines(side.slices(rf"{kind}\.data\.\d+")):
        parts = [part.rstrip(":") for part in line.split()]
        if len(parts) > 9 and all(number(part) or part.strip("0.") == "" for part in parts[:10]):
            rows.append([float(number(part)) for part in parts[:10]])
    frame = pl.DataFrame(rows, schema={"at": pl.Float64, **dict.fromkeys(_NETWORK_COLUMNS[:9], pl.Float64)}, orient="row")
    ways = (
        frame.select(
            name=pl.lit(f"{word} {way} npu {side.device}"),
            at_ns=pl.col("at").cast(pl.Int64) + offset_ns,
            value=pl.col(way),
            unit=pl.lit("bytes/s"),
        )
        for way in ("rxByteRate", "txByteRate")
    )
    return pl.concat(list(ways))
