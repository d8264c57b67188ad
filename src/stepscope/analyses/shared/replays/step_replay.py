"""Replay of the steps of a job in which the ranks wait for the slowest one, with usual times in place of actual ones."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.parallelism.rank_places import rank_places
from stepscope.analyses.shared.ranks.rank_steps import PARTS, Matrix, rank_steps
from stepscope.analyses.shared.ranks.slow_ranks import Floats, known_median, usual
from stepscope.model.intervals import Bools
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_BEFORE = -1.0  # earlier than any time


class StepJob(NamedTuple):
    """Times by rank and step. The usual time of a rank is that of the ranks of its stage."""

    ranks: list[int]
    steps: list[int]
    stage: list[int | None]
    actual: Floats
    usual: Floats
    total: Floats
    parts: dict[str, Floats]
    usual_parts: dict[str, Floats]
    work: Floats

    def groups(self) -> list[list[int]]:
        """Rows of the ranks of each stage."""
        return [[row for row, row_stage in enumerate(self.stage) if row_stage == stage] for stage in sorted(set(self.stage), key=str)]

    def step_ns(self) -> Floats:
        """Length of each step, the median over the ranks."""
        return known_median(self.total, axis=0)

    def end(self, times: Floats) -> Floats:
        """Each step lasts as long as its slowest rank."""
        ends: Floats = np.max(np.nan_to_num(times, nan=_BEFORE), axis=0)
        return ends

    def alone(self, chosen: Bools, times: Floats | None = None) -> float:
        """Time lost per step if only the chosen times are actual, and all others usual."""
        chosen_times = self.actual if times is None else times
        return float(np.mean(self.end(np.where(chosen, chosen_times, self.usual)) - self.end(self.usual)))

    def without(self, chosen: Bools, times: Floats | None = None) -> float:
        """Time gained per step if only the chosen times are usual, and all others actual."""
        ideal = self.usual if times is None else times
        return float(np.mean(self.end(self.actual) - self.end(np.where(chosen, ideal, self.actual))))


@memoized
def step_job(trace: Trace) -> StepJob | None:
    """The steps that at least two ranks have in common; None if there are none."""
    rows = rank_steps(trace).filter(pl.col("own_ns") > 0)
    rows = rows.filter(pl.col("rank").n_unique().over("step") > 1).unique(["rank", "step"], keep="first")
    if rows.is_empty():
        return None
    matrix = Matrix(rows)
    places = dict(rank_places(trace).select("rank", "stage").iter_rows())
    stage = [places.get(rank) for rank in matrix.ranks]
    actual, parts = matrix.of("own_ns"), {name: matrix.of(f"{name}_ns") for name in PARTS}
    job = StepJob(matrix.ranks, matrix.steps, stage, actual, actual, matrix.of("total_ns"), parts, {}, matrix.of("work"))
    return job._replace(usual=_usual(job, actual), usual_parts={name: _usual(job, part) for name, part in parts.items()})


def _usual(job: StepJob, times: Floats) -> Floats:
    """Usual time by rank and step: that of its stage; its own time where it is the only rank of its stage."""
    expected = np.array(times)
    for rows in job.groups():
        if len(rows) > 1:
            expected[rows] = np.where(np.isfinite(times[rows]), usual(times[rows]), np.nan)
    return np.where(np.isfinite(expected), expected, times)
