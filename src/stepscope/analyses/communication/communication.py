"""How long does communication take, how much of it is waiting for other ranks, and how fast is the rest?"""

import polars as pl

from stepscope.analyses.shared.ranks.counterparts import CALL
from stepscope.analyses.shared.ranks.rank_clocks import matchable_calls, matched, rank_clocks
from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "name": pl.String,
    "collective": pl.String,
    "group": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "wait_ns": pl.Int64,  # of the calls with a known wait
    "known_waits": pl.Int64,  # calls with a known wait
    "uncertain_wait_ns": pl.Int64,  # in calls whose wait is smaller than the uncertainty of the clocks
    "matched": pl.Int64,  # calls with a counterpart on the other recorded ranks
    "transit_ns": pl.Int64,  # data in transit, as recorded; null if it is not recorded for every call
    "idle_ns": pl.Int64,  # neither transit nor wait, as recorded
    "overlapped_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "device_calls": pl.Int64,  # calls with known overlap: in steps whose device work is completely recorded
    "bytes": pl.Int64,
    "bytes_per_s": pl.Float64,
    "unsized": pl.Int64,
    "note": pl.String,
}

# If more than this share of the matched collectives is impossible as recorded, the clocks of the ranks differ.
_IMPOSSIBLE_SHARE = 0.1


