"""Tracks of the timelines that Ascend's tools write. The name of a process gives the layer of its tracks."""

import re
from typing import Any

import polars as pl

from stepscope.model import schema
from stepscope.readers.chrome.kineto.tracks import sort_key
from stepscope.readers.chrome.records import Report
from stepscope.readers.common.name_parts import add_track_columns

_LAYERS = {
    "Ascend Hardware": "hardware",
    "HCCL": "communication",
    "Communication": "communication",
    "CANN": "cann",
    "Overlap Analysis": "overlap",
    "Step Trace": "iterations",
    "CPU OP": "host",
    "Scope Layer": "scopes",
}
_ONLY_IN_ASCEND = {"Ascend Hardware", "CANN", "HCCL", "Overlap Analysis", "Scope Layer", "CPU OP"}
_DEVICE_LAYERS = ("hardware", "communication", "planes")

TRACK_COLUMNS = {
    "track": pl.Int32,
    "pid": pl.String,
    "tid": pl.String,
    "subtrack": pl.String,
    "process": pl.String,
    "label": pl.String,
    "layer": pl.String,
    "device": pl.Int32,
    "sort": pl.Int64,
}


def claims(reports: list[Report]) -> bool:
    """Whether Ascend's tools wrote a file of Chrome events."""
    processes = (_first(args) for report in reports for name, _, _, args in report.metadata if name == "process_name")
    return any(isinstance(process, str) and process in _ONLY_IN_ASCEND for process in processes)


def _first(args: object) -> object:
    return next(iter(args.values()), None) if isinstance(args, dict) else None


def describe_tracks(numbers: dict[tuple[int | str, int | str, str], int], reports: list[Report], device: int) -> pl.DataFrame:
    """Process, name, layer and device of each track, from the metadata."""
    metadata: dict[tuple[str, int | str, int | str | None], Any] = {}
    for report in reports:
        for name, pid, tid, args in report.metadata:
            metadata[(name, pid, tid if name.startswith("thread") else None)] = _first(args)
    rows = []
    for (pid, tid, subtrack), track in numbers.items():
        process = str(metadata.get(("process_name", pid, None), "")).strip()
        label = str(metadata.get(("thread_name", pid, tid), tid)).strip()
        layer = _LAYERS.get(process, "host")
        if layer == "hardware" and not label.startswith("Stream") and "Model ID" in label:
            layer = "iterations"
        elif layer == "communication" and label.startswith("Plane"):
            layer = "planes"
        elif layer == "iterations" and not isinstance(pid, int):
            layer = "host"
        labels = str(metadata.get(("process_labels", pid, None), ""))
        number = _device(labels, pid, layer, device)
        rows.append((track, str(pid), str(tid), subtrack, process, label, layer, number, sort_key(metadata, pid, tid)))
    return pl.DataFrame(rows, TRACK_COLUMNS, orient="row")


def _device(labels: str, pid: int | str, layer: str, default: int) -> int | None:
    """`NPU 3`; else the low bits of the process number, where msprof keeps it."""
    word, _, number = labels.partition(" ")
    if word != "NPU":
        return default if layer in _DEVICE_LAYERS else None
    if re.fullmatch(r"[0-9]{1,9}", number.strip()):
        return int(number)
    return pid & 31 if isinstance(pid, int) and pid >= 1 << 24 and pid & 31 != 31 else default


def number_tracks(spans: pl.DataFrame, place: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The spans with the number of their track instead of the columns that identify it; and these columns of each track."""
    tracks = spans.select(place).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
    return spans.join(tracks, on=place, how="left", nulls_equal=True, maintain_order="left").drop(place), tracks


def tracks_in(tracks: pl.DataFrame, *layers: str) -> list[int]:
    return tracks.filter(pl.col("layer").is_in(layers))["track"].to_list()


def layers_of_spans(spans: pl.DataFrame, tracks: pl.DataFrame) -> pl.Series:
    return spans.select("track").join(tracks.select("track", "layer"), on="track", how="left", maintain_order="left")["layer"]


def track_table(tracks: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The table `tracks`, of the tracks that have spans."""
    used = tracks.filter(pl.col("track").is_in(spans["track"].unique().to_list()))
    hosts = dict(used.filter(pl.col("layer") == "host").select("pid", "process").iter_rows())
    rows = []
    for track, pid, tid, subtrack, process, name, layer, number, sort in used.iter_rows():
        label, device = name, number
        if layer in (*_DEVICE_LAYERS, "untimed"):
            group, kind = f"NPU {device}", {"planes": "communication", "untimed": "other"}.get(layer, "stream")
        elif layer == "iterations":
            group, kind = f"NPU {device or 0}", "annotation"
        elif layer == "cann":
            system_pid = _system_pid(pid, sort // 100_000)
            group, kind, label, device = f"{hosts.get(system_pid, 'CANN')} {system_pid}", "thread", f"{label} CANN", None
        else:
            group, device = f"{process or 'process'} {pid}".strip(), None
            kind = "annotation" if subtrack == "annotation" or layer == "scopes" else "async" if subtrack else "thread"
        rows.append((track, group, label, kind, device, sort, pid, tid))
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    types = {name: schema.TABLES["tracks"][name] for name in columns} | {"sort": pl.Int64}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    return add_track_columns(frame.sort("sort", "track").with_columns(sort=pl.int_range(pl.len(), dtype=pl.Int32)).lazy()).collect()


def _system_pid(pid: str, sort: int) -> str:
    """The process number of the system. msprof adds the index of the layer to it: by bits today, as decimals before 2024."""
    number = int(pid) if re.fullmatch(r"[0-9]{1,18}", pid) else 0
    if number >= 1 << 10 and number >> 5 & 31 == sort:
        return str(number >> 10)
    return pid[:-2] if number >= 100 and number % 100 == sort else pid


def device_table(tracks: pl.DataFrame) -> pl.DataFrame:
    numbers = tracks.filter(pl.col("layer").is_in(_DEVICE_LAYERS))["device"].unique().drop_nulls().sort()
    constants = {name: pl.Series([word] * len(numbers), dtype=pl.String) for name, word in (("name", "Ascend"), ("kind", "aicore"))}
    return pl.DataFrame({"device": numbers, **constants})
