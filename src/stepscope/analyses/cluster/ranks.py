"""Which ranks of the job are recorded, where did they run, and which are missing or incomplete?"""

from collections import Counter

import polars as pl

from stepscope.analyses.shared.parallelism.communicators import group_members
from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
from stepscope.model.trace import UNREAD, Trace

COLUMNS = {
    "rank": pl.Int32,
    "state": pl.String,  # recorded, shorter (fewer steps than most ranks), broken (its recording cannot be read), missing
    "reason": pl.String,  # of a state other than recorded
    "host": pl.String,
    "device": pl.String,  # name of its chips
    "steps": pl.Int64,
    "first_step": pl.Int32,
    "last_step": pl.Int32,
    "groups": pl.Int64,  # process groups that the rank is in
}


def ranks(trace: Trace) -> pl.DataFrame:
    """One row per rank of the job: recorded, shorter, broken or missing.

    The job has as many ranks as its recordings say (world size). A rank is shorter if it has fewer steps than most ranks. Ranks that are
    missing or broken take no part in other analyses.
    """
    whole = trace.whole
    recorded = set(whole.meta.ranks)
    problems = whole.problems.select("rank", "file", "what", "lost").collect()
    unread = problems.filter(pl.col("what").str.contains(UNREAD, literal=True) & pl.col("rank").is_not_null())
    broken = {row["rank"]: row for row in unread.iter_rows(named=True)}
    # Of a job without a world size, the ranks below the highest recorded one exist.
    known = range(whole.meta.world_size) if whole.meta.world_size else range(max(recorded, default=-1) + 1)
    numbers = sorted({*known, *recorded, *broken})
    steps = {row["rank"]: row for row in _steps(whole).iter_rows(named=True)}
    usual = Counter(row["steps"] for row in steps.values()).most_common()
    most = max((count for count, often in usual if often == usual[0][1]), default=0)
    hosts = dict(whole.table("hosts").select("rank", pl.col("host").cast(pl.String)).collect().iter_rows())
    devices = _device_names(whole)
    groups = Counter(rank for rank, _ in group_members(whole))
    rows = []
    for rank in numbers:
        row = steps.get(rank, {"steps": 0 if rank in recorded else None})
        state, reason = "recorded", None
        if rank not in recorded:
            state = "broken" if rank in broken else "missing"
            reason = _reason(broken[rank]) if rank in broken else "no recording of this rank"
        elif (row["steps"] or 0) < most:
            state, reason = "shorter", f"{row['steps']} of {most} steps"
        places = {"host": hosts.get(rank), "device": devices.get(rank), "groups": groups.get(rank)}
        rows.append({"rank": rank, "state": state, "reason": reason, **places, **row})
    table = pl.DataFrame(rows, COLUMNS, orient="row", strict=False)
    return table if trace is whole else table.filter(pl.col("rank").is_in(trace.meta.ranks))


def _steps(trace: Trace) -> pl.DataFrame:
    rows: pl.DataFrame = (
        trace.steps.group_by("rank").agg(steps=pl.len(), first_step=pl.col("step").min(), last_step=pl.col("step").max()).collect()
    )
    return rows


def _device_names(trace: Trace) -> dict[int, str]:
    named = trace.devices.filter(pl.col("name").is_not_null() & (pl.col("name") != "")).select("rank", "name").unique(maintain_order=True)
    return dict(named.group_by("rank").agg(pl.col("name").sort().str.join(", ")).collect().iter_rows())


def _reason(row: dict[str, str]) -> str:
    """Without the rank, which has a column."""
    return f"{row['file']}: {row['what'].partition(UNREAD)[2]}"


def incomplete_ranks(table: pl.DataFrame) -> dict[str, str]:
    """The ranks of each state other than recorded, as ranges."""
    states = ("broken", "missing", "shorter")
    return {state: rank_ranges(numbers) for state in states if (numbers := table.filter(pl.col("state") == state)["rank"].to_list())}
