"""Trees of frames, for flame graphs: calls merged by path, cut at a function, and pruned to a size that can be drawn."""

from typing import Any

import numpy as np
import polars as pl

from stepscope.analyses.shared.call_paths import PathNodes, host_spans, merged_paths, parent_rows, rows_by_depth
from stepscope.analyses.shared.operator_calls import enclosing_rows, launcher, on_devices, rows_of, upward
from stepscope.model.intervals import Bools, Ints
from stepscope.model.trace import Trace

# A tree: a row per path, after the row of its parent. `node` is the number of the row, `parent` is null for the outermost frames.
TREE = {
    "node": pl.Int64,
    "parent": pl.Int64,
    "depth": pl.Int32,
    "kind": pl.String,
    "name": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "start_ns": pl.Int64,
    "span": pl.Int64,
}
STEP = "step"  # steps are numbered in their names: paths of all steps share this one
OTHER = "other frames"  # the kind of a node that stands for pruned ones


def host_tree(trace: Trace, rank: int, by_thread: bool) -> pl.DataFrame:
    """Host time of a rank by path of calls; `by_thread` puts the threads around them."""
    frames = _host_frames(trace, rank)
    if by_thread and frames.height:
        frames = _with_threads(trace, rank, frames)
    return _merged(frames)


def device_tree(trace: Trace, rank: int) -> pl.DataFrame:
    """Device time of a rank by the path of calls that launched the work, which is the innermost frame.

    The total of a call is the time of the work that it launched. Work whose operator is unknown is an outermost frame.
    """
    work = on_devices(trace).filter(pl.col("rank") == rank).select("rank", "op", "span", "start_ns", "dur_ns", "kind", "name").collect()
    frames = _host_frames(trace, rank)
    at = rows_of(frames.with_columns(rank=pl.lit(rank, pl.Int32)), work["rank"], work["op"])
    parent = frames["parent"].to_numpy()
    total = upward(parent, at, work["dur_ns"].to_numpy())
    kept = np.flatnonzero(total > 0)
    number = np.full(frames.height + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    depth = np.append(frames["depth"].to_numpy(), -1)
    launching = frames[kept].with_columns(
        total_ns=pl.Series(total[kept]), self_ns=pl.lit(0, pl.Int64), parent=pl.Series(number[parent[kept]])
    )
    launched = work.select(
        "span",
        "start_ns",
        kind=pl.col("kind").cast(pl.String),
        name=pl.col("name").cast(pl.String).fill_null(""),
        parent=pl.Series(number[at], dtype=pl.Int64),
        depth=pl.Series(depth[at] + 1, dtype=pl.Int32),
        total_ns="dur_ns",
        self_ns="dur_ns",
    )
    return _merged(pl.concat([launching.select(launched.columns), launched]))


def module_tree(trace: Trace, rank: int) -> pl.DataFrame:
    """Time of a rank by module path, operator and kernel: of the devices, or of host operators on a rank without device work."""
    work = on_devices(trace).filter(pl.col("rank") == rank)
    scope = pl.col("scope").cast(pl.String).fill_null("")
    name = pl.col("name").cast(pl.String).fill_null("")
    rows = work.select("span", "start_ns", "dur_ns", scope=scope, op=launcher(), kernel=name, kind=pl.col("kind").cast(pl.String)).collect()
    if rows.is_empty():
        no_text = pl.lit(None, pl.String)
        rows = (
            trace.spans.filter(pl.col("rank") == rank, pl.col("kind").is_in(["op", "communication"]))
            .select("span", "start_ns", dur_ns=pl.col("self_ns").fill_null(0), scope=scope, op=name, kernel=no_text, kind=no_text)
            .collect()
        )
    sums = rows.group_by("scope", "op", "kernel", "kind").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("dur_ns").sum(),
        pl.col("start_ns").min(),
        span=pl.col("span").sort_by("dur_ns").last(),
        longest=pl.col("dur_ns").max(),
    )
    return _tree_of_modules(sums.sort("start_ns", "scope", "op", "kernel", "kind"))


