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
    host = host_spans(trace)
    ranks = trace.table("spans").select(pl.col("rank").unique().sort()).collect().to_series().to_list()
    trees = (_tree_of_rank(rank, host.filter(pl.col("rank") == rank).drop("rank").collect(), root, trace.meta.source) for rank in ranks)
    return pl.concat([pl.DataFrame(schema=NODES), *trees])


def host_spans(trace: Trace, *columns: str) -> pl.LazyFrame:
    """The calls on host threads, with further columns of `spans`."""
    other_tracks = trace.table("tracks").filter(pl.col("kind").is_in(["thread", "other"]).not_()).select("rank", "track")
    return (
        trace.table("spans")
        .filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .join(other_tracks, on=["rank", "track"], how="anti")
        .select("rank", "track", "span", "parent", "depth", "name", "kind", "dur_ns", "self_ns", *columns)
    )


class PathNodes:
    """Nodes of a tree of paths, added level by level from the outermost: a node is its parent and a label."""

    def __init__(self, labels: int) -> None:
        self._labels = labels
        self._count = 0
        self._levels: list[tuple[Ints, Ints, Ints]] = []

    def add_level(self, parent: Ints, label: Ints) -> Ints:
        """The node of each row of the next level; the parent is -1 in the first one."""
        key, inverse = np.unique((parent + 1) * self._labels + label, return_inverse=True)
        first = self._count
        self._count += len(key)
        self._levels.append((key // self._labels - 1, key % self._labels, np.full(len(key), len(self._levels))))
        node: Ints = first + inverse
        return node

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Parent, label and depth of each node."""
        empty = (np.empty(0, np.int64),) * 3
        parent, label, depth = (np.concatenate(arrays) for arrays in zip(*(self._levels or [empty]), strict=True))
        return parent, label, depth


def merged_paths(above: Ints, depth: Ints, label: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The node of each row, and parent, label and depth of each node. Rows with the same path of labels are one node.

    `above` is the row around each, -1 for none; a row is deeper than that.
    """
    level = np.zeros(len(above) + 1, np.int64)
    for rows in rows_by_depth(depth):
        level[rows] = np.where(above[rows] >= 0, level[above[rows]] + 1, 0)
    nodes = PathNodes(int(label.max(initial=0)) + 1)
    node = np.full(len(above) + 1, -1, np.int64)
    for rows in rows_by_depth(level[:-1]):
        node[rows] = nodes.add_level(node[above[rows]], label[rows])
    return node[:-1], *nodes.arrays()


def rows_by_depth(depth: Ints) -> list[Ints]:
    """The rows of each depth, from the outermost."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []


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
    inside = np.zeros(spans.height, np.bool_)  # not outside every root
    for rows in rows_by_depth(depth):
        inside[rows] = (above[rows] >= 0) & inside[above[rows]] | starts[label[rows]]
    within = np.flatnonzero(inside)
    number = np.append(np.where(inside, np.cumsum(inside) - 1, -1), -1)
    node, parent, name, depths = merged_paths(number[above[within]], depth[within], label[within])
    count = len(parent)
    # Whole nanoseconds add up exactly in floats up to 2^53: a hundred days.
    calls, total, self_time = (
        np.bincount(node, weights, count).astype(np.int64)
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


def inside_itself(tree: pl.DataFrame) -> pl.Series:
    """Whether a node has a node of the same name and kind above it."""
    up = parent_rows(tree)
    function = tree.select(pl.struct("name", "kind").rank("dense")).to_series().to_numpy()
    inside = np.zeros(tree.height, np.bool_)
    at = up.copy()
    rows = np.flatnonzero(at >= 0)
    while len(rows):
        again = function[at[rows]] == function[rows]
        inside[rows[again]] = True
        rows = rows[~again]
        at[rows] = up[at[rows]]
        rows = rows[at[rows] >= 0]
    return pl.Series(inside)
