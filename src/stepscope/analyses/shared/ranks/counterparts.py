"""Matching of communication calls across ranks: the same collective, or a send and its receive."""

import polars as pl

from stepscope.analyses.shared.messages import messages
from stepscope.model.trace import Trace

# No rank can leave one of these before every rank has entered it.
_MEETING = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
_ONE_SIDED = ["send", "recv", "send_recv"]
_GROUP = ["collective", "group", "members"]
_KEY = [*_GROUP, "seq", "in_step", "size"]
CALL = [*_KEY, "nth"]


def match_collectives(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of `messages`, with `matched` if every rank of the group has the same call, and the last start of it.

    A sequence number identifies a call; otherwise its position among the calls of its size in its step. Ranks of an all-to-all differ in
    size.
    """
    ranks = pl.col("rank").n_unique()
    calls = calls.with_columns(
        in_step=pl.when(pl.col("seq").is_null()).then("step"),
        size=pl.when(pl.col("collective") != "all_to_all").then("bytes"),
        is_collective=pl.col("collective").is_in(_ONE_SIDED).not_().fill_null(False),
        meeting=pl.col("collective").is_in(_MEETING).fill_null(False),
    )
    # Thousands of ranks have millions of calls: numbers are compared faster than names.
    keys = calls.select(_KEY).unique(maintain_order=True).with_row_index("_key")
    groups = keys.select(_GROUP).unique(maintain_order=True).with_row_index("_group")
    keys = keys.join(groups, on=_GROUP, nulls_equal=True, how="left")
    same, group, call = "_key", "_group", ["_key", "nth"]
    return (
        calls.join(keys, on=_KEY, nulls_equal=True, how="left", maintain_order="left")
        .with_columns(nth=pl.int_range(pl.len()).over("rank", same))
        .with_columns(
            everywhere=(pl.len().over(call) == ranks.over(group)) & (ranks.over(group) > 1),
            as_often=pl.len().over(same) == ranks.over(same) * (pl.col("nth").max().over(same) + 1),
            last_start=pl.col("start_ns").max().over(call),
            first_end=pl.col("end_ns").min().over(call),
        )
        .with_columns(matched=pl.col("is_collective") & pl.col("everywhere") & pl.col("as_often"))
        .drop(same, group)
    )


def matched_calls(trace: Trace) -> pl.DataFrame:
    """The calls with a counterpart on other ranks: rank, span, role (together, send or recv) and `call`, the same for all counterparts."""
    calls = messages(trace)
    matched = match_collectives(calls).filter("matched").select("rank", "span", *CALL)
    numbers = matched.select(CALL).unique(maintain_order=True).with_row_index("call")
    rows = matched.join(numbers, on=CALL, nulls_equal=True).select("rank", "span", pl.col("call").cast(pl.Int64), role=pl.lit("together"))
    return pl.concat([rows, match_transfers(calls).with_columns(pl.col("call") + numbers.height)]).sort("rank", "span")


_ROUTE = ["group", "members", "batched", "from_rank", "to_rank"]


def match_transfers(calls: pl.DataFrame) -> pl.DataFrame:
    """Point-to-point calls of `messages` with a counterpart: rank, span, `call` (the same on both sides) and role.

    The nth send from one rank to another matches the nth receive: of the whole recording if both sides have the same number, else of a
    step in which they have. The role is `together` for a batched send and receive.
    """
    sends, batched = pl.col("collective") == "send", pl.col("collective") == "send_recv"
    sides = calls.filter(pl.col("collective").is_in(_ONE_SIDED)).with_columns(_peer(calls))
    ends = pl.col("rank").cast(pl.Int64), pl.col("peer").cast(pl.Int64)
    sides = sides.drop_nulls("peer").with_columns(
        batched=batched,
        from_rank=pl.when(batched).then(pl.min_horizontal(*ends)).when(sends).then(ends[0]).otherwise(ends[1]),
        to_rank=pl.when(batched).then(pl.max_horizontal(*ends)).when(sends).then(ends[1]).otherwise(ends[0]),
        role=pl.when(batched).then(pl.lit("together")).otherwise("collective"),
    )
    sides = sides.filter(pl.col("from_rank") != pl.col("to_rank")).with_columns(sender=pl.col("rank") == pl.col("from_rank"))
    sides = sides.with_columns(within=pl.when(~_even(_ROUTE)).then("step"))
    key = [*_ROUTE, "within", "nth"]
    sides = sides.filter(_even([*_ROUTE, "within"])).with_columns(nth=pl.int_range(pl.len()).over(*_ROUTE, "within", "sender"))
    # Both sides have the same bytes.
    sides = sides.filter((pl.col("bytes").drop_nulls().n_unique().over(key) <= 1) | pl.col("batched"))
    numbers = sides.select(key).unique(maintain_order=True).with_row_index("call")
    return sides.join(numbers, on=key, nulls_equal=True).select("rank", "span", pl.col("call").cast(pl.Int64), "role")


def _even(route: list[str]) -> pl.Expr:
    return 2 * pl.col("sender").sum().over(route) == pl.len().over(route)


def _peer(calls: pl.DataFrame) -> pl.Expr:
    """The other side: of the args or the links of the call, or the other rank if its group, or the recording, has two ranks."""
    recorded = pl.when(pl.col("collective") == "send").then("dst").when(pl.col("collective") == "recv").then("src")
    pair = pl.col("members").str.extract_all(r"[0-9]+").cast(pl.List(pl.Int32))
    rank, two = pl.col("rank"), pl.col("group_size").fill_null(2) == 2
    member = pl.when(pair.list.len() == 2, pair.list.contains(rank)).then(pair.list.sum() - rank)
    in_group = pl.when(two, pl.col("group").is_not_null(), rank.n_unique().over("group", "members") == 2).then(
        rank.unique().sum().over("group", "members") - rank
    )
    ranks = calls["rank"].unique().to_list()
    in_all = pl.when(two).then(pl.lit(sum(ranks)) - rank) if len(ranks) == 2 else pl.lit(None, pl.Int32)
    return pl.coalesce(recorded, "partner", member, in_group, in_all).cast(pl.Int32).alias("peer")
