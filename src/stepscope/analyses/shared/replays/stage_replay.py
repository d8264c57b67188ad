"""Replay of a pipeline-parallel job with original and ideal durations of its operations, after StragglerAnalysis (ByteDance, 2025).

The ideal duration of computation is the mean of its operation type over all ranks and steps; that of communication is the median of
its transit, the time after the last participant has begun. A replay of all original durations is the job without delays of launches.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.replays import stage_schedule
from stepscope.analyses.shared.replays.stage_schedule import Schedule
from stepscope.model.intervals import Bools, Ints
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

TYPES = {name: f"{name.split('-')[0]}-transfer" for name in stage_schedule.TRANSFERS}  # sends and receives are one type


class StageJob(NamedTuple):
    """Durations by node of the schedule, replica and step."""

    schedule: Schedule
    replicas: list[int]
    steps: list[int]
    rank: Ints  # by stage and replica, -1 for none
    actual: Ints
    ideal: Ints  # of computation the mean, of communication the median

    def times(self, duration: Ints) -> Ints:
        """Time of each step with these durations."""
        schedule, ends = self.schedule, np.zeros(duration.shape, np.int64)
        for members, waits, across in schedule.order:
            starts = [np.max([ends[earlier] for earlier in schedule.before[node]], axis=0, initial=0) for node in members]
            if waits:
                last = np.maximum.reduce([np.broadcast_to(start, duration.shape[1:]) for start in starts])
                last = np.broadcast_to(last.max(axis=0), last.shape) if across else last
                starts = [last] * len(members)
            for node, start in zip(members, starts, strict=True):
                ends[node] = start + duration[node]
        times: Ints = ends.max(axis=(0, 1))
        return times

    def mean(self, duration: Ints) -> float:
        return float(self.times(duration).mean())

    def with_actual(self, chosen: Bools) -> float:
        """Mean step with the actual durations of the chosen operations, and ideal ones for the others."""
        return self.mean(np.where(chosen, self.actual, self.ideal))

    def with_ideal(self, chosen: Bools) -> float:
        """Mean step with the ideal durations of the chosen operations, and actual ones for the others."""
        return self.mean(np.where(chosen, self.ideal, self.actual))

    def on_stage(self, stage: int) -> Bools:
        return (self.schedule.nodes["stage"] == stage).to_numpy()[:, None, None]

    def on_replica(self, place: int) -> Bools:
        chosen: Bools = (np.arange(len(self.replicas)) == place)[None, :, None]
        return chosen

    def on_rank(self, rank: int) -> Bools:
        stage, place = (int(index[0]) for index in np.nonzero(self.rank == rank))
        chosen: Bools = self.on_stage(stage) & self.on_replica(place)
        return chosen

    def of_type(self, name: str) -> Bools:
        types = self.schedule.nodes["operation"].replace(TYPES)
        return (types == name).to_numpy()[:, None, None]

    def types(self) -> list[str]:
        return sorted(self.schedule.nodes["operation"].replace(TYPES).unique())


class Workers(NamedTuple):
    """How much the job is slowed down by each worker, from the slowdowns by its replica and its stage."""

    rank: list[int]
    stage: list[int]
    slowdown: list[float]

    def slowest(self) -> list[int]:
        """The slowest 3 % of the workers, at least one."""
        by_slowdown = sorted(zip(self.slowdown, self.rank, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [rank for _, rank in by_slowdown[: -(-len(by_slowdown) * 3 // 100)]]


def workers(job: StageJob) -> Workers:
    """A worker is slow where both its replica and its stage are: the smaller of both slowdowns."""
    ideal = job.mean(job.ideal)
    of_stage = [job.with_actual(job.on_stage(stage)) / ideal for stage in range(job.rank.shape[0])]
    of_replica = [job.with_actual(job.on_replica(place)) / ideal for place in range(job.rank.shape[1])]
    places = [(int(job.rank[stage, place]), int(stage), int(place)) for stage, place in zip(*np.nonzero(job.rank >= 0), strict=True)]
    places.sort()
    return Workers([row[0] for row in places], [row[1] for row in places], [min(of_stage[row[1]], of_replica[row[2]]) for row in places])


def stage_job(trace: Trace) -> StageJob | None:
    """The job of a trace with the operations of pipeline stages; None for others, and where they follow no schedule."""
    job = _stage_job(trace)
    return None if isinstance(job, str) else job


def schedule_fault(trace: Trace) -> str | None:
    """Why recorded operations of pipeline stages cannot be replayed; None where they can, and where there are none."""
    job = _stage_job(trace)
    return job if isinstance(job, str) else None


@memoized
def _stage_job(trace: Trace) -> StageJob | str | None:
    rows = operations(trace)
    if rows.is_empty():
        return None
    replicas, steps, key = sorted(rows["replica"].unique()), sorted(rows["step"].unique()), ["stage", "operation", "sequence"]
    usual = rows.filter(2 * pl.len().over(key) >= len(replicas) * len(steps))  # others are not part of every step
    try:
        schedule = stage_schedule.build(usual, data_parallel=_replica_count(trace, replicas) > 1)
    except ValueError as error:
        return str(error)
    rows = rows.join(schedule.nodes, on=key)
    shape = (schedule.nodes.height, len(replicas), len(steps))
    at = (rows["node"].to_numpy(), np.searchsorted(replicas, rows["replica"]), np.searchsorted(steps, rows["step"]))
    start, end = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
    start[at], end[at] = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    whole: Bools = np.asarray((start >= 0).all(axis=(0, 1)))  # steps with all operations of all replicas
    if not whole.any():
        return "no step has all operations of all ranks"
    rank = np.full((int(rows["stage"].max()) + 1, len(replicas)), -1, np.int64)  # type: ignore[arg-type]
    rank[rows["stage"].to_numpy(), at[1]] = rows["rank"].to_numpy()
    actual = _without_waits(schedule, start[:, :, whole], end[:, :, whole])
    kept = [step for step, is_whole in zip(steps, whole, strict=True) if is_whole]
    return StageJob(schedule, replicas, kept, rank, actual, _ideal(schedule, actual))


def operations(trace: Trace) -> pl.DataFrame:
    """rank, stage, replica, step, operation, sequence, chunk, model_chunk, start_ns and end_ns since the start of the step."""
    columns = ("rank", "stage", "replica", "step", "operation", "sequence", "chunk", "model_chunk")
    spans = trace.table("rank_operations") if trace.meta.summary else trace.spans.select("rank", "span", "step", "start_ns", "dur_ns")
    begins = trace.steps.group_by("step").agg(begin=pl.col("start_ns").min())
    rows = trace.table("stage_operations").join(spans, on=["rank", "span"]).join(begins, on="step").collect()
    start = pl.col("start_ns") - pl.col("begin")
    rows = rows.with_columns(pl.col("operation").cast(pl.String), start_ns=start, end_ns=start + pl.col("dur_ns"))
    return rows.select(*columns, "start_ns", "end_ns").drop_nulls(["stage", "replica", "step", "operation", "sequence"])


def _replica_count(trace: Trace, replicas: list[int]) -> int:
    """Recorded replicas, times the ranks over which each is sharded."""
    sharded = trace.meta.extra.get("sharded_replicas")
    return len(replicas) * (sharded if isinstance(sharded, int) else 1)


def _without_waits(schedule: Schedule, start: Ints, end: Ints) -> Ints:
    """Durations, of meetings only the time after the last participant has begun."""
    actual = end - start
    for members, waits, across in schedule.order:
        if waits:
            last = np.maximum.reduce([start[node] for node in members])
            last = np.broadcast_to(last.max(axis=0), last.shape) if across else last
            for node in members:
                actual[node] = np.maximum(end[node] - last, 0)
    return actual


def _ideal(schedule: Schedule, actual: Ints) -> Ints:
    names = schedule.nodes["operation"].to_list()
    ideal = np.empty_like(actual)
    for name in set(names):
        nodes = [node for node, operation in enumerate(names) if operation == name]
        usual = np.median if name in stage_schedule.COMMUNICATION else np.mean
        ideal[nodes] = round(float(usual(actual[nodes])))
    return ideal
