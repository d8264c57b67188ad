"""Steps of one rank without a timeline: from the sums of each step, and from the communication calls.

    step_trace_time.csv, StepTraceTime of analysis.db           per step: Computing, Communication, Overlapped, Free, in us
    communication.json, CommAnalyzerTime of analysis.db         per communication call: start, duration, wait times

Communication calls are drawn as they ran. Computing is drawn within its step; its overlap with communication has the duration in the sums.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import intervals
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers.ascend.ascend_db import reader as ascend_db
from stepscope.readers.ascend.ascend_db.sqlite import ANALYSIS_FILES
from stepscope.readers.ascend.common.communication_tables import add_wait_times, matrix_links, wait_times
from stepscope.readers.ascend.common.memory_tables import allocations, memory_counters
from stepscope.readers.ascend.common.step_sums import STEPS_FILE, SUMS, step_sums, text_rows
from stepscope.readers.ascend.common.tables import NO_PREPARING, nested_items, read_json, report_lost
from stepscope.readers.ascend.common.tracks import number_tracks
from stepscope.readers.common.documents import as_dict, digits_in, files, to_int
from stepscope.readers.common.problems import Problem

_CALLS = {"step": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64}
FILES = (STEPS_FILE, "communication.json", *ANALYSIS_FILES)


def read(output: Path, rank: int, begin_ns: int, problems: list[Problem]) -> Trace | None:
    """The steps of a rank as sums, and its communication calls; None if the folder has neither. `begin_ns` is the recording's start."""
    sums, calls = step_sums(output, problems), _calls(output, problems)
    if sums.is_empty() and calls.is_empty():
        return None
    if sums["preparing"].null_count():
        problems.append(Problem(STEPS_FILE, NO_PREPARING, 0))
    spans, steps = _draw(sums.with_columns(pl.col("preparing").fill_null(0)), calls, begin_ns, problems)
    if sums.height:
        problems.append(Problem("", "no timeline: computing is drawn from the sums of each step, not as it ran", 0))
    spans, places = number_tracks(spans, ["label", "track_kind"])
    group = pl.lit(f"NPU {rank}")
    device = pl.when(pl.col("track_kind") == "stream").then(pl.lit(rank, pl.Int32))
    tables: dict[str, pl.DataFrame] = {
        "spans": complete(spans),
        "tracks": places.select("track", "label", kind="track_kind", device=device, sort="track", group=group, pid=group, tid="label"),
        "steps": steps,
        "devices": pl.DataFrame({"device": [rank], "kind": ["aicore"]}),
        "links": matrix_links(output, problems),
        "counters": memory_counters(output, problems),
        "allocations": allocations(output, problems),
    }
    ranked = {name: rows.with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in tables.items() if rows.height}
    times = wait_times(output, []) if files(output, "communication.json") else ascend_db.wait_times(output, [])
    return add_wait_times(Trace(ranked, Meta(ranks=[rank])), times)


def _calls(output: Path, problems: list[Problem]) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for file in files(output, "communication.json"):
        for step, _, name, entry in nested_items(read_json(file, problems), 3):
            times = as_dict(as_dict(entry).get("Communication Time Info"))
            rows.append((step, name, times.get("Start Timestamp(us)"), times.get("Elapse Time(ms)")))
    rows = rows or text_rows(output, "CommAnalyzerTime", ("step", "hccl_op_name", "start_timestamp", "elapse_time"), problems)
    calls, invalid = [], 0
    for step, name, start, duration in rows:
        if str(name).startswith("Total Op Info"):
            continue
        try:
            calls.append((digits_in(str(step)), str(name).partition("@")[0], to_int(start, 1000), max(to_int(duration, 1e6), 0)))
        except ValueError:
            invalid += 1
    report_lost(problems, "communication", invalid, "call", "without a start or a duration")
    return pl.DataFrame(calls, _CALLS, orient="row").sort("start_ns")


def _draw(sums: pl.DataFrame, calls: pl.DataFrame, begin_ns: int, problems: list[Problem]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans with their tracks, and steps, one after the other."""
    parts = [_spans("communication", calls, "Communication")]
    steps: list[tuple[int, int, int]] = []
    end = calls["start_ns"][0] if calls.height else begin_ns
    for step, computing, communication, overlapped, free, preparing in sums.select(SUMS.keys()).iter_rows():
        step_calls = calls.filter(pl.col("step") == step)
        duration, alone = computing + communication - overlapped + free, computing - overlapped
        start = end + preparing
        if step_calls.height:
            busy = intervals.merge(step_calls["start_ns"].to_numpy(), (step_calls["start_ns"] + step_calls["dur_ns"]).to_numpy())
            spare = duration - int(busy.ends[-1] - busy.starts[0])
            first = int(busy.starts[0]) - max(0, min(spare, alone))
            start = max(first, end + preparing) if steps else first
            in_calls = int((busy.ends - busy.starts).sum())
            if abs(in_calls - communication) > 0.01 * communication:
                times = f"communication calls take {in_calls / 1e6:,.3f} ms, the sum of the step is {communication / 1e6:,.3f} ms"
                problems.append(Problem(STEPS_FILE, f"step {step}: {times}", 0))
        else:
            busy = intervals.merge(np.array([start + alone]), np.array([start + alone + communication]))
            drawn = pl.DataFrame([(step, "communication", start + alone, communication)], _CALLS, orient="row")
            parts.append(_spans("communication", drawn.filter(pl.col("dur_ns") > 0), "Communication, the sum of each step"))
        end = start + duration
        idle = intervals.subtract(intervals.merge(np.array([start]), np.array([end])), busy)
        pieces = sorted([*_first_part(busy, overlapped), *_first_part(idle, alone)])
        drawn = pl.DataFrame([(step, "computing", begin, finish - begin) for begin, finish in pieces], _CALLS, orient="row")
        parts.append(_spans("kernel", drawn, "Computing, the sum of each step"))
        steps.append((step, start - preparing, end))
    rows = pl.DataFrame(steps, {"step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    marks = rows.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"), name=pl.format("ProfilerStep#{}", "step"))
    parts.append(_spans("step", marks, "steps", "annotation"))
    return pl.concat(parts), rows.with_columns(how=pl.lit("marker"))


def _spans(kind: str, rows: pl.DataFrame, label: str, track_kind: str = "stream") -> pl.DataFrame:
    return rows.select("step", "name", "start_ns", "dur_ns", kind=pl.lit(kind), label=pl.lit(label), track_kind=pl.lit(track_kind))


def _first_part(part: intervals.Set, duration: int) -> list[tuple[int, int]]:
    """The intervals that make up the first `duration` nanoseconds of a set."""
    sizes = part.ends - part.starts
    clipped = np.clip(duration - (np.cumsum(sizes) - sizes), 0, sizes)
    return [(int(start), int(start + size)) for start, size in zip(part.starts, clipped, strict=True) if size > 0]
