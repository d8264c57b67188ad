"""Rows of the tables of a trace that belong to a range of steps or of time."""

from collections.abc import Mapping

import polars as pl

from stepscope.model import rank_tables

Tables = Mapping[str, pl.LazyFrame]


def rows_of_steps(tables: Tables, first: int, last: int) -> dict[str, pl.LazyFrame | pl.DataFrame]:
    """The tables that change: rows of these steps, and rows without a step during them. Empty where there are no such steps."""
    within = pl.col("step").is_between(first, last)
    steps = tables["steps"].filter(within).collect()
    if steps.is_empty():
        return {}
    # From the first start to the last end of a rank: the time between two of the steps is part of the range.
    time = steps.group_by("rank").agg(from_ns=pl.col("start_ns").min(), to_ns=pl.col("end_ns").max()).lazy()
    begin, end = steps["start_ns"].min(), steps["end_ns"].max()
    # Filtered before the join, so that the parts of a large file with other steps are not read.
    start, at = pl.col("start_ns"), pl.col("at_ns")
    candidates = {
        **tables,
        "spans": tables["spans"].filter(within | (pl.col("step").is_null() & (start >= begin) & (start < end))),
        "counters": tables["counters"].filter(at >= begin, at < end),
    }
    rules = {
        "spans": pl.when(pl.col("step").is_null()).then(_in_time("start_ns")).otherwise(within),
        "links": pl.col("step").is_null() | within,
        "counters": _in_time("at_ns"),
        "allocations": pl.col("from_ns").is_not_null()
        & (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") < pl.col("to_ns")))
        & (pl.col("free_ns").is_null() | (pl.col("free_ns") > pl.col("from_ns"))),
    }
    of_ranks = {name: tables[name].filter(within) for name, columns in rank_tables.TABLES.items() if "step" in columns}
    return (
        {"steps": steps}
        | of_ranks
        | {
            name: candidates[name].join(time, on="rank", how="left", maintain_order="left").filter(rule).drop("from_ns", "to_ns")
            for name, rule in rules.items()
        }
    )


def rows_of_time(tables: Tables, start_ns: int, end_ns: int) -> dict[str, pl.LazyFrame]:
    """The tables that change: rows that overlap the range, unclipped. Allocations outside of it lose that end: null."""
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
    alloc, free = pl.col("alloc_ns"), pl.col("free_ns")
    return {
        "spans": tables["spans"].filter(start < end_ns, (end > start_ns) | (start >= start_ns)),
        "steps": tables["steps"].filter(start < end_ns, pl.col("end_ns") > start_ns),
        "counters": tables["counters"].filter(pl.col("at_ns") >= start_ns, pl.col("at_ns") < end_ns),
        "allocations": tables["allocations"]
        .filter(alloc.is_null() | (alloc < end_ns), free.is_null() | (free >= start_ns))
        .with_columns(pl.when(alloc >= start_ns).then(alloc), pl.when(free < end_ns).then(free)),
    }


def time_range(tables: Tables) -> tuple[int, int]:
    """The first and the last timestamp of all tables; 0 and 0 for an empty trace."""
    bounds = {
        "spans": (pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")),
        "steps": (pl.col("start_ns"), pl.col("end_ns")),
        "counters": (pl.col("at_ns"), pl.col("at_ns")),
        "allocations": (pl.col("alloc_ns"), pl.max_horizontal("alloc_ns", "free_ns")),
    }
    ranges = [
        tables[name].select(first.min().alias("first"), last.max().alias("last")).collect(engine="streaming").row(0)
        for name, (first, last) in bounds.items()
    ]
    firsts, lasts = ([ends[at] for ends in ranges if ends[at] is not None] for at in (0, 1))
    return min(firsts, default=0), max(lasts, default=0)


def _in_time(column: str) -> pl.Expr:
    return (pl.col(column) >= pl.col("from_ns")) & (pl.col(column) < pl.col("to_ns"))
