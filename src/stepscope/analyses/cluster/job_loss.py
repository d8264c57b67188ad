"""How much time does the job lose to slow ranks, stages and operator types?"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from stepscope.analyses.shared.ranks.rank_steps import PARTS
from stepscope.analyses.shared.replays.stage_replay import StageJob, schedule_fault, stage_job, workers
from stepscope.analyses.shared.replays.step_replay import StepJob, step_job
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "dimension": pl.String,  # all, slowest workers, worker, stage, operator_type
    "name": pl.String,
    "rank": pl.Int32,  # of a worker
    "stage": pl.Int32,  # of a stage, or of a worker
    "step_ns": pl.Int64,  # mean step with all times as recorded
    "loss_ns": pl.Int64,  # per step, if all others are as fast as usual
    "loss_share": pl.Float64,  # of the step
    "slowdown": pl.Float64,  # S: the step with this loss, divided by the step without any
    "explained": pl.Float64,  # M: share of the whole loss that goes away if only this becomes as fast as usual
    "replay": pl.String,  # pipeline: of every operation; steps: each step lasts as long as its slowest rank
    "note": pl.String,  # why the pipeline of recorded operations is not replayed
}


@memoized
def job_loss(trace: Trace) -> pl.DataFrame:
    """What the job loses to differences between ranks, by replay of its steps, as a whole and by worker, stage and operator type.

    With the operations of pipeline stages, the schedule of the pipeline is replayed with ideal durations: of computation the mean of its
    type, of communication the median of its transit. Otherwise each step lasts as long as its slowest rank, and the usual time of a rank
    is the median of the ranks of its stage; operator types are then computation, input, garbage collection and the host. `explained` of
    the slowest 3 % of the workers is M_W and of the last stage M_S of "Understanding Stragglers in Large Model Training" (2025).
    """
    stages, steps = stage_job(trace), step_job(trace)
    rows = _stage_rows(stages) if stages is not None else _step_rows(steps) if steps is not None else iter(())
    return pl.DataFrame([row | {"note": schedule_fault(trace)} for row in rows], COLUMNS, orient="row", strict=False)


Row = dict[str, Any]


def _stage_rows(job: StageJob) -> Iterator[Row]:
    actual, ideal = job.mean(job.actual), job.mean(job.ideal)
    lost = actual - ideal

    def row(dimension: str, name: str, step: float, without: float | None, **places: int) -> Row:
        explained = (actual - without) / lost if without is not None and lost > 0 else None
        loss = step - ideal
        figures = {"step_ns": round(actual), "loss_ns": round(loss), "loss_share": loss / actual, "slowdown": step / ideal}
        return {"dimension": dimension, "name": name, **places, **figures, "explained": explained, "replay": "pipeline"}

    yield row("all", "all", actual, ideal)
    each = workers(job)
    slowest = each.slowest()
    chosen = np.logical_or.reduce([job.on_rank(rank) for rank in slowest])
    names = f"{len(slowest)} of {len(each.rank)} workers: rank {', '.join(map(str, slowest))}"
    yield row("slowest workers", names, job.with_actual(chosen), job.with_ideal(chosen))
    for stage in range(job.rank.shape[0]):
        chosen = job.on_stage(stage)
        yield row("stage", f"stage {stage}", job.with_actual(chosen), job.with_ideal(chosen), stage=stage)
    for name in job.types():
        chosen = job.of_type(name)
        yield row("operator_type", name, job.with_actual(chosen), job.with_ideal(chosen))
    for rank, stage, slowdown in zip(*each, strict=True):
        yield row("worker", f"rank {rank}", slowdown * ideal, None, rank=rank, stage=stage)


def _step_rows(job: StepJob) -> Iterator[Row]:
    every = np.ones(job.actual.shape, np.bool_)
    step, lost = float(np.mean(job.step_ns())), job.alone(every)

    def row(dimension: str, name: str, loss: float, gain: float | None, **places: int | None) -> Row:
        explained = gain / lost if gain is not None and lost > 0 else None
        slowdown = 1 + loss / (step - lost) if step > lost else None
        figures = {"step_ns": round(step), "loss_ns": round(loss), "loss_share": loss / step if step else None, "slowdown": slowdown}
        return {"dimension": dimension, "name": name, **places, **figures, "explained": explained, "replay": "steps"}

    yield row("all", "all", lost, lost)
    losses = _losses(job)
    slowest = sorted(range(len(job.ranks)), key=lambda place: (-losses[place], place))[: -(-len(job.ranks) * 3 // 100)]
    chosen = np.isin(np.arange(len(job.ranks)), slowest)[:, None]
    names = f"{len(slowest)} of {len(job.ranks)} workers: rank {', '.join(str(job.ranks[place]) for place in slowest)}"
    yield row("slowest workers", names, job.alone(chosen), job.without(chosen))
    for rows in job.groups():
        if (stage := job.stage[rows[0]]) is not None:
            chosen = np.isin(np.arange(len(job.ranks)), rows)[:, None]
            yield row("stage", f"stage {stage}", job.alone(chosen), job.without(chosen), stage=stage)
    for name in PARTS:
        excess = np.nan_to_num(job.parts[name] - job.usual_parts[name])
        if np.isfinite(job.parts[name]).any():
            yield row("operator_type", name, job.alone(every, job.usual + excess), job.without(every, job.actual - np.maximum(excess, 0)))
    for place, rank in enumerate(job.ranks):
        yield row("worker", f"rank {rank}", losses[place], None, rank=rank, stage=job.stage[place])


def _losses(job: StepJob) -> list[float]:
    """Per rank the time lost per step if all others are as fast as usual."""
    fastest = job.end(job.usual)
    return [float(np.mean(np.maximum(np.nan_to_num(times, nan=-1.0) - fastest, 0))) for times in job.actual]
