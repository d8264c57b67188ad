"""What ran, each call, in MindInsight's folders: operators by their full name, timelines, AI CPUs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope import units
from stepscope.errors import DataError
from stepscope.readers import Options, _kineto, _minddata, chrome
from stepscope.readers import _mindinsight_cluster as cluster
from stepscope.readers._ascend_tables import column, number
from stepscope.readers._kineto import Problem
from stepscope.readers._mindinsight_files import COUNT_NS, SPANS, Folder, is_number, scope_of, type_of


def kinds(folder: Folder) -> pl.DataFrame:
    """name (full), op_type, shapes, dtypes, args, flops. Older files have `full_op_name` and `op_type`."""
    rows = folder.table("framework_raw_{}.csv")
    columns = {"name": pl.String, "op_type": pl.String, "shapes": pl.String, "dtypes": pl.String, "args": pl.String}
    known = pl.DataFrame(schema=columns)
    name = next((word for word in ("full_kernel_name", "full_op_name", "full_kernel_time") if word in rows.columns), None)
    if name:
        known = rows.select(name=name, op_type=column(rows, "kernel_type", "op_type"), info=column(rows, "op_info")).unique(
            "name", keep="first"
        )
        texts = [_operands(info) for info in known["info"]]
        told = pl.DataFrame(texts, dict.fromkeys(("shapes", "dtypes", "args"), pl.String), orient="row")
        known = pl.concat([known.select("name", "op_type"), told],
                          how="horizontal")  # fmt: skip
    return known.join(_flops(folder), on="name", how="full", coalesce=True)


def _flops(folder: Folder) -> pl.DataFrame:
    """FLOPs of a call: cube and vector, in millions."""
    rows = folder.table("flops_{}.txt")
    if rows.is_empty() or rows.width < 2:
        return pl.DataFrame(schema={"name": pl.String, "flops": pl.Int64})
    # A column says its unit; in the oldest files the millions go without saying.
    counts = [name for name in rows.columns[1:] if name.startswith("MFLOPs") or name == "FLOPs"]
    millions = pl.sum_horizontal(number(pl.col(name)) for name in counts or [rows.columns[1]])
    return rows.select(name=rows.columns[0], flops=(millions * 1e6).round().cast(pl.Int64, strict=False)).unique("name", keep="first")


def timelines(folder: Folder, kinds: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = folder.table("output_timeline_data_{}.txt")
    names = {name.split("(")[0]: name for name in rows.columns}
    if {"op_name", "stream_id", "start_time", "duration"} <= set(names):
        found = rows.select(
            name="op_name",
            start_ns=_minddata.milliseconds(pl.col(names["start_time"])),
            dur_ns=_minddata.milliseconds(pl.col(names["duration"])),
            stream="stream_id",
        )
        whole = found.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0))
        if lost := found.height - whole.height:
            folder.problems.append(Problem("output_timeline_data", f"{units.count(lost, 'row')} without a start or a duration", lost))
        yield _on_streams(folder, whole.join(kinds, on="name", how="left", maintain_order="left"))
        return
    base = folder.file("min_cycle_counter_{}.txt")
    count = base.read_text("utf-8", "replace").strip() if base else ""
    origin = round(float(count)) * COUNT_NS if is_number(count) and abs(float(count)) < 2**56 else 0
    shown = ("ascend_timeline_display_{}.json", "timeline_display_{}.json", "gpu_timeline_display_{}.json")
    files = [file for file in map(folder.file, shown) if file is not None]
    for file in files[:1]:
        try:
            found = _displayed(folder, file, kinds, origin)
        except DataError as error:  # the other files of the rank may be whole
            folder.problems.append(Problem(file.name, f"{error.what} {error.where}".strip(), 1))
        else:
            yield found
    for file in files[1:]:  # of another device, on another clock
        folder.problems.append(Problem(file.name, "a second timeline of this rank: not shown", 0))


def _on_streams(folder: Folder, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        kind=pl.lit("kernel"),
        name="name",
        start_ns="start_ns",
        dur_ns="dur_ns",
        op_type=pl.coalesce("op_type", type_of("name")),
        scope=scope_of("name"),
        category=pl.lit("AI_CORE"),
        shapes="shapes",
        dtypes="dtypes",
        flops="flops",
        args="args",
        group=pl.lit(f"NPU {folder.rank}"),
        label=pl.format("Stream {}", "stream"),
        track_kind=pl.lit("stream"),
        device=pl.lit(folder.rank, pl.Int32),
        tid="stream",
    )


def _displayed(folder: Folder, file: Path, kinds: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Chrome events. The process says the device, 9000 the AI CPUs, 10000 communication; rows of scopes have a level."""
    scratch = folder.options.scratch / f"timeline {folder.rank}"
    scratch.mkdir()
    found = chrome.decoded(file, Options(scratch=scratch, partial=folder.options.partial))
    folder.problems += found.problems
    lanes: dict[tuple[Any, ...], int] = {}
    local = [np.array([lanes.setdefault(tuple(key), len(lanes)) for key in report.tracks], np.int32) for report in found.reports]
    spans = _kineto.load(scratch, "spans", local)
    args = pl.concat([pl.scan_ipc(one).select("args") for one in _kineto.files(scratch, "spans")]).collect()["args"]
    where = pl.DataFrame(
        [(number, str(key[0]), str(key[1])) for key, number in lanes.items()],
        {"track": pl.Int32, "pid": pl.String, "tid": pl.String},
        orient="row",
    )
    gpu = file.name.startswith("gpu")
    rows = (
        spans.select("track", "start_ns", "dur_ns", short=pl.col("name").cast(pl.String))
        .with_columns(
            args=args, full=args.str.extract(r'"(?:fullname|op_full_name)":\s*"([^"]*)"'), said=args.str.extract(r'"type":\s*"([^"]*)"')
        )
        .join(where, on="track", how="left", maintain_order="left")
        .with_columns(name=pl.coalesce("full", "short"))
        .join(kinds.drop("args"), on="name", how="left", maintain_order="left")
    )
    step = pl.col("short").str.contains(r"^\d+$")
    scope = pl.col("args").str.contains(r'"scope_level"') | (pl.col("tid") == "100001")
    communication = pl.col("pid") == "10000"
    ai_cpu = pl.col("pid") == "9000"
    on_stream = pl.col("tid").str.contains(r"^\d+$") & ~scope & ~step
    kind = (
        pl.when(step).then(pl.lit("step")).when(scope).then(pl.lit("scope")).when(communication).then(pl.lit("communication"))
        .when(ai_cpu | on_stream).then(pl.lit("kernel")).otherwise(pl.lit("annotation" if not gpu else "op"))
    )  # fmt: skip
    device = pl.when(~step & ~scope & (on_stream | communication | ai_cpu)).then(folder.rank)
    type_ = pl.coalesce("op_type", pl.when(pl.lit(not gpu)).then("said"), type_of("name"))
    return rows.select(
        kind=kind,
        name=pl.when(pl.lit(gpu)).then("short").otherwise("name"),
        start_ns=pl.col("start_ns") + origin,
        dur_ns="dur_ns",
        op_type=pl.when(kind.is_in(["kernel", "op", "communication"])).then(type_),
        scope=scope_of("name"),
        category=pl.when(ai_cpu).then(pl.lit("AI_CPU")).when(on_stream).then(pl.lit("gpu kernel" if gpu else "AI_CORE")),
        shapes="shapes",
        dtypes="dtypes",
        flops="flops",
        args="args",
        group=pl.lit(f"{'GPU' if gpu else 'NPU'} {folder.rank}"),
        label=pl.when(ai_cpu).then(pl.lit("AI CPU")).when(communication).then(pl.format("Communication {}", "tid"))
        .when(on_stream).then(pl.format("Stream {}", "tid")).otherwise("tid"),
        track_kind=pl.when(device.is_not_null()).then(pl.lit("stream"))
        .when(pl.lit(gpu) & ~step & ~scope).then(pl.lit("thread")).otherwise(pl.lit("annotation")),
        device=device.cast(pl.Int32),
        tid=pl.when(ai_cpu).then(pl.format("aicpu {}", "tid"))
        .when(communication).then(pl.format("communication {}", "tid")).otherwise("tid"),
    )  # fmt: skip


