"""The ranks of each communicator that the calls of a job use."""

import re
from typing import NamedTuple

import polars as pl

from stepscope.analyses.shared.ranks.rank_collectives import rank_collectives
from stepscope.model.trace import Trace

Members = tuple[int, ...]  # in the order of the group


class Communicator(NamedTuple):
    """A group as one of its ranks uses it: `group` and `text` are the columns `group` and `members` of its calls."""

    rank: int
    group: str | None
    text: str | None
    ranks: Members
    listed: bool  # by a source; else these are the recorded ranks that use the group


def communicators(trace: Trace) -> list[Communicator]:
    """Of all calls, by rank."""
    used = rank_collectives(trace).select("rank", "group", "members").unique().sort("rank", "group", "members", nulls_last=True)
    by_rank, users = group_members(trace), dict[str | None, list[int]]()
    for rank, group in used.select("rank", "group").unique(maintain_order=True).iter_rows():
        users.setdefault(group, []).append(rank)
    of_users = {group: tuple(ranks) for group, ranks in users.items()}
    texts = {text: ranks_in(text) for text in used["members"].unique() if text and "..." not in text}
    rows = []
    for rank, group, text in used.iter_rows():
        listed = texts.get(text) or by_rank.get((rank, group or ""))
        rows.append(Communicator(rank, group, text, listed or of_users[group], listed is not None))
    return rows


def group_members(trace: Trace) -> dict[tuple[int, str], Members]:
    """Members of each group that a source lists, by a rank in it and the group's name."""
    rows = trace.table("process_groups").select("rank", pl.col("group").cast(pl.String), "members").drop_nulls().collect()
    texts = {text: ranks_in(text) for text in rows["members"].unique()}
    return {(rank, group): texts[members] for rank, group, members in rows.iter_rows()}


def ranks_in(text: str) -> Members:
    return tuple(int(rank) for rank in re.findall(r"\d+", text))
