"""Raw data of Ascend devices and CANN: `PROF_*` directories, and the slices of 2020, decoded without Ascend's tools."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.columns.counters import COLUMNS
from stepscope.model.trace import Meta, Trace
from stepscope.process import heap
from stepscope.readers import Options
from stepscope.readers.ascend.common import steps as ascend_steps
from stepscope.readers.ascend.prof import device_data, format_2020
from stepscope.readers.ascend.prof import memory as prof_memory
from stepscope.readers.ascend.prof import spans as prof_spans
from stepscope.readers.ascend.prof.device import counters
from stepscope.readers.ascend.prof.device_data import DeviceData
from stepscope.readers.ascend.prof.files import Clock, Notes, Side, host_clock, number, raw_files, sides, wall
from stepscope.readers.ascend.prof.host import marks as prof_marks
from stepscope.readers.ascend.prof.host import records, records_cann5
from stepscope.readers.ascend.prof.host import streams as prof_streams
from stepscope.readers.ascend.prof.host import usage as prof_usage
from stepscope.readers.ascend.prof.host.records import Host

FORMAT = "Ascend PROF_* directory"
_CORE_TASKS = r"^(AI_CORE|AI_VECTOR_CORE|AI_CPU|KERNEL_AI\w+|MIX_AI\w|AI[CV]_SQE)$"
_LOST = 0.1  # of the tasks of a step on cores: a few may have no record of the host


def sniff(path: Path) -> bool:
    """A folder with `host` or `device_N` and raw data in it, or with slices of 2020."""
    if not path.is_dir():
        return False
    parts = [part for part in path.iterdir() if re.fullmatch(r"host|device_\d{1,6}", part.name) and part.is_dir()]
    return any(raw_files(part / "data") for part in parts) or format_2020.sniff(path)


def read(path: Path, options: Options) -> Trace:
    if format_2020.sniff(path):
        return format_2020.read(path, options)
    notes = Notes(path)
    host_side, device_sides = sides(path, notes)
    if host_side is not None and not host_side.raw:
        host_side = None
    host = _host(host_side, host_clock(host_side, device_sides), notes) if host_side else None
    heap.give_back(host.tasks.height if host else 0)
    if host is None:
        notes.add(path, "no host data: tasks have no names")
    if not device_sides:
        notes.add(path, "no device data: only calls on the host")
    streams = prof_streams.read(host_side, host, notes) if host_side and host else prof_streams.NONE
    devices = [device_data.read(side, host_side, host, streams, notes) for side in device_sides]
    if host is not None:
        host = host._replace(tasks=host.tasks.clear(), streams={})  # large, and the executions contain them
    for side in (host_side, *device_sides):
        if side is not None:
            counters.report_unread_files(side, notes)
    if host is None and not devices:
        raise DataError(path, "neither host nor device data")
    return _assemble(path, host_side, host, devices, notes, options)


def _host(side: Side, clock: Clock, notes: Notes) -> Host:
    older = records_cann5.claims(side) and not side.slices(r"(un)?aging\.compact\.task_track")
    if older:
        return records_cann5.read(side, clock, notes)
    return prof_streams.with_captured(records.read(side, clock, notes), side, notes)


def rank(path: Path) -> int | None:
    """The rank in the directory's files; None if they contain none, -1 for a job that is not distributed."""
    host, devices = sides(path, Notes(path)) if not format_2020.sniff(path) else (None, [])
    ranks = [number(side.info["rank_id"]) for side in (host, *devices) if side and "rank_id" in side.info]
    return next((int(rank) for rank in ranks if 0 <= rank < 2**31), -1 if ranks else None)


# Tables


def _assemble(path: Path, host_side: Side | None, host: Host | None, devices: list[DeviceData], notes: Notes, options: Options) -> Trace:
    info = (host_side.info if host_side else {}) or next((device.side.info for device in devices if device.side.info), {})
    steps = _steps(devices, host)
    memory = prof_memory.read(host_side, host, notes) if host_side and host else prof_memory.NONE
    samples = [device.counters for device in devices]
    samples += [prof_usage.read(host_side, wall(host_side), notes)] if host_side else []
    links = [_links(device, steps) for device in devices]
    tables = prof_spans.tables(_parts(host_side, host, devices, steps, info, notes))
    if steps.is_empty() and "spans" in tables:
        steps = _single_step(tables["spans"].lazy().drop("args").collect(), notes)
        tables["spans"] = tables["spans"].with_columns(step=pl.lit(1, pl.Int32))
        links = [rows.with_columns(step=pl.lit(1, pl.Int32)) for rows in links if rows.height]
    tables |= {
        "steps": _with_lost_work(steps, tables),
        "counters": pl.concat(
            [pl.DataFrame(schema=COLUMNS), *(frame for frame in (*samples, memory.counters) if frame.height)], how="diagonal"
        ),
        "allocations": memory.blocks,
        "links": pl.concat(links, how="diagonal_relaxed") if links else pl.DataFrame(),
        "devices": pl.DataFrame([_chip(device) for device in devices]),
        "problems": notes.frame(),
    }
    if host is not None:
        tables["models"] = pl.DataFrame(list(host.models.items()), schema={"model": pl.Int64, "name": pl.String}, orient="row")
        tables["fusions"] = host.fusions
    if info.get("hostname"):
        tables["hosts"] = pl.DataFrame({"host": [str(info["hostname"])]})
    rank = options.rank if options.rank is not None else _rank(info, devices)
    meta = Meta(
        source=str(path),
        format="prof",
        framework="cann",
        versions={"cann": str(info["cannVersion"])} if info.get("cannVersion") else {},
        ranks=[rank],
        options=_options([side for side in (host_side, *(device.side for device in devices)) if side]),
        extra={key: info[key] for key in ("pid", "pid_name", "platform_version") if info.get(key)},
    )
    filled = {name: rows for name, rows in tables.items() if isinstance(rows, pl.LazyFrame) or rows.height}
    return Trace({name: rows.with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in filled.items()}, meta)