def callees(tree: pl.DataFrame, function: str) -> pl.DataFrame:
    """What a function calls: its outermost calls merged into one root."""
    up = parent_rows(tree)
    root = _outermost_above(tree, up, function)
    inside = np.flatnonzero(root >= 0)
    number = np.full(tree.height + 1, -1, np.int64)
    number[inside] = np.arange(len(inside))
    is_root = root[inside] == inside
    parent = np.where(is_root, -1, number[up[inside]])
    return _merged(tree[inside].with_columns(parent=pl.Series(parent, dtype=pl.Int64)), "calls")


def callers(tree: pl.DataFrame, function: str) -> pl.DataFrame:
    """Who calls a function: the tree is inverted, with the function as its root and its callers as children.

    The total of a frame is the time of the function when called through it, its self time that of calls without a further caller.
    """
    up = parent_rows(tree)
    root = _outermost_above(tree, up, function)
    at = np.flatnonzero(root == np.arange(tree.height))
    labels, label = _labels(tree)
    nodes = PathNodes(len(labels))
    totals, calls, starts, spans = (tree[name].to_numpy() for name in ("total_ns", "calls", "start_ns", "span"))
    amounts, above = at, np.full(len(at), -1, np.int64)
    parts: list[tuple[Ints, Ints]] = []
    while len(at):
        above = nodes.add_level(above, label[at])
        parts.append((above, amounts))
        kept = up[at] >= 0
        at, amounts, above = up[at[kept]], amounts[kept], above[kept]
    if not parts:
        return pl.DataFrame(schema=TREE)
    node, row = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    parent, name, depth = nodes.arrays()
    total = _sums(node, totals[row], len(parent))
    inner = np.flatnonzero(parent >= 0)
    columns = {
        "node": np.arange(len(parent)),
        "parent": parent,
        "depth": depth,
        "kind": labels["kind"].gather(name),
        "name": labels["name"].gather(name),
        "calls": _sums(node, calls[row], len(parent)),
        "total_ns": total,
        "self_ns": total - _sums(parent[inner], total[inner], len(parent)),
        "start_ns": _least(node, starts[row], len(parent)),
        "span": spans[row][_longest(node, totals[row], len(parent))],
    }
    return _typed_frame(columns)


def pruned(tree: pl.DataFrame, whole: int, min_share: float, max_frames: int) -> pl.DataFrame:
    """The tree without frames below a share of the whole, and with at most `max_frames`; column `merged` is null for a frame.

    Pruned frames of one parent become one node of the kind `other frames` with their calls, total and self time; `merged` is the number
    of paths that it stands for. Self times add up to the same sum as before.
    """
    up = parent_rows(tree)
    kept, top, first = large_rows(up, tree["depth"].to_numpy(), tree["total_ns"].to_numpy(), min_share * whole, max_frames)
    if kept.all():
        return tree.with_columns(merged=pl.lit(None, pl.Int64))
    number = np.append(np.cumsum(kept) - 1, -1)
    gone = tree.with_columns(pl.Series("top", number[top]), pl.Series("first", first)).filter(~pl.Series(kept))
    others = gone.group_by("top", maintain_order=True).agg(
        calls=pl.col("calls").filter("first").sum(),
        total_ns=pl.col("total_ns").filter("first").sum(),
        self_ns=pl.col("self_ns").sum(),
        start_ns=pl.col("start_ns").min(),
        span=pl.col("span").sort_by("total_ns").last(),
        depth=pl.col("depth").min(),
        merged=pl.len().cast(pl.Int64),
    )
    count = int(kept.sum())
    frames = tree.filter(pl.Series(kept)).with_columns(
        node=pl.int_range(pl.len(), dtype=pl.Int64), parent=pl.Series(number[up[kept]]), merged=pl.lit(None, pl.Int64)
    )
    added = others.with_columns(
        node=pl.int_range(pl.len(), dtype=pl.Int64) + count, parent=pl.col("top"), kind=pl.lit(OTHER), name=pl.lit(None, pl.String)
    )
    result = pl.concat([frames, added.select(frames.columns)])
    return result.with_columns(parent=pl.when(pl.col("parent") >= 0).then("parent"))


