"""Who waits for whom in a job that hangs, from the collectives that each rank called and completed.

The operations of a group run in order, so a rank waits in the first one that is not completed: the head of the group. It waits for the
members that have not called this operation. A rank whose own operation is not completed although another member completed it waits for
no rank: its device stopped. The calls of a rank are in its records, and in the counts of the group where it has only collectives (counts
mix collectives with sends and receives).
"""

from typing import NamedTuple

import polars as pl

from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

NOT_CALLED, NO_PARTNER, NO_DUMP, BEHIND = "not called", "no partner", "no dump", "behind"
HEADS = {
    "rank": pl.Int32,
    "group": pl.String,
    "number": pl.Int64,  # of the collective; null for a send or receive
    "record": pl.Int64,
    "name": pl.String,
    "is_p2p": pl.Boolean,
    "peer_rank": pl.Int32,
    "created_ns": pl.Int64,  # since the first record of all ranks
    "line": pl.String,
    "signature": pl.String,
}
EDGES = {"rank": pl.Int32, "awaited": pl.Int32, "why": pl.String, "group": pl.String, "number": pl.Int64, "record": pl.Int64}


class Waiting(NamedTuple):
    ranks: list[int]  # all of the job that are known
    dumped: list[int]
    members: pl.DataFrame  # group, rank, index within the group
    called: pl.DataFrame  # group, rank, called, completed: numbers of the last collective; null where unknown
    heads: pl.DataFrame  # HEADS: the first operation of each group, or pair of ranks, that is not completed
    stopped: pl.DataFrame  # rank, group, number: completed by another member, and not by this rank
    edges: pl.DataFrame  # EDGES: rank waits for awaited
    pending: pl.DataFrame  # rank, pending: operations that are not completed


@memoized
def waiting_ranks(trace: Trace) -> Waiting:
    """Of the whole job, also for a trace of one of its ranks."""
    trace = trace.whole
    records = (
        trace.table("flight_records")
        .with_columns(pl.col("group", "name", "state", "line", "input_shapes", "input_dtypes").cast(pl.String))
        .with_columns(pl.col("created_ns") - pl.col("created_ns").min())
        .collect()
    )
    groups = trace.table("process_groups").with_columns(pl.col("group").cast(pl.String)).collect()
    if records.is_empty() and not groups["enqueued"].count():  # other sources list the groups of a rank without its progress
        groups = groups.clear()
    members = _members(groups, records)
    called = _called(groups, records)
    heads = _heads(records, members)
    others = heads.filter(~pl.col("is_p2p")).join(
        members.join(called, on=["group", "rank"], how="left").rename({"rank": "awaited"}), on="group"
    )
    others = others.filter(pl.col("awaited") != pl.col("rank"))
    stopped = others.filter(pl.col("completed") >= pl.col("number")).select("rank", "group", "number").unique().sort("rank", "group")
    dumped = sorted(set(trace.meta.ranks))
    has_dump = pl.col("awaited").is_in(dumped)
    why = pl.when(~has_dump).then(pl.lit(NO_DUMP)).when(pl.col("called") < pl.col("number")).then(pl.lit(NOT_CALLED))
    by_collective = others.with_columns(why=why).filter(pl.col("why").is_not_null())
    edges = pl.concat([by_collective.select(*EDGES), _without_partner(heads, dumped)]).sort("rank", "awaited", "record", "why")
    if len(dumped) == 1:  # one file was opened, and not the folder
        edges = edges.filter(pl.col("why") != NO_DUMP)
    pending = records.filter(pl.col("state") != "completed").group_by("rank").agg(pending=pl.len()).sort("rank")
    ranks = sorted({*members["rank"], *dumped})
    return Waiting(ranks, dumped, members, called, heads, stopped, edges, pending)


