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
    found = together.join(known, on=_CALL, nulls_equal=True).select("rank", "span", "call", role=pl.lit("together"))
    return pl.concat([found, _transfers(calls, known.height)]).with_columns(pl.col("call").cast(pl.Int64)).sort("rank", "span")


def _transfers(calls: pl.DataFrame, first: int) -> pl.DataFrame:
    """Sends and receives: the nth from one rank to another is the nth that arrives, where both sides have as many of them."""
    sends = pl.col("collective") == "send"
    some = calls.filter(pl.col("collective").is_in(["send", "recv"]))
    ranks = calls["rank"].unique().to_list()
    # Of two ranks the other one is known, whether it is said or not.
    other = pl.lit(sum(ranks)) - pl.col("rank") if len(ranks) == 2 else pl.lit(None, pl.Int32)
    way = ["group", "members", "from_rank", "to_rank"]
    some = some.with_columns(
        from_rank=pl.when(sends).then("rank").otherwise(pl.coalesce("src", other)).cast(pl.Int32),
        to_rank=pl.when(sends).then(pl.coalesce("dst", other)).otherwise("rank").cast(pl.Int32),
        role=pl.when(sends).then(pl.lit("send")).otherwise(pl.lit("recv")),
    ).drop_nulls(["from_rank", "to_rank"])
    some = some.with_columns(nth=pl.int_range(pl.len()).over("role", *way), sent=sends.sum().over(way), of=pl.len().over(way))
    some = some.filter(2 * pl.col("sent") == pl.col("of"), pl.col("from_rank") != pl.col("to_rank"))
    known = some.select(*way, "nth").unique(maintain_order=True).with_row_index("call", offset=first)
    return some.join(known, on=[*way, "nth"], nulls_equal=True).select("rank", "span", "call", "role")
