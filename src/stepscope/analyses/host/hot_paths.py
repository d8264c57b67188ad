"""In which call paths does the host spend its time?"""

import polars as pl

from stepscope.analyses.shared.call_paths import NODES, call_tree, outermost_ns, parent_rows
from stepscope.errors import UsageError
from stepscope.model.trace import Trace

COLUMNS = NODES | {
    "share": pl.Float64,
    "self_share": pl.Float64,
    "path": pl.String,
}

_MOST_TEXT = 1 << 30


def hot_paths(trace: Trace, *, root: str | None = None, min_share: float = 0.0) -> pl.DataFrame:
    """Per rank and call path on the host threads: calls, total time and self time; the longest self time first.

    Paths consist of Python frames, modules, operators and runtime calls, joined by ";" from the outermost; without Python frames they
    start with operators. `root` starts them at the frames whose name contains that text. Shares are of the time of all outermost
    calls of the rank; `min_share` leaves out paths below that share, unless they lead to one above it. Self times add up to the time of
    the outermost calls.
    """
    tree = call_tree(trace, root)
    paths = tree.join(outermost_ns(tree), on="rank", maintain_order="left").with_columns(
        share=pl.col("total_ns") / pl.col("whole"), self_share=pl.col("self_ns") / pl.col("whole")
    )
    paths = paths.filter(_is_large(paths, min_share))
    return (
        paths.with_columns(path=_joined(paths))
        .sort("rank", "self_ns", "node", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _is_large(paths: pl.DataFrame, min_share: float) -> pl.Series:
    """Which paths have that share, or lead to one that has. A call that overlaps the call around it may last longer."""
    large = (paths["share"].fill_null(0) >= min_share).to_numpy().copy()
    up = parent_rows(paths)
    for row in up[large].tolist():
        while row >= 0 and not large[row]:
            large[row] = True
            row = int(up[row])  # noqa: PLW2901
    return pl.Series(large)


def _joined(paths: pl.DataFrame) -> pl.Series:
    """The names from the outermost to each node."""
    texts: list[str] = []
    path_of: dict[tuple[int, int | None], str] = {}
    length = 0
    for rank, node, parent, name in paths.select("rank", "node", "parent", "name").iter_rows():
        text = name if parent is None else f"{path_of[rank, parent]};{name}"
        path_of[rank, node] = text
        texts.append(text)
        length += len(text)
        if length > _MOST_TEXT:
            raise UsageError("the call paths would fill more than 1 GiB of text: leave out the small ones with min_share, such as 0.001")
    return pl.Series("path", texts, pl.String)
