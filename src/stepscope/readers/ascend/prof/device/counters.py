"""Samples of a device's memories and links: HBM, DDR, caches, HCCS, PCIe, network cards, memory in use."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model import units
from stepscope.model.columns.counters import COLUMNS, of_device
from stepscope.readers.ascend.prof.files import DEVICE_MAGIC, Clock, Notes, Records, Side, counter_clock, lines, number, records

_HBM = np.dtype([("at", "<u8"), ("count", "<u8"), ("event", "<u4"), ("unit", "<u4")])
_HBM_2 = np.dtype([("pad", "<u8"), ("event", "<u4"), ("unit", "<u4"), ("count", "<u8"), ("at", "<u8")])
_LLC_2 = np.dtype([("pad", "<u4"), ("count", "<u4"), ("event", "<u4"), ("unit", "<u4"), ("at", "<u8")])
_DDR = np.dtype([("at", "<u4"), ("count", "<u4"), ("event", "<u4"), ("unit", "<u4"), ("master", "<u4")])
_MEMORY = np.dtype([("at", "<u4"), ("event", "<u4"), ("absolute", "<u8"), ("ddr", "<u8"), ("hbm", "<u8")])
_MODULE = np.dtype([("module", "<u4"), ("pad", "<u4"), ("at", "<u8"), ("bytes", "<u8")])
_PCIE = np.dtype([("at", "<u8"), ("device", "<u4"), ("values", "<u4", 21)])
_QOS = np.dtype([("pad", "V16"), ("at", "<u8"), ("values", "<u4", 10)])
_UB = np.dtype([("magic", "<u2"), ("pad", "<u2"), ("port", "<u2"), ("pad2", "<u2"), ("at", "<u8"), ("values", "<u8", 14)])
_SOC = np.dtype([("head", "<u2"), ("magic", "<u2"), ("pad", "<u4"), ("at", "<u8"), ("body", "V48")])
_HBM_BYTES = 32  # 256 bits per event
_LLC_BYTES = 64 * 64  # 64 bytes per event, and counts are in units of 64 events, as in msprof
_DDR_BITS = {"1": 256, "2": 256, "3": 256, "4": 256}
_NETWORK = ("bandwidth", "rxPacketRate", "rxByteRate", "rxPackets", "rxBytes", "rxErrors", "rxDropped")
_NETWORK_COLUMNS = (*_NETWORK, *(name.replace("rx", "tx") for name in _NETWORK[1:]), "port")
_SHOWN = {"rxByteRate": "bytes/s", "txByteRate": "bytes/s", "rxPacketRate": "packets/s", "txPacketRate": "packets/s"} | dict.fromkeys(
    ("rxErrors", "txErrors", "rxDropped", "txDropped"), "packets"
)
_STATISTICS = (
    *("mac_tx_pfc_pkt", "mac_rx_pfc_pkt", "mac_tx_total_oct", "mac_rx_total_oct", "mac_tx_bad_oct", "mac_rx_bad_oct"),
    *("roce_tx_all_pkt", "roce_rx_all_pkt", "roce_tx_err_pkt", "roce_rx_err_pkt", "roce_tx_cnp_pkt", "roce_rx_cnp_pkt"),
    *("roce_new_pkt_rty", "nic_tx_all_oct", "nic_rx_all_oct"),
)
_PCIE_VALUES = ("txPost", "txNonpost", "txCpl", "txNonpostLatency", "rxPost", "rxNonpost", "rxCpl")  # minimum, maximum and mean of each
_UB_VALUES = (
    *("udmaRxBind", "udmaTxBind", "rxPortBandwidth", "rxPacketRate", "rxBytes", "rxPackets", "rxErrors", "rxDropped"),
    *("txPortBandwidth", "txPacketRate", "txBytes", "txPackets", "txErrors", "txDropped"),
)
_EVERYWHERE = 2**32 - 1
_MODULE_WORDS = """
0 SLOG 1 IDEDD 2 SCC 3 HCCL 4 FMK 5 CCU 6 DVPP 7 RUNTIME 8 CCE 9 HDC 10 DRV 11 NET 22 DEVMM 23 KERNEL 24 LIBMEDIA 25 CCECPU 27 ROS 28 HCCP
29 ROCE 30 TEFUSION 31 PROFILING 32 DP 33 APP 34 TS 35 TSDUMP 36 AICPU 37 LP 38 TDT 39 FE 40 MD 41 MB 42 ME 43 IMU 44 IMP 45 GE 47 CAMERA
48 ASCENDCL 49 TEEOS 50 ISP 51 SIS 52 HSM 53 DSS 54 PROCMGR 55 BBOX 56 AIVECTOR 57 TBE 58 FV 60 TUNE 61 HSS 62 FFTS 63 OP 64 UDF 65 HICAID
66 TSYNC 67 AUDIO 68 TPRT 69 ASCENDCKERNEL 70 ASYS 71 ATRACE 72 RTC 73 SYSMONITOR 74 AMP 75 ADETECT 76 MBUFF 77 CUSTOM
"""
ASCEND_MODULES = {int(code): word for code, word in zip(_MODULE_WORDS.split()[::2], _MODULE_WORDS.split()[1::2], strict=True)}
# Files that a reader decodes; all others in `data` are listed in `problems`.
_READ = (
    r"(un)?aging\.(api_event\.data|compact\.(task_track|node_basic_info|node_attr_info|memcpy_info|hccl_op_info|expand_stream_spec|capture_stream_info)"
    r"|additional\.(tensor_info|graph_id_map|fusion_op_info|context_id_info|hccl_info|hash_dic|type_info_dic|msproftx"
    r"|capture_op_info|logic_stream_info|mc2_comm_info|task_memory_info)|variable\.capture_op_info)"
    r"|(stars_soc|hwts|ts_track|ffts_profile|aicore|aicpu|lpmFreqConv|lpmInfoConv|hbm|ddr|llc|hccs|nic|roce|pcie|qos|ub|netdev_stats|stars_soc_profile"
    r"|npu_module_mem|l2_cache)\.data\.\d+"
    r"|hwts\.log\.data\.\d+.*|DATA_PREPROCESS\.AICPU\.\d+|npu_mem\.(data|app)\.\d+"
    r"|Framework\.(task_desc_info|tensor_data_info|fusion_op_info_\d+|model_load_info_\d+|hash_dic)\.\d+"
    r"|[rR]untime\.(task_track|api)\.\d+|AclModule\.(acl_(model|op|rts|others)|hash_dic)\.\d+"
    r"|host_(cpu|mem|disk|network|syscall|pthreadcall|sys_cpu|sys_mem)\.data|(System|\d+-)CpuUsage\.data(\.\d+)?|(\d+-)?Memory\.data(\.\d+)?"
)


class Sampling(NamedTuple):
    """The clocks of a device's samples."""

    counter: Clock  # the device's counter
    origin_ns: int  # origin of samples in microseconds since the start of the recording
    monotonic_ns: int  # offset of the device's monotonic clock
    host: Clock  # the host's counter, from the files of the device


