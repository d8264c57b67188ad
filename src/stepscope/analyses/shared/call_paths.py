"""Call paths: spans of the host threads, merged by their path of calls."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.operator_calls import enclosing_rows
from stepscope.errors import DataError
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace

# Python stops at a thousand calls; no stack of a program is deeper than this.
_DEEPEST = 10_000

NODES = {
    "rank": pl.Int32,
    "node": pl.Int64,
    "parent": pl.Int64,
    "depth": pl.Int32,
    "kind": pl.String,
    "name": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
}


def call_tree(trace: Trace, root: str | None) -> pl.DataFrame:
    """One row per distinct path of calls on the host threads of a rank; a node is after its parent, which is null for the outermost.

    `root` starts the paths at the outermost calls whose name contains that text; other calls are left out. Threads without calls of a
    known kind are left out, unless the rank has only such threads.
    """
    other_tracks = trace.table("tracks").filter(pl.col("kind").is_in(["thread", "other"]).not_()).select("rank", "track")
    columns = ["track", "span", "parent", "depth", "name", "kind", "dur_ns", "self_ns"]
    host = (
        trace.table("spans")
        .filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .join(other_tracks, on=["rank", "track"], how="anti")
    )
    ranks = trace.table("spans").select(pl.col("rank").unique().sort()).collect().to_series().to_list()
    trees = (_tree_of_rank(rank, host.filter(pl.col("rank") == rank).select(columns).collect(), root, trace.meta.source) for rank in ranks)
    return pl.concat([pl.DataFrame(schema=NODES), *trees])


def outermost_ns(tree: pl.DataFrame) -> pl.DataFrame:
    """Per rank, the time of all outermost calls, which shares refer to.

    Calls of one thread that overlap without nesting count as nested, and may last longer than the call around them: their self
    times add up to more than the outermost calls.
    """
    outermost = pl.col("total_ns").filter(pl.col("parent").is_null()).sum()
    whole = pl.max_horizontal(outermost, pl.col("self_ns").sum())
    return tree.group_by("rank").agg(whole=pl.when(whole > 0).then(whole))


def parent_rows(tree: pl.DataFrame) -> Ints:
    """For each node the row of its parent; -1 for none. Nodes are numbered from 0 in each rank, in order."""
    return tree.select((pl.int_range(pl.len()) - pl.col("node") + pl.col("parent")).fill_null(-1)).to_series().to_numpy()


def _tree_of_rank(rank: int, spans: pl.DataFrame, root: str | None, source: str) -> pl.DataFrame:
    tracks = spans.filter(pl.col("kind") != "other")["track"].unique()
    spans = spans if tracks.is_empty() else spans.filter(pl.col("track").is_in(tracks.implode()))
    if spans.is_empty():
        return pl.DataFrame(schema=NODES)
    labels, label = _labels(spans)
    starts = labels["name"].str.contains(root or "", literal=True).to_numpy()
    depth = spans["depth"].to_numpy()
    levels = int(depth.max()) + 1
    if levels > _DEEPEST:
        raise DataError(source, f"spans are nested {levels:,} deep; call paths are followed down to {_DEEPEST:,}")
    above = _parent_rows(spans)
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(levels + 1))
    node = np.full(spans.height, -1, np.int64)  # -1: outside every root
    below_root = np.zeros(spans.height, np.int32)
    parts = []
    count = 0
    for level in range(levels):
        rows = order[edges[level] : edges[level + 1]]
        up = np.where(above[rows] >= 0, node[above[rows]], -1)
        below_root[rows] = np.where(up >= 0, below_root[above[rows]] + 1, 0)
        below = (up >= 0) | starts[label[rows]]
        rows, up = rows[below], up[below]
        key, first, inverse = np.unique((up + 1) * len(labels) + label[rows], return_index=True, return_inverse=True)
        node[rows] = count + inverse
        count += len(key)
        parts.append((key // len(labels) - 1, key % len(labels), below_root[rows[first]]))
    parent, name, depths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    inside = node >= 0
    # Whole nanoseconds add up exactly in floats up to 2^53: a hundred days.
    calls, total, self_time = (
        np.bincount(node[inside], weights, count).astype(np.int64)
        for weights in (None, spans["dur_ns"].to_numpy()[inside], spans["self_ns"].to_numpy()[inside])
    )
    columns = (rank, np.arange(count), parent, depths, labels["kind"].gather(name), labels["name"].gather(name), calls, total, self_time)
    tree = pl.DataFrame(dict(zip(NODES, columns, strict=True)), schema_overrides=NODES)
    return tree.with_columns(parent=pl.when(pl.col("parent") >= 0).then("parent"))


def _labels(spans: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The distinct names and kinds, and the number of each span in this list."""
    code = spans["name"].to_physical().fill_null(2**32 - 1).to_numpy().astype(np.int64) * 64 + spans["kind"].to_physical().to_numpy()
    _, first, label = np.unique(code, return_index=True, return_inverse=True)
    return spans[first].select(pl.col("name", "kind").cast(pl.String).fill_null("")), label


def _parent_rows(spans: pl.DataFrame) -> Ints:
    """For each row the row of its parent; -1 for none."""
    rank = pl.zeros(spans.height, dtype=pl.Int32, eager=True)
    return enclosing_rows(spans.with_columns(rank.alias("rank")))
