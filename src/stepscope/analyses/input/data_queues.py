"""Does the training wait for its data?"""

import polars as pl

from stepscope.analyses.shared import input_counters
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "queue": pl.String,  # DataLoader N, iterator, device queue (read by the sender to the device), device (on the device itself)
    "step": pl.Int32,  # null outside of any step, and with per_step=False
    "batches": pl.Int64,  # number of requests
    "depth": pl.Float64,  # batches ready at a request, on average; null if unknown
    "capacity": pl.Int32,
    "empty": pl.Int64,  # requests without a ready batch
    "full": pl.Int64,
    "wait_ns": pl.Int64,  # from request to delivery, for all batches
    "verdict": pl.String,  # ready, waits for processing, waits for transfer, full, no queue; null if the queue was not sampled
}
_LARGE = 0.8  # of the capacity: the queue is full
_SMALL = 0.2  # of the batches: fewer requests with an empty queue do not count


def data_queues(trace: Trace, *, per_step: bool = True) -> pl.DataFrame:
    """Per rank, queue and step: batches ready at a request, requests with an empty and with a full queue, and the wait.

    If the queue that the training reads has batches, the data is `ready`; if it is empty, the step waits for processing or, if the queue of
    the host has batches, for the transfer to the device. If the queue that the host fills for the sender is empty, processing is too slow.
    Without per_step: one row per queue over the whole recording.
    """
    samples = input_counters.in_steps(trace, input_counters.samples(trace).filter(pl.col("of") != "operator"))
    pipeline = trace.table("pipeline").collect()
    if not per_step:
        samples = samples.with_columns(step=pl.lit(None, pl.Int32))
    top = input_counters.ends(pipeline)
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
    with_host = rows.join(host, on=["rank", "step"], how="left", nulls_equal=True)
    return (
        with_host.with_columns(verdict=_verdict())
        .with_columns(pl.when(pl.col("depth").is_not_null()).then(name).alias(name) for name in ("empty", "full"))
        .sort("rank", "queue", "step", nulls_last=True)
        .select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())
    )


def _verdict() -> pl.Expr:
    """The rules of the data preparation page of MindInsight, for the batches of a row."""
    starved = pl.col("empty") > _SMALL * pl.col("batches")
    stocked = pl.col("host_empty") <= _SMALL
    on_device = pl.col("queue") == "device"
    return (
        pl.when(pl.col("depth").is_null() & (pl.col("capacity") > 0))  # the queue was not sampled
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