def read(side: Side, clock: Clock, device_monotonic_ns: int, notes: Notes) -> pl.DataFrame:
    """The samples of all files, with the columns of counters."""
    times = Sampling(clock, clock.origin_ns, clock.origin_ns - device_monotonic_ns, counter_clock(side))
    frames = [
        *(_memory(records(side.slices(rf"npu_mem\.{file}\.\d+"), _MEMORY, notes), side, times, word)
          for file, word in (("data", "memory used"), ("app", "process memory"))),
        _modules(side, times, notes),
        _flow(_hbm(side, times, notes), "HBM {} {}"),
        _flow(_ddr(side, times, notes), "DDR {} {}"),
        *_llc(side, times, notes),
        _hccs(side, times.monotonic_ns),
        *(_network(side, kind, word, times.monotonic_ns) for kind, word in (("nic", "NIC"), ("roce", "RoCE"))),
        _statistics(side, times.monotonic_ns),
        *_pcie(side, times, notes),
        *_qos(side, times, notes),
        *_ub(side, times, notes),
        *_soc(side, times, notes),
    ]  # fmt: skip
    return samples_of_device([part for part in frames if part.height], side.device)


def samples_of_device(frames: list[pl.DataFrame], device: int | None) -> pl.DataFrame:
    """The columns of counters, from frames of series, at_ns, value and unit."""
    columns = of_device(pl.col("series"), "npu", device)
    rows = [part.select(**columns, at_ns="at_ns", value=pl.col("value").cast(pl.Float64), unit="unit") for part in frames]
    return pl.concat(rows).sort("name", "at_ns", maintain_order=True) if rows else pl.DataFrame(schema=COLUMNS)


