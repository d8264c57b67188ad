"""How is the model divided over the ranks: the shards of each operator, and its stage?"""

import json
from typing import Any

import polars as pl

from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "stage": pl.Int32,
    "mode": pl.String,  # data_parallel, semi_auto_parallel, auto_parallel, ...
    "node": pl.String,  # in the graph of its stage
    "name": pl.String,
    "type": pl.String,
    "scope": pl.String,
    "part": pl.String,  # forward, backward, recompute
    "shards": pl.String,  # JSON text: number of shards per dimension of each input; null if not recorded
    "pieces": pl.Int64,  # shards of the input with the most
    "role": pl.String,  # send, receive, redistribution, gradient aggregation; null for operators of the model
    "inputs": pl.String,  # JSON text: its input nodes
    "devices": pl.String,  # JSON text: the ranks of its stage
}
_MOVES = ("AllGather", "AllReduce", "ReduceScatter", "AlltoAll", "AllToAll")


def strategy(trace: Trace, *, sharded: bool = False) -> pl.DataFrame:
    """Per rank, in the order of the graph: the operators of its stage and their shards, from the parallel strategy of MindSpore.

    With `sharded`, only operators with several shards or that move data between ranks. Ranks without a strategy file have no rows.
    """
    rows = [_row(operator) for operator in trace.table("sharded_operators").collect().iter_rows(named=True)]
    table = pl.DataFrame(rows, COLUMNS, strict=False)
    ranks = trace.meta.ranks
    table = table.filter(pl.col("rank").is_in(ranks)) if ranks else table
    return table.filter((pl.col("pieces") > 1) | pl.col("role").is_not_null()) if sharded else table


def _row(operator: dict[str, Any]) -> dict[str, Any]:
    shards, path = json.loads(operator["shards"] or "null"), (operator["scope"] or "").lower()
    part = "recompute" if "recompute" in path else "backward" if path.startswith("gradients") else "forward"
    return {name: operator[name] for name in COLUMNS if name in operator} | {
        "part": part,
        "shards": operator["shards"] if shards else None,
        "pieces": max((_pieces(sizes) for sizes in shards), default=1) if isinstance(shards, list) else None,
        "role": _role(operator["type"] or "", operator["instance"] or "", part),
    }


def _pieces(dimensions: object) -> int:
    product = 1
    for size in dimensions if isinstance(dimensions, list) else []:
        product *= size if isinstance(size, int) and size > 0 else 1
    return product


def _role(kind: str, instance: str, part: str) -> str | None:
    """The role of an operator that the compiler inserted, from the name of its instance."""
    if kind in ("Send", "Receive"):
        return kind.lower()
    if "grad_mirror" in instance or (kind == "AllReduce" and part == "backward"):
        return "gradient aggregation"
    return "redistribution" if "redistribution" in instance or kind in _MOVES else None