@memoized
def communication(trace: Trace) -> pl.DataFrame:
    """Per rank, operator and process group: calls, time, wait, overlapped and exposed time, bytes and bandwidth.

    The wait of a call is the recorded one (torch_npu, MindSpore on Ascend); transit, wait and idle time then add up to the call. Otherwise
    it is the time from the start of the call until the last recorded rank has started the same call, for the `matched` calls: calls with
    the same sequence number, or with the same position in the order of group, step and size on every rank; a send and its receive are the
    nth between two ranks. It is null for a single rank, and if the clocks cannot be compared; `note` has the reason. Overlapped and exposed
    time cover the `device_calls` and add up to their time; concurrent calls all count. Bytes are those of the larger of input and output
    of a call; bandwidth is bytes by time of the calls with known bytes; `unsized` is the number of other calls.
    """
    calls = waits(trace)
    if calls.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    calls = _with_overlap(trace, calls)
    duration = pl.col("end_ns") - pl.col("start_ns")
    sized = pl.col("bytes").is_not_null()
    seconds = duration.filter(sized).sum() / 1e9
    wait, known = pl.col("wait_ns"), pl.col("overlapped_ns").is_not_null()
    return (
        calls.group_by("rank", "name", "collective", "group")
        .agg(
            calls=pl.len(),
            total_ns=duration.sum(),
            avg_ns=duration.mean(),
            min_ns=duration.min(),
            max_ns=duration.max(),
            wait_ns=pl.when(wait.count() > 0).then(wait.sum()),
            known_waits=wait.count(),
            uncertain_wait_ns=pl.when(wait.count() > 0).then(pl.col("uncertain_wait_ns").sum()),
            matched=pl.col("comparable").sum(),
            transit_ns=sum_if_complete("recorded_transit_ns"),
            idle_ns=sum_if_complete("recorded_idle_ns"),
            overlapped_ns=pl.when(known.any()).then(pl.col("overlapped_ns").sum()),
            exposed_ns=pl.when(known.any()).then((duration - pl.col("overlapped_ns")).sum()),
            device_calls=known.sum(),
            bytes=pl.when(sized.any()).then(pl.col("bytes").sum()),
            bytes_per_s=pl.when(seconds > 0).then(pl.col("bytes").sum() / seconds),
            unsized=(~sized).sum(),
            # The reason for an unknown wait comes before notes on known waits.
            note=pl.coalesce(pl.col("note").filter(wait.is_null()).first(), pl.col("note").drop_nulls().first()),
        )
        .sort("rank", "total_ns", "name", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _with_overlap(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls, with a null `overlapped_ns` where it is unknown: without timestamps, and while kernels are not recorded."""
    covered = coverage(trace)
    unknown = covered.steps.filter(~pl.col("complete")).select("rank", "step", unknown=True)
    unrecorded = pl.col("rank").is_in([rank for rank, data in covered.data.items() if data == "none"])
    known = pl.col("has_times").fill_null(True) & pl.col("unknown").is_null() & ~unrecorded
    return (
        calls.join(unknown, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(overlapped_ns=pl.when(known).then("overlapped_ns"))
        .drop("unknown")
    )


def _clock_uncertainty(key: list[str]) -> pl.Expr:
    """Of the time between the starts of two ranks; none on one clock."""
    apart = pl.col("uncertainty_ns") + pl.col("uncertainty_ns").max().over(key)
    return pl.when(pl.col("clock").n_unique().over(key) > 1).then(apart).otherwise(0)


def sum_if_complete(column: str) -> pl.Expr:
    """The sum of a column over calls; null if a value is missing."""
    return pl.when(pl.col(column).null_count() == 0).then(pl.col(column).sum())


@memoized
def waits(trace: Trace) -> pl.DataFrame:
    """Every communication call, with `wait_ns` if known and a `note` on its source or why it is unknown: the only definition of wait.

    `comparable` calls have a counterpart on the other recorded ranks, with clocks that agree or can be aligned (`clock_offsets`).
    `uncertain_wait_ns` is the wait if it is smaller than the uncertainty of the clocks, else 0.
    """
    clocks = rank_clocks(trace).select("rank", "clock", "offset_ns", "uncertainty_ns")
    calls = matched(trace).join(clocks, on="rank", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("offset_ns", "uncertainty_ns").fill_null(0))
    if (calls["offset_ns"] != 0).any():  # on the clock of the first rank
        calls = calls.with_columns(pl.col("start_ns", "end_ns") + pl.col("offset_ns"))
        calls = calls.with_columns(last_start=pl.col("start_ns").max().over(CALL), first_end=pl.col("end_ns").min().over(CALL))
    paired = pl.col("call").is_not_null()
    calls = calls.with_columns(
        matched=pl.col("matched") | paired,
        last_start=pl.when(paired).then(pl.col("start_ns").max().over("call")).otherwise("last_start"),
        # No rank leaves such a collective before all have entered it, and nothing arrives before it is sent.
        meeting=pl.col("meeting") | (pl.col("role") == "recv").fill_null(False),
        first_end=pl.when(paired).then("end_ns").otherwise("first_end"),
    )
    unsure = pl.when(paired).then(_clock_uncertainty(["call"])).otherwise(_clock_uncertainty(["group", "members"]))
    too_early = pl.col("first_end") + unsure < pl.col("last_start")
    calls = calls.with_columns(impossible=pl.col("matched") & pl.col("meeting") & too_early)
    impossible_calls = calls.filter(pl.col("matched") & pl.col("meeting"))["impossible"]
    one_clock = impossible_calls.sum() <= _IMPOSSIBLE_SHARE * impossible_calls.len()
    impossible = pl.when(paired).then(pl.col("impossible").any().over("call")).otherwise("impossible")
    calls = calls.with_columns(comparable=pl.col("matched") & ~impossible & pl.lit(one_clock))
    # A send that ends before its receive starts was buffered: it did not wait.
    buffered = (pl.col("role") == "send").fill_null(False) & (pl.col("end_ns") <= pl.col("last_start"))
    until = pl.when(buffered).then("start_ns").otherwise(pl.min_horizontal("last_start", "end_ns"))
    recorded = pl.col("recorded_wait_ns").is_not_null()
    calls = calls.with_columns(
        wait_ns=pl.when(recorded).then("recorded_wait_ns").when("comparable").then(until - pl.col("start_ns")),
        note=_wait_note(recorded, calls["rank"].n_unique()),
    )
    # Without timestamps there is only the recorded wait.
    untimed = (
        matchable_calls(trace)
        .filter(~pl.col("has_times"))
        .with_columns(
            wait_ns="recorded_wait_ns", comparable=pl.lit(False), note=pl.when(recorded).then(pl.lit("wait as the recording says"))
        )
    )
    calls = calls.with_columns(
        pl.col("start_ns", "end_ns") - pl.col("offset_ns"),
        uncertain_wait_ns=pl.when(pl.col("wait_ns").is_not_null()).then(
            pl.when(~recorded & (pl.col("wait_ns") < unsure)).then("wait_ns").otherwise(0)
        ),
    )
    return pl.concat([calls, untimed], how="diagonal")


def _wait_note(recorded: pl.Expr, ranks: int) -> pl.Expr:
    """The source of a wait, or why it is unknown."""
    rank_count = pl.col("rank").n_unique().over("group", "members")
    return (
        pl.when(recorded)
        .then(pl.lit("wait as the recording says"))
        .when(pl.col("comparable") & pl.col("is_collective") & (pl.col("group_size") > rank_count))
        .then(pl.lit("wait at least: some ranks of the group are not recorded"))
        .when(pl.col("comparable") & (pl.col("offset_ns") != 0).any().over("group", "members"))
        .then(pl.lit("wait on aligned clocks"))
        .when("comparable")
        .then(None)
        .when(pl.lit(ranks == 1))
        .then(pl.lit("no wait: one rank"))
        .when(pl.col("matched"))
        .then(pl.lit("no wait: the ranks' clocks differ, or calls are missing"))
        .when(pl.col("is_collective"))
        .then(pl.lit("no wait: the other ranks have no such call"))
        .when(pl.col("collective").is_null())
        .then(pl.lit("no wait: not known to be a collective"))
        .otherwise(pl.lit("no wait: the other side of the transfer is not known"))
    )
