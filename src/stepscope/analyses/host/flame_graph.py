"""Which frames take the time, from the outermost to the innermost?"""

import polars as pl

from stepscope.analyses.shared.frame_trees import TREE, callees, callers, device_tree, host_tree, module_tree, pruned, whole_ns
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    **TREE,  # start_ns is the first start, span is the longest call; of a thread, its track
    "share": pl.Float64,  # total_ns of the time of all outermost frames
    "self_share": pl.Float64,
    "merged": pl.Int64,  # of a node of the kind "other frames": the paths that it stands for; null for a frame
}
_TIMES = ("host", "device", "modules")


def flame_graph(
    trace: Trace,
    *,
    by: str = "host",
    by_thread: bool = False,
    function: str | None = None,
    callers_of: bool = False,
    min_share: float = 0.0002,
    max_frames: int = 50_000,
) -> pl.DataFrame:
    """Per rank a tree of frames: a row per path, after the row of its parent, with its calls, total and self time.

    `by` is host (host time by path of calls: Python frames, modules, operators, runtime calls), device (device time by the path of calls
    that launched the work) or modules (device time by module, operator and kernel; on a rank without device work the time of host
    operators). `by_thread` puts the host threads around the frames. All steps share one frame. `function` selects what the frames of that
    exact name call, or with `callers_of` who calls them: an inverted tree. Frames below `min_share` of the time, or beyond the largest
    `max_frames`, are merged into a node of the kind "other frames" per parent: self times always add up to the whole.
    """
    check_tree(by)
    ranks = trace.table("spans").select(pl.col("rank").unique().sort()).collect().to_series().to_list()
    parts = []
    for rank in ranks:
        tree = tree_of_rank(trace, rank, by, by_thread)
        whole = whole_ns(tree)
        part = tree if function is None else (callers if callers_of else callees)(tree, function)
        shares = {name: pl.col(column) / whole if whole else None for name, column in (("share", "total_ns"), ("self_share", "self_ns"))}
        rows = pruned(part, whole, min_share, max_frames).with_columns(rank=pl.lit(rank), **shares)
        parts.append(rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()))
    return pl.concat([pl.DataFrame(schema=COLUMNS), *parts])


def check_tree(by: str) -> None:
    check_word("tree", by, _TIMES)


def tree_of_rank(trace: Trace, rank: int, by: str, by_thread: bool) -> pl.DataFrame:
    """The whole tree of a rank, with the columns TREE."""
    if by == "host":
        return host_tree(trace, rank, by_thread)
    return device_tree(trace, rank) if by == "device" else module_tree(trace, rank)
