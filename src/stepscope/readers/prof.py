"""Ascend's raw data: a `PROF_*` directory as the device and CANN wrote it, or the slices of 2020, without Ascend's tools."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope import heap, schema
from stepscope.errors import DataError
from stepscope.intervals import Ints
from stepscope.readers import (
    Options,
    _prof_2020,
    _prof_communication,
    _prof_counters,
    _prof_device,
    _prof_host,
    _prof_host_older,
    _prof_marks,
    _prof_pmu,
    _prof_steps,
    _prof_tasks,
    _prof_usage,
)
from stepscope.readers._prof_communication import Communication
from stepscope.readers._prof_device import Device
from stepscope.readers._prof_files import Clock, Notes, Side, begin, device_clock, device_start, host_clock, number, raw_files, sides, wall
from stepscope.readers._prof_host import Host
from stepscope.trace import Meta, Trace, complete

_NO_MODEL = 2**32 - 1
_CHIPS = {"0", "1", "2", "3", "4", "5", "7", "8", "9", "11", "15", "16"}
_SYNCHRONIZING = r"(?i)synchronize"


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
    heap.give_back()
    if host is None:
        notes.add(path, "no data of the host: tasks have no names")
    if not device_sides:
        notes.add(path, "no data of a device: only calls on the host")
    found = [_device(side, host_side, host, notes) for side in device_sides]
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
    return _prof_host_older.read(side, clock, notes) if older else _prof_host.read(side, clock, notes)


def rank(path: Path) -> int | None:
    """As the directory says; a job that is not distributed says -1."""
    host, devices = sides(path, Notes(path)) if not _prof_2020.sniff(path) else (None, [])
    said = (number(side.info["rank_id"]) for side in (host, *devices) if side and "rank_id" in side.info)
    return next((int(one) for one in said if 0 <= one < 2**31), None)


class _Found(NamedTuple):
    """One device: what ran on it and what that was."""

    side: Side
    device: Device
    executions: pl.DataFrame
    pmu: pl.DataFrame
    communication: Communication
    steps: _prof_steps.Steps
    counters: pl.DataFrame
    aicpu: pl.DataFrame  # what operators said of themselves whose tasks are not known


def _device(side: Side, host_side: Side | None, host: Host | None, notes: Notes) -> _Found:
    chip = side.chip or (host_side.chip if host_side else "")
    if chip not in _CHIPS:
        notes.add(side.path, f"the chip '{chip}' is not known: read as the files suggest")
    stars = any(name.startswith("stars_soc") for name in side.raw)
    clock, placed = device_clock(side, host_side, 50 if stars else 100, notes)
    device = _prof_device.read(side, clock, notes)
    if chip in _prof_device.NEWEST and host is not None:
        device = _on_streams(device, host)
    executions = _prof_tasks.joined(device, host)
    if not placed:
        device, executions = _moved(side, device, executions, notes)
    heap.give_back()
    steps = _prof_steps.read(device.steps)
    if steps.unfinished:
        notes.add(
            side.path, f"{steps.unfinished} iterations did not end while this was recorded: not in the steps", steps.unfinished, "ts_track"
        )
    at_ns, hertz = _prof_pmu.frequencies(side, device.clock, notes)
    executions, alone = _with_aicpu(executions, _prof_device.aicpu(side, device.clock, notes))
    executions = _with_receipts(executions, device.copies)
    return _Found(
        side,
        device,
        executions,
        _prof_pmu.read(side, device, executions, notes),
        _prof_communication.read(executions, host),
        steps,
        pl.concat(
            [_clocks(device, at_ns, hertz), _prof_counters.read(side, device.clock, device_start(side), notes), _on_device(side, notes)]
        ),
        alone,
    )


def _on_streams(device: Device, host: Host) -> Device:
    """Tasks of the newest chips have numbers of their own whatever their stream, which only the host knows."""
    known = host.tasks.filter(pl.col("device") == device.number).select("task", of_host="stream").unique("task", keep="first")
    tasks = device.tasks.join(known, on="task", how="left", maintain_order="left")
    return device._replace(tasks=tasks.with_columns(stream=pl.coalesce("of_host", "stream")).drop("of_host"))


def _on_device(side: Side, notes: Notes) -> pl.DataFrame:
    """What the device's own processors do. They run on its monotonic clock."""
    return _prof_usage.read(side, device_clock(side, None, 1, Notes(notes.root))[0].origin_ns - device_start(side), notes)