def ai_cpu(folder: Folder) -> pl.DataFrame:
    """Each call on an AI CPU: times in ms, and when it ran in us; older files have no types of their own."""
    rows = folder.table("aicpu_intermediate_{}.csv")
    if not {"total_time", "run_start"} <= set(rows.columns):
        return pl.DataFrame(schema=SPANS | {"run_ns": pl.Int64})
    name = column(rows, "kernel_type", "node_type_name", "op_type")
    begin = number(pl.col("run_start"), 1000.0).round().cast(pl.Int64, strict=False)
    return rows.select(
        kind=pl.lit("kernel"),
        name=name,
        start_ns=pl.when(begin > 0).then(begin),
        dur_ns=_minddata.milliseconds(pl.col("total_time")),
        op_type=name.str.extract(r"^([^-]*)"),
        category=pl.lit("AI_CPU"),
        args=pl.struct(pl.all()).struct.json_encode(),
        group=pl.lit(f"NPU {folder.rank}"),
        label=pl.lit("AI CPU (calls without a place on the timeline)"),
        track_kind=pl.lit("other"),
        device=pl.lit(folder.rank, pl.Int32),
        tid=pl.lit("aicpu"),
        run_ns=(number(column(rows, "run_end"), 1000.0).round().cast(pl.Int64, strict=False) - begin),
    ).filter(pl.col("name").is_not_null() & pl.col("dur_ns").is_not_null())


