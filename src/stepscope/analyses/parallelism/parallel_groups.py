"""Which ranks form the groups of each parallel dimension, and how much do they communicate?"""

import polars as pl

from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.parallelism.communicators import communicators
from stepscope.analyses.shared.parallelism.parallel_dimensions import parallel_groups_of
from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
from stepscope.model.trace import Trace

COLUMNS = {
    "dimension": pl.String,  # dp, tp, pp, cp, ep; null for groups of no known dimension
    "group": pl.String,
    "size": pl.Int64,
    "recorded": pl.Int64,  # recorded ranks
    "ranks": pl.String,  # as ranges
    "how": pl.String,  # the source of the dimension
    "calls": pl.Int64,  # of all recorded ranks
    "total_ns": pl.Int64,
    "wait_ns": pl.Int64,  # of the calls with a known wait
    "bytes": pl.Int64,
}


def parallel_groups(trace: Trace) -> pl.DataFrame:
    """One row per group of ranks: its dimension as in `parallel_map`, and its calls, time, waits and bytes; then groups of no dimension."""
    recorded = set(trace.meta.ranks)
    duration = pl.col("end_ns") - pl.col("start_ns")
    sums = (
        waits(trace)
        .group_by("rank", "group", "members")
        .agg(calls=pl.len(), total_ns=duration.sum(), wait_ns=_sum("wait_ns"), bytes=_sum("bytes"))
    )
    figures = {(row["rank"], row["group"], row["members"]): row for row in sums.iter_rows(named=True)}
    by_members: dict[tuple[int, ...], dict[str, int | None]] = {}
    names: dict[tuple[int, ...], str | None] = {}
    for used in communicators(trace):
        names.setdefault(used.ranks, used.group)
        totals = by_members.setdefault(used.ranks, dict.fromkeys(("calls", "total_ns", "wait_ns", "bytes")))
        row = figures[used.rank, used.group, used.text]
        for key in totals:
            totals[key] = totals[key] if row[key] is None else (totals[key] or 0) + row[key]
    rows = []
    for group in parallel_groups_of(trace):
        totals = by_members.pop(group.members, {})
        rows.append(_row(group.dimension, group.group or names.get(group.members), group.members, group.how, recorded) | totals)
    rows += [_row(None, names[members], members, None, recorded) | totals for members, totals in by_members.items() if len(members) > 1]
    return pl.DataFrame(rows, COLUMNS, orient="row", strict=False)


def _sum(name: str) -> pl.Expr:
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())


def _row(dimension: str | None, group: str | None, members: tuple[int, ...], how: str | None, recorded: set[int]) -> dict[str, object]:
    count = len(recorded.intersection(members))
    return {"dimension": dimension, "group": group, "size": len(members), "recorded": count, "ranks": rank_ranges(members), "how": how}
