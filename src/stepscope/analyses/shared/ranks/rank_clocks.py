"""How far the clocks of the ranks are apart, and how certain that is: from collectives that no rank leaves before all have entered them.

Ranks of one host share its clock. For two clocks, each call is a bound: on the true clock, no rank ends it before the last rank starts it.
After the last rank has started, the data is in transit: about as long on every rank. So the ends of a call are apart by at most the
shortest duration of the call on any rank, as long as no rank takes more than twice as long as the fastest.
"""

import polars as pl

from stepscope.analyses.shared.ranks.counterparts import CALL, match_collectives, match_transfers
from stepscope.analyses.shared.ranks.rank_collectives import rank_collectives
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

CLOCK_COLUMNS = {
    "rank": pl.Int32,
    "clock": pl.String,  # the host, or the rank if its host is not known
    "reference": pl.Int32,  # the rank whose clock it is compared with
    "offset_ns": pl.Int64,  # to add to the times of the rank
    "uncertainty_ns": pl.Int64,  # of the offset
    "least_ns": pl.Int64,  # bounds that follow from the order of starts and ends alone
    "most_ns": pl.Int64,
    "calls": pl.Int64,  # that the offset follows from
    "state": pl.String,  # reference, same host, agrees (0 is within the uncertainty), differs, inconsistent
}
_SHORTEST, _LEAST_CALLS = 0.25, 5  # of the calls, the shortest ones tell most


@memoized
def rank_clocks(trace: Trace) -> pl.DataFrame:
    """The offset of the clock of each rank from that of a reference, and its uncertainty. Of the whole job, also for a part of it."""
    return _rank_clocks(trace.whole)


@memoized
def _rank_clocks(trace: Trace) -> pl.DataFrame:
    hosts = trace.table("hosts").select("rank", clock=pl.col("host").cast(pl.String)).unique("rank", keep="first").collect()
    ranks = pl.DataFrame({"rank": trace.meta.ranks}, {"rank": pl.Int32}).join(hosts, on="rank", how="left", maintain_order="left")
    ranks = ranks.with_columns(pl.col("clock").fill_null(pl.format("rank {}", "rank")))
    calls = matched(trace)
    per_clock = pl.concat([_meetings(calls, ranks), _transfers(calls, ranks)])
    clocks = _aligned_clocks(per_clock, ranks["clock"].unique(maintain_order=True).to_list())
    rows = ranks.join(clocks, on="clock", how="left", maintain_order="left")
    first = pl.col("rank") == pl.col("rank").min().over("clock")
    firsts = ranks.group_by(reference="clock").agg(first=pl.col("rank").min())
    rows = rows.join(firsts, on="reference", how="left", maintain_order="left").with_columns(reference="first")
    state = pl.when(pl.col("state") == "reference", ~first).then(pl.lit("same host")).otherwise(pl.col("state"))
    return rows.with_columns(state=state).select(pl.col(name).cast(dtype) for name, dtype in CLOCK_COLUMNS.items())


