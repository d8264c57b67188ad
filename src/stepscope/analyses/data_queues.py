"""Does the training wait for its data?"""

import polars as pl

from stepscope.analyses import _input
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "queue": pl.String,  # DataLoader N, iterator, device queue (read by the sender to the device), device (on the device itself)
    "step": pl.Int32,  # null for what was taken outside of any step, and with per_step=False
    "batches": pl.Int64,  # how often one was asked for
    "depth": pl.Float64,  # how many were ready then, on average; null where the source cannot tell
    "capacity": pl.Int32,
    "empty": pl.Int64,  # how often none was ready
    "full": pl.Int64,
    "wait_ns": pl.Int64,  # from asking to having, all batches together
    "verdict": pl.String,  # ready, waits for processing, waits for transfer, full, no queue; null where nobody looked into the queue
}
_LARGE = 0.8  # of the capacity: the queue is "always large"
_SMALL = 0.2  # of the batches: fewer that find the queue empty are no sign of anything


def data_queues(trace: Trace, *, per_step: bool = True) -> pl.DataFrame:
    """Per rank, queue and step: how many batches were ready when one was asked for, how often none or all, and the wait.

    A queue that the training reads: with batches in it the data is `ready`; with none the step waits, for processing or, where the host's
    queue holds some, for the transfer to the device. A queue that the host fills for the sender: with none in it processing is too slow.
    Without per_step: one row per queue over the whole recording.
    """
    samples = _input.in_steps(trace, _input.samples(trace).filter(pl.col("of") != "operator"))
    pipeline = trace.table("pipeline").collect()
    if not per_step:
        samples = samples.with_columns(step=pl.lit(None, pl.Int32))
    top = _input.ends(pipeline)
    capacity = pipeline.select("rank", "op_id", capacity="queue_capacity").unique(["rank", "op_id"])
    op = pl.coalesce(
        "op_id", pl.when(pl.col("queue") != "device").then(pl.col("rank").replace_strict(top, default=None, return_dtype=pl.Int32))
    )
    named = samples.with_columns(op_id=op, queue=pl.coalesce("queue", pl.format("DataLoader {}", "op_id")))
    named = named.join(capacity, on=["rank", "op_id"], how="left", maintain_order="left")
    depth = pl.col("value").filter(pl.col("what") == "depth")
    wait = pl.col("value").filter(pl.col("what") == "wait")
    rows = named.group_by("rank", "queue", "step").agg(
        batches=pl.max_horizontal(depth.len(), wait.len()),
        depth=depth.mean(),
        capacity=pl.col("capacity").first(),
        empty=(depth == 0).sum(),
        full=(depth >= pl.col("capacity").first()).sum(),
        wait_ns=pl.when(wait.len() > 0).then(wait.sum().round()),
    )
    host = rows.filter(pl.col("queue") == "device queue").select("rank", "step", host_empty=pl.col("empty") / pl.col("batches"))
    behind = rows.join(host, on=["rank", "step"], how="left", nulls_equal=True)
    return (
        behind.with_columns(verdict=_verdict())
        .with_columns(pl.when(pl.col("depth").is_not_null()).then(name).alias(name) for name in ("empty", "full"))
        .sort("rank", "queue", "step", nulls_last=True)
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )


def _verdict() -> pl.Expr:
    """The rules of MindInsight's data preparation page, over the batches of a row."""
    starved = pl.col("empty") > _SMALL * pl.col("batches")
    stocked = pl.col("host_empty") <= _SMALL
    on_device = pl.col("queue") == "device"
    return (
        pl.when(pl.col("depth").is_null() & (pl.col("capacity") > 0))  # there is one, but nobody looked into it
        .then(None)
        .when(pl.col("depth").is_null())
        .then(pl.lit("no queue"))
        .when(starved & on_device & stocked)
        .then(pl.lit("waits for transfer"))
        .when(starved)
        .then(pl.lit("waits for processing"))
        .when((pl.col("depth") >= _LARGE * pl.col("capacity")).fill_null(False))
        .then(pl.lit("full"))
        .otherwise(pl.lit("ready"))
    )
