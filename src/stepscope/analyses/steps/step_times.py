"""How long are the steps and their stages: mean, median, percentiles and slowest?"""

import polars as pl

from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.steps.step_trace import step_trace
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "stage": pl.String,  # step, interval, forward and backward, tail, exposed communication, gap (between two steps)
    "steps": pl.Int64,  # that the figures cover
    "left_out": pl.Int64,  # steps: warm-up, and steps in which the stage is unknown
    "mean_ns": pl.Float64,
    "min_ns": pl.Int64,
    "p50_ns": pl.Int64,
    "p90_ns": pl.Int64,
    "p99_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,  # of the steps' time
}
_STAGES = {
    "step": "total_ns",
    "interval": "interval_ns",
    "forward and backward": "fp_bp_ns",
    "tail": "tail_ns",
    "exposed communication": "exposed_ns",
    "gap": "gap_ns",
}


def step_times(
    trace: Trace, *, warmup: int | None = None, fp_start: str | None = None, bp_end: str | None = None, clock: str = "host"
) -> pl.DataFrame:
    """Per rank and stage: the mean, the fastest, the median, the percentiles and the slowest, and the stage's share of the step.

    The first step of each rank is left out if it took more than 1.5 times the median of the others and longer than 90 % of them;
    `warmup` is the number of first steps to leave out instead, 0 for none; `overview` covers the same steps. A percentile is a time
    that occurred; the median of an even number of steps is between two. Exposed communication, as in `overlap`, is part of the stages,
    and its share is of the time of the device, as in `overview`. See `step_trace` for the stages and the other parameters.
    """
    exposed = overlap(trace).filter(pl.col("communication_ns").sum().over("rank") > 0).select("rank", "step", "exposed_ns", "device_ns")
    all_steps = step_trace(trace, fp_start=fp_start, bp_end=bp_end, clock=clock).join(
        exposed, on=["rank", "step"], how="left", maintain_order="left"
    )
    steps = all_steps.join(counting_steps(trace, warmup), on=["rank", "step"], how="semi", maintain_order="left")
    counts = all_steps.group_by("rank").agg(all=pl.len())
    tables = [_stage_times(steps, stage, column) for stage, column in _STAGES.items()]
    order = pl.col("stage").cast(pl.Enum(list(_STAGES)))
    return (
        pl.concat(tables)
        .join(counts, on="rank")
        .with_columns(left_out=pl.col("all") - pl.col("steps"))
        .sort("rank", order)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _stage_times(steps: pl.DataFrame, stage: str, column: str) -> pl.DataFrame:
    known = steps.filter(pl.col(column).is_not_null())
    time, total = pl.col(column), pl.col("device_ns" if stage == "exposed communication" else "total_ns").sum()
    return known.group_by("rank").agg(
        stage=pl.lit(stage),
        steps=pl.len().cast(pl.Int64),
        mean_ns=time.mean(),
        min_ns=time.min(),
        p50_ns=time.median().round(),
        p90_ns=time.quantile(0.9, "nearest"),
        p99_ns=time.quantile(0.99, "nearest"),
        max_ns=time.max(),
        share=pl.when(total > 0).then(time.sum() / total),
    )
