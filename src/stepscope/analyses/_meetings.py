"""Which communication calls of several ranks are one: the same collective, or a send and its receive."""

import polars as pl

from stepscope.analyses._messages import messages
from stepscope.trace import Trace

# No rank can leave one of these before every rank has entered it.
_MEETING = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
_ONE_SIDED = ["send", "recv", "send_recv"]
_GROUP = ["collective", "group", "members"]
_LIKE = [*_GROUP, "seq", "where", "size"]
_CALL = [*_LIKE, "nth"]


def alike(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of `messages`, with `matched` where every rank of the group has the same one, and when the last of them began.

    A sequence number identifies a call; without one it is the nth of its size in its step. Ranks of an all-to-all differ in size.
    """
    ranks = pl.col("rank").n_unique()
    return (
        calls.with_columns(
            where=pl.when(pl.col("seq").is_null()).then("step"),
            size=pl.when(pl.col("collective") != "all_to_all").then("bytes"),
            together=pl.col("collective").is_in(_ONE_SIDED).not_().fill_null(False),
            meeting=pl.col("collective").is_in(_MEETING).fill_null(False),
        )
        .with_columns(nth=pl.int_range(pl.len()).over("rank", *_LIKE))
        .with_columns(
            everywhere=(pl.len().over(_CALL) == ranks.over(_GROUP)) & (ranks.over(_GROUP) > 1),
            as_often=pl.len().over(_LIKE) == ranks.over(_LIKE) * (pl.col("nth").max().over(_LIKE) + 1),
            last_start=pl.col("start_ns").max().over(_CALL),
            first_end=pl.col("end_ns").min().over(_CALL),
        )
        .with_columns(matched=pl.col("together") & pl.col("everywhere") & pl.col("as_often"))
    )


def meetings(trace: Trace) -> pl.DataFrame:
    """The calls that have their like on other ranks: rank, span, role (together, send or recv) and `call`, the same for all that meet."""
    calls = messages(trace)
    together = alike(calls).filter("matched").select("rank", "span", *_CALL)
    known = together.select(_CALL).unique(maintain_order=True).with_row_index("call")
    found = together.join(known, on=_CALL, nulls_equal=True).select("rank", "span", pl.col("call").cast(pl.Int64), role=pl.lit("together"))
    return pl.concat([found, transfers(calls).with_columns(pl.col("call") + known.height)]).sort("rank", "span")


_WAY = ["group", "members", "batched", "from_rank", "to_rank"]


def transfers(calls: pl.DataFrame) -> pl.DataFrame:
    """Point-to-point calls of `messages` with their other side: rank, span, `call` (the same on both sides) and role.

    The nth from one rank to another is the nth that arrives: of the whole recording where both sides have as many, else of a step in which
    they have. The role is `together` for a batched send and receive, of which each side may be either.
    """
    sends, batched = pl.col("collective") == "send", pl.col("collective") == "send_recv"
    some = calls.filter(pl.col("collective").is_in(_ONE_SIDED)).with_columns(_peer(calls))
    ends = pl.col("rank").cast(pl.Int64), pl.col("peer").cast(pl.Int64)
    some = some.drop_nulls("peer").with_columns(
        batched=batched,
        from_rank=pl.when(batched).then(pl.min_horizontal(*ends)).when(sends).then(ends[0]).otherwise(ends[1]),
        to_rank=pl.when(batched).then(pl.max_horizontal(*ends)).when(sends).then(ends[1]).otherwise(ends[0]),
        role=pl.when(batched).then(pl.lit("together")).otherwise("collective"),
    )
    some = some.filter(pl.col("from_rank") != pl.col("to_rank")).with_columns(sender=pl.col("rank") == pl.col("from_rank"))
    some = some.with_columns(within=pl.when(~_even(_WAY)).then("step"))
    key = [*_WAY, "within", "nth"]
    some = some.filter(_even([*_WAY, "within"])).with_columns(nth=pl.int_range(pl.len()).over(*_WAY, "within", "sender"))
    # What arrives is what was sent.
    some = some.filter((pl.col("bytes").drop_nulls().n_unique().over(key) <= 1) | pl.col("batched"))
    known = some.select(key).unique(maintain_order=True).with_row_index("call")
    return some.join(known, on=key, nulls_equal=True).select("rank", "span", pl.col("call").cast(pl.Int64), "role")


def _even(way: list[str]) -> pl.Expr:
    return 2 * pl.col("sender").sum().over(way) == pl.len().over(way)


def _peer(calls: pl.DataFrame) -> pl.Expr:
    """The other side: as the call or its links say, or the other one where its group, or the whole recording, has no third rank."""
    said = pl.when(pl.col("collective") == "send").then("dst").when(pl.col("collective") == "recv").then("src")
    pair = pl.col("members").str.extract_all(r"\d+").cast(pl.List(pl.Int32))
    own, two = pl.col("rank"), pl.col("group_size").fill_null(2) == 2
    member = pl.when(pair.list.len() == 2, pair.list.contains(own)).then(pair.list.sum() - own)
    in_group = pl.when(two, pl.col("group").is_not_null(), own.n_unique().over("group", "members") == 2).then(
        own.unique().sum().over("group", "members") - own
    )
    ranks = calls["rank"].unique().to_list()
    in_all = pl.when(two).then(pl.lit(sum(ranks)) - own) if len(ranks) == 2 else pl.lit(None, pl.Int32)
    return pl.coalesce(said, "partner", member, in_group, in_all).cast(pl.Int32).alias("peer")