def report_unread_files(side: Side, notes: Notes) -> None:
    """Report the files that no reader decodes, with their sizes."""
    sizes: dict[str, int] = {}
    for name, path in side.raw.items():
        if not re.fullmatch(rf"({_READ})(\.slice_\d+)?", name):
            stream = re.sub(r"(\.slice_)?\d*$", "", name)
            sizes[stream] = sizes.get(stream, 0) + path.stat().st_size
    for name, size in sorted(sizes.items()):
        notes.add(side.path / "data", f"not read: {name}, {units.count(size, 'byte')}")


def _second(side: Side) -> bool:
    """Whether samples have the time of day in nanoseconds (version 2)."""
    return str(side.info.get("version", "1.0")).startswith("2")


def _memory(raw: Records, side: Side, times: Sampling, series: str) -> pl.DataFrame:
    value = raw["ddr"].astype(np.float64) + raw["hbm"].astype(np.float64)
    at = raw["absolute"].astype(np.int64) if _second(side) else raw["at"].astype(np.int64) * 1000 + times.origin_ns
    return frame(series, at, value, "bytes")


def frame(series: str, at_ns: Any, value: Any, unit: str | None) -> pl.DataFrame:
    return pl.DataFrame({"at_ns": at_ns, "value": value}).with_columns(series=pl.lit(series), unit=pl.lit(unit, pl.String))


def _modules(side: Side, times: Sampling, notes: Notes) -> pl.DataFrame:
    """Memory of each of Ascend's modules. A total beyond 2^62 bytes is a negative number, which is invalid."""
    raw = records(side.slices(r"npu_module_mem\.data\.\d+"), _MODULE, notes)
    odd = raw["bytes"] > 2**62
    if odd.any():
        notes.add(side.path / "data", "negative memory totals of modules", int(odd.sum()), "npu_module_mem")
        raw = raw[~odd]
    module = pl.Series(raw["module"].astype(np.int64)).replace_strict(ASCEND_MODULES, default="other", return_dtype=pl.String)
    rows = pl.DataFrame({"at_ns": times.host.ns(raw["at"]), "value": raw["bytes"].astype(np.float64), "module": module})
    return rows.with_columns(series=pl.format("{} reserved", "module"), unit=pl.lit("bytes"))


# Counts since the previous sample


_NO_FLOW = pl.DataFrame(schema={"at_ns": pl.Int64, "unit_": pl.Int64, "way": pl.String, "bytes": pl.Float64})


def _at(raw: Records, side: Side, times: Sampling) -> Any:
    return raw["at"].astype(np.int64) if _second(side) else raw["at"].astype(np.int64) * 1000 + times.origin_ns


def _hbm(side: Side, times: Sampling, notes: Notes) -> pl.DataFrame:
    raw = records(side.slices(r"hbm\.data\.\d+"), _HBM_2 if _second(side) else _HBM, notes)
    return _byte_counts(raw, _at(raw, side, times), _HBM_BYTES)


def _ddr(side: Side, times: Sampling, notes: Notes) -> pl.DataFrame:
    raw = records(side.slices(r"ddr\.data\.\d+"), _DDR, notes)
    raw = raw[raw["master"] == _EVERYWHERE]  # the total contains those of single masters
    return _byte_counts(raw, raw["at"].astype(np.int64) * 1000 + times.origin_ns, _DDR_BITS.get(side.chip, 128) // 8)


def _byte_counts(raw: Records, at_ns: Any, size: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "at_ns": at_ns,
            "unit_": raw["unit"].astype(np.int64),
            "way": np.where(raw["event"] == 0, "Read", "Write").astype(str),
            "bytes": raw["count"].astype(np.float64) * size,
        },
        schema=_NO_FLOW.schema,
    )


