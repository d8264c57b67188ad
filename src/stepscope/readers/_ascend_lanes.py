"""Tracks of what Ascend's tools write: the layer that each is of, by the name of its process, and the device."""

import re
from typing import Any

import polars as pl

from stepscope import schema
from stepscope.readers import _kineto
from stepscope.readers._chrome_events import Report

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
_TELLING = {"Ascend Hardware", "CANN", "HCCL", "Overlap Analysis", "Scope Layer", "CPU OP"}


def claims(reports: list[Report]) -> bool:
    """Whether a file of Chrome events is of Ascend's tools."""
    named = (_first(args) for report in reports for name, _, _, args in report.metadata if name == "process_name")
    return any(isinstance(process, str) and process in _TELLING for process in named)


def _first(args: object) -> object:
    return next(iter(args.values()), None) if isinstance(args, dict) else None


LANES = {
    "track": pl.Int32,
    "pid": pl.String,
    "tid": pl.String,
    "apart": pl.String,
    "process": pl.String,
    "label": pl.String,
    "layer": pl.String,
    "device": pl.Int32,
    "sort": pl.Int64,
}


def lanes_of(tracks: dict[tuple[int | str, int | str, str], int], reports: list[Report], device: int) -> pl.DataFrame:
    """What the metadata says of each track: its process, its name, its layer, and the device it is of."""
    said: dict[tuple[str, int | str, int | str | None], Any] = {}
    for report in reports:
        for name, pid, tid, args in report.metadata:
            said[(name, pid, tid if name.startswith("thread") else None)] = _first(args)
    rows = []
    for (pid, tid, apart), track in tracks.items():
        process = str(said.get(("process_name", pid, None), "")).strip()
        label = str(said.get(("thread_name", pid, tid), tid)).strip()
        layer = _LAYERS.get(process, "host")
        if layer == "hardware" and not label.startswith("Stream") and "Model ID" in label:
            layer = "iterations"
        elif layer == "communication" and label.startswith("Plane"):
            layer = "planes"
        elif layer == "iterations" and not isinstance(pid, int):
            layer = "host"
        labels = str(said.get(("process_labels", pid, None), ""))
        number = _device(labels, pid, layer, device)
        rows.append((track, str(pid), str(tid), apart, process, label, layer, number, _kineto.order(said, pid, tid)))
    return pl.DataFrame(rows, LANES, orient="row")


def _device(labels: str, pid: int | str, layer: str, usual: int) -> int | None:
    """`NPU 3`; else the low bits of the process number, where msprof keeps it."""
    word, _, number = labels.partition(" ")
    if word != "NPU":
        return usual if layer in ("hardware", "communication", "planes") else None
    if re.fullmatch(r"[0-9]{1,9}", number.strip()):
        return int(number)
    return pid & 31 if isinstance(pid, int) and pid >= 1 << 24 and pid & 31 != 31 else usual


def of_layers(lanes: pl.DataFrame, *layers: str) -> list[int]:
    return lanes.filter(pl.col("layer").is_in(layers))["track"].to_list()


def tracks_of(lanes: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    used = lanes.filter(pl.col("track").is_in(spans["track"].unique().to_list()))
    hosts = dict(used.filter(pl.col("layer") == "host").select("pid", "process").iter_rows())
    rows = []
    for track, pid, tid, apart, process, named, layer, number, sort in used.iter_rows():
        label, device = named, number
        own = _system_pid(pid, sort // 100_000)
        if layer in ("hardware", "communication", "planes", "elsewhere"):
            group, kind = f"NPU {device}", {"planes": "communication", "elsewhere": "other"}.get(layer, "stream")
        elif layer == "iterations":
            group, kind = f"NPU {device or 0}", "annotation"
        elif layer == "cann":
            group, kind, label, device = f"{hosts.get(own, 'CANN')} {own}", "thread", f"{label} CANN", None
        else:
            group, device = f"{process or 'process'} {pid}".strip(), None
            kind = "annotation" if apart == "annotation" or layer == "scopes" else "async" if apart else "thread"
        rows.append((track, group, label, kind, device, sort, pid, tid))
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    types = {name: schema.TABLES["tracks"][name] for name in columns} | {"sort": pl.Int64}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    return frame.sort("sort", "track").with_columns(sort=pl.int_range(pl.len(), dtype=pl.Int32))


def _system_pid(pid: str, sort: int) -> str:
    """msprof's number of a process holds that of the system and the layer's place: today shifted, before 2024 as decimals."""
    number = int(pid) if re.fullmatch(r"[0-9]{1,18}", pid) else 0
    if number >= 1 << 10 and number >> 5 & 31 == sort:
        return str(number >> 10)
    return pid[:-2] if number >= 100 and number % 100 == sort else pid


def devices_of(lanes: pl.DataFrame) -> pl.DataFrame:
    numbers = lanes.filter(pl.col("layer").is_in(["hardware", "communication", "planes"]))["device"].unique().drop_nulls().sort()
    words = {name: pl.Series([word] * len(numbers), dtype=pl.String) for name, word in (("name", "Ascend"), ("kind", "aicore"))}
    return pl.DataFrame({"device": numbers, **words})
