"""Files of MindSpore's CPU profiler.

cpu_op_execute_timestamp_R.txt    name;HostCpuOps;start_ns,duration_ms,0 start_ns,duration_ms,0 ...
cpu_framework_R.txt               type;operator;id;input_1:[2, 3];input_2:NoShape;  one line per call, in the order of execution
cpu_op_detail_info_R.csv          the type of each name
cpu_ms_memory_record_R.txt        the memory pool, since the process began to record
"""

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model import units
from stepscope.model.columns.counters import COLUMNS, of_device
from stepscope.readers.ascend.common.tables import number, read_table
from stepscope.readers.common.documents import files
from stepscope.readers.common.problems import FileProblems, Problem
from stepscope.readers.common.wall_clock import AMBIGUOUS_TIMES, WallClock, session_clock

CALLS_LOST = "the calls of operators are lost"
_OPERATORS = {"name": pl.String, "op_type": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "inputs": pl.String}


def load_operators(pieces: list[Path], header: dict[str, Any], problems: FileProblems) -> pl.DataFrame:
    """The calls of all pieces by start: name, op_type, start_ns, dur_ns, inputs (as the file has them)."""
    parts = []
    for session, piece in enumerate(pieces):
        calls = _load_calls(piece, problems, header.get("files_of", "*"))
        if calls is not None:
            parts.append(_correct_times(calls, session_clock(header, session), problems))
    return pl.concat(parts).sort("start_ns") if parts else pl.DataFrame(schema=_OPERATORS)


def _load_calls(piece: Path, problems: FileProblems, rank: str) -> pl.DataFrame | None:
    """The calls of one piece by start. `rank` may be `*`."""
    times = next(iter(files(piece, f"cpu_op_execute_timestamp_{rank}.txt")), None)
    if times is None:
        return None
    # Where no operator ran, MindSpore writes none of the files.
    if times.stat().st_size == 0 and files(piece, f"cpu_op_detail_info_{rank}.csv"):
        problems.append((times.name, f"the file is empty: {CALLS_LOST}", 1))
    calls = _parse_times(times, problems)
    nth = pl.int_range(pl.len()).over("short")
    calls = calls.with_columns(nth=nth).join(_load_types(piece, problems, rank), on="name", how="left", maintain_order="left")
    calls = calls.with_columns(op_type=pl.coalesce("op_type", pl.col("name").str.extract(r"([^/]*?)(?:-op[0-9]+)?$")))
    inputs = _load_inputs(piece, rank).with_columns(nth=nth)
    # Both files record the same calls: of a short name the nth line belongs to the nth call, if there are as many.
    counts = calls.group_by("short").len().join(inputs.group_by("short").len("lines"), on="short", how="left")
    unequal = counts.filter(pl.col("len") != pl.col("lines").fill_null(0), pl.col("short") != "")
    if unequal.height:
        operators = units.count(unequal.height, "operator")
        message = f"shapes of {operators} do not match the calls: left out, such as those of {unequal['short'][0]}"
        problems.append((f"{piece.parent.name}/{piece.name}", message, 0))
    inputs = inputs.join(unequal, on="short", how="anti").filter(pl.col("short") != "")
    return calls.join(inputs, on=["short", "nth"], how="left", maintain_order="left").select(list(_OPERATORS))


def _parse_times(file: Path, problems: FileProblems) -> pl.DataFrame:
    """name, start_ns, dur_ns, short (the name without its scope) of each call, by start."""
    fields = (
        _load_lines(file)
        .select(fields=pl.col("line").str.splitn(";", 3))
        .unnest("fields")
        .select(name="field_0", calls=pl.col("field_2").str.strip_chars().str.split(" "))
        .explode("calls")
        .with_columns(pl.col("calls").str.splitn(",", 3))
        .unnest("calls")
    )
    calls = fields.select(
        "name",
        start_ns=pl.col("field_0").cast(pl.Int64, strict=False),
        dur_ns=(pl.col("field_1").cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False),
        short=pl.when(pl.col("name").str.contains("/")).then(pl.col("name").str.extract(r"([^/]*)$")).otherwise(pl.lit("")),
    ).sort("start_ns", maintain_order=True)
    valid = calls.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0) & pl.col("name").is_not_null())
    if calls.height and valid.is_empty():
        raise DataError(file, "expected name;HostCpuOps;start_ns,duration_ms,thread ...")
    if lost := calls.height - valid.height:
        problems.append((file.name, f"{units.count(lost, 'call')} without a start or a duration", lost))
    return valid