def _with_lost_work(steps: pl.DataFrame, tables: Mapping[str, pl.DataFrame | pl.LazyFrame]) -> pl.DataFrame:
    """The steps, marked if the host's records of tasks on cores are missing: what these tasks did, and whether they compute, is unknown."""
    if "spans" not in tables or steps.is_empty():
        return steps
    spans = tables["spans"].lazy()
    unknown = pl.col("kind") == "other"
    if "op_type" in spans.collect_schema():
        unknown &= pl.col("op_type").is_null()
    on_core = spans.filter(pl.col("category").cast(pl.String).str.contains(_CORE_TASKS))
    lost = on_core.group_by(pl.col("step").cast(pl.Int32)).agg(share=unknown.mean()).filter(pl.col("share") > _LOST).collect()
    return steps.with_columns(device_work_lost=pl.when(pl.col("step").cast(pl.Int32).is_in(lost["step"].implode())).then(True))


def _parts(
    host_side: Side | None, host: Host | None, devices: list[DeviceData], steps: pl.DataFrame, info: dict[str, Any], notes: Notes
) -> list[prof_spans.Part]:
    """All spans. Executions and counters of the cores, which may be millions, are dropped from `devices` once they are spans."""
    parts = [prof_spans.calls(host, steps, info)] if host else []
    parts += prof_spans.system_calls(host_side, info, notes) if host_side else []
    marks = prof_marks.read(host_side, host.clock, host.words, notes) if host_side and host else pl.DataFrame()
    if marks.height:
        spans = prof_marks.on_host(marks, prof_spans.process(info), str(info.get("pid", "")))
        parts.append(prof_spans.Part(prof_spans.in_steps(spans, steps), "marks"))
    for place, device in enumerate(devices):
        parts += prof_spans.device_parts(device, steps, marks)
        devices[place] = device._replace(executions=device.executions.clear(), pmu=device.pmu.clear())
    return parts


def _rank(info: dict[str, Any], devices: list[DeviceData]) -> int:
    """The recorded rank; the device number for a job that is not distributed (-1)."""
    rank = int(number(info.get("rank_id", -1)))
    return rank if 0 <= rank < 2**31 else devices[0].device.number if devices else 0


def _options(sides: list[Side]) -> dict[str, Any]:
    side = next((side for side in sides if side.sample), None)
    options = {"ai_core_metrics": side.sample.get("ai_core_metrics"), "profLevel": side.level} if side else {}
    return {key: value for key, value in options.items() if value}


def _chip(device: DeviceData) -> dict[str, object]:
    side, clock = device.side, device.device.clock
    return {
        "device": side.device,
        "name": f"Ascend, chip {side.chip}" if side.chip else "Ascend",
        "kind": "aicore",
        "cores": side.cores("ai_core_num") or None,
        "clock_hz": side.core_hertz or None,
        "counter_hz": float(10**9 / clock.tick_ns),
        "counter_start": clock.base,
        "monotonic_ns": clock.origin_ns - wall(side),
        "wall_ns": clock.origin_ns,
    }


def _steps(devices: list[DeviceData], host: Host | None) -> pl.DataFrame:
    """Iterations of all models of all devices, numbered in the order in which they ended."""
    parts = [device.steps.iterations.drop("step").with_columns(device=pl.lit(device.device.number, pl.Int64)) for device in devices]
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


def _single_step(spans: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    notes.add("", "no iterations are marked: the whole recording is one step")
    return ascend_steps.single_step(spans)


def _links(device: DeviceData, steps: pl.DataFrame) -> pl.DataFrame:
    operators, planes = device.communication
    if planes.is_empty():
        return pl.DataFrame(schema={"op": pl.String})
    rows = prof_spans.with_operators(planes.filter(pl.col("size") > 0, pl.col("dst") != prof_spans.NO_MODEL), operators)
    steps = steps.filter(pl.col("device") == device.device.number) if steps.height else steps
    rows = prof_spans.in_steps(rows.drop("step", "model_id", strict=False), steps)
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        op="operator",
        src=pl.col("src").cast(pl.Int32, strict=False),
        dst=pl.col("dst").cast(pl.Int32, strict=False),
        transport=pl.when(pl.col("transport") == "RDMA").then(pl.lit("RDMA")).otherwise("link"),
        bytes="size",
        dur_ns="transfer_ns",
    )
