"""Calls with start times: timelines and AI CPU calls; and types, shapes and FLOPs of operators by full name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.errors import DataError
from stepscope.readers import Options
from stepscope.readers.ascend.common.kinds import first_match
from stepscope.readers.ascend.common.tables import column, drop_invalid, number
from stepscope.readers.chrome import reader as chrome
from stepscope.readers.chrome.parts import load_part, part_files
from stepscope.readers.common import minddata
from stepscope.readers.common.problems import Problem
from stepscope.readers.mindinsight.files import COUNT_NS, SPANS, Folder, is_number, parse_cell, scope_in_name, type_in_name

_DISPLAYS = ("ascend_timeline_display_{}.json", "timeline_display_{}.json", "gpu_timeline_display_{}.json")


def operators(folder: Folder) -> pl.DataFrame:
    """name (full), op_type, shapes, dtypes, args, flops. Older files have the columns `full_op_name` and `op_type`."""
    rows = folder.table("framework_raw_{}.csv")
    texts = dict.fromkeys(("shapes", "dtypes", "args"), pl.String)
    table = pl.DataFrame(schema={"name": pl.String, "op_type": pl.String, **texts})
    name = next((word for word in ("full_kernel_name", "full_op_name", "full_kernel_time") if word in rows.columns), None)
    if name:
        rows = rows.select(name=name, op_type=column(rows, "kernel_type", "op_type"), info=column(rows, "op_info"))
        rows = rows.unique("name", keep="first")
        operands = pl.DataFrame([_operands(info) for info in rows["info"]], texts, orient="row")
        table = pl.concat([rows.select("name", "op_type"), operands], how="horizontal")
    return table.join(_flops(folder), on="name", how="full", coalesce=True)


def _flops(folder: Folder) -> pl.DataFrame:
    """FLOPs of a call, cube and vector units together; the files have millions."""
    rows = folder.table("flops_{}.txt")
    if rows.is_empty() or rows.width < 2:
        return pl.DataFrame(schema={"name": pl.String, "flops": pl.Int64})
    counts = [name for name in rows.columns[1:] if name.startswith("MFLOPs") or name == "FLOPs"]
    millions = pl.sum_horizontal(number(pl.col(name)) for name in counts or [rows.columns[1]])
    return rows.select(name=rows.columns[0], flops=(millions * 1e6).round().cast(pl.Int64, strict=False)).unique("name", keep="first")


def timelines(folder: Folder, operators: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The spans of the most exact timeline of this rank."""
    rows = folder.table("output_timeline_data_{}.txt")
    names = {name.split("(")[0]: name for name in rows.columns}
    if {"op_name", "stream_id", "start_time", "duration"} <= set(names):
        calls = rows.select(
            name="op_name",
            start_ns=minddata.parse_milliseconds(pl.col(names["start_time"])),
            dur_ns=minddata.parse_milliseconds(pl.col(names["duration"])),
            stream="stream_id",
        )
        is_valid = pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0)
        valid = drop_invalid(calls, is_valid, folder.problems, "output_timeline_data", "row", "without a start or a duration")
        yield _stream_spans(folder, valid.join(operators, on="name", how="left", maintain_order="left"))
        return
    base = folder.file("min_cycle_counter_{}.txt")
    count = base.read_text("utf-8", "replace").strip() if base else ""
    origin = round(float(count)) * COUNT_NS if is_number(count) and abs(float(count)) < 2**56 else 0
    files = [file for file in map(folder.file, _DISPLAYS) if file is not None]
    for file in files[:1]:
        try:
            spans = _display_spans(folder, file, operators, origin)
        except DataError as error:  # the other files of the rank may be intact
            folder.problems.append(Problem(file.name, f"{error.what} {error.where}".strip(), 1))
        else:
            yield spans
    for file in files[1:]:  # of another device, on another clock
        folder.problems.append(Problem(file.name, "a second timeline of this rank: not shown", 0))


def _stream_spans(folder: Folder, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        *("name", "start_ns", "dur_ns", "shapes", "dtypes", "flops", "args"),
        kind=pl.lit("kernel"),
        op_type=pl.coalesce("op_type", type_in_name("name")),
        scope=scope_in_name("name"),
        category=pl.lit("AI_CORE"),
        **folder.track("stream", pl.format("Stream {}", "stream"), pl.col("stream")),
    )


