"""The steps of a recording of MindSpore, from marks, calls of optimizers or calls of compiled functions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import intervals, units
from stepscope.readers.capture import mindspore_calls as graph_calls
from stepscope.readers.capture.mindspore_graphs import Graphs
from stepscope.readers.common.problems import FileProblems

Tables = Mapping[str, pl.DataFrame]


def find_steps(
    tables: Tables, ops: pl.DataFrame, graphs: Graphs, header: dict[str, Any], problems: FileProblems
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the operators with theirs.

    Steps are the ranges that Model.train marked; else those between calls of Profiler.step(); else each call of an optimizer, or of a
    compiled function that uses one, ends a step; else each call of the compiled function that takes longest; else each run of the graph.
    """
    calls = tables["graph_calls"]
    steps = _steps_of_calls(tables, ops, header, problems)
    if steps is not None:
        ops = ops.with_columns(step=graph_calls.step_of_operators(ops, calls, steps, graphs.names(), problems))
        return _add_passes(steps, ops), ops
    if header.get("mode") == "graph" and calls.is_empty() and (runs := graph_calls.repeated_graph(ops)):
        steps, step_of_operators, partial = runs
        problems.append(("steps", "no step markers: each step is one run of the graph", 0))
        if partial:
            operators = units.count(partial, "operator call is", "operator calls are")
            problems.append(("steps", f"{operators} of a run of the graph that was not recorded whole, and of no step", 0))
        ops = ops.with_columns(step=step_of_operators)
        return _add_passes(steps, ops), ops
    if ops.height:
        problems.append(("steps", "no step markers: the whole recording is one step (call Profiler.step(), or train with Model.train)", 0))
        end = pl.col("start_ns") + pl.col("dur_ns")
        steps = ops.select(step=pl.lit(0, pl.Int32), start_ns=pl.col("start_ns").min(), end_ns=end.max(), how=pl.lit("whole")).head(1)
    else:
        steps = pl.DataFrame(schema={"step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "how": pl.String})
    return steps, assign_steps(ops, steps)


def assign_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Rows with the step that they start in."""
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, pl.Int32))
    index = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), rows["start_ns"].to_numpy())
    return rows.with_columns(step=steps["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None))


def _steps_of_calls(tables: Tables, ops: pl.DataFrame, header: dict[str, Any], problems: FileProblems) -> pl.DataFrame | None:
    """Steps that were marked, or that end with a call; None without any such call."""
    marks, updates, calls, model_steps = (tables[name] for name in ("marks", "updates", "graph_calls", "steps"))
    if model_steps.height:
        return _steps_of_model(model_steps, marks, problems)
    if marks.height > 1:
        steps = _steps_between_marks(marks, updates)
        is_inferred = "inferred" in marks.columns and marks["inferred"][1:].all()
        return graph_calls.steps_without_others(steps, calls, problems) if is_inferred else steps
    if updates.height:
        ends = graph_calls.training_calls(updates, problems)
        callers = calls.filter(pl.col("start_ns") == ends["start_ns"][0]) if calls.height else calls
        function = f"{callers['function'][0]}, which uses an optimizer" if callers.height else "the optimizer"
        phase: str | None = "train"
    else:
        ends = _longest_calls(calls)
        if ends.height < 2:
            return None
        function = ends["function"][0]
        phase = "train" if ops["name"].str.starts_with("Gradients/").any() else None
    problems.append(("steps", f"no step markers: each step ends with a call of {function}", 0))
    return _steps_ending_with(ends, phase, tables, ops, header, problems)


def _longest_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of the compiled function that was called more than once and took longest on the host."""
    if calls.is_empty():
        return calls
    duration = (pl.col("end_ns") - pl.col("start_ns")).sum()
    callers = calls.group_by("caller", maintain_order=True).agg(pl.len(), duration=duration).filter(pl.col("len") > 1).sort("duration")
    return calls.filter(pl.col("caller") == callers["caller"][-1]).sort("start_ns") if callers.height else calls.clear()


def _steps_ending_with(
    ends: pl.DataFrame, phase: str | None, tables: Tables, ops: pl.DataFrame, header: dict[str, Any], problems: FileProblems
) -> pl.DataFrame:
    """Steps that end with these calls. The first begins with its wait for data or its first call of a graph, where these are known."""
    marks, calls, ranges = tables["marks"], tables["graph_calls"], tables["ranges"]
    number, begin = marks.row(0)[:2] if marks.height else (0, int(header.get("start_ns") or 0))
    steps = ends.select(
        step=pl.int_range(pl.len(), dtype=pl.Int32) + number,
        start_ns=pl.col("end_ns").shift(1, fill_value=begin),
        end_ns="end_ns",
        phase=pl.lit(phase, pl.String),
        how=pl.lit("inferred"),
    )
    steps = graph_calls.steps_without_others(steps, calls, problems)
    waits = ranges.filter(pl.col("kind") == "data") if ranges.height else ranges
    for rows in (waits, calls):
        first = rows.filter(pl.col("start_ns") >= steps["start_ns"][0], pl.col("start_ns") < ends["end_ns"][0]) if rows.height else rows
        if first.height:
            start = graph_calls.start_of_first_step(ops, steps, int(first["start_ns"].min()))  # type: ignore[arg-type]
            is_first = pl.int_range(pl.len()) == 0
            return steps.with_columns(start_ns=pl.when(is_first).then(pl.lit(start)).otherwise("start_ns"))
    return steps


def _steps_of_model(steps: pl.DataFrame, marks: pl.DataFrame, problems: FileProblems) -> pl.DataFrame:
    trained = steps.filter(pl.col("phase") == "train")
    steps = (trained if trained.height else steps).sort("start_ns")
    if marks.height:
        # Users look for steps by the numbers that Profiler.step() or `stepscope run` counted.
        counted = steps.select(at_ns="end_ns").join_asof(marks, on="at_ns")["step"]
        if counted.null_count() == 0 and counted.is_unique().all() and (marks.height > 1 or marks["step"][0] != 0):
            steps = steps.with_columns(step=counted)
        # The first mark is made after the recording has started: the time of starting is not part of a step.
        steps = steps.with_columns(start_ns=pl.col("start_ns").clip(pl.min_horizontal(marks["at_ns"][0], "end_ns")))
    if not steps["step"].is_unique().all():
        problems.append(("steps", "step numbers repeat, as with several calls of Model.train: counted on from the first", 0))
        steps = steps.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int32) + steps["step"][0])
    if sunk := steps.filter(pl.col("iterations") != 1).height:
        message = f"dataset sink mode: {units.count(sunk, 'step covers', 'steps cover')} several iterations each, which Python does not see"
        problems.append(("steps", message, 0))
    phase = pl.when(pl.col("phase") == "eval").then(pl.lit("infer")).otherwise(pl.lit("train"))
    return steps.select("step", "start_ns", "end_ns", phase=phase, how=pl.lit("marker"))


