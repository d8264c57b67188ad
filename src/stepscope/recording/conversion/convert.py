"""From a capture to a run folder. `python -m stepscope.recording.conversion.convert JSON` does it in a separate process."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import StepscopeError, UsageError
from stepscope.io import conversion, discover, open_run, store
from stepscope.model import captures, schema
from stepscope.model.trace import Trace

RAW = "raw"  # in the run folder: its capture, where the user wants to keep it


def convert(folder: Path, *, steps: list[int] | None = None, keep: bool = False) -> Path:
    """Write the run folder next to the capture, with these steps only; the capture is deleted, or kept inside.

    Two processes may do so at the same time, and one may be killed: a run folder that exists is complete, and its capture is deleted.
    """
    run = captures.run_folder(folder)
    try:
        if not store.sniff(run):
            with conversion.decode(folder, "capture", rank=discover.rank_in_name(folder)) as trace:
                store.write(_with_step_trace_problems(select_steps(trace, steps) if steps else trace), run)
    except (OSError, StepscopeError):
        if not store.sniff(run):
            raise
    with contextlib.suppress(FileNotFoundError):  # another process has done it
        _remove_capture(folder, run, keep)
    return run


def _remove_capture(folder: Path, run: Path, keep: bool) -> None:
    # Files of another tool for its own readers are kept in any case.
    foreign = [folder / name for name in captures.header(folder).get("keep", [])] + list(folder.glob("*_ascend_pt"))
    if keep:
        folder.rename(run / RAW)
        return
    for path in foreign:
        (run / RAW).mkdir(exist_ok=True)
        path.rename(run / RAW / path.name)
    # Renamed first, so that a partial capture is never found.
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.old")), ignore_errors=True)


def select_steps(trace: Trace, steps: list[int]) -> Trace:
    """The trace with these steps only."""
    numbers = trace.steps.select("step").unique().collect()["step"].sort().to_list()
    if missing := sorted(set(steps) - set(numbers)):
        has = (
            f"it has steps {numbers[0]} to {numbers[-1]}"
            if len(numbers) > 1
            else f"it has step {numbers[0]}"
            if numbers
            else "it has no steps"
        )
        raise UsageError(f"no step {', '.join(map(str, missing))} in {trace.meta.source}; {has}")
    chosen = trace.steps.filter(pl.col("step").is_in(steps)).sort("start_ns").collect()
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = dict(trace.tables) | {"steps": chosen}
    spans = _within(trace.spans.collect(), "start_ns", chosen)
    # A span that a framework assigned to a step belongs to it, though a device may run behind its host.
    tables["spans"] = spans.filter(pl.when(pl.col("step").is_null()).then("within").otherwise(pl.col("step").is_in(steps))).drop("within")
    tables["counters"] = _within(trace.counters.collect(), "at_ns", chosen).filter("within").drop("within")
    tables["links"] = trace.table("links").filter(pl.col("step").is_null() | pl.col("step").is_in(steps))
    # Allocations that are live during one of the steps are part of its memory.
    first, last = chosen["start_ns"].min(), chosen["end_ns"].max()
    tables["allocations"] = trace.allocations.filter(
        (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") < last)) & (pl.col("free_ns").is_null() | (pl.col("free_ns") > first))
    )
    return Trace(tables, trace.meta)


def operators_as_json(run: Path, names: list[str], device: int | None) -> str:
    """The result of MindSpore's `op_analyse`: per operator a list of its input shapes with calls and microseconds."""
    rows = open_run.open(run).analyse("operators")
    operators: dict[str, Any] = {}
    for name in names:
        matches = rows.filter((pl.col("name") == name) | (pl.col("type") == name) | pl.col("name").str.ends_with(f"/{name}"))
        if matches.is_empty():
            raise UsageError(f"no operator '{name}' was recorded")
        operators[name] = [
            {
                "op_side": row["device"],
                "input_shape": row["shapes"] or "",
                "op_occurrences": row["calls"],
                "op_total_time(us)": round(row["total_ns"] / 1000, 4),
                "op_avg_time(us)": round(row["total_ns"] / row["calls"] / 1000, 4),
            }
            for row in matches.iter_rows(named=True)
        ]
    return json.dumps(operators | {"device_id": device or 0})


def _with_step_trace_problems(trace: Trace) -> Trace:
    """Forward start and backward end may have been chosen before the names were known: a wrong one becomes a problem."""
    problems = []
    for point in ("fp_start", "bp_end"):
        if text := trace.meta.options.get(point):
            try:
                trace.analyse("step_trace", **{point: text})
            except UsageError as error:
                reason = str(error).partition(": ")[2] or str(error)  # without the flag's name
                problems.append(
                    {"rank": trace.meta.ranks[0], "what": f"{point} (PROFILING_{point.upper()}) is not used: {reason}", "lost": 0}
                )
    if not problems:
        return trace
    return Trace(trace.tables | {"problems": pl.concat([trace.problems, schema.conform(pl.LazyFrame(problems), "problems")])}, trace.meta)


def _within(rows: pl.DataFrame, at: str, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows in their order, with a column `within`: whether they start in one of the steps of their rank."""
    order = rows.with_row_index("order").sort(at)
    bounds = steps.select("rank", step_start="start_ns", step_end="end_ns").sort("step_start")
    joined = order.join_asof(bounds, left_on=at, right_on="step_start", by="rank", check_sortedness=False)
    within = (pl.col(at) < pl.col("step_end")).fill_null(False)
    return joined.with_columns(within=within).sort("order").drop("order", "step_start", "step_end", strict=False)


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    if hasattr(os, "nice"):
        os.nice(5)  # training comes first
    try:
        convert(Path(request["folder"]), steps=request["steps"], keep=request["keep"])
    except StepscopeError as error:
        sys.exit(f"{error}")