def _members(groups: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """The ranks of each group, from any dump that lists them; else the ranks that have the group."""
    listed = (
        groups.drop_nulls("members")
        .unique("group", keep="first", maintain_order=True)
        .select("group", rank=pl.col("members").str.split(",").list.eval(pl.element().cast(pl.Int32, strict=False)))
    )
    seen = pl.concat([groups.select("group", "rank"), records.select("group", "rank")]).unique().sort("group", "rank")
    unlisted = seen.join(listed, on="group", how="anti")
    index = pl.int_range(pl.len(), dtype=pl.Int32).over("group")
    rows = pl.concat([listed.explode("rank").drop_nulls(), unlisted.select("group", "rank")])
    return rows.with_columns(index=index).select("group", "rank", "index")


def _called(groups: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    collectives = records.filter(~pl.col("is_p2p") & pl.col("number").is_not_null())
    recorded = collectives.group_by("group", "rank").agg(
        recorded=pl.col("number").max(), finished=pl.col("number").filter(pl.col("state") == "completed").max()
    )
    # Where a group has sends and receives, its counts are those of either.
    mixed = pl.col("is_p2p") | (pl.col("p2p_number").fill_null(0) > 0) | (pl.col("operation") != pl.col("number"))
    pure = records.group_by("group").agg(pure=~mixed.fill_null(False).any())
    counts = groups.join(pure, on="group", how="left").filter(pl.col("pure").fill_null(False))
    rows = pl.concat([groups.select("group", "rank"), recorded.select("group", "rank")]).unique().sort("group", "rank")
    return (
        rows.join(recorded, on=["group", "rank"], how="left")
        .join(counts.select("group", "rank", "enqueued", count="completed"), on=["group", "rank"], how="left")
        .select("group", "rank", called=pl.max_horizontal("recorded", "enqueued"), completed=pl.max_horizontal("finished", "count"))
    )


def _heads(records: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    pending = records.filter(pl.col("state") != "completed")
    by_index = members.select("group", "index", peer_rank="rank")
    return (
        _first_of_each(pending)
        .join(by_index, left_on=["group", "peer"], right_on=["group", "index"], how="left")
        .with_columns(
            number=pl.when(~pl.col("is_p2p")).then("number"),
            signature=pl.concat_str("input_dtypes", "input_shapes", separator=" ", ignore_nulls=True),
        )
        .select(*HEADS)
        .sort("rank", "record")
    )


def _first_of_each(pending: pl.DataFrame) -> pl.DataFrame:
    pair = [pl.when(pl.col("is_p2p")).then(pl.col(name)).alias(f"pair_{name}") for name in ("name", "peer")]
    keys = ["rank", "group", "is_p2p", "pair_name", "pair_peer"]
    return pending.with_columns(pair).sort("record", maintain_order=True).unique(keys, keep="first", maintain_order=True)


def _without_partner(heads: pl.DataFrame, dumped: list[int]) -> pl.DataFrame:
    """Sends without a pending receive on the other side, and receives without a pending send."""
    transfers = heads.filter(pl.col("is_p2p") & pl.col("peer_rank").is_not_null())
    opposite = pl.col("name").replace({"send": "recv", "recv": "send"})
    partners = transfers.select("group", rank="peer_rank", peer_rank="rank", name=opposite)
    alone = transfers.join(partners, on=["group", "rank", "peer_rank", "name"], how="anti")
    why = pl.when(pl.col("peer_rank").is_in(dumped)).then(pl.lit(NO_PARTNER)).otherwise(pl.lit(NO_DUMP))
    return alone.with_columns(awaited="peer_rank", why=why).select(*EDGES)


def members_behind(waiting: Waiting, rank: int) -> list[int]:
    """The ranks that called the first pending operations of this rank, and have to complete another one before, or stopped."""
    rank_heads = waiting.heads.filter(pl.col("rank") == rank)
    first = waiting.heads.group_by("rank").agg(first=pl.col("record").min())
    stopped = waiting.stopped["rank"].unique().to_list()
    others = waiting.heads.filter(pl.col("rank") != rank).join(first, on="rank")
    collective = (
        rank_heads.filter(~pl.col("is_p2p")).select("group", own_number="number").join(others.filter(~pl.col("is_p2p")), on="group")
    )
    late = (pl.col("number") < pl.col("own_number")) | (
        (pl.col("number") == pl.col("own_number")) & ((pl.col("first") < pl.col("record")) | pl.col("rank").is_in(stopped))
    )
    partners = rank_heads.filter(pl.col("is_p2p")).select("group", rank="peer_rank", peer_rank="rank")
    transfers = others.filter(pl.col("is_p2p")).join(partners, on=["group", "rank", "peer_rank"], how="semi")
    held = pl.concat(
        [
            collective.filter(late).select("rank"),
            transfers.filter((pl.col("first") < pl.col("record")) | pl.col("rank").is_in(stopped)).select("rank"),
        ]
    )
    return sorted(held["rank"].unique())


# Operations whose members pass tensors of the same sizes.
_SAME_SIZES = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")


def mismatches(heads: pl.DataFrame) -> pl.DataFrame:
    """The pending collectives of ranks that call another operation, or pass other sizes, than most members under the same number."""
    sized = pl.when(pl.col("name").is_in(_SAME_SIZES)).then(pl.col("signature"))
    calls = heads.filter(~pl.col("is_p2p")).with_columns(call=pl.concat_str("name", sized, separator=" ", ignore_nulls=True))
    forms = calls.group_by("group", "number", "call").agg(members=pl.len())
    rows = calls.join(forms, on=["group", "number", "call"])
    group = ["group", "number"]
    is_minority = (pl.col("call").n_unique().over(group) > 1) & (
        (pl.col("members") < pl.col("members").max().over(group)) | (pl.col("members").n_unique().over(group) == 1)
    )
    return rows.filter(is_minority).select("rank", "group", "number", "name", "signature")
