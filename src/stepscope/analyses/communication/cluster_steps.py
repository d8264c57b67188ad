"""How does each rank spend each step, and how long does it wait for the others?"""

import polars as pl

from stepscope.analyses.communication.communication import sum_if_complete, waits
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.steps.step_trace import step_trace
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,  # null with per_step=False
    "steps": pl.Int64,  # number of steps of the row
    "start_ns": pl.Int64,
    "total_ns": pl.Int64,
    "interval_ns": pl.Int64,
    "fp_bp_ns": pl.Int64,
    "tail_ns": pl.Int64,
    "device_ns": pl.Int64,  # the step on the device
    "computing_ns": pl.Int64,
    "communication_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "device_exposed_ns": pl.Int64,
    "copy_ns": pl.Int64,
    "free_ns": pl.Int64,
    "host_exposed_ns": pl.Int64,
    "wait_ns": pl.Int64,  # for other ranks, in calls with a known wait
    "uncertain_wait_ns": pl.Int64,  # in calls whose wait is smaller than the uncertainty of the clocks
    "known_waits": pl.Int64,  # calls with a known wait
    "matched": pl.Int64,  # calls with a counterpart on the other recorded ranks
    "transit_ns": pl.Int64,  # data in transit, as recorded for every call of the step
    "communication_idle_ns": pl.Int64,  # neither transit nor wait, as recorded
    "device_steps": pl.Int64,  # steps that computing, exposed, copy and free cover: their device work is completely recorded
    "stage_ns": pl.Int64,  # as recorded (MindSpore, pipeline parallel): the step without exposed receives
    "receive_ns": pl.Int64,  # as recorded: exposed receives
    "collective_ns": pl.Int64,  # as recorded: exposed communication without receives
    "computation_ns": pl.Int64,  # as recorded: the step without exposed communication, with idle time
}


def cluster_steps(trace: Trace, *, per_step: bool = True, warmup: int | None = None) -> pl.DataFrame:
    """Per rank and step: its stages as in `step_trace`, its parts as in `overlap`, and the wait for others as in `communication`.

    computing + device_exposed + copy + free is `device_ns`; they are null if device work is not completely recorded, as in `overlap`. The
    wait is part of the communication, summed over all calls of the step; null if it is unknown for all of them. Without per_step: one row
    per rank with the mean over its steps, of the parts over its `device_steps`, and `start_ns` of the first; steps are then left out as in
    `step_times`.
    """
    key = ["rank", "step"]
    steps = step_trace(trace)
    steps = steps if per_step else steps.join(counting_steps(trace, warmup), on=key, how="semi", maintain_order="left")
    stages = steps.select(*key, "start_ns", "total_ns", "interval_ns", "fp_bp_ns", "tail_ns")
    work = overlap(trace).drop("total_ns", "overlapped_ns", "clock")
    recorded = trace.steps.select(*key, "stage_ns", "receive_ns", "collective_ns", "computation_ns").collect()
    waited = (
        waits(trace)
        .filter(pl.col("step").is_not_null())
        .group_by(key)
        .agg(
            wait_ns=pl.when(pl.col("wait_ns").count() > 0).then(pl.col("wait_ns").sum()),
            uncertain_wait_ns=pl.when(pl.col("wait_ns").count() > 0).then(pl.col("uncertain_wait_ns").sum()),
            known_waits=pl.col("wait_ns").count(),
            matched=pl.col("comparable").sum(),
            transit_ns=sum_if_complete("recorded_transit_ns"),
            communication_idle_ns=sum_if_complete("recorded_idle_ns"),
        )
    )
    rows = (
        stages.join(work, on=key, how="left", maintain_order="left")
        .join(waited, on=key, how="left", maintain_order="left")
        .join(recorded.unique(key, keep="first"), on=key, how="left", maintain_order="left")
        .with_columns(
            pl.col("known_waits", "matched").fill_null(0), steps=pl.lit(1), device_steps=pl.col("complete").fill_null(False).cast(pl.Int64)
        )
    )
    if not per_step:
        means = [name for name in COLUMNS if name.endswith("_ns") and name != "start_ns"]
        rows = rows.group_by("rank").agg(
            pl.col("steps", "known_waits", "matched", "device_steps").sum(),
            pl.col("start_ns").min(),
            pl.col(means).mean().round(),
            step=pl.lit(None, pl.Int32),
        )
    return rows.sort("step", "rank").select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
