"""Which operator of the input pipeline holds the others up?"""

from collections.abc import Iterable
from typing import Any

import polars as pl

from stepscope.analyses import _input
from stepscope.analyses.cpu_use import cpu_use
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "op_id": pl.Int32,
    "op_type": pl.String,
    "workers": pl.Int32,
    "parent": pl.Int32,  # the operator that takes its rows
    "queue_capacity": pl.Int32,
    "samples": pl.Int64,  # of its queue
    "queue_depth": pl.Float64,  # on average
    "queue_share": pl.Float64,  # of the capacity, on average
    "empty_share": pl.Float64,  # of the samples
    "full_share": pl.Float64,
    "user_share": pl.Float64,  # of the machine's CPU time
    "system_share": pl.Float64,
    "batch_ns": pl.Int64,  # of the operator whose queue is read: how long a batch took on average
    "verdict": pl.String,  # bottleneck, waits for input, waits for its reader, keeps up; null where nothing was sampled
    "hint": pl.String,
}
_APART = 0.5  # as MindSpore's own analysis has it: a queue this much emptier than the one before it
_LOW, _HIGH = 0.2, 0.8


def data_pipeline(trace: Trace) -> pl.DataFrame:
    """Per rank and operator: workers, how full its queue is, its CPU use, and whether it is the bottleneck.

    An operator is the bottleneck when the queue before it is fuller than its own; one that reads from storage, when all queues after it
    are nearly empty; the last, when all queues before it are nearly full and its own is not. The hint is to give it more workers only where
    the machine has cores left for them (`cpu_use`).
    """
    pipeline = trace.table("pipeline").collect()
    samples = _input.samples(trace)
    capacity = pl.col("queue_capacity").first()
    depth, batch, wait = (pl.col("value").filter(pl.col("what") == what) for what in ("depth", "batch", "wait"))
    top = _input.ends(pipeline)
    of_end = pl.col("rank").replace_strict(top, default=None, return_dtype=pl.Int32)
    queued = (
        samples.filter((pl.col("of") != "end") | ((pl.col("what") != "depth") & (pl.col("queue") != "device")))
        .with_columns(op_id=pl.coalesce("op_id", of_end))
        .join(pipeline.select("rank", "op_id", "queue_capacity"), on=["rank", "op_id"])
        .group_by("rank", "op_id")
        .agg(
            samples=depth.len(),
            queue_depth=depth.mean(),
            queue_share=depth.mean() / capacity,
            empty_share=(depth == 0).mean(),
            full_share=(depth >= capacity).mean(),
            user_share=pl.col("value").filter(pl.col("what") == "cpu user").mean(),
            system_share=pl.col("value").filter(pl.col("what") == "cpu system").mean(),
            batch_ns=pl.coalesce(batch.mean(), wait.mean()).round(),
        )
    )
    rows = pipeline.join(queued, on=["rank", "op_id"], how="left").sort("rank", "op_id").with_columns(pl.col("op_type").cast(pl.String))
    rows = _with_workers(rows, trace)
    full = set(cpu_use(trace, of="machine").filter(pl.col("verdict") == "full")["rank"])
    parts = rows.group_by("rank", maintain_order=True)
    judged = [row for (rank,), part in parts for row in _judged(part.rows(named=True), full=rank in full)]
    schema = dict(rows.schema) | {"verdict": pl.String(), "hint": pl.String()}
    return pl.DataFrame(judged, schema).select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())


