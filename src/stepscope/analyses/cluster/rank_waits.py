"""Which rank waits for which, and for how long?"""

import polars as pl

from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.ranks.counterparts import CALL
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "awaited": pl.Int32,  # the last rank that started the call, or the other side of a transfer
    "collective": pl.String,
    "group": pl.String,
    "calls": pl.Int64,
    "wait_ns": pl.Int64,
    "uncertain_wait_ns": pl.Int64,  # in calls whose wait is smaller than the uncertainty of the clocks
    "longest_ns": pl.Int64,
    "step": pl.Int32,  # of the longest wait
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,  # of the wait
}


@memoized
def rank_waits(trace: Trace, *, by_group: bool = True, top: int = 2000) -> pl.DataFrame:
    """Per pair of ranks, collective and group: the calls in which the first waits for the second; the longest wait first.

    All ranks of a collective wait for the one that starts it last; a receive waits for its send, and a send that is not buffered for its
    receive. Only matched calls of recorded ranks with comparable clocks, as in `communication`. `top` limits the rows; 0 for all.
    Without `by_group` one row per pair.
    """
    calls = waits(trace)
    if "call" not in calls.columns or calls.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    calls = calls.filter(pl.col("comparable"))
    calls = calls.with_columns(start=pl.col("start_ns") + pl.col("offset_ns"))
    transfers = calls.filter(pl.col("call").is_not_null())
    collectives = calls.filter(pl.col("call").is_null())
    rows = pl.concat([_pairs(collectives, CALL), _pairs(transfers, ["call"])])
    key = ["rank", "awaited", *(["collective", "group"] if by_group else [])]
    longest = pl.col("waited_ns").arg_max()
    pairs = rows.group_by(key).agg(
        pl.col("uncertain_wait_ns").sum(),
        pl.col("step").get(longest),
        pl.col("start_ns").get(longest),
        calls=pl.len(),
        wait_ns=pl.col("waited_ns").sum(),
        longest_ns=pl.col("waited_ns").max(),
    )
    if not by_group:
        pairs = pairs.with_columns(collective=pl.lit(None, pl.String), group=pl.lit(None, pl.String))
    pairs = pairs.with_columns(end_ns=pl.col("start_ns") + pl.col("longest_ns")).sort(
        "wait_ns", *key, descending=[True, *[False] * len(key)]
    )
    pairs = pairs.head(top) if top else pairs
    return pairs.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _pairs(calls: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Each call with the rank that its ranks wait for, where they wait."""
    last = pl.col("rank").get(pl.col("start").arg_max())
    rows = calls.with_columns(awaited=last.over(key)).filter(pl.col("awaited") != pl.col("rank"))
    # The wait that follows from the other ranks, also where the recording has one of its own.
    waited = pl.coalesce("recorded_wait_ns", "wait_ns")
    rows = rows.with_columns(waited_ns=waited).filter(pl.col("waited_ns") > 0)
    return rows.select("rank", "awaited", "collective", "group", "step", "start_ns", "waited_ns", pl.col("uncertain_wait_ns").fill_null(0))
