"""From a capture to a run folder. `python -m stepscope.conversion JSON` does it in a process of its own."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import captures, opening, schema, store
from stepscope.errors import StepscopeError, UsageError
from stepscope.trace import Trace

run_of = captures.run_folder
RAW = "raw"  # in the run folder: the capture it was made of, where the user wants to keep it


def convert(folder: Path, *, steps: list[int] | None = None, keep: bool = False) -> Path:
    """Make the run folder next to the capture, with these steps only; the capture goes, or is kept inside.

    Two processes may do it at once, and one may be killed in the midst of it: a run folder that exists is whole, and the capture goes.
    """
    run = captures.run_folder(folder)
    try:
        if not store.sniff(run):
            trace = opening.open(folder, cache=False)
            store.write(_with_doubts(of_steps(trace, steps) if steps else trace), run)
    except (OSError, StepscopeError):
        if not store.sniff(run):
            raise
    with contextlib.suppress(FileNotFoundError):  # somebody else has done it
        _put_away(folder, run, keep)
    return run


def _put_away(folder: Path, run: Path, keep: bool) -> None:
    # What another tool wrote for its own readers is kept in any case.
    foreign = [folder / name for name in captures.header(folder).get("keep", [])] + list(folder.glob("*_ascend_pt"))
    if keep:
        folder.rename(run / RAW)
        return
    for path in foreign:
        (run / RAW).mkdir(exist_ok=True)
        path.rename(run / RAW / path.name)
    # Out of sight first: at no moment is there half a capture to be opened.
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.old")), ignore_errors=True)


def of_steps(trace: Trace, steps: list[int]) -> Trace:
    """The trace with what happened in these steps only."""
    there = trace.steps.select("step").unique().collect()["step"].sort().to_list()
    if missing := sorted(set(steps) - set(there)):
        has = f"it has steps {there[0]} to {there[-1]}" if len(there) > 1 else f"it has step {there[0]}" if there else "it has no steps"
        raise UsageError(f"no step {', '.join(map(str, missing))} in {trace.meta.source}; {has}")
    kept = trace.steps.filter(pl.col("step").is_in(steps)).sort("start_ns").collect()
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = dict(trace.tables) | {"steps": kept}
    spans = _within(trace.spans.collect(), "start_ns", kept)
    # What a framework assigned to a step belongs to it, though a device may run behind its host.
    tables["spans"] = spans.filter(pl.when(pl.col("step").is_null()).then("within").otherwise(pl.col("step").is_in(steps))).drop("within")
    tables["counters"] = _within(trace.counters.collect(), "at_ns", kept).filter("within").drop("within")
    tables["links"] = trace.table("links").filter(pl.col("step").is_null() | pl.col("step").is_in(steps))
    # A block that was alive during one of the steps explains the memory of that step.
    first, last = kept["start_ns"].min(), kept["end_ns"].max()
    tables["allocations"] = trace.allocations.filter(
        (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") < last)) & (pl.col("free_ns").is_null() | (pl.col("free_ns") > first))
    )
    return Trace(tables, trace.meta)


def operators_as_json(run: Path, names: list[str], device: int | None) -> str:
    """What the stock `op_analyse` returns: per operator a list of its input shapes with calls and microseconds."""
    rows = opening.open(run).analyse("operators")
    found: dict[str, Any] = {}
    for name in names:
        own = rows.filter((pl.col("name") == name) | (pl.col("type") == name) | pl.col("name").str.ends_with(f"/{name}"))
        if own.is_empty():
            raise UsageError(f"no operator '{name}' was recorded")
        found[name] = [
            {
                "op_side": row["device"],
                "input_shape": row["shapes"] or "",
                "op_occurrences": row["calls"],
                "op_total_time(us)": round(row["total_ns"] / 1000, 4),
                "op_avg_time(us)": round(row["total_ns"] / row["calls"] / 1000, 4),
            }
            for row in own.iter_rows(named=True)
        ]
    return json.dumps(found | {"device_id": device or 0})


def _with_doubts(trace: Trace) -> Trace:
    """Forward start and backward end may have been named before the names were known: a wrong one is told."""
    doubts = []
    for point in ("fp_start", "bp_end"):
        if text := trace.meta.options.get(point):
            try:
                trace.analyse("step_trace", **{point: text})
            except UsageError as error:
                why = str(error).partition(": ")[2] or str(error)  # without the flag's name
                doubts.append({"rank": trace.meta.ranks[0], "what": f"{point} (PROFILING_{point.upper()}) is not used: {why}", "lost": 0})
    if not doubts:
        return trace
    return Trace(trace.tables | {"problems": pl.concat([trace.problems, schema.conform(pl.LazyFrame(doubts), "problems")])}, trace.meta)


def _within(rows: pl.DataFrame, at: str, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows, in their order, with whether they began in one of the steps of their rank."""
    order = rows.with_row_index("order").sort(at)
    bounds = steps.select("rank", step_start="start_ns", step_end="end_ns").sort("step_start")
    placed = order.join_asof(bounds, left_on=at, right_on="step_start", by="rank", check_sortedness=False)
    within = (pl.col(at) < pl.col("step_end")).fill_null(False)
    return placed.with_columns(within=within).sort("order").drop("order", "step_start", "step_end", strict=False)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if hasattr(os, "nice"):
        os.nice(5)  # training comes first
    try:
        convert(Path(asked["folder"]), steps=asked["steps"], keep=asked["keep"])
    except StepscopeError as error:
        sys.exit(f"{error}")