def _correct_times(calls: pl.DataFrame, wall: WallClock | None, problems: FileProblems) -> pl.DataFrame:
    """Calls on the clock of the recording. MindSpore uses the wall clock, which may have been set during the recording."""
    if wall is None:
        return calls
    wall_start = calls["start_ns"].to_numpy()
    (start, start_is_certain), (end, end_is_certain) = wall.place(wall_start), wall.place(wall_start + calls["dur_ns"].to_numpy())
    certain = start_is_certain & end_is_certain & (end >= start)
    if lost := int((~certain).sum()):
        problems.append(("mindspore", f"{units.count(lost, 'call')} of operators {AMBIGUOUS_TIMES}", lost))
    return calls.with_columns(start_ns=pl.Series(start), dur_ns=pl.Series(end - start)).filter(pl.Series(certain))


def _load_lines(file: Path) -> pl.DataFrame:
    return pl.DataFrame({"line": file.read_text("utf-8", "replace").splitlines()}, {"line": pl.String}).filter(pl.col("line") != "")


def _load_types(piece: Path, problems: FileProblems, rank: str) -> pl.DataFrame:
    file = next(iter(files(piece, f"cpu_op_detail_info_{rank}.csv")), None)
    rows = _load_csv(file, problems) if file else pl.DataFrame()
    if not {"full_op_name", "op_type"} <= set(rows.columns):
        return pl.DataFrame(schema={"name": pl.String, "op_type": pl.String})
    return rows.select(name="full_op_name", op_type="op_type").drop_nulls("name").unique("name", keep="first")


def _load_inputs(piece: Path, rank: str) -> pl.DataFrame:
    file = next(iter(files(piece, f"cpu_framework_{rank}.txt")), None)
    lines = _load_lines(file) if file else pl.DataFrame(schema={"line": pl.String})
    return lines.select(fields=pl.col("line").str.splitn(";", 4)).unnest("fields").select(short="field_1", inputs="field_3")


def _load_csv(file: Path, problems: FileProblems) -> pl.DataFrame:
    csv_problems: list[Problem] = []
    rows = read_table(file, csv_problems)
    problems += csv_problems
    return rows


def load_memory(pieces: list[Path], header: dict[str, Any], problems: FileProblems) -> pl.DataFrame:
    """Counters of the memory pool within the window. The file grows from window to window, so the last one contains all samples."""
    counters = pl.DataFrame(schema=COLUMNS)
    rank = header.get("files_of", "*")
    file = next((file for piece in reversed(pieces) for file in files(piece, f"cpu_ms_memory_record_{rank}.txt")), None)
    rows = _load_csv(file, problems) if file else pl.DataFrame()
    if not {"Timestamp(ns)", "Total Allocated(Byte)", "Total Reserved(Byte)"} <= set(rows.columns):
        return counters
    rows = rows.with_columns(at_ns=pl.col("Timestamp(ns)").cast(pl.Int64, strict=False))
    if wall := session_clock(header, 0, whole=True):
        times, certain = wall.place(rows["at_ns"].fill_null(0).to_numpy())
        rows = rows.with_columns(at_ns=pl.Series(times)).filter(pl.Series(certain))
    rows = rows.filter(pl.col("at_ns").is_between(int(header.get("start_ns") or 0), int(header.get("end_ns") or 2**62)))
    columns = {"allocated": "Total Allocated(Byte)", "reserved": "Total Reserved(Byte)"}
    unit = pl.lit("bytes")
    samples = [
        rows.select(**of_device(series, "cpu", None), at_ns="at_ns", value=number(pl.col(column)), unit=unit)
        for series, column in columns.items()
    ]
    return pl.concat([counters, *samples], how="diagonal")
