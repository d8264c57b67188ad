"""Counters of input pipelines: queues of loaders and operators, and CPU use of operators, in one unit."""

import polars as pl

from stepscope.model.trace import Trace

_ENDS = ("iterator", "device queue", "device")  # queues that are read batch by batch
_SERIES = ("depth", "wait", "pipeline time", "batch time", "cpu user", "cpu system")
_WHAT = {"pipeline time": "wait", "batch time": "batch"}
_SCALE = {"ms": 1e6, "us": 1e3, "s": 1e9, "percent": 0.01}


def samples(trace: Trace) -> pl.DataFrame:
    """Of each sample: rank, of (loader, end, operator), op_id, queue, what (depth, wait, batch, cpu user, cpu system), at_ns, value.

    Times are in nanoseconds, CPU use is a share of the machine's.
    """
    owner, series = pl.col("owner").cast(pl.String), pl.col("series").cast(pl.String)
    scale = pl.col("unit").cast(pl.String).replace_strict(_SCALE, default=1.0, return_dtype=pl.Float64)
    is_end = owner.is_in(_ENDS)
    return (
        trace.counters.filter(owner.is_in(["loader", "operator", *_ENDS]), series.is_in(_SERIES))
        .select(
            "rank",
            "at_ns",
            of=pl.when(is_end).then(pl.lit("end")).otherwise(owner),
            queue=pl.when(is_end).then(owner),
            op_id=pl.col("number").cast(pl.Int32, strict=False),
            what=series.replace(_WHAT),
            value=pl.col("value") * scale,
        )
        .sort("rank", "at_ns", maintain_order=True)
        .collect()
    )


def in_steps(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the step of each sample; null between steps."""
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("start_ns").collect()
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, pl.Int32))
    joined = rows.sort("at_ns").join_asof(steps, left_on="at_ns", right_on="start_ns", by="rank", check_sortedness=False)
    return joined.with_columns(step=pl.when(pl.col("at_ns") < pl.col("end_ns")).then("step")).drop("start_ns", "end_ns", strict=False)


def ends(pipeline: pl.DataFrame) -> dict[int, int]:
    """By rank the operator whose queue the training or the sender reads: the first with a queue, from the root on."""
    operators: dict[int, int] = {}
    for (rank,), rows in pipeline.drop_nulls("rank").group_by("rank"):
        parents = dict(rows.select("op_id", "parent").iter_rows())
        queued = set(rows.filter(pl.col("queue_capacity") > 0)["op_id"])
        depth = {op: _depth(op, parents) for op in queued}
        if depth:
            operators[int(str(rank))] = min(depth, key=lambda op: (depth[op], op))
    return operators


def _depth(op: int, parents: dict[int, int | None]) -> int:
    """Distance from the root; a cycle, which no pipeline has, ends too."""
    seen = {op}
    while (above := parents.get(op)) is not None and above not in seen:
        op = above
        seen.add(op)
    return len(seen)