def _clocks(device: Device, at_ns: Ints, hertz: Ints) -> pl.DataFrame:
    rows = pl.DataFrame({"at_ns": at_ns, "value": hertz.astype(np.float64)})
    return rows.select(name=pl.lit(f"aicore clock npu {device.number}"), at_ns="at_ns", value="value", unit=pl.lit("Hz"))


def _moved(side: Side, device: Device, executions: pl.DataFrame, notes: Notes) -> tuple[Device, pl.DataFrame]:
    """Without the counter's reading at the start, all that is known is that nothing runs before its launch."""
    late = (executions["start_ns"] - executions["at_ns"]).min()
    first = executions["start_ns"].min()
    by = late if isinstance(late, int) else first - device.clock.origin_ns if isinstance(first, int) else 0
    notes.add(side.path, "the device's clock has no start: its times are moved so that the first task runs when it is launched")
    times = ("start_ns", "end_ns", "whole_ns", "whole_end_ns")
    moved = device._replace(
        tasks=device.tasks.with_columns(pl.col("start_ns", "end_ns") - by),
        steps=device.steps.with_columns(pl.col("at_ns") - by),
        clock=device.clock._replace(origin_ns=device.clock.origin_ns - by),
    )
    return moved, executions.with_columns(pl.col(times) - by)


