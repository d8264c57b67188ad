"""How does the host spend each step: data wait, forward, backward, optimizer, or other?"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.host_phases import passes, role_times, roles
from stepscope.model import intervals
from stepscope.model.intervals import Set
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "stage": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "share": pl.Float64,
}


def step_stages(trace: Trace) -> pl.DataFrame:
    """Per rank, step and stage: its first start, its total time, and its share of the step.

    The stages of a step add up to it. They are those of the thread that runs the steps, in host time:
    data wait: ranges of the loader; backward: from the first to the last operator of the autograd engine, per backward call;
    optimizer: ranges of the optimizer (step, zero_grad); input copy: operators that only move tensors before the forward pass;
    forward: from the forward start (see step_trace) to the backward pass; forward and backward: if the recording has only their start and
    end; communication: transfers on host threads outside the other stages; other: the rest.
    Each time counts once, for the first of these stages.
    """
    tables = [_in_steps(rows, stage, part) for rows, stages in stage_sets(trace) for stage, part in stages.items()]
    if not tables:
        return pl.DataFrame(schema=COLUMNS)
    return (
        pl.concat(tables)
        .with_columns(share=pl.col("dur_ns") / pl.col("total_ns"))
        .filter(pl.col("dur_ns") > 0)
        .with_columns(pl.col("stage").cast(_STAGES))
        .sort("rank", "step_start_ns", "stage")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def stage_sets(trace: Trace) -> Iterator[tuple[pl.DataFrame, dict[str, Set]]]:
    """Rank by rank: its steps in order of time, and the times of each stage."""
    with_role = roles(trace)
    marks = passes(trace).select("rank", "step", "fp_start_ns", "bp_end_ns", "last_ns")
    recorded = {"recorded_start_ns": "fp_start_ns", "recorded_end_ns": "bp_end_ns"}
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns", **recorded).sort("rank", "start_ns").collect()
    steps = steps.join(marks, on=["rank", "step"], how="left", maintain_order="left")
    spans = with_role.partition_by("rank", as_dict=True)
    for rank, rows in steps.group_by("rank", maintain_order=True):
        yield rows, _stages(rows, spans.get(rank, with_role.clear()))


_STAGES = pl.Enum(["data wait", "input copy", "forward", "backward", "forward and backward", "communication", "optimizer", "other"])


def _stages(steps: pl.DataFrame, spans: pl.DataFrame) -> dict[str, Set]:
    """The stages as disjoint sets of intervals that cover the steps."""
    backward = _backward(steps, spans)
    claims = {
        "data wait": role_times(spans, "data"),
        "backward": backward,
        "optimizer": role_times(spans, "optimizer"),
        "input copy": role_times(_before_forward(steps, spans), "move"),
        "forward": _forward(steps.filter(pl.col("recorded_start_ns").is_null()), spans, backward),
        "forward and backward": _recorded_passes(steps),
        "communication": role_times(spans, "communication"),
    }
    earlier, parts = intervals.NONE, {}
    for stage, claim in claims.items():
        parts[stage] = intervals.subtract(claim, earlier)
        earlier = intervals.join(earlier, claim)
    parts["other"] = intervals.subtract(intervals.merge(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()), earlier)
    return parts


def _backward(steps: pl.DataFrame, spans: pl.DataFrame) -> Set:
    """One interval per backward call: operators of the engine, joined unless the main thread runs another role in between."""
    engine = role_times(spans, "backward")
    if len(engine.starts) == 0:
        return role_times(spans, "backward range")
    others = spans.filter(~pl.col("role").is_in(["backward", "communication"]))["start_ns"].to_numpy()
    breaks = np.sort(np.concatenate((others, steps["start_ns"].to_numpy())))
    between = np.searchsorted(breaks, engine.starts[1:], "left") > np.searchsorted(breaks, engine.ends[:-1], "left")
    return Set(engine.starts[np.append(True, between)], engine.ends[np.append(between, True)])


def _forward(steps: pl.DataFrame, spans: pl.DataFrame, backward: Set) -> Set:
    """Up to each backward call, from the first operator after the forward start of the step or after the previous backward call."""
    known = steps.filter(pl.col("fp_start_ns").is_not_null())
    first = known["fp_start_ns"].to_numpy()
    # Without a backward call in the step: to the last operator.
    alone = known.filter(pl.col("bp_end_ns").is_null() & pl.col("last_ns").is_not_null())
    operators = spans.filter(pl.col("role").is_in(["op", "module", "forward range"]))["start_ns"].to_numpy()
    starts = np.unique(np.concatenate((operators, first)))
    # The step of each backward call, and the earliest start of its forward pass.
    step = intervals.enclosing(known["start_ns"].to_numpy(), known["end_ns"].to_numpy(), backward.starts)
    before = np.append(np.iinfo(np.int64).min, backward.ends[:-1])[: len(step)]
    since = np.maximum(first[step[step >= 0]], before[step >= 0])
    begin = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, since, "left")]
    return intervals.merge(
        np.concatenate((begin, alone["fp_start_ns"].to_numpy())),
        np.concatenate((backward.starts[step >= 0], alone["last_ns"].to_numpy())),
    )


def _recorded_passes(steps: pl.DataFrame) -> Set:
    rows = steps.filter(pl.col("recorded_start_ns").is_not_null() & pl.col("recorded_end_ns").is_not_null())
    return intervals.merge(rows["recorded_start_ns"].to_numpy(), rows["recorded_end_ns"].to_numpy())


def _before_forward(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    marks = steps.select("rank", "step", "fp_start_ns")
    return spans.join(marks, on=["rank", "step"]).filter(pl.col("start_ns") < pl.col("fp_start_ns"))


def _in_steps(steps: pl.DataFrame, stage: str, part: Set) -> pl.DataFrame:
    starts, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    begin = np.append(part.starts, np.iinfo(np.int64).max)[np.searchsorted(part.ends, starts, "right")]
    return steps.select(
        "rank",
        "step",
        pl.lit(stage).alias("stage"),
        pl.col("start_ns").alias("step_start_ns"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("total_ns"),
        pl.Series("start_ns", np.maximum(begin, starts)),
        pl.Series("dur_ns", intervals.covered(part, starts, ends)),
    )
