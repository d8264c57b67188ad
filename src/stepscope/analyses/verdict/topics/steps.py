"""Steps: how long they take, how far they differ, and which stage takes the time."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.steps.step_times import step_times
from stepscope.analyses.steps.step_trace import step_trace
from stepscope.analyses.verdict.topics.message import MATTERS, Message, Options, severity
from stepscope.model.trace import Trace

_STAGES = {"forward and backward": "fp_bp_ns", "tail": "tail_ns", "interval": "interval_ns"}
_LARGE = 0.25  # of a step: then interval or tail are the sentence
_SKEWED = 1.25  # times the median: then a few steps are far slower
_FEW = 20  # steps: fewer have no slowest 1 %
_EXPOSED = 0.1  # of a step
_ALIKE, _DIFFERENT = 0.005, 0.02  # of the median: a step as long as it; a stage that is longer or shorter

_STAGE_OF = {"steps-interval": "interval", "steps-tail": "tail"}

_Row = dict[str, Any]


def step_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Per rank its steps as a whole, then each step where `per_step` is set."""
    steps = step_trace(trace, **options.stages)
    if steps.is_empty():
        yield Message("steps", "steps-none", {})
        return
    times = step_times(trace, warmup=options.warmup, **options.stages)
    exposed = {row[:2]: row[2] or 0 for row in overlap(trace).select("rank", "step", "exposed_ns").iter_rows()} if options.per_step else {}
    for (rank,), rows in steps.group_by("rank", maintain_order=True):
        stages = {row["stage"]: row for row in times.filter(pl.col("rank") == rank).iter_rows(named=True)}
        if "step" not in stages:
            yield Message("steps", "steps-none", {}, int(rank))
            continue
        code, parameters, level = _typical_step(stages, how=rows["how"][-1])
        coverage = _coverage(stages, _STAGE_OF.get(code, parameters.get("stage")))
        yield Message("steps", code, parameters, int(rank), level, coverage)
        mean = _mean(stages, "exposed communication")
        if mean > 0:
            message = _exposed_message(int(rank), None, mean, stages["step"]["mean_ns"])
            yield message._replace(coverage=_coverage(stages, "exposed communication"))
        for index, row in enumerate(rows.iter_rows(named=True) if options.per_step else ()):
            left_out = index < rows.height - stages["step"]["steps"]
            exposed_ns = exposed.get((rank, row["step"]), 0)
            code, parameters = _one_step(row, stages, exposed_ns, left_out=left_out)
            yield Message("steps", code, parameters, int(rank), step=row["step"])
            if exposed_ns > 0:
                yield _exposed_message(int(rank), row["step"], exposed_ns, row["total_ns"])


def _exposed_message(rank: int, step: int | None, exposed: float, total: float) -> Message:
    level = "high" if exposed > _EXPOSED * total else None
    return Message("steps", "step-exposed-communication", {"exposed": round(exposed)}, rank, level, step=step)


def _coverage(stages: dict[str, _Row], stage: str | None) -> str | None:
    """`3 of 10 steps`; None if the stage is known in all steps."""
    known, steps = stages[stage]["steps"] if stage else None, stages["step"]["steps"]
    return f"{known:,} of {steps:,} steps" if known is not None and known < steps else None


def _mean(stages: dict[str, _Row], stage: str) -> float:
    return stages[stage]["mean_ns"] or 0 if stage in stages else 0


def _typical_step(stages: dict[str, _Row], *, how: str) -> tuple[str, dict[str, Any], str | None]:
    step = stages["step"]
    median = {"median": step["p50_ns"]}
    spread = {"min": step["min_ns"], "max": step["max_ns"]} if step["steps"] < _FEW else {"p99": step["p99_ns"]}
    shares = {stage: stages[stage]["share"] for stage in _STAGES if stage in stages and stages[stage]["share"] is not None}
    if step["steps"] == 1:
        if how == "device" and not step["left_out"]:
            return "steps-one-device", median, None
        return "steps-recording" if how == "whole" else "steps-one-left" if step["left_out"] else "steps-one", median, None
    if not shares:
        return "steps-undivided", median | spread, None
    if step["mean_ns"] > _SKEWED * step["p50_ns"]:
        return "steps-skewed", median | {"mean": round(step["mean_ns"]), "max": step["max_ns"]}, "medium"
    if shares.get("interval", 0) > _LARGE:
        return "steps-interval", median | {"share": shares["interval"]}, severity(shares["interval"])
    exposed = _mean(stages, "exposed communication")
    if shares.get("tail", 0) > _LARGE and exposed > MATTERS * step["mean_ns"]:
        return "steps-tail", median | {"share": shares["tail"], "exposed": round(exposed)}, severity(shares["tail"])
    stage = max(shares, key=lambda name: shares[name])
    return "steps-stages", median | spread | {"stage": stage, "share": shares[stage]}, None


def _one_step(row: _Row, stages: dict[str, _Row], exposed: float, *, left_out: bool) -> tuple[str, dict[str, Any]]:
    total, median = row["total_ns"], stages["step"]["p50_ns"]
    delta = total - median
    parts = {stage: row[name] for stage, name in _STAGES.items() if row[name] is not None}
    over = {stage: time - stages[stage]["p50_ns"] for stage, time in parts.items() if stage in stages}
    slower = [stage for stage, more in over.items() if more > _DIFFERENT * stages[stage]["p50_ns"]]
    faster = [stage for stage, more in over.items() if more < -_DIFFERENT * stages[stage]["p50_ns"]]
    basic = {"step": row["step"], "total": total, "median": median, "delta": abs(delta)}
    basic |= {name: ", ".join(names) for name, names in (("slower", slower), ("faster", faster)) if names}
    if left_out:
        return "step-left-out", basic | {"times": total / median if median else 0.0}
    if not over:
        return "step-undivided", basic
    tail = parts.get("tail", 0) / total if total else 0
    if delta > 0 and tail > _LARGE and exposed > MATTERS * total:
        return "step-tail", basic | {"share": tail, "exposed": exposed}
    if abs(delta) < _ALIKE * median:
        stage = max(parts, key=lambda name: parts[name])
        return "step-median", basic | {"stage": stage, "share": parts[stage] / total if total else 0.0}
    stage = max(over, key=lambda name: over[name])
    return ("step-slower", basic | {"stage": stage, "more": over[stage]}) if delta > 0 else ("step-faster", basic)