def _with_aicpu(executions: pl.DataFrame, aicpu: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What AI CPU operators said of themselves, beside the task that ran them; and what is of no task that is known."""
    if aicpu.is_empty():
        return executions.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _AICPU), aicpu
    runs = executions.select("execution", "stream", "task", "start_ns", until="end_ns").sort("start_ns")
    told = aicpu.with_columns(
        pl.col("start_ns").alias("aicpu start_ns"), run_ns=pl.col("end_ns") - pl.col("start_ns"), total_ns="waited_ns"
    )
    told = told.sort("start_ns").join_asof(runs, on="start_ns", by=["stream", "task"], check_sortedness=False)
    mine = pl.col("execution").is_not_null() & (pl.col("start_ns") <= pl.col("until")) & pl.col("execution").is_first_distinct()
    told = told.with_columns(mine=mine.fill_null(False))
    own = told.filter("mine").select("execution", *_AICPU)
    return executions.join(own, on="execution", how="left", maintain_order="left"), told.filter(~pl.col("mine"))


_AICPU = ("aicpu start_ns", "compute_us", "memcpy_us", "dispatch_us", "run_ns", "total_ns")


def _with_receipts(executions: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """When the scheduler got a copy to make: it says so beside the log of tasks."""
    if copies.is_empty():
        return executions.with_columns(received_ns=pl.lit(None, pl.Int64))
    runs = executions.select("execution", "stream", "task", "start_ns").sort("start_ns")
    told = copies.sort("start_ns").join_asof(runs, on="start_ns", by=["stream", "task"], strategy="nearest", check_sortedness=False)
    told = told.filter(pl.col("execution").is_not_null()).unique("execution", keep="first", maintain_order=True)
    return executions.join(told.select("execution", "received_ns"), on="execution", how="left", maintain_order="left")


# Tables


def _assembled(path: Path, host_side: Side | None, host: Host | None, found: list[_Found], notes: Notes, options: Options) -> Trace:
    info = (host_side.info if host_side else {}) or next((one.side.info for one in found if one.side.info), {})
    own = options.rank if options.rank is not None else _rank(info, found)
    steps = _steps(found, host)
    usage = _prof_usage.read(host_side, wall(host_side, notes), notes) if host_side else pl.DataFrame()
    parts = [_calls(host, steps, info)] if host else []
    if host_side:
        parts += _system_calls(host_side, info, notes)
    marks = _prof_marks.read(host_side, host.clock, host.words, notes) if host_side and host else pl.DataFrame()
    if marks.height:
        parts.append(_in_steps(_prof_marks.on_host(marks, _process(info), str(info.get("pid", ""))), steps))
    for place, one in enumerate(found):
        parts += _of_device(one, steps, marks)
        found[place] = one._replace(executions=one.executions.clear(), pmu=one.pmu.clear())
    parts = [part for part in parts if part.height]
    spans, tracks = _placed(parts)
    links = [_links(one, steps) for one in found]
    if steps.is_empty() and spans.height:
        steps = _whole(spans, notes)
        spans, links = (
            spans.with_columns(step=pl.lit(1, pl.Int32)),
            [rows.with_columns(step=pl.lit(1, pl.Int32)) for rows in links if rows.height],
        )
    tables: dict[str, pl.DataFrame] = {
        "spans": spans,
        "tracks": tracks,
        "steps": steps.drop("device", "iteration", "model_id", strict=False),
        "counters": pl.concat([*(one.counters for one in found), *([usage] if usage.height else [])])
        if found or usage.height
        else pl.DataFrame(),
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
        options={key: value for key in ("ai_core_metrics", "profLevel") if host_side and (value := host_side.sample.get(key))},
        extra=_extra(info, host),
    )
    return Trace(
        {name: rows.with_columns(rank=pl.lit(own, pl.Int32)) for name, rows in tables.items() if rows.height},
        meta,
        said=[part["said"] if "said" in part.columns else part.height for part in parts],
    )


def _rank(info: dict[str, Any], found: list[_Found]) -> int:
    """As the directory says; -1 stands for a job that is not distributed."""
    said = int(number(info.get("rank_id", -1)))
    return said if 0 <= said < 2**31 else found[0].device.number if found else 0


def _extra(info: dict[str, Any], host: Host | None) -> dict[str, Any]:
    extra: dict[str, Any] = {key: info[key] for key in ("hostname", "pid", "pid_name", "platform_version") if info.get(key)}
    if host is not None:
        extra["models"] = {str(number): name for number, name in host.models.items()}
        extra["fusions"] = host.fusions.to_dicts()
    return extra


def _chip(side: Side) -> dict[str, object]:
    return {
        "device": side.device,
        "name": f"Ascend, chip {side.chip}" if side.chip else "Ascend",
        "kind": "aicore",
        "cores": side.cores("ai_core_num") or None,
        "clock_hz": side.core_hertz or None,
    }


def _steps(found: list[_Found], host: Host | None) -> pl.DataFrame:
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
    device = spans.filter(~pl.col("kind").is_in(["api", "sync", "annotation"]))
    spans = device if device.height else spans
    return pl.DataFrame(
        {
            "step": [1],
            "start_ns": [spans["start_ns"].min()],
            "end_ns": [(spans["start_ns"] + spans["dur_ns"]).max()],
            "how": ["whole"],
        }
    )


def _calls(host: Host, steps: pl.DataFrame, info: dict[str, Any]) -> pl.DataFrame:
    """Calls on the host, in their own order: the row of a call is its span."""
    process = _process(info)
    rows = host.calls.with_columns(pl.col("row").cast(pl.Int64), pl.col(pl.String).cast(schema.Text))
    model = host.around.find("model", rows["thread"].to_numpy(), rows["start_ns"].to_numpy())
    rows = rows.with_columns(around=pl.Series(model))
    if steps.height:
        runs = host.calls.filter(pl.col("level") == "model").select(
            around=pl.col("row").cast(pl.Int64), model_id=pl.col("item_number").cast(pl.Int64, strict=False), iteration="request"
        )
        runs = runs.join(
            steps.select("model_id", "iteration", "step").unique(["model_id", "iteration"], keep="first"),
            on=["model_id", "iteration"],
            how="left",
        )
        rows = rows.join(runs.select("around", "step"), on="around", how="left", maintain_order="left")
    name = pl.when(pl.col("level") == "communication").then(pl.coalesce("item", "name")).otherwise("name")
    names = rows["name"].unique().cast(pl.String)
    kind = (
        pl.when(pl.col("name").is_in(names.filter(names.str.contains(_SYNCHRONIZING)).to_list()))
        .then(pl.lit("sync"))
        .when(pl.col("level") == "msproftx")
        .then(pl.lit("annotation"))
        .otherwise(pl.lit("api"))
    )
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        name=name,
        kind=kind.cast(schema.Kind),
        category="level",
        correlation="connection",
        start_ns="start_ns",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        said=pl.struct("level", "request", "event", type="name", id="item", item_id="item_number", Mode=pl.coalesce(_family(), "name")),
        group=pl.lit(process, schema.Text),
        lane=pl.format("Thread {}", "thread").cast(schema.Text),
        track_kind=pl.lit("thread", schema.Text),
        pid=pl.lit(str(info.get("pid", "")), schema.Text),
        tid=pl.col("thread").cast(pl.String).cast(schema.Text),
    )


def _process(info: dict[str, Any]) -> str:
    return f"{info.get('pid_name') or 'host'} {info.get('pid', '')}".strip()


def _system_calls(side: Side, info: dict[str, Any], notes: Notes) -> list[pl.DataFrame]:
    rows = _prof_usage.calls(side, begin(side, notes), notes)
    if rows.is_empty():
        return []
    return [
        rows.select(
            "name",
            "category",
            "start_ns",
            "dur_ns",
            kind=pl.lit("api"),
            group=pl.lit(_process(info)),
            lane=pl.format("Thread {} system", "thread"),
            track_kind=pl.lit("thread"),
            pid=pl.lit(str(info.get("pid", ""))),
            tid=pl.format("{} system", "thread"),
        )
    ]


def _family() -> pl.Expr:
    """What kind of call a call of AscendCL is."""
    words = {1: "ACL_OP", 2: "ACL_MODEL", 3: "ACL_RTS", 4: "ACL_OTHERS", 5: "ACL_NN", 6: "ACL_ASCENDC"}
    words |= {7: "HOST_HCCL", 9: "ACL_DVPP", 10: "ACL_GRAPH"}
    number = (pl.col("type") // 65536).cast(pl.Int64, strict=False)
    return pl.when(pl.col("level") == "acl").then(number.replace_strict(words, default=None, return_dtype=schema.Text))


def _of_device(one: _Found, steps: pl.DataFrame, marks: pl.DataFrame) -> list[pl.DataFrame]:
    lane = {
        "group": pl.lit(f"NPU {one.device.number}", schema.Text),
        "pid": pl.lit(str(one.device.number), schema.Text),
        "device": pl.lit(one.device.number),
    }
    mine = steps.filter(pl.col("device") == one.device.number) if steps.height else steps
    parts = [part.with_columns(**lane) for part in _tasks(one, mine)]
    operators, planes = one.communication
    if operators.height:
        parts.append(_in_steps(_collectives(operators), mine).with_columns(**lane))
    if planes.height:
        parts.append(_in_steps(_planes(planes, operators), mine).with_columns(**lane))
    ranges = one.steps.ranges
    if ranges.height:
        parts.append(_in_steps(_tagged(ranges, operators.height > 0), mine).with_columns(**lane))
    if one.aicpu.height:
        parts.append(_in_steps(_alone(one.aicpu), mine).with_columns(**lane))
    marked = _prof_marks.on_device(marks, one.device)
    if marked.height:
        parts.append(_in_steps(marked, mine).with_columns(**lane))
    if mine.height:
        parts.append(
            mine.select(
                "step",
                "start_ns",
                name=pl.format("Iteration {}", "iteration"),
                kind=pl.lit("step"),
                dur_ns=pl.col("end_ns") - pl.col("start_ns"),
                lane=pl.format("Step Trace ({})", "model"),
                track_kind=pl.lit("annotation"),
                tid=pl.format("model {}", "model_id"),
            ).with_columns(**lane)
        )
    return parts


def _in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """With the step in which each started: that of its own model where it is known, as models may run at the same time."""
    if steps.is_empty():
        return rows
    rows = rows.with_row_index("order").sort("start_ns", maintain_order=True)
    windows = steps.select("step", "start_ns", "model_id", until="end_ns").sort("start_ns")
    if "model_id" in rows.columns:
        rows = rows.join_asof(windows, on="start_ns", by="model_id", check_sortedness=False).rename({"step": "own", "until": "own_until"})
    rows = rows.join_asof(windows.drop("model_id"), on="start_ns")
    step: pl.Expr = pl.when(pl.col("start_ns") < pl.col("until")).then("step")
    if "own" in rows.columns:
        step = pl.coalesce(pl.when(pl.col("start_ns") < pl.col("own_until")).then("own"), pl.when(pl.col("own").is_null()).then(step))
    return rows.with_columns(step=step).sort("order").drop("order", "until", "own", "own_until", strict=False)


_TASK_ARGS = {
    "Model Id": pl.col("model_id").fill_null(_NO_MODEL),
    "Task Type": pl.col("category"),
    "Physic Stream Id": pl.col("stream"),
    "Task Id": pl.col("task"),
    "Batch Id": pl.col("batch"),
    "Subtask Id": pl.col("context"),
    "connection_id": pl.col("connection"),
    "runtime type": pl.col("host_type"),
    "kernel_name": pl.col("kernel"),
    "launched_ns": pl.col("at_ns"),
}
_DIRECTIONS = (
    *("host to host", "host to device", "device to host", "device to device", "managed memory"),
    *("address device to device", "host to device ex", "device to host ex"),
)
_COPY_ARGS = {
    "size(B)": pl.col("bytes"),
    "operation": pl.col("direction").replace_strict(dict(enumerate(_DIRECTIONS)), default=None, return_dtype=pl.String),
}
_KERNEL_ARGS = {
    "Op Name": pl.coalesce("part", "op", "node_item", "kernel"),
    "OP Type": pl.col("op_type"),
    "OP State": pl.when(pl.col("static_op")).then(pl.lit("static")).when(~pl.col("static_op")).then(pl.lit("dynamic")).cast(schema.Text),
    "Block Num": pl.col("blocks"),
    "Mix Block Num": pl.col("mix_blocks"),
    "HF32 Eligible": pl.when(pl.col("hf32")).then(pl.lit("YES")).when(~pl.col("hf32")).then(pl.lit("NO")).cast(schema.Text),
    **{
        name: pl.col(name)
        for name in ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats")
    },
    "attributes": pl.col("attributes"),
}


def _tasks(one: _Found, steps: pl.DataFrame) -> list[pl.DataFrame]:
    rows = one.executions.with_columns(pl.col("model_id").cast(pl.Int64, strict=False), dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = _only(rows, pl.col("dur_ns") >= 0)
    if steps.height:
        rows = rows.with_columns(_in_steps(rows.select("start_ns", "model_id"), steps)["step"])
    kernels = _only(rows, pl.col("kind") == "kernel")
    others = rows.filter(pl.col("kind") != "kernel")
    parts = []
    if kernels.height:
        about = dict(_TASK_ARGS) | _KERNEL_ARGS
        if one.pmu.height:
            kernels = kernels.join(one.pmu, on="execution", how="left", maintain_order="left")
            about |= {name: pl.col(name) for name in one.pmu.columns if name != "execution"}
        if kernels["run_ns"].count():
            about |= {name: pl.col(name) for name in _AICPU}
        outside = (pl.col("whole_ns") != pl.col("start_ns")) | (pl.col("whole_end_ns") != pl.col("end_ns"))
        if kernels.select(outside.any()).item():
            about |= {
                "task start_ns": pl.when(outside).then("whole_ns"),
                "task dur_ns": pl.when(outside).then(pl.col("whole_end_ns") - pl.col("whole_ns")),
            }
        parts.append(kernels.with_columns(said=_packed(about)))
    if others.height:
        about = dict(_TASK_ARGS)
        about |= _COPY_ARGS if others["bytes"].count() else {}
        about |= {"received_ns": pl.col("received_ns")} if others["received_ns"].count() else {}
        parts.append(others.with_columns(said=_packed(about)))
    op = pl.coalesce("op", "node_item", "kernel")
    is_kernel = pl.col("kind") == "kernel"
    in_collective = pl.col("category") == "COMMUNICATION"
    name = pl.when(is_kernel & ~in_collective).then(op).when(is_kernel).then(pl.coalesce("part", "kernel", op))
    columns = [column for column in ("step",) if column in rows.columns]
    return [
        part.select(
            *columns,
            *("kind", "category", "start_ns", "dur_ns", "bytes", "shapes", "dtypes", "said"),
            name=pl.coalesce(name, "category"),
            scope=pl.when(is_kernel & ~in_collective).then(_scopes(part.select(op).to_series())),
            op_type=pl.when(is_kernel).then(pl.when(in_collective).then(pl.lit(None, schema.Text)).otherwise(pl.coalesce("op_type", op))),
            flow_in=pl.coalesce("runtime", "node", "acl"),
            lane=pl.format("Stream {}", "stream").cast(schema.Text),
            track_kind=pl.lit("stream", schema.Text),
            tid=pl.col("stream").cast(pl.String).cast(schema.Text),
        )
        for part in parts
    ]


def _scopes(operators: pl.Series) -> pl.Series:
    """What stands before an operator's own name, of each distinct one once."""
    distinct = operators.drop_nulls().unique()
    scopes = distinct.cast(pl.String).str.extract(r"^(.*)/[^/]*$").cast(schema.Text)
    return operators.replace_strict(distinct, scopes, default=None, return_dtype=schema.Text)


def _only(rows: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """Not copied where that is all of them: there may be millions, of many columns."""
    wanted = rows.select(where).to_series()
    return rows if wanted.all() else rows.filter(wanted)


def _packed(about: Mapping[str, pl.Expr]) -> pl.Expr:
    """What is said of a span: as JSON text it would be many times as large, so it becomes that when it is asked for."""
    return pl.struct(column.alias(name) for name, column in about.items())


def _alone(aicpu: pl.DataFrame) -> pl.DataFrame:
    """Operators on AI CPUs that said something of themselves, and whose tasks the log has lost."""
    about = {"Physic Stream Id": pl.col("stream"), "Task Id": pl.col("task"), **{name: pl.col(name) for name in _AICPU}}
    return aicpu.select(
        "start_ns",
        name=pl.lit("AI CPU"),
        kind=pl.lit("other"),
        category=pl.lit("AI_CPU"),
        dur_ns="run_ns",
        said=_packed(about),
        lane=pl.format("AI CPU of stream {}", "stream"),
        track_kind=pl.lit("annotation"),
        tid=pl.format("aicpu {}", "stream"),
    ).filter(pl.col("dur_ns") >= 0)


def _collectives(operators: pl.DataFrame) -> pl.DataFrame:
    about = {
        "Process Group Name": pl.col("group"),
        "rank_size": pl.col("ranks"),
        "connection_id": pl.col("connection"),
        "model id": pl.col("model_id").fill_null(_NO_MODEL),
        "data_type": pl.col("op_data_type"),
        "alg_type": pl.col("algorithm"),
        "count": pl.col("count"),
        "relay": pl.col("relay"),
        "retry": pl.col("retry"),
    }
    return operators.select(
        "name",
        "op_type",
        "start_ns",
        pl.col("model_id").cast(pl.Int64, strict=False),
        kind=pl.lit("communication"),
        category=pl.lit("COMMUNICATION"),
        flow_in="node",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        said=_packed(about),
        lane=pl.format("Group {} Communication", "group"),
        track_kind=pl.lit("stream"),
        tid=pl.col("group"),
    ).drop("model_id")


def _planes(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    about = {
        "operator": pl.col("of"),
        "master": pl.col("role") == "master",
        "notify_id": pl.col("notify").cast(pl.String),
        "duration estimated(us)": pl.col("estimated"),
        "stream id": pl.col("stream"),
        "task id": pl.col("task"),
        "context id": pl.col("context"),
        "task type": pl.col("task_name"),
        "src rank": pl.col("src"),
        "dst rank": pl.col("dst"),
        "transport type": pl.col("transport"),
        "size(Byte)": pl.col("size"),
        "data type": pl.col("data_type"),
        "link type": pl.col("link"),
        "bandwidth(GB/s)": pl.col("bandwidth"),
        "rdma type": pl.col("rdma"),
        "model id": pl.col("model_id").fill_null(_NO_MODEL),
    }
    return _of_operators(tasks, operators).select(
        "start_ns",
        "dur_ns",
        name=pl.coalesce("task_name", "category"),
        kind=pl.when(pl.col("task_name").str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")),
        category=pl.lit("communication task"),
        bytes=pl.when(pl.col("size") > 0).then("size"),
        flow_in=pl.coalesce("communication", "node"),
        said=_packed(about),
        lane=pl.format("Group {} Plane {}", "group", "plane"),
        track_kind=pl.lit("communication"),
        tid=pl.format("{} plane {}", "group", "plane"),
    )


def _of_operators(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """With `of`, the name of the operator that each task is part of."""
    if operators.is_empty():
        return tasks.with_columns(of=pl.lit(None, pl.String))
    return tasks.join(operators.select("node", "nth", of="name"), on=["node", "nth"], how="left", maintain_order="left")


def _tagged(ranges: pl.DataFrame, known: bool) -> pl.DataFrame:
    """Collectives and GetNext as the graph's tags bound them. Where the collectives themselves are recorded, tags only mark them."""
    reduce = pl.col("what") == "reduce"
    return ranges.select(
        "start_ns",
        model_id="model",
        name=pl.when(reduce).then(pl.format("Reduce {}", "number")).otherwise(pl.lit("GetNext")),
        kind=pl.when(~reduce).then(pl.lit("data")).otherwise(pl.lit("annotation" if known else "communication")),
        category=pl.when(reduce).then(pl.lit("Reduce")).otherwise(pl.lit("GetNext Time")),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        lane=pl.when(reduce).then(pl.format("Reduce on stream {}", "stream")).otherwise(pl.lit("GetNext")),
        track_kind=pl.when(reduce & ~pl.lit(known)).then(pl.lit("stream")).otherwise(pl.lit("annotation")),
        tid=pl.when(reduce).then(pl.format("reduce {}", "stream")).otherwise(pl.lit("getnext")),
        said=pl.struct("stream", "model"),
    ).filter(pl.col("dur_ns") >= 0)


def _placed(parts: list[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans on tracks, in the order of the parts, and the tracks: the host's threads, then each device's streams, collectives and marks."""
    if not parts:
        return pl.DataFrame(), pl.DataFrame()
    key = ["group", "lane", "track_kind", "pid", "tid", "device"]
    texts = pl.col("group", "lane", "track_kind", "pid", "tid")
    parts = [part.drop("said", strict=False).with_columns(texts.cast(schema.Text)) for part in parts]
    parts = [part if "device" in part.columns else part.with_columns(device=pl.lit(None, pl.Int64)) for part in parts]
    lanes = pl.concat([part.select(key).unique(maintain_order=True) for part in parts], how="vertical_relaxed").unique(maintain_order=True)
    lanes = lanes.with_columns(texts.cast(pl.String))
    order = {"thread": 0, "stream": 1, "communication": 2, "annotation": 3}
    lanes = lanes.sort(
        pl.col("device").fill_null(-1),
        pl.col("track_kind").replace_strict(order, default=9, return_dtype=pl.Int32),
        pl.col("tid").cast(pl.Int64, strict=False),
        "tid",
        maintain_order=True,
    ).with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32))
    label = ["group", "lane", "track_kind"]
    tracked = lanes.select(pl.col(label).cast(schema.Text), "track").unique(label, keep="first", maintain_order=True)
    placed = [_small(part.join(tracked, on=label, how="left", maintain_order="left").drop(*key)) for part in parts]
    spans = _numbered(complete(pl.concat(placed, how="diagonal_relaxed")))
    tracks = lanes.select("track", "group", "device", "pid", "tid", label="lane", kind="track_kind", sort="track")
    return spans, tracks


def _small(spans: pl.DataFrame) -> pl.DataFrame:
    """Texts that repeat as numbers, a quarter of their size."""
    return spans.with_columns(
        pl.col(name).cast(dtype)
        for name, dtype in schema.TABLES["spans"].items()
        if name in spans.columns and dtype in (schema.Kind, schema.Text)
    )


def _numbered(spans: pl.DataFrame) -> pl.DataFrame:
    """With the number of its call for whatever a call launched. Calls come first: the row of a call is its span."""
    if "flow_in" not in spans.columns or "correlation" not in spans.columns:
        return spans
    return spans.with_columns(correlation=pl.coalesce("correlation", pl.col("correlation").gather(pl.col("flow_in").cast(pl.UInt32))))


def _links(one: _Found, steps: pl.DataFrame) -> pl.DataFrame:
    operators, planes = one.communication
    if planes.is_empty():
        return pl.DataFrame(schema={"op": pl.String})
    rows = _of_operators(planes.filter(pl.col("size") > 0, pl.col("dst") != _NO_MODEL), operators)
    mine = steps.filter(pl.col("device") == one.device.number) if steps.height else steps
    rows = _in_steps(rows.drop("step", "model_id", strict=False), mine)
    return rows.select(
        *(["step"] if "step" in rows.columns else []),
        op="of",
        src=pl.col("src").cast(pl.Int32, strict=False),
        dst=pl.col("dst").cast(pl.Int32, strict=False),
        transport=pl.when(pl.col("transport") == "RDMA").then(pl.lit("RDMA")).otherwise("link"),
        bytes="size",
        dur_ns="transfer_ns",
    )