def ai_cpu_placed(calls: pl.DataFrame, spans: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Calls on AI CPUs, from run_start to run_end, that are within the time of what else ran; and the others."""
    ends = pl.concat([spans.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")), steps.select("start_ns", "end_ns")])
    first, last = ends["start_ns"].min(), ends["end_ns"].max()
    inside = (pl.col("run_ns") >= 0) & (pl.col("start_ns") >= first) & (pl.col("start_ns") + pl.col("run_ns") <= last)
    fits = calls.select(inside.fill_null(False)).to_series()
    placed = calls.filter(fits).with_columns(dur_ns="run_ns", label=pl.lit("AI CPU"), track_kind=pl.lit("stream"))
    return placed.drop("run_ns"), calls.filter(~fits).drop("run_ns")


def _operands(info: str | None) -> tuple[str | None, str | None, str | None]:
    """Shapes and types of the inputs: `{"input_0": {"format", "data_type", "shape"}, ...}`; a shape is text or a list."""
    found = cluster.decoded(info)
    if not isinstance(found, dict):
        return None, None, None
    inputs = [said for name, said in sorted(found.items(), key=_place) if str(name).startswith("input") and isinstance(said, dict)]
    shapes = [_shape(said.get("shape")) for said in inputs]
    dtypes = [str(said.get("data_type") or "").removeprefix("NUMBER_TYPE_").lower() for said in inputs]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":")), info


def _place(item: tuple[str, Any]) -> tuple[str, int]:
    word, _, number = str(item[0]).rpartition("_")
    return word, int(number) if number.isdecimal() else 0


def _shape(said: object) -> list[int]:
    sizes = said if isinstance(said, list) else str(said or "").strip("[]").split(",")
    return [int(size) for size in (str(one).strip() for one in sizes) if re.fullmatch(r"-?[0-9]{1,18}", size)]