def _display_spans(folder: Folder, file: Path, operators: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Chrome events. Process 9000 is the AI CPUs, 10000 is communication, others are devices; scopes have a level."""
    rows = _display_rows(folder, file).join(operators.drop("args"), on="name", how="left", maintain_order="left")
    is_gpu = file.name.startswith("gpu")
    is_step = pl.col("short_name").str.contains(r"^[0-9]+$")
    is_scope = pl.col("args").str.contains(r'"scope_level"') | (pl.col("tid") == "100001")
    is_communication, is_ai_cpu = pl.col("pid") == "10000", pl.col("pid") == "9000"
    on_stream = pl.col("tid").str.contains(r"^[0-9]+$") & ~is_scope & ~is_step
    kind = first_match(
        (is_step, "step"),
        (is_scope, "scope"),
        (is_communication, "communication"),
        (is_ai_cpu | on_stream, "kernel"),
        default="op" if is_gpu else "annotation",
    )
    on_device = ~is_step & ~is_scope & (on_stream | is_communication | is_ai_cpu)
    op_type = pl.coalesce("op_type", pl.when(pl.lit(not is_gpu)).then("type_in_args"), type_in_name("name"))
    tid, is_thread = pl.col("tid"), pl.lit(is_gpu) & ~is_step & ~is_scope
    return rows.select(
        *("dur_ns", "shapes", "dtypes", "flops", "args"),
        kind=kind,
        name=pl.col("short_name" if is_gpu else "name"),
        start_ns=pl.col("start_ns") + origin,
        op_type=pl.when(kind.is_in(["kernel", "op", "communication"])).then(op_type),
        scope=scope_in_name("name"),
        category=pl.when(is_ai_cpu).then(pl.lit("AI_CPU")).when(on_stream).then(pl.lit("gpu kernel" if is_gpu else "AI_CORE")),
        group=pl.lit(f"{'GPU' if is_gpu else 'NPU'} {folder.rank}"),
        label=first_match(
            (is_ai_cpu, "AI CPU"),
            (is_communication, pl.format("Communication {}", tid)),
            (on_stream, pl.format("Stream {}", tid)),
            default=tid,
        ),
        track_kind=first_match((on_device, "stream"), (is_thread, "thread"), default="annotation"),
        device=pl.when(on_device).then(folder.rank).cast(pl.Int32),
        tid=first_match((is_ai_cpu, pl.format("aicpu {}", tid)), (is_communication, pl.format("communication {}", tid)), default=tid),
    )


def _display_rows(folder: Folder, file: Path) -> pl.DataFrame:
    """The decoded events: pid, tid, start_ns, dur_ns, args, type_in_args, name (full) and short_name."""
    scratch = folder.options.scratch / f"timeline {folder.rank}"
    scratch.mkdir()
    decoded = chrome.decode_file(file, Options(scratch=scratch, partial=folder.options.partial))
    folder.problems += decoded.problems
    numbers: dict[tuple[Any, ...], int] = {}
    local = [np.array([numbers.setdefault(tuple(key), len(numbers)) for key in report.tracks], np.int32) for report in decoded.reports]
    spans = load_part(scratch, "spans", local)
    args = pl.concat([pl.scan_ipc(piece).select("args") for piece in part_files(scratch, "spans")]).collect()["args"]
    places = [(number, str(key[0]), str(key[1])) for key, number in numbers.items()]
    tracks = pl.DataFrame(places, {"track": pl.Int32, "pid": pl.String, "tid": pl.String}, orient="row")
    full_name = args.str.extract(r'"(?:fullname|op_full_name)":\s*"([^"]*)"')
    return (
        spans.select("track", "start_ns", "dur_ns", short_name=pl.col("name").cast(pl.String))
        .with_columns(args=args, type_in_args=args.str.extract(r'"type":\s*"([^"]*)"'), name=pl.coalesce(full_name, "short_name"))
        .join(tracks, on="track", how="left", maintain_order="left")
    )


def ai_cpu_calls(folder: Folder) -> pl.DataFrame:
    """Each call on an AI CPU: its duration, and run_ns from the start to the end of its run. Older files have other names of types."""
    rows = folder.table("aicpu_intermediate_{}.csv")
    if not {"total_time", "run_start"} <= set(rows.columns):
        return pl.DataFrame(schema=SPANS | {"run_ns": pl.Int64})
    name = column(rows, "kernel_type", "node_type_name", "op_type")
    start, end = (number(column(rows, name), 1000.0).round().cast(pl.Int64, strict=False) for name in ("run_start", "run_end"))
    return rows.select(
        kind=pl.lit("kernel"),
        name=name,
        start_ns=pl.when(start > 0).then(start),
        dur_ns=minddata.parse_milliseconds(pl.col("total_time")),
        op_type=name.str.extract(r"^([^-]*)"),
        category=pl.lit("AI_CPU"),
        args=pl.struct(pl.all()).struct.json_encode(),
        run_ns=end - start,
        **folder.track("other", "AI CPU (calls without start times)", "aicpu"),
    ).filter(pl.col("name").is_not_null() & pl.col("dur_ns").is_not_null())


def split_ai_cpu_calls(calls: pl.DataFrame, spans: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """AI CPU calls that ran within the time of the other spans, on a stream; and the others."""
    times = pl.concat([spans.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")), steps.select("start_ns", "end_ns")])
    first, last = times["start_ns"].min(), times["end_ns"].max()
    inside = (pl.col("run_ns") >= 0) & (pl.col("start_ns") >= first) & (pl.col("start_ns") + pl.col("run_ns") <= last)
    timed = calls.filter(inside.fill_null(False)).with_columns(dur_ns="run_ns", label=pl.lit("AI CPU"), track_kind=pl.lit("stream"))
    return timed.drop("run_ns"), calls.filter(~inside.fill_null(False)).drop("run_ns")


def _operands(info: str | None) -> tuple[str | None, str | None, str | None]:
    """Shapes, types and text of the inputs: `{"input_0": {"format", "data_type", "shape"}, ...}`; a shape is text or a list."""
    operands = parse_cell(info)
    if not isinstance(operands, dict):
        return None, None, None
    inputs = [entry for name, entry in sorted(operands.items(), key=_order) if str(name).startswith("input") and isinstance(entry, dict)]
    shapes = [_shape(entry.get("shape")) for entry in inputs]
    dtypes = [str(entry.get("data_type") or "").removeprefix("NUMBER_TYPE_").lower() for entry in inputs]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":")), info


def _order(item: tuple[str, Any]) -> tuple[str, int]:
    word, _, number = str(item[0]).rpartition("_")
    return word, int(number) if number.isdecimal() else 0


def _shape(shape: object) -> list[int]:
    sizes = shape if isinstance(shape, list) else str(shape or "").strip("[]").split(",")
    return [int(size) for size in (str(size).strip() for size in sizes) if re.fullmatch(r"-?[0-9]{1,18}", size)]