def large_rows(up: Ints, depth: Ints, length: Ints, least: float, most: int) -> tuple[Bools, Ints, Bools]:
    """Which rows of a forest have at least this length, the longest of them if there are more than `most`; and for the others

    the row around them that is large, -1 for none, and whether the row directly around them is that one. `up` is the row around each.
    """
    levels = rows_by_depth(depth)
    reach = length.copy()  # no more than the length of the rows around it, so that a large row is inside large ones
    for rows in levels:
        inner = rows[up[rows] >= 0]
        reach[inner] = np.minimum(reach[inner], reach[up[inner]])
    large = reach >= least
    if large.sum() > most:
        order = np.lexsort((depth, -reach))
        large[order[most:]] = False
    around = up.copy()
    for rows in levels:
        away = rows[(up[rows] >= 0) & ~large[np.maximum(up[rows], 0)]]
        around[away] = around[up[away]]
    return large, around, ~large & (around == up)


def whole_ns(tree: pl.DataFrame) -> int:
    """The time of all outermost frames; calls that overlap without nesting may add up to more."""
    outermost = tree.filter(pl.col("parent").is_null())["total_ns"].sum()
    return max(int(outermost), int(tree["self_ns"].sum()))


def _host_frames(trace: Trace, rank: int) -> pl.DataFrame:
    spans = host_spans(trace, "start_ns").filter(pl.col("rank") == rank).collect()
    tracks = spans.filter(~pl.col("kind").is_in(["other"]))["track"].unique()
    spans = spans if tracks.is_empty() else spans.filter(pl.col("track").is_in(tracks.implode()))
    return spans.select(
        "span",
        "start_ns",
        "track",
        kind=pl.col("kind").cast(pl.String),
        name=pl.when(pl.col("kind") == "step").then(pl.lit(STEP)).otherwise(pl.col("name").cast(pl.String).fill_null("")),
        parent=pl.Series(enclosing_rows(spans), dtype=pl.Int64),
        depth=pl.col("depth").cast(pl.Int32),
        total_ns="dur_ns",
        self_ns=pl.col("self_ns").fill_null(0),
    )


