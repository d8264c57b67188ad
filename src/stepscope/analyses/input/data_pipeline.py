"""Which operator of the input pipeline is the bottleneck?"""

from collections.abc import Iterable
from typing import Any

import polars as pl

from stepscope.analyses.host.cpu import core_counts
from stepscope.analyses.host.cpu_use import cpu_use
from stepscope.analyses.shared import input_counters
from stepscope.model.strings.messages import render
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "op_id": pl.Int32,
    "op_type": pl.String,
    "workers": pl.Int32,
    "parent": pl.Int32,  # the operator that reads its rows
    "queue_capacity": pl.Int32,
    "samples": pl.Int64,  # of its queue
    "queue_depth": pl.Float64,  # on average
    "queue_share": pl.Float64,  # of the capacity, on average
    "empty_share": pl.Float64,  # of the samples
    "full_share": pl.Float64,
    "user_share": pl.Float64,  # of the CPU time of the machine
    "system_share": pl.Float64,
    "batch_ns": pl.Int64,  # of the operator whose queue the training reads: mean time of a batch
    "verdict": pl.String,  # bottleneck, waits for input, waits for its reader, keeps up; null if nothing was sampled
    "hint": pl.String,  # in English
    "hint_code": pl.String,  # its code in `model/strings`
}
_DIFFERENCE = 0.5  # as in MindSpore: a queue this much emptier than the previous one
_LOW, _HIGH = 0.2, 0.8


def data_pipeline(trace: Trace) -> pl.DataFrame:
    """Per rank and operator: workers, use of its queue, its CPU use, and whether it is the bottleneck.

    An operator is the bottleneck if the queue before it is fuller than its own; an operator that reads from storage, if all queues after
    it are nearly empty; the last one, if all queues before it are nearly full and its own is not. The hint suggests more workers only if
    the machine has free cores (`cpu_use`).
    """
    pipeline = trace.table("pipeline").collect()
    samples = input_counters.samples(trace)
    capacity = pl.col("queue_capacity").first()
    depth, batch, wait = (pl.col("value").filter(pl.col("what") == measure) for measure in ("depth", "batch", "wait"))
    top = input_counters.ends(pipeline)
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
    with_verdict = [row for (rank,), part in parts for row in _with_verdicts(part.rows(named=True), full=rank in full)]
    schema = dict(rows.schema) | {"verdict": pl.String(), "hint": pl.String(), "hint_code": pl.String()}
    return pl.DataFrame(with_verdict, schema).select(pl.col(name).cast(dtype, strict=False) for name, dtype in COLUMNS.items())


def _with_workers(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The CPU use of data worker processes belongs to the operator with workers, if there is only one."""
    series = pl.col("series").cast(pl.String)
    of_workers = (pl.col("owner").cast(pl.String) == "data worker") & series.is_in(["cpu user", "cpu system"])
    used = trace.counters.filter(of_workers).select("rank", "value", "number", series).collect()
    if used.is_empty():
        return rows
    mean = (
        used.group_by("rank", "number", "series")
        .agg(pl.col("value").mean())
        .group_by("rank")
        .agg(
            users=pl.col("value").filter(pl.col("series") == "cpu user").sum(),
            systems=pl.col("value").filter(pl.col("series") == "cpu system").sum(),
        )
        .join(core_counts(trace), on="rank")
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


def _with_verdicts(rows: list[dict[str, Any]], *, full: bool) -> Iterable[dict[str, Any]]:
    """The rules of the data processing page of MindInsight, operator by operator."""
    by_id = {row["op_id"]: row for row in rows}
    children: dict[int, list[int]] = {}
    for row in rows:
        if row["parent"] is not None:
            children.setdefault(row["parent"], []).append(row["op_id"])

    def before(op: int, seen: frozenset[int] = frozenset()) -> list[float]:
        """The queues that it reads; operators without a queue pass on the rows that they read."""
        shares: list[float] = []
        for child in children.get(op, []):
            if child not in seen:
                share = by_id[child]["queue_share"]
                shares += [share] if share is not None else before(child, seen | {op})
        return shares

    def after(op: int) -> list[float]:
        shares, seen = [], {op}
        while (above := by_id[op]["parent"]) in by_id and above not in seen:
            op = above
            seen.add(op)
            shares += [share] if (share := by_id[op]["queue_share"]) is not None else []
        return shares

    for row in rows:
        op, queue = row["op_id"], row["queue_share"]
        inputs = before(op)
        verdict = None
        if queue is not None:
            leaf = not inputs
            starving = queue < _LOW and all(share < _LOW for share in after(op))
            if (leaf and starving) or (inputs and min(inputs) - queue > _DIFFERENCE):
                verdict = "bottleneck"
            elif queue > _HIGH:
                verdict = "waits for its reader" if row["parent"] in by_id and after(op) else "keeps up"
            elif inputs and min(inputs) < _LOW and queue < _DIFFERENCE:
                verdict = "waits for input"
            else:
                verdict = "keeps up"
        code = _hint_code(row, full=full) if verdict == "bottleneck" else _code_without_workers(row)
        yield row | {"verdict": verdict, "hint": None if code is None else render(code, {}), "hint_code": code}


# Advice of the MindSpore and PyTorch documentation by type of operator: with free cores, and without.
_HINTS = {
    "DataLoader": ("hint-loader", "hint-loader-busy"),
    "Generator": ("hint-generator", "hint-generator-busy"),
    "Map": ("hint-map", "hint-busy"),
    "Batch": ("hint-batch", "hint-busy"),
}


def _hint_code(row: dict[str, Any], *, full: bool) -> str:
    kind = str(row["op_type"] or "")
    codes = next((codes for start, codes in _HINTS.items() if kind.startswith(start)), ("hint-workers", "hint-busy"))
    return codes[full]


def _code_without_workers(row: dict[str, Any]) -> str | None:
    return "hint-no-workers" if row["op_type"] == "DataLoader" and row["workers"] == 0 else None