def _steps_between_marks(marks: pl.DataFrame, updates: pl.DataFrame) -> pl.DataFrame:
    """Steps from mark to mark. After the last mark there is a step if an optimizer was called before the recording ended."""
    after = updates.filter(pl.col("start_ns") > marks["at_ns"][-1]) if updates.height else updates
    end = after["end_ns"][0] if after.height == 1 else None
    return marks.select(
        "step", start_ns="at_ns", end_ns=pl.col("at_ns").shift(-1, fill_value=end), phase=pl.lit("train"), how=pl.lit("marker")
    ).drop_nulls("end_ns")


def _add_passes(steps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Steps with the start of forward and the end of backward, for graphs, whose scopes name the gradients."""
    is_gradient = pl.col("name").str.starts_with("Gradients/")
    # An optimizer's counter depends on nothing, so it may run first.
    is_optimizer = pl.col("name").str.contains(r"/_?opt(?:im|imizer)?-")
    is_forward = ~(is_gradient | is_optimizer | pl.col("op_type").is_in(["GetNext", "InitDataSetQueue", "AssignAdd"]))
    passes = (
        ops.group_by("step")
        .agg(
            fp_start_ns=pl.col("start_ns").filter(is_forward).min(),
            bp_end_ns=(pl.col("start_ns") + pl.col("dur_ns")).filter(is_gradient).max(),
        )
        .filter(pl.col("bp_end_ns").is_not_null(), pl.col("step").is_not_null())
    )
    return steps.join(passes, on="step", how="left", maintain_order="left")
