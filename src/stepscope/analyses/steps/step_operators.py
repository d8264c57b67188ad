"""Which operators of a step could start its forward pass or end its backward pass?"""

import polars as pl

from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "name": pl.String,
    "kind": pl.String,
    "calls": pl.Int64,
    "start_ns": pl.Int64,  # of the first call
    "end_ns": pl.Int64,  # of the last call to end
    "offset_ns": pl.Int64,  # of the first start, from the start of the step
    "end_offset_ns": pl.Int64,
}
_NAMED = ["op", "scope", "annotation", "kernel", "communication"]


def step_operators(trace: Trace, *, step: int | None = None) -> pl.DataFrame:
    """Per rank and name, by first start: every operator, range and kernel of one step that can be `fp_start` or `bp_end` of `step_trace`.

    `step` is the number of the step; by default the last one of each rank.
    """
    steps = trace.steps.select("rank", "step", step_start_ns="start_ns")
    selected = steps.filter(
        pl.col("step") == step if step is not None else pl.col("step_start_ns") == pl.col("step_start_ns").max().over("rank")
    )
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
    return (
        trace.spans.filter(pl.col("kind").cast(pl.String).is_in(_NAMED))
        .join(selected, on=["rank", "step"])
        .group_by("rank", "step", "step_start_ns", pl.col("name", "kind").cast(pl.String))
        .agg(calls=pl.len(), start_ns=start.min(), end_ns=end.max())
        .filter(pl.col("name").is_not_null())
        .with_columns(offset_ns=pl.col("start_ns") - pl.col("step_start_ns"), end_offset_ns=pl.col("end_ns") - pl.col("step_start_ns"))
        .sort("rank", "start_ns", "end_ns", "name", "kind")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
        .collect()
    )
