"""Through which chains of calls does the host spend its time?"""

import polars as pl

from stepscope.analyses._paths import NODES, call_tree
from stepscope.errors import UsageError
from stepscope.trace import Trace

COLUMNS = NODES | {
    "share": pl.Float64,
    "self_share": pl.Float64,
    "path": pl.String,
}

_MOST_TEXT = 1 << 30


def hot_paths(trace: Trace, *, root: str | None = None, min_share: float = 0.0) -> pl.DataFrame:
    """Per rank and call path on the host threads: calls, time in all and without the calls below; the longest self time first.

    Paths are of Python frames, modules, operators and runtime calls, joined by ";" from the outermost; without Python frames they
    start with operators. `root` starts them at the frames whose name contains that text. Shares are of the time of all outermost
    calls of the rank; `min_share` leaves out paths below that share of it that lead to none above it. Self times add up to the time of
    the outermost calls.
    """
    tree = call_tree(trace, root)
    whole = pl.col("total_ns").filter(pl.col("parent").is_null()).sum().over("rank")
    paths = tree.with_columns(share=pl.col("total_ns") / whole, self_share=pl.col("self_ns") / whole)
    paths = _with_ancestors(paths, pl.col("share").fill_nan(0) >= min_share)
    return (
        paths.with_columns(path=_joined(paths))
        .sort("rank", "self_ns", "node", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _with_ancestors(paths: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
    """The paths that are wanted, and those that lead to them.

    Calls of which a source has only sums, or that reach beyond the one around them, may have more time than it.
    """
    paths = paths.with_row_index("at")
    found = added = paths.filter(wanted)
    while added.height:
        above = added.filter(pl.col("parent").is_not_null()).select("rank", node="parent").unique()
        missing = above.join(found, on=["rank", "node"], how="anti")
        added = paths.join(missing, on=["rank", "node"], how="semi")
        found = pl.concat([found, added])
    return found.sort("at").drop("at")


def _joined(paths: pl.DataFrame) -> pl.Series:
    """The names from the outermost to each node."""
    texts: list[str] = []
    known: dict[tuple[int, int | None], str] = {}
    length = 0
    for rank, node, parent, name in paths.select("rank", "node", "parent", "name").iter_rows():
        text = name if parent is None else f"{known[rank, parent]};{name}"
        known[rank, node] = text
        texts.append(text)
        length += len(text)
        if length > _MOST_TEXT:
            raise UsageError("the call paths would fill more than 1 GiB of text: leave out the small ones with min_share, such as 0.001")
    return pl.Series("path", texts, pl.String)