def _with_workers(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The CPU use of data worker processes belongs to the operator that has them, where there is only one such."""
    names = pl.col("name").cast(pl.String)
    used = (
        trace.counters.filter(names.str.contains(r"^data worker \d+ cpu (user|system)$")).select("rank", "value", "at_ns", names).collect()
    )
    cores = trace.counters.filter(names == "cpu cores").group_by("rank").agg(cores=pl.col("value").max()).collect()
    if used.is_empty():
        return rows
    mean = (
        used.group_by("rank", "name")
        .agg(pl.col("value").mean())
        .group_by("rank")
        .agg(
            users=pl.col("value").filter(pl.col("name").str.ends_with("user")).sum(),
            systems=pl.col("value").filter(pl.col("name").str.ends_with("system")).sum(),
        )
        .join(cores, on="rank")
    )
    alone = (pl.col("op_type") == "DataLoader") & (pl.col("workers") > 0) & ((pl.col("workers") > 0).sum().over("rank") == 1)
    return (
        rows.join(mean, on="rank", how="left", maintain_order="left")
        .with_columns(
            user_share=pl.coalesce("user_share", pl.when(alone).then(pl.col("users") / pl.col("cores"))),
            system_share=pl.coalesce("system_share", pl.when(alone).then(pl.col("systems") / pl.col("cores"))),
        )
        .drop("users", "systems", "cores")
    )


def _judged(rows: list[dict[str, Any]], *, full: bool) -> Iterable[dict[str, Any]]:
    """The rules of MindInsight's data processing page, operator by operator."""
    by_id = {row["op_id"]: row for row in rows}
    children: dict[int, list[int]] = {}
    for row in rows:
        if row["parent"] is not None:
            children.setdefault(row["parent"], []).append(row["op_id"])

    def before(op: int, seen: frozenset[int] = frozenset()) -> list[float]:
        """The queues it reads from; operators without one hand through what they read."""
        found: list[float] = []
        for child in children.get(op, []):
            if child not in seen:
                share = by_id[child]["queue_share"]
                found += [share] if share is not None else before(child, seen | {op})
        return found

    def after(op: int) -> list[float]:
        found, seen = [], {op}
        while (above := by_id[op]["parent"]) in by_id and above not in seen:
            op = above
            seen.add(op)
            found += [share] if (share := by_id[op]["queue_share"]) is not None else []
        return found

    for row in rows:
        op, own = row["op_id"], row["queue_share"]
        inputs = before(op)
        verdict = None
        if own is not None:
            leaf = not inputs
            starving = own < _LOW and all(share < _LOW for share in after(op))
            if (leaf and starving) or (inputs and min(inputs) - own > _APART):
                verdict = "bottleneck"
            elif own > _HIGH:
                verdict = "waits for its reader" if row["parent"] in by_id and after(op) else "keeps up"
            elif inputs and min(inputs) < _LOW and own < _APART:
                verdict = "waits for input"
            else:
                verdict = "keeps up"
        yield row | {
            "verdict": verdict,
            "hint": (_hint_without_cores if full else _hint)(row) if verdict == "bottleneck" else _without_workers(row),
        }


def _hint(row: dict[str, Any]) -> str:
    """What MindSpore's and PyTorch's documents advise for such an operator."""
    kind = str(row["op_type"] or "")
    if kind == "DataLoader":
        return "raise num_workers or prefetch_factor, or do less per sample in the dataset's __getitem__"
    if kind.startswith("Generator"):
        return "raise num_parallel_workers, or store the data as MindRecord and read it with MindDataset"
    if kind.startswith("Map"):
        return "raise num_parallel_workers; if it calls Python functions, make them faster or use the built-in transforms"
    if kind.startswith("Batch"):
        return "raise prefetch_size (mindspore.dataset.config.set_prefetch_size) or num_parallel_workers"
    return "raise num_parallel_workers"


def _hint_without_cores(row: dict[str, Any]) -> str:
    """The same where all cores are busy: more workers would only compete for them."""
    kind = str(row["op_type"] or "")
    if kind == "DataLoader":
        return "all cores are busy, more workers would compete for them: do less per sample in the dataset's __getitem__"
    if kind.startswith("Generator"):
        return "all cores are busy, more workers would compete for them: store the data as MindRecord and read it with MindDataset"
    return "all cores are busy, more workers would compete for them: make its Python functions faster or use the built-in transforms"


def _without_workers(row: dict[str, Any]) -> str | None:
    if row["op_type"] == "DataLoader" and row["workers"] == 0:
        return "num_workers is 0: the training prepares each batch itself, and waits for it"
    return None
