"""Time and links of communication operators: communication.json, communication_matrix.json and their database.

An operator lasts from its first to its last master task. It is in transit while one of them moves data to another rank, else waiting while
one of them waits for a notification, else idle. Waiting before the first transit is synchronization. Sizes are in 10^6 bytes, times in ms.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.exporters.msprof.tasks import with_texts
from stepscope.model import intervals
from stepscope.model.columns.span_details import details
from stepscope.model.trace import Trace

TOTAL = "Total Op Info"
_NO_RANK = 2**32 - 1
_MOVES = ("Memcpy", "Reduce_Inline")
_UNIFIED = ("UB", "UBoE")
_KINDS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO", "UB")
_LARGE_MB = {"RDMA": 0.5}  # lower limit of large packets; for other links:
_LARGE_ELSEWHERE_MB = 32


class _Packets(NamedTuple):
    """Transfers of the same size over links of the same kind."""

    kind: str
    bytes: int
    number: int
    ms: float


class Communication:
    """The operators of one device, and their tasks."""

    def __init__(self, operators: pl.DataFrame, tasks: pl.DataFrame) -> None:
        self.operators = operators  # key, name, group, start_ns, end_ns
        self.tasks = tasks  # key, plane, start_ns, end_ns, and details
        self.transfers = _transfers(tasks)

    def times(self) -> dict[str, Any]:
        """The contents of communication.json."""
        moving, packets = self._sections(), self._packets()
        operators: dict[str, Any] = {}
        for key, start, end in self.operators.select("key", "start_ns", "end_ns").iter_rows():
            transit, waiting = moving.get(key, (intervals.NONE, intervals.NONE))
            transit, waiting = intervals.clip(transit, start, end), intervals.clip(waiting, start, end)
            waiting = intervals.subtract(waiting, transit)
            before = intervals.clip(waiting, start, int(transit.starts[0])) if len(transit.starts) else waiting
            operators[key] = {
                "Communication Time Info": _time_info(start / 1000, end - start, transit.total, waiting.total, before.total),
                "Communication Bandwidth Info": _bandwidth_info(packets.get(key, [])),
            }
        infos = [operator["Communication Time Info"] for operator in operators.values()]
        sums = [round(sum(info[f"{word} Time(ms)"] for info in infos) * 1e6) for word in ("Elapse", "Transit", "Wait", "Synchronization")]
        all_packets = [packet for operator in packets.values() for packet in operator]
        operators[TOTAL] = {
            "Communication Time Info": _time_info(0, *sums),
            "Communication Bandwidth Info": _bandwidth_info(all_packets),
        }
        return operators

    def links(self) -> dict[str, Any]:
        """The contents of communication_matrix.json."""
        transfers = self.transfers.with_columns(dst=pl.when(pl.col("dst") == _NO_RANK).then("src").otherwise("dst")).filter(
            pl.col("src") != _NO_RANK
        )
        sums = (pl.col("bytes").sum(), pl.col("ns").sum(), pl.col("over").last())
        rows = transfers.group_by("key", "src", "dst", maintain_order=True).agg(sums)
        links: dict[str, Any] = {key: {} for key in self.operators["key"]}
        for key, src, dst, moved, ns, over in rows.iter_rows():
            links.setdefault(key, {})[f"{src}-{dst}"] = _link_info(over, moved, ns / 1e6)
        whole = rows.group_by("src", "dst", maintain_order=True).agg(sums)
        links[TOTAL] = {f"{src}-{dst}": _link_info(over, moved, ns / 1e6) for src, dst, moved, ns, over in whole.iter_rows()}
        return links

    def _sections(self) -> dict[str, tuple[intervals.Set, intervals.Set]]:
        """Per operator: the times in which its master tasks moved data, and in which they waited."""
        moving = self.transfers.filter("master", pl.col("over") != "LOCAL").select("key", "start_ns", "end_ns")
        waits = self.tasks.filter("master", pl.col("name") == "Notify_Wait").select("key", "start_ns", "end_ns")
        moved, waited = (dict(_time_sets(rows)) for rows in (moving, waits))
        return {key: (moved.get(key, intervals.NONE), waited.get(key, intervals.NONE)) for key in {*moved, *waited}}

    def _packets(self) -> dict[str, list[_Packets]]:
        """Packets per operator."""
        rows = (
            self.transfers.filter(pl.col("over") != "LOCAL")
            .group_by("key", "kind", "bytes", maintain_order=True)
            .agg(pl.len(), pl.col("ns").sum())
        )
        packets: dict[str, list[_Packets]] = {}
        for key, kind, size, count, ns in rows.iter_rows():
            packets.setdefault(key, []).append(_Packets(kind, size, count, ns / 1e6))
        return packets


def of_devices(trace: Trace) -> dict[int, Communication]:
    """The communication of each device of a trace of one rank."""
    tracks = trace.tracks.select("track", "device", "communication_group", "plane", "tid", track_kind=pl.col("kind").cast(pl.String))
    spans = trace.spans.select(
        "span", "track", "start_ns", pl.col("name", "kind").cast(pl.String), end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    spans = spans.join(tracks, on="track").filter(pl.col("device").is_not_null()).sort("start_ns", maintain_order=True)
    operators = spans.filter(pl.col("kind") == "communication").collect()
    tasks = spans.filter(pl.col("track_kind") == "communication", pl.col("kind") != "communication").collect()
    groups = details(trace, "collectives", operators["span"], ["group"]).cast(pl.String)
    operators = operators.hstack(groups).with_columns(group=pl.coalesce("group", "communication_group", "tid"))
    operators = operators.select("device", "name", "group", "start_ns", "end_ns", key=pl.format("{}@{}", "name", "group"))
    tasks = with_texts(tasks.hstack(details(trace, "communication_tasks", tasks["span"])))
    named = operators.select("device", "key", operator="name").unique(["device", "operator"], keep="first", maintain_order=True)
    tasks = tasks.join(named, on=["device", "operator"], how="inner", maintain_order="left")
    plane = pl.col("plane").cast(pl.Int64).fill_null(0)
    # Older versions do not mark the tasks of the master: these are on the planes up to the first one that waits.
    first = plane.filter(pl.col("name") == "Notify_Wait").min().over("device", "key").fill_null(0)
    tasks = tasks.with_columns(plane=plane, master=pl.coalesce("master", plane <= first))
    return {
        device: Communication(operators.filter(pl.col("device") == device), tasks.filter(pl.col("device") == device))
        for device in tasks["device"].unique().sort()
    }


def write(communication: Communication, folder: Path, rules: list[str], *, text: bool) -> list[Path]:
    """Write the files, and return their paths."""
    tables = {"communication": communication.times, "communication_matrix": communication.links}
    made = {rule: tables[rule]() for rule in rules}
    written = []
    for rule, content in made.items() if text else []:
        written.append(folder / f"{rule}.json")
        written[-1].write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    database = folder / "communication_analyzer.db"
    with closing(sqlite3.connect(database)) as connection:
        for table, (columns, rows) in _tables(made).items():
            connection.execute(f"create table {table} ({', '.join(columns)})")
            connection.executemany(f"insert into {table} values ({', '.join('?' * len(columns))})", rows)
        connection.commit()
    return [*written, database]


def _tables(made: dict[str, dict[str, Any]]) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    names = ["hccl_op_name TEXT", "group_name TEXT"]
    tables: dict[str, tuple[list[str], list[tuple[Any, ...]]]] = {}
    if "communication" in made:
        words = ("Elapse", "Transit", "Wait", "Synchronization", "Idle")
        columns = [*names, "start_timestamp NUMERIC", *(f"{word.lower()}_time NUMERIC" for word in words)]
        times, packets = [], []
        for key, operator in made["communication"].items():
            info = operator["Communication Time Info"]
            times.append((*_parts(key), info["Start Timestamp(us)"], *(info[f"{word} Time(ms)"] for word in words)))
            for kind, link in operator["Communication Bandwidth Info"].items():
                about = [link[word] for word in ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)", "Large Packet Ratio")]
                sizes = link["Size Distribution"] or {"0": [0, 0]}
                packets += [(*_parts(key), kind, *about, float(size), *counted) for size, counted in sizes.items()]
        tables["CommAnalyzerTime"] = columns, times
        more = ("transit_size", "transit_time", "bandwidth", "large_packet_ratio", "package_size", "count", "total_duration")
        tables["CommAnalyzerBandwidth"] = [*names, "transport_type TEXT", *(f"{word} NUMERIC" for word in more)], packets
    if "communication_matrix" in made:
        columns = [
            *names,
            "src_rank TEXT",
            "dst_rank TEXT",
            "transport_type TEXT",
            "transit_size NUMERIC",
            "transit_time NUMERIC",
            "bandwidth NUMERIC",
        ]
        rows = [
            (*_parts(key), *link.split("-"), *info.values())
            for key, links in made["communication_matrix"].items()
            for link, info in links.items()
        ]
        tables["CommAnalyzerMatrix"] = columns, rows
    return tables


def _parts(key: str) -> tuple[str, str]:
    name, _, group = key.partition("@")
    return name, group


def _transfers(tasks: pl.DataFrame) -> pl.DataFrame:
    """Transfers: copies, and RDMA payloads; consecutive payloads are one transfer, until they have arrived."""
    size, link, transport = pl.col("bytes").fill_null(0), pl.col("link"), pl.col("transport")
    is_copy = pl.col("name").is_in(_MOVES) & (transport == "SDMA").fill_null(False)
    is_unified = (transport.is_in(_UNIFIED) & link.is_in(_UNIFIED) & (size > 0)).fill_null(False)
    over = pl.when(link == "ON_CHIP").then(pl.lit("LOCAL")).when(link == "HCCS_SW").then(pl.lit("HCCS")).otherwise(link)
    over = pl.when(is_unified).then(pl.lit("UB")).otherwise(over.fill_null("SDMA"))
    common = {"src": pl.col("src").fill_null(_NO_RANK), "dst": pl.col("dst").fill_null(_NO_RANK), "bytes": size}
    copies = tasks.filter(is_copy | is_unified).select(
        "key",
        "master",
        "start_ns",
        "end_ns",
        ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64),
        over=over,
        kind=pl.when(over.is_in(["HCCS", "PCIE", "SIO", "UB"])).then(over).otherwise(pl.lit("SDMA")),
        **common,
    )
    ordered = tasks.sort("key", "plane", "start_ns", maintain_order=True)
    payload = (pl.col("rdma") == "RDMA_SEND_PAYLOAD").fill_null(False)
    taken = pl.when(pl.col("bandwidth") > 0).then(size / pl.col("bandwidth")).otherwise(0.0)
    sent = (
        ordered.with_columns(run=pl.struct("key", "plane", payload).rle_id(), bytes=size, taken=taken)
        .filter(payload)
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("key", "master", "start_ns").first(),
            pl.col("bytes").sum(),
            took=pl.col("taken").sum(),
            src=pl.col("src").first().fill_null(_NO_RANK),
            dst=pl.col("dst").first().fill_null(_NO_RANK),
            over=transport.first().fill_null("RDMA"),
        )
        .select(
            "key", "master", "start_ns", "src", "dst", "bytes", "over",
            end_ns=pl.col("start_ns") + pl.col("took").round().cast(pl.Int64), ns=pl.col("took"), kind=pl.lit("RDMA"),
        )
    )  # fmt: skip
    return pl.concat([copies, sent.select(copies.columns)], how="vertical_relaxed")


def _time_sets(rows: pl.DataFrame) -> list[tuple[str, intervals.Set]]:
    parts = rows.partition_by("key", as_dict=True, include_key=False)
    return [(str(key[0]), intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())) for key, part in parts.items()]


def _time_info(start_us: float, elapsed: int, transit: int, wait: int, before: int) -> dict[str, float]:
    return {
        "Start Timestamp(us)": start_us,
        "Elapse Time(ms)": elapsed / 1e6,
        "Transit Time(ms)": transit / 1e6,
        "Wait Time(ms)": wait / 1e6,
        "Synchronization Time(ms)": before / 1e6,
        "Idle Time(ms)": (elapsed - transit - wait) / 1e6,
        "Wait Time Ratio": _ratio(wait, wait + transit),
        "Synchronization Time Ratio": _ratio(before, before + transit),
    }


def _bandwidth_info(packets: list[_Packets]) -> dict[str, Any]:
    """Sums per kind of link. SDMA moves data over all links except RDMA and UB, so it contains the other kinds."""
    kinds: dict[str, Any] = {}
    for kind in _KINDS:
        of_kind = [packet for packet in packets if packet.kind == kind]
        sizes: dict[str, list[float]] = {}
        for packet in of_kind:
            counted = sizes.setdefault(repr(packet.bytes / 1e6), [0, 0.0])
            counted[0], counted[1] = counted[0] + packet.number, counted[1] + packet.ms
        large = sum(packet.number for packet in of_kind if packet.bytes / 1e6 > _LARGE_MB.get(kind, _LARGE_ELSEWHERE_MB))
        parts = of_kind if kind != "SDMA" else [packet for packet in packets if packet.kind not in ("RDMA", "UB")]
        mb, ms = sum(packet.bytes * packet.number for packet in parts) / 1e6, sum(packet.ms for packet in parts)
        kinds[kind] = {
            "Transit Size(MB)": mb,
            "Transit Time(ms)": ms,
            "Bandwidth(GB/s)": _ratio(mb, ms),
            "Large Packet Ratio": _ratio(large, sum(packet.number for packet in of_kind)) if kind != "SDMA" else 0,
            "Size Distribution": sizes,
        }
    return kinds


def _link_info(over: str, moved: int, ms: float) -> dict[str, Any]:
    return {"Transport Type": over, "Transit Size(MB)": moved / 1e6, "Transit Time(ms)": ms, "Bandwidth(GB/s)": _ratio(moved / 1e6, ms)}


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0
