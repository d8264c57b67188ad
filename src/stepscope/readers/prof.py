"""Ascend's raw data: a `PROF_*` directory as the device and CANN wrote it, or the slices of 2020, without Ascend's tools."""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import heap
from stepscope.errors import DataError
from stepscope.readers import (
    Options,
    _ascend_steps,
    _prof_2020,
    _prof_counters,
    _prof_found,
    _prof_host,
    _prof_host_older,
    _prof_marks,
    _prof_memory,
    _prof_spans,
    _prof_streams,
    _prof_usage,
)
from stepscope.readers._prof_files import Clock, Notes, Side, host_clock, number, raw_files, sides, wall
from stepscope.readers._prof_found import Found
from stepscope.readers._prof_host import Host
from stepscope.trace import Meta, Trace

FORMAT = "Ascend PROF_* directory"


def sniff(path: Path) -> bool:
    """A folder with `host` or `device_N` and raw data in it, or with slices of 2020."""
    if not path.is_dir():
        return False
    parts = [part for part in path.iterdir() if re.fullmatch(r"host|device_\d{1,6}", part.name) and part.is_dir()]
    return any(raw_files(part / "data") for part in parts) or _prof_2020.sniff(path)


def read(path: Path, options: Options) -> Trace:
    if _prof_2020.sniff(path):
        return _prof_2020.read(path, options)
    notes = Notes(path)
    host_side, device_sides = sides(path, notes)
    if host_side is not None and not host_side.raw:
        host_side = None
    host = _host(host_side, host_clock(host_side, device_sides, notes), notes) if host_side else None
    heap.give_back(host.tasks.height if host else 0)
    if host is None:
        notes.add(path, "no data of the host: tasks have no names")
    if not device_sides:
        notes.add(path, "no data of a device: only calls on the host")
    streams = _prof_streams.read(host_side, host, notes) if host_side and host else _prof_streams.NONE
    found = [_prof_found.read(side, host_side, host, streams, notes) for side in device_sides]
    if host is not None:
        host = host._replace(tasks=host.tasks.clear(), streams={})  # of millions: what ran has them
    for side in (host_side, *device_sides):
        if side is not None:
            _prof_counters.unread(side, notes)
    if host is None and not found:
        raise DataError(path, "neither host nor device data")
    return _assembled(path, host_side, host, found, notes, options)


def _host(side: Side, clock: Clock, notes: Notes) -> Host:
    older = _prof_host_older.claims(side) and not side.slices(r"(un)?aging\.compact\.task_track")
    if older:
        return _prof_host_older.read(side, clock, notes)
    return _prof_streams.with_captured(_prof_host.read(side, clock, notes), side, notes)


def rank(path: Path) -> int | None:
    """As the directory says; None where it does not. A job that is not distributed says -1."""
    host, devices = sides(path, Notes(path)) if not _prof_2020.sniff(path) else (None, [])
    said = [number(side.info["rank_id"]) for side in (host, *devices) if side and "rank_id" in side.info]
    return next((int(one) for one in said if 0 <= one < 2**31), -1 if said else None)


# Tables


def _assembled(path: Path, host_side: Side | None, host: Host | None, found: list[Found], notes: Notes, options: Options) -> Trace:
    info = (host_side.info if host_side else {}) or next((one.side.info for one in found if one.side.info), {})
    own = options.rank if options.rank is not None else _rank(info, found)
    steps = _steps(found, host)
    usage = _prof_usage.read(host_side, wall(host_side, notes), notes) if host_side else pl.DataFrame()
    parts = [_prof_spans.calls(host, steps, info)] if host else []
    if host_side:
        parts += _prof_spans.system_calls(host_side, info, notes)
    memory = _prof_memory.read(host_side, host, notes) if host_side and host else _prof_memory.NONE
    marks = _prof_marks.read(host_side, host.clock, host.words, notes) if host_side and host else pl.DataFrame()
    if marks.height:
        parts.append(_prof_spans.in_steps(_prof_marks.on_host(marks, _prof_spans.process(info), str(info.get("pid", ""))), steps))
    for place, one in enumerate(found):
        parts += _prof_spans.of_device(one, steps, marks)
        found[place] = one._replace(executions=one.executions.clear(), pmu=one.pmu.clear())
    parts = [part for part in parts if part.height]
    spans, tracks = _prof_spans.placed(parts)
    links = [_links(one, steps) for one in found]
    if steps.is_empty() and spans.height:
        steps = _whole(spans, notes)
        spans, links = (
            spans.with_columns(step=pl.lit(1, pl.Int32)),
            [rows.with_columns(step=pl.lit(1, pl.Int32)) for rows in links if rows.height],
        )
    samples = [frame for frame in (*(one.counters for one in found), usage, memory.counters) if frame.height]
    tables: dict[str, pl.DataFrame] = {
        "spans": spans,
        "tracks": tracks,
        "steps": steps.drop("device", "iteration", "model_id", strict=False),
        "counters": pl.concat([pl.DataFrame(schema=_prof_counters.COLUMNS), *samples]),
        "allocations": memory.blocks,
        "links": pl.concat(links, how="diagonal_relaxed") if links else pl.DataFrame(),
        "devices": pl.DataFrame([_chip(one.side) for one in found]),
        "problems": notes.frame(),
    }
    meta = Meta(
        source=str(path),
        format="prof",
        framework="cann",
        versions={"cann": str(info["cannVersion"])} if info.get("cannVersion") else {},
        ranks=[own],
        options=_options([side for side in (host_side, *(one.side for one in found)) if side]),
        extra=_extra(info, host) | {"clocks": {str(one.device.number): _counter(one) for one in found}},
    )
    return Trace(
        {name: rows.with_columns(rank=pl.lit(own, pl.Int32)) for name, rows in tables.items() if rows.height},
        meta,
        said=[part["said"] if "said" in part.columns else part.height for part in parts],
    )


