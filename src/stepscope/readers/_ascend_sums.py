"""What the result of one rank says of its steps where it has no timeline: sums, and the calls of communication.

    step_trace_time.csv, StepTraceTime of analysis.db           per step: Computing, Communication, Overlapped, Free, in us
    communication.json, CommAnalyzerTime of analysis.db         per call of communication: start, length and what it waited

Calls of communication stand where they ran. Computing is drawn into its step so that as much of it overlaps communication as the sums say.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope import intervals, units
from stepscope.readers import _ascend_database, _ascend_tables
from stepscope.readers._ascend_sqlite import Connection
from stepscope.readers._ascend_tables import column, nanoseconds, read_json, read_table
from stepscope.readers._documents import exact, files, in_text, mapped
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace, complete

_STEPS = "step_trace_time.csv"
_DATABASES = ("analysis.db", "communication_analyzer.db")
_SUMS = {"step": pl.Int32, "computing": pl.Int64, "communication": pl.Int64, "overlapped": pl.Int64, "free": pl.Int64}
_CALLS = {"step": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64}
FILES = (_STEPS, "communication.json", *_DATABASES)


def read(output: Path, rank: int, begin_ns: int, problems: list[Problem]) -> Trace | None:
    """The steps of a rank as sums, and its calls of communication; None where nothing says them. `begin_ns` is when recording began."""
    sums, calls = _sums(output, problems), _calls(output, problems)
    if sums.is_empty() and calls.is_empty():
        return None
    spans, steps = _drawn(sums, calls, rank, begin_ns, problems)
    if sums.height:
        problems.append(Problem("", "no timeline: computing is drawn from the sums of each step, not as it ran", 0))
    lane = ["label", "track_kind"]
    lanes = spans.select(lane).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
    placed = complete(spans.join(lanes, on=lane, how="left", maintain_order="left").drop(lane))
    device = pl.when(pl.col("track_kind") == "stream").then(pl.lit(rank, pl.Int32))
    tables: dict[str, pl.DataFrame] = {
        "spans": placed,
        "tracks": lanes.select(
            "track", "label", kind="track_kind", device=device, sort="track", group=pl.lit(f"NPU {rank}"), pid=pl.lit(f"NPU {rank}"),
            tid="label",
        ),
        "steps": steps,
        "devices": pl.DataFrame({"device": [rank], "kind": ["aicore"]}),
        "links": _ascend_tables.matrix_links(output, problems),
        "counters": _ascend_tables.memory_counters(output, problems),
        "allocations": _ascend_tables.allocations(output, problems),
    }  # fmt: skip
    trace = Trace(
        {name: rows.with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in tables.items() if rows.height}, Meta(ranks=[rank])
    )
    said = _ascend_tables.waits(output, []) if files(output, "communication.json") else _ascend_database.waits(output, [])
    return _ascend_tables.with_waits(trace, said)


def _sums(output: Path, problems: list[Problem]) -> pl.DataFrame:
    rows = read_table(output / _STEPS, problems) if (output / _STEPS).is_file() else pl.DataFrame()
    names = {"step": "Step", "computing": "Computing", "communication": "Communication", "overlapped": "Overlapped", "free": "Free"}
    if not rows.height:
        rows = pl.DataFrame(_rows(output, "StepTraceTime", tuple(names), problems), dict.fromkeys(names.values(), pl.String), orient="row")
    found = rows.select(
        step=column(rows, "Step").str.extract(r"(\d{1,9})").cast(pl.Int32, strict=False).fill_null(0),
        **{name: nanoseconds(column(rows, names[name])) for name in _SUMS if name != "step"},
    )
    whole = found.drop_nulls().filter(pl.all_horizontal(pl.col(name) >= 0 for name in _SUMS), pl.col("overlapped") <= pl.col("computing"))
    if lost := found.height - whole.height:
        problems.append(Problem(_STEPS, f"{units.count(lost, 'step')} without their times", lost))
    return whole.sort("step").unique("step", keep="first", maintain_order=True)


def _calls(output: Path, problems: list[Problem]) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for file in files(output, "communication.json"):
        for step, kinds in mapped(read_json(file, problems)).items():
            for name, said in ((name, one) for calls in mapped(kinds).values() for name, one in mapped(calls).items()):
                times = mapped(mapped(said).get("Communication Time Info"))
                rows.append((step, name, times.get("Start Timestamp(us)"), times.get("Elapse Time(ms)")))
    rows = rows or _rows(output, "CommAnalyzerTime", ("step", "hccl_op_name", "start_timestamp", "elapse_time"), problems)
    found, odd = [], 0
    for step, name, start, length in rows:
        if str(name).startswith("Total Op Info"):
            continue
        try:
            found.append((in_text(str(step)), str(name).partition("@")[0], exact(start, 1000), max(exact(length, 1e6), 0)))
        except ValueError:
            odd += 1
    if odd:
        problems.append(Problem("communication", f"{units.count(odd, 'call')} without a start or a length", odd))
    return pl.DataFrame(found, _CALLS, orient="row").sort("start_ns")


def _rows(output: Path, table: str, columns: tuple[str, ...], problems: list[Problem]) -> list[tuple[Any, ...]]:
    """The rows of the first database that has such a table, each cell as text; nothing where none has."""
    for name in _DATABASES:
        if (output / name).is_file():
            try:
                with closing(Connection(output / name)) as database:
                    rows = database.rows(table, columns, problems)
            except sqlite3.Error as error:
                problems.append(Problem(name, f"not a database that can be read ({error})", 1))
                continue
            if rows is not None:
                return [tuple(None if cell is None else str(cell) for cell in row) for row in rows]
    return []


def _drawn(sums: pl.DataFrame, calls: pl.DataFrame, rank: int, begin_ns: int, problems: list[Problem]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans with their tracks, and steps."""
    parts = [_spans("communication", calls, "Communication")]
    steps: list[tuple[int, int, int]] = []
    here = calls["start_ns"][0] if calls.height else begin_ns
    for step, computing, communication, overlapped, free in sums.select(_SUMS.keys()).iter_rows():
        own = calls.filter(pl.col("step") == step)
        length, alone = computing + communication - overlapped + free, computing - overlapped
        start = here
        if own.height:
            busy = intervals.merge(own["start_ns"].to_numpy(), (own["start_ns"] + own["dur_ns"]).to_numpy())
            spare = length - int(busy.ends[-1] - busy.starts[0])
            first = int(busy.starts[0]) - max(0, min(spare, alone))
            start = max(first, here) if steps else first
            told = int((busy.ends - busy.starts).sum())
            if abs(told - communication) > 0.01 * communication:
                what = (
                    f"step {step}: calls of communication take {told / 1e6:,.3f} ms, the sum of the step is {communication / 1e6:,.3f} ms"
                )
                problems.append(Problem(_STEPS, what, 0))
        else:
            busy = intervals.merge(np.array([start + alone]), np.array([start + alone + communication]))
            sum_ = pl.DataFrame([(step, "communication", start + alone, communication)], _CALLS, orient="row")
            parts.append(_spans("communication", sum_.filter(pl.col("dur_ns") > 0), "Communication, the sum of each step"))
        here = start + length
        idle = intervals.subtract(intervals.merge(np.array([start]), np.array([here])), busy)
        pieces = [*_first(busy, overlapped), *_first(idle, alone)]
        drawn = pl.DataFrame([(step, "computing", begin, end - begin) for begin, end in sorted(pieces)], _CALLS, orient="row")
        parts.append(_spans("kernel", drawn, "Computing, the sum of each step"))
        steps.append((step, start, here))
    rows = pl.DataFrame(steps, {"step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    marks = rows.select(
        "step", start_ns="start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"), name=pl.format("ProfilerStep#{}", "step")
    )
    parts.append(_spans("step", marks, "steps", "annotation"))
    return pl.concat(parts), rows.with_columns(how=pl.lit("marker"))


def _spans(kind: str, rows: pl.DataFrame, label: str, track_kind: str = "stream") -> pl.DataFrame:
    return rows.select("step", "name", "start_ns", "dur_ns", kind=pl.lit(kind), label=pl.lit(label), track_kind=pl.lit(track_kind))


def _first(part: intervals.Set, length: int) -> list[tuple[int, int]]:
    """The intervals that make up the first so many nanoseconds of a set."""
    sizes = part.ends - part.starts
    taken = np.clip(length - (np.cumsum(sizes) - sizes), 0, sizes)
    return [(int(start), int(start + size)) for start, size in zip(part.starts, taken, strict=True) if size > 0]