def _flow(moved: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Rates: bytes since the previous sample, by the interval. The first sample has no interval."""
    since = pl.col("at_ns") - pl.col("at_ns").shift(1).over("unit_", "way")
    rows = moved.sort("at_ns", maintain_order=True).with_columns(since=since).filter(pl.col("since") > 0)
    return rows.select(
        "at_ns", series=pl.format(pattern, "unit_", "way"), value=pl.col("bytes") * 1e9 / pl.col("since"), unit=pl.lit("bytes/s")
    )


# Events of the last-level cache: traffic, hits, requests, by direction.
_LLC_EVENTS = {
    "read": ((0x00, 0x01), (0x02, 0x13, 0x22, 0x36), (0x20, 0x34)),
    "write": ((0x00, 0x01), (0x03, 0x14, 0x23, 0x37), (0x21, 0x35)),
}


def _llc(side: Side, times: Sampling, notes: Notes) -> Iterator[pl.DataFrame]:
    files = side.slices(r"llc\.data\.\d+")
    raw = records(files, _LLC_2 if _second(side) else _HBM, notes)
    if not len(raw):
        return
    way = str(side.sample.get("llc_profiling", "")).strip().lower()
    if way not in _LLC_EVENTS:
        notes.add(files[0], f"the counted events are unknown (llc_profiling is '{way}'): {units.count(len(raw), 'sample')}", len(raw))
        return
    rows = pl.DataFrame(
        {
            "at_ns": _at(raw, side, times),
            "unit_": raw["unit"].astype(np.int64),
            "event": raw["event"].astype(np.int64),
            "count": raw["count"].astype(np.float64),
        }
    )
    traffic, hits, requests = (pl.col("count").filter(pl.col("event").is_in(list(some))).sum() for some in _LLC_EVENTS[way])
    rows = rows.group_by("unit_", "at_ns").agg(traffic=traffic, hits=hits, requests=requests).sort("unit_", "at_ns")
    rows = rows.with_columns(since=pl.col("at_ns").diff().over("unit_"))
    pattern = f"LLC {{}} {way.title()} %s"
    yield rows.filter(pl.col("requests") > 0).select(
        "at_ns", series=pl.format(pattern % "Hit Rate", "unit_"), value=pl.col("hits") / pl.col("requests") * 100, unit=pl.lit("percent")
    )
    yield rows.filter(pl.col("since") > 0).select(
        "at_ns",
        series=pl.format(pattern % "Throughput", "unit_"),
        value=pl.col("traffic") * _LLC_BYTES * 1e9 / pl.col("since"),
        unit=pl.lit("bytes/s"),
    )


def _hccs(side: Side, offset_ns: int) -> pl.DataFrame:
    """Rates from lines of `time: sent received`, which are cumulative bytes."""
    samples = [
        match.groups()
        for line in lines(side.slices(r"hccs\.data\.\d+"))
        if (match := re.match(r"\s*(\d{1,18})\S*\s+(\d{1,18})\s+(\d{1,18})", line))
    ]
    rows = pl.DataFrame(
        [[int(part) for part in row] for row in samples], schema={"at": pl.Int64, "tx": pl.Int64, "rx": pl.Int64}, orient="row"
    )
    rows = rows.sort("at").with_columns(since=pl.col("at").diff(), tx=pl.col("tx").diff(), rx=pl.col("rx").diff())
    rows = rows.filter(pl.col("since") > 0, pl.col("tx") >= 0, pl.col("rx") >= 0)  # without samples after an overflow
    ways = (
        rows.select(
            series=pl.lit(f"HCCS {way}Throughput"),
            at_ns=pl.col("at") + offset_ns,
            value=pl.col(way) * 1e9 / pl.col("since"),
            unit=pl.lit("bytes/s"),
        )
        for way in ("tx", "rx")
    )
    return pl.concat(list(ways))


# Network


def _numbers(texts: Iterable[str], least: int, most: int) -> Iterator[list[float | None]]:
    """Lines that begin with `least` to `most` numbers; a colon may follow the first."""
    for line in texts:
        parts = [part.rstrip(":") for part in line.split()]
        if len(parts) >= least and all(re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", part) for part in parts[:least]):
            yield [float(number(part)) for part in parts[:most]] + [None] * (most - len(parts))


def _network(side: Side, kind: str, word: str, offset_ns: int) -> pl.DataFrame:
    """Rates of network cards: each line has a time and the columns of one port."""
    columns = {"at": pl.Float64, **dict.fromkeys(_NETWORK_COLUMNS, pl.Float64)}
    rows = pl.DataFrame(list(_numbers(lines(side.slices(rf"{kind}\.data\.\d+")), 10, len(columns))), schema=columns, orient="row")
    port = (
        pl.when(pl.col("port").is_between(1, 2**31))
        .then(pl.format(f"{word} {{}}", pl.col("port").cast(pl.Int64, strict=False)))
        .otherwise(pl.lit(word))
    )
    ways = (
        rows.filter(pl.col(way).is_not_null()).select(
            series=pl.format("{} {}", port, pl.lit(way)),
            at_ns=pl.col("at").cast(pl.Int64) + offset_ns,
            value=pl.col(way),
            unit=pl.lit(unit),
        )
        for way, unit in _SHOWN.items()
    )
    return pl.concat(list(ways))


def _statistics(side: Side, offset_ns: int) -> pl.DataFrame:
    """Rates from the cumulative counts of a network card."""
    columns = {"at": pl.Float64, **dict.fromkeys(_STATISTICS, pl.Float64)}
    rows = pl.DataFrame(
        list(_numbers(lines(side.slices(r"netdev_stats\.data\.\d+")), len(columns), len(columns))), schema=columns, orient="row"
    )
    rows = rows.sort("at").with_columns(since=pl.col("at").diff())
    ways = (
        rows.with_columns(more=pl.col(name).diff())
        .filter(pl.col("since") > 0, pl.col("more") >= 0)
        .select(
            series=pl.lit(f"network {name}"),
            at_ns=pl.col("at").cast(pl.Int64) + offset_ns,
            value=pl.col("more") * 1e9 / pl.col("since"),
            unit=pl.lit("bytes/s" if name.endswith("_oct") else "packets/s"),
        )
        for name in _STATISTICS
    )
    return pl.concat(list(ways))


# Links


def _pcie(side: Side, times: Sampling, notes: Notes) -> Iterator[pl.DataFrame]:
    """Bytes per microsecond, and latencies in nanoseconds. A minimum above the maximum means that there was no measurement."""
    raw = records(side.slices(r"pcie\.data\.\d+"), _PCIE, notes)
    raw = raw[raw["values"][:, 1] >= raw["values"][:, 0]]
    at = raw["at"].astype(np.int64) + times.monotonic_ns
    for place, word in enumerate(_PCIE_VALUES):
        latency = word.endswith("Latency")
        for way, offset in (("", 2), (" min", 0), (" max", 1)):
            value = raw["values"][:, place * 3 + offset].astype(np.float64) * (1 if latency else 1e6)
            yield frame(f"PCIe {word}{way}", at, value, "ns" if latency else "bytes/s")


def _events(side: Side) -> list[str]:
    return [word.strip() for word in str(side.sample.get("qosEvents", "")).split(",") if word.strip()]


def _qos(side: Side, times: Sampling, notes: Notes) -> Iterator[pl.DataFrame]:
    """Bandwidth of up to ten masters in MB/s; sample.json contains their names."""
    raw = records(side.slices(r"qos\.data\.\d+"), _QOS, notes)
    at, names = times.counter.ns(raw["at"]), _events(side)
    if len(raw) and not names:
        notes.add(side.path / "data", "sample.json has no names of the masters (qosEvents): they are numbered", 0, "qos")
    for place, word in enumerate(names[:10] or [str(master) for master in range(10)]):
        yield frame(f"QoS {word}", at, raw["values"][:, place].astype(np.float64) * 1e6, "bytes/s")


def _ub(side: Side, times: Sampling, notes: Notes) -> Iterator[pl.DataFrame]:
    """Ports of the unified bus, with times in milliseconds since the start of the recording."""
    raw = records(side.slices(r"ub\.data\.\d+"), _UB, notes)
    for port in np.unique(raw["port"]).tolist():
        mine = raw[raw["port"] == port]
        at = mine["at"].astype(np.int64) * 1_000_000 + times.origin_ns
        for place, word in enumerate(_UB_VALUES):
            yield frame(f"UB {port} {word}", at, mine["values"][:, place].astype(np.float64), None)


# Samples of the scheduler (STARS)

_ACCELERATORS, _LEVELS, _CHIPS, _DIES, _SOC_QOS = 0b011010, 0b011100, 0b011011, 0b011001, 0b011000
_PA_LINK, _PCIE_LINK = 0b111111, 0b100010
_DIE_VALUES = ("req_rx", "rsp_rx", "snp_rx", "dat_rx", "req_tx", "rsp_tx", "snp_tx", "dat_tx")


def _soc(side: Side, times: Sampling, notes: Notes) -> Iterator[pl.DataFrame]:
    files = side.slices(r"stars_soc_profile\.data\.\d+")
    raw = records(files, _SOC, notes, DEVICE_MAGIC)
    function, kind = raw["head"] & 63, raw["head"] >> 10
    known = np.isin(function, (_ACCELERATORS, _LEVELS, _CHIPS, _DIES, _SOC_QOS))
    if not known.all():
        notes.add(files[0], "samples of unsupported kinds", int((~known).sum()))
    for _, at, body in _of_function(
        raw, function == _ACCELERATORS, times, [("pad", "<u2"), ("unit", "<u2"), ("pad2", "V12"), ("values", "<u8", 4)]
    ):
        for unit in np.unique(body["unit"]).tolist():
            mine = body["unit"] == unit
            for place, word in enumerate(("write_band_width", "read_bandwidth", "write_ost", "read_ost")):
                yield frame(f"{word} acc {unit}", at[mine], body["values"][mine][:, place].astype(np.float64), None)
    for _, at, body in _of_function(raw, function == _LEVELS, times, [("pad", "V16"), ("levels", "<u2")]):
        yield frame("Mata Bw Level", at, (body["levels"] & 7).astype(np.float64), None)
        yield frame("L2 Buffer Bw Level", at, ((body["levels"] >> 3) & 0xFF).astype(np.float64), None)
    ways = {_PA_LINK: ("PA Link {} Rx", "PA Link {} Tx"), _PCIE_LINK: ("PCIe {} Write", "PCIe {} Read")}
    for link, names in ways.items():
        chosen = (function == _CHIPS) & (kind == link)
        for _, at, body in _of_function(raw, chosen, times, [("pad", "<u2"), ("unit", "<u2"), ("pad2", "V12"), ("values", "<u8", 2)]):
            unit = body["unit"] & 63
            for link_number in np.unique(unit).tolist():
                for place, word in enumerate(names):
                    value = body["values"][unit == link_number][:, place].astype(np.float64)
                    yield frame(f"{word.format(link_number)}", at[unit == link_number], value, None)
    for _, at, body in _of_function(
        raw, function == _DIES, times, [("pad", "<u2"), ("unit", "<u2"), ("pad2", "V12"), ("values", "<u4", 8)]
    ):
        for unit in np.unique(body["unit"]).tolist():
            mine = body["unit"] == unit
            for place, word in enumerate(_DIE_VALUES):
                yield frame(f"SIO {unit} {word}", at[mine], body["values"][mine][:, place].astype(np.float64), None)
    for part, at, body in _of_function(raw, function == _SOC_QOS, times, [("pad", "V8"), ("values", "<u4", 10)]):
        for die in np.unique(part["head"] >> 10).tolist():
            mine = part["head"] >> 10 == die
            for place, word in enumerate(_events(side)[:10]):
                value = body["values"][mine][:, place].astype(np.float64) * 1e6
                yield frame(f"QoS {word} die {die}", at[mine], value, "bytes/s")


def _of_function(raw: Records, chosen: Any, times: Sampling, fields: list[Any]) -> Iterator[tuple[Records, Any, Records]]:
    """Records of one kind with their times and decoded bodies; nothing if there are none."""
    part = raw[chosen]
    if len(part):
        layout = np.dtype(fields)
        padded = np.dtype([*fields, ("rest", f"V{48 - layout.itemsize}")])
        yield part, times.counter.ns(part["at"]), np.ascontiguousarray(part["body"]).view(padded)