def _with_threads(trace: Trace, rank: int, frames: pl.DataFrame) -> pl.DataFrame:
    """The frames with a frame per thread around them; the span of a thread is the number of its track."""
    labels = trace.tracks.filter(pl.col("rank") == rank).select("track", thread=thread_label()).collect()
    threads = (
        frames.group_by("track")
        .agg(pl.col("start_ns").min(), total_ns=pl.col("total_ns").filter(pl.col("parent") < 0).sum())
        .sort("total_ns", "track", descending=[True, False])
        .join(labels, on="track", how="left", maintain_order="left")
        .with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    count = threads.height
    moved = frames.join(threads.select("track", "number"), on="track", maintain_order="left").with_columns(
        parent=pl.when(pl.col("parent") < 0).then("number").otherwise(pl.col("parent") + count), depth=pl.col("depth") + 1
    )
    around = threads.select(
        "start_ns",
        "track",
        "total_ns",
        span=pl.col("track").cast(pl.Int64),
        kind=pl.lit("thread"),
        name=pl.col("thread").fill_null(pl.format("track {}", "track")),
        parent=pl.lit(-1, pl.Int64),
        depth=pl.lit(0, pl.Int32),
        self_ns=pl.lit(0, pl.Int64),
    )
    return pl.concat([around.select(frames.columns), moved.select(frames.columns)])


def thread_label() -> pl.Expr:
    """The name of a track with its process."""
    group, label = pl.col("group").cast(pl.String), pl.col("label")
    return pl.when(group.is_null() | (group == label)).then(label).otherwise(pl.concat_str(label, pl.lit(" · "), group))


def _merged(frames: pl.DataFrame, count: str | None = None) -> pl.DataFrame:
    """Calls with the same path as one row. `count` is the column with the number of calls; 1 each without it."""
    if frames.is_empty():
        return pl.DataFrame(schema=TREE)
    labels, label = _labels(frames)
    node, parent, name, depths = merged_paths(frames["parent"].to_numpy(), frames["depth"].to_numpy(), label)
    size = len(parent)
    total = frames["total_ns"].to_numpy()
    columns = {
        "node": np.arange(size),
        "parent": parent,
        "depth": depths,
        "kind": labels["kind"].gather(name),
        "name": labels["name"].gather(name),
        "calls": _sums(node, np.ones(len(node), np.int64) if count is None else frames[count].to_numpy(), size),
        "total_ns": _sums(node, total, size),
        "self_ns": _sums(node, frames["self_ns"].to_numpy(), size),
        "start_ns": _least(node, frames["start_ns"].to_numpy(), size),
        "span": frames["span"].to_numpy()[_longest(node, total, size)],
    }
    return _typed_frame(columns)


def _tree_of_modules(sums: pl.DataFrame) -> pl.DataFrame:
    """A tree of the parts of the module paths, with operators and kernels as the innermost frames."""
    index: dict[tuple[int, str, str], int] = {}
    rows: list[list[Any]] = []
    for scope, op, kernel, kernel_kind, calls, time, start, span, longest in sums.iter_rows():
        path = [("scope", part) for part in scope.split("/") if part]
        if kernel is None or op != kernel:  # the same: work whose operator is unknown
            path.append(("op", op))
        if kernel is not None:
            path.append((kernel_kind, kernel))
        at = -1
        for depth, (kind, name) in enumerate(path):
            node = index.setdefault((at, kind, name), len(rows))
            if node == len(rows):
                rows.append([node, None if at < 0 else at, depth, kind, name, 0, 0, 0, start, span, -1])
            row = rows[node]
            row[5] += calls
            row[6] += time
            row[8] = min(row[8], start)
            if longest > row[10]:
                row[9], row[10] = span, longest
            at = node
        rows[at][7] += time
    if not rows:
        return pl.DataFrame(schema=TREE)
    tree = pl.DataFrame(rows, [*TREE, "longest"], orient="row", infer_schema_length=None)
    return tree.select(pl.col(name).cast(dtype) for name, dtype in TREE.items())


def _outermost_above(tree: pl.DataFrame, up: Ints, function: str) -> Ints:
    """For each row the outermost row of this name around it, or the row itself; -1 for none."""
    named = (tree["name"] == function).fill_null(False).to_numpy()
    root = np.where(named, np.arange(tree.height), -1)
    for rows in rows_by_depth(tree["depth"].to_numpy()):
        inner = rows[up[rows] >= 0]
        around = root[up[inner]]
        root[inner] = np.where(around >= 0, around, root[inner])
    return root


def _labels(frames: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The distinct kinds and names, and the number of each row in this list."""
    labels = frames.select("kind", "name").unique(maintain_order=True).with_row_index("label")
    label = frames.select("kind", "name").join(labels, on=["kind", "name"], how="left", maintain_order="left", nulls_equal=True)
    return labels, label["label"].cast(pl.Int64).to_numpy()


def _sums(node: Ints, amount: Ints, size: int) -> Ints:
    total = np.zeros(size, np.int64)
    np.add.at(total, node, amount)
    return total


def _least(node: Ints, amount: Ints, size: int) -> Ints:
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, node, amount)
    return least


def _longest(node: Ints, amount: Ints, size: int) -> Ints:
    """For each node the row with the largest amount."""
    order = np.argsort(amount, kind="stable")
    row = np.zeros(size, np.int64)
    row[node[order]] = order
    return row


def _typed_frame(columns: dict[str, object]) -> pl.DataFrame:
    tree = pl.DataFrame(columns, schema_overrides=TREE).select(pl.col(name).cast(dtype) for name, dtype in TREE.items())
    return tree.with_columns(parent=pl.when(pl.col("parent") >= 0).then("parent"))
