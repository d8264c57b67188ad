"""Which collectives are not completed, and which ranks did not call or complete them?"""

import polars as pl

from stepscope.analyses.shared.ranks.waiting_ranks import mismatches, waiting_ranks
from stepscope.model.trace import Trace

COLUMNS = {
    "group": pl.String,
    "description": pl.String,
    "number": pl.Int64,  # counts the collectives of the group
    "operation": pl.String,
    "members": pl.Int64,
    "called": pl.String,  # ranks, separated by commas, as are those below
    "completed": pl.String,
    "not_called": pl.String,
    "unknown": pl.String,  # without a dump, or the dump has no record and no comparable count of the group
    "different": pl.String,  # ranks that call another operation, or pass other sizes
    "first_ns": pl.Int64,  # first and last call of the members, since the first record of all ranks
    "last_ns": pl.Int64,
    "line": pl.String,  # where most ranks call it: file:line function
}


def pending_collectives(trace: Trace) -> pl.DataFrame:
    """The first collective of each group that is not completed on every rank, the oldest first; from dumps of a flight recorder."""
    waiting = waiting_ranks(trace)
    collectives = waiting.heads.filter(~pl.col("is_p2p") & pl.col("number").is_not_null())
    if collectives.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    pending = collectives.group_by("group", "number").agg(
        operation=pl.col("name").mode().sort().first(),
        first_ns=pl.col("created_ns").min(),
        last_ns=pl.col("created_ns").max(),
        line=pl.col("line").drop_nulls().mode().sort().first(),
        pending=pl.col("rank"),
    )
    progress = waiting.members.join(waiting.called, on=["group", "rank"], how="left")
    each = pending.join(progress, on="group").with_columns(
        has_called=(pl.col("called") >= pl.col("number")) | pl.col("rank").is_in("pending"),
        has_completed=(pl.col("completed") >= pl.col("number")) & ~pl.col("rank").is_in("pending"),
    )
    different = mismatches(waiting.heads).group_by("group", "number").agg(different=_ranks(pl.col("rank")))
    descriptions = (
        trace.whole.table("process_groups").select(pl.col("group", "description").cast(pl.String)).drop_nulls().unique("group").collect()
    )
    lists = {
        "called": pl.col("has_called"),
        "completed": pl.col("has_completed"),
        "not_called": ~pl.col("has_called"),
        "unknown": pl.col("has_called").is_null(),
    }
    return (
        each.group_by("group", "number", "operation", "first_ns", "last_ns", "line")
        .agg(members=pl.len(), **{name: _ranks(pl.col("rank").filter(condition)) for name, condition in lists.items()})
        .join(different, on=["group", "number"], how="left")
        .join(descriptions, on="group", how="left")
        .sort("first_ns", "group", "number", nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _ranks(ranks: pl.Expr) -> pl.Expr:
    text = ranks.sort().cast(pl.String).str.join(",")
    return pl.when(text != "").then(text)
