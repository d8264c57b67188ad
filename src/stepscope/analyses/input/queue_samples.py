"""How full was each queue of the input pipeline, sample by sample?"""

import polars as pl

from stepscope.analyses.shared import input_counters
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "queue": pl.String,  # as in data_queues, or operator N for the queue behind operator N of the pipeline
    "op_id": pl.Int32,  # the operator that fills it, in data_pipeline
    "step": pl.Int32,  # null outside of any step
    "at_ns": pl.Int64,
    "depth": pl.Float64,
    "capacity": pl.Int32,
}


def queue_samples(trace: Trace, *, op: int | None = None) -> pl.DataFrame:
    """Per rank and queue: batches or rows in it at each sample; optionally of the queue behind one operator."""
    pipeline = trace.table("pipeline").collect()
    top = input_counters.ends(pipeline)
    of_end = pl.when(pl.col("queue") != "device").then(pl.col("rank").replace_strict(top, default=None, return_dtype=pl.Int32))
    samples = input_counters.samples(trace).filter(pl.col("what") == "depth")
    rows = (
        input_counters.in_steps(trace, samples)
        .with_columns(
            queue=pl.coalesce("queue", pl.when(pl.col("of") == "loader").then(_named("DataLoader")).otherwise(_named("operator"))),
            op_id=pl.coalesce("op_id", of_end),
        )
        .join(
            pipeline.select("rank", "op_id", capacity="queue_capacity").unique(["rank", "op_id"]),
            on=["rank", "op_id"],
            how="left",
            maintain_order="left",
        )
    )
    if op is not None:
        rows = rows.filter(pl.col("op_id") == op)
    return (
        rows.rename({"value": "depth"})
        .sort("rank", "queue", "at_ns", maintain_order=True)
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )


def _named(word: str) -> pl.Expr:
    return pl.format(word + " {}", "op_id")