def _rank(info: dict[str, Any], found: list[Found]) -> int:
    """As the directory says; -1 stands for a job that is not distributed."""
    said = int(number(info.get("rank_id", -1)))
    return said if 0 <= said < 2**31 else found[0].device.number if found else 0


def _options(sides: list[Side]) -> dict[str, Any]:
    """What was asked to be recorded."""
    side = next((side for side in sides if side.sample), None)
    said = {"ai_core_metrics": side.sample.get("ai_core_metrics"), "profLevel": side.level} if side else {}
    return {key: value for key, value in said.items() if value}


def _extra(info: dict[str, Any], host: Host | None) -> dict[str, Any]:
    extra: dict[str, Any] = {key: info[key] for key in ("hostname", "pid", "pid_name", "platform_version") if info.get(key)}
    if host is not None:
        extra["models"] = {str(number): name for number, name in host.models.items()}
        extra["fusions"] = host.fusions.to_dicts()
    return extra


def _counter(one: Found) -> dict[str, Any]:
    """How a device's counter tells the time: what it showed at the start, and what the monotonic clock and that of the day showed then."""
    clock = one.device.clock
    past = wall(one.side, Notes(one.side.path))
    return {
        "cntvct": clock.base,
        "monotonic_ns": clock.origin_ns - past,
        "start_ns": clock.origin_ns,
        "hertz": float(10**9 / clock.tick_ns),
    }


def _chip(side: Side) -> dict[str, object]:
    return {
        "device": side.device,
        "name": f"Ascend, chip {side.chip}" if side.chip else "Ascend",
        "kind": "aicore",
        "cores": side.cores("ai_core_num") or None,
        "clock_hz": side.core_hertz or None,
    }


def _steps(found: list[Found], host: Host | None) -> pl.DataFrame:
    """Iterations of all models of all devices, numbered in the order in which they ended."""
    parts = [one.steps.iterations.drop("step").with_columns(device=pl.lit(one.device.number, pl.Int64)) for one in found]
    parts = [part for part in parts if part.height]
    if not parts:
        return pl.DataFrame()
    names = host.models if host else {}
    rows = pl.concat(parts).sort("end_ns", maintain_order=True)
    model = pl.col("model").replace_strict(names, default=None, return_dtype=pl.String)
    return rows.select(
        "device",
        "iteration",
        "start_ns",
        "end_ns",
        "fp_start_ns",
        "bp_end_ns",
        step=pl.int_range(1, pl.len() + 1, dtype=pl.Int32),
        model_id=pl.col("model"),
        model=pl.coalesce(model, pl.format("model {}", "model")),
        phase=pl.when(pl.col("bp_end_ns").is_null().all().over("device", "model")).then(pl.lit("infer")).otherwise(pl.lit("train")),
        how=pl.lit("marker"),
    )


def _whole(spans: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    notes.add("", "no iterations are marked: everything is one step")
    return _ascend_steps.whole(spans)


def _links(one: Found, steps: pl.DataFrame) -> pl.DataFrame:
    operators, planes = one.communication
    if planes.is_empty():
        return pl.DataFrame(schema={"op": pl.String})
    rows = _prof_spans.of_operators(planes.filter(pl.col("size") > 0, pl.col("dst") != _prof_spans.NO_MODEL), operators)
    mine = steps.filter(pl.col("device") == one.device.number) if steps.height else steps
    rows = _prof_spans.in_steps(rows.drop("step", "model_id", strict=False), mine)
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        op="of",
        src=pl.col("src").cast(pl.Int32, strict=False),
        dst=pl.col("dst").cast(pl.Int32, strict=False),
        transport=pl.when(pl.col("transport") == "RDMA").then(pl.lit("RDMA")).otherwise("link"),
        bytes="size",
        dur_ns="transfer_ns",
    )