def _meetings(calls: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Collectives by call and clock: the last start, the first and the last end, and the shortest duration on any rank."""
    meeting = calls.filter(pl.col("matched") & pl.col("meeting"))
    # Durations need no common clock.
    shortest = meeting.with_columns(shortest=(pl.col("end_ns") - pl.col("start_ns")).min().over(CALL)).join(ranks, on="rank")
    per_clock = shortest.group_by(*CALL, "clock").agg(
        pl.col("start_ns").max(), pl.col("shortest").first(), first_end=pl.col("end_ns").min(), last_end=pl.col("end_ns").max()
    )
    numbers = per_clock.select(CALL).unique(maintain_order=True).with_row_index("call")
    return per_clock.join(numbers, on=CALL, nulls_equal=True).select(pl.col(name).cast(dtype) for name, dtype in _CALLS.items())


def _transfers(calls: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Transfers by call and clock: nothing is received before it is sent. Only bounds: a buffered send may end at any time."""
    sides = calls.filter(pl.col("call").is_not_null()).join(ranks, on="rank")
    begins, arrives = pl.col("role") != "recv", pl.col("role") != "send"
    return sides.select(
        "clock",
        call=-1 - pl.col("call"),
        start_ns=pl.when(begins).then("start_ns"),
        first_end=pl.when(arrives).then("end_ns"),
        last_end=pl.lit(None, pl.Int64),
        shortest=pl.lit(None, pl.Int64),
    ).select(pl.col(name).cast(dtype) for name, dtype in _CALLS.items())


@memoized
def matched(trace: Trace) -> pl.DataFrame:
    """The calls with times as `match_collectives` and `match_transfers` have them, on the clocks of their ranks."""
    calls = match_collectives(matchable_calls(trace).filter("has_times"))
    return calls.join(match_transfers(calls), on=["rank", "span"], how="left", maintain_order="left")


def matchable_calls(trace: Trace) -> pl.DataFrame:
    """The calls of all ranks as `match_collectives` takes them."""
    names = {"sequence": "seq", **{f"{part}_ns": f"recorded_{part}_ns" for part in ("transit", "wait", "idle")}}
    return rank_collectives(trace).rename(names)


_CALLS = {"call": pl.Int64, "clock": pl.String, **dict.fromkeys(("start_ns", "first_end", "last_end", "shortest"), pl.Int64)}
_CLOCKS = {"clock": pl.String, "reference": pl.String, "offset_ns": pl.Int64, "uncertainty_ns": pl.Int64, "least_ns": pl.Int64}
_CLOCKS |= {"most_ns": pl.Int64, "calls": pl.Int64, "state": pl.String}


def _aligned_clocks(calls: pl.DataFrame, clocks: list[str]) -> pl.DataFrame:
    """The clocks that share calls with the first one, directly or through other clocks; the rest have a reference of their own."""
    known = pl.DataFrame(schema=_CLOCKS)
    left = dict.fromkeys(clocks)
    while left:
        reference = next(iter(left))
        new = pl.DataFrame([(reference, reference, 0, 0, 0, 0, None, "reference")], _CLOCKS, orient="row")
        while new.height:
            known = pl.concat([known, new])
            for clock in new["clock"]:
                left.pop(clock, None)
            aligned = calls.join(known.filter(pl.col("reference") == reference).select("clock", "offset_ns", "uncertainty_ns"), on="clock")
            new = _offsets(aligned, calls.join(known, on="clock", how="anti")).with_columns(reference=pl.lit(reference)).select(*_CLOCKS)
    return known


def _offsets(aligned: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """The offsets of clocks from the calls that they share with aligned clocks."""
    offset, unsure = pl.col("offset_ns"), pl.col("uncertainty_ns")
    known = (
        aligned.sort("uncertainty_ns", "clock")
        .group_by("call", maintain_order=True)
        .agg(
            known_end=(pl.col("first_end") + offset + unsure).min(),
            known_start=(pl.col("start_ns") + offset - unsure).max(),
            common_end=(pl.col("last_end") + offset).first(),
            unsure=unsure.first(),
        )
    )
    rows = others.join(known, on="call").with_columns(
        difference=pl.col("common_end") - pl.col("last_end"), within=pl.col("shortest") + pl.col("unsure")
    )
    place = pl.col("within").rank("ordinal").over("clock")
    chosen = place <= pl.max_horizontal(_LEAST_CALLS, _SHORTEST * pl.col("within").count().over("clock"))
    clocks = rows.group_by("clock", maintain_order=True).agg(
        least_ns=(pl.col("known_start") - pl.col("first_end")).max(),
        most_ns=(pl.col("known_end") - pl.col("start_ns")).min(),
        calls=pl.len().cast(pl.Int64),
    )
    best = rows.filter(chosen).group_by("clock").agg(pl.col("within").max(), middle=pl.col("difference").median().round().cast(pl.Int64))
    least, most = pl.col("least_ns"), pl.col("most_ns")
    possible = (least <= most).fill_null(True)
    clocks = clocks.join(best, on="clock", maintain_order="left", how="left").with_columns(
        middle=pl.when(possible).then(pl.col("middle").clip(least, most)).otherwise("middle")
    )
    # Of clocks that share only transfers the bounds alone are known.
    clocks = clocks.with_columns(middle=pl.coalesce("middle", (least + most) // 2))
    reach = pl.max_horizontal(most - pl.col("middle"), pl.col("middle") - least)
    clocks = clocks.with_columns(within=pl.when(possible).then(pl.min_horizontal("within", reach)).otherwise(pl.coalesce("within", reach)))
    clocks = clocks.drop_nulls(["middle", "within"])
    agrees, off = pl.col("middle").abs() <= pl.col("within"), pl.col("middle").abs()
    return clocks.select(
        "clock",
        # Where the bounds contradict each other the recorded times stay, and anything up to the offset may be wrong.
        offset_ns=pl.when(agrees | ~possible).then(pl.lit(0, pl.Int64)).otherwise("middle"),
        uncertainty_ns=pl.col("within") + pl.when(agrees | ~possible).then(off).otherwise(0),
        least_ns="least_ns",
        most_ns="most_ns",
        calls="calls",
        state=pl.when(~possible).then(pl.lit("inconsistent")).when(agrees).then(pl.lit("agrees")).otherwise(pl.lit("differs")),
    )
