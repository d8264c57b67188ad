"""How long does communication take, how much of it is waiting for other ranks, and how fast is the rest?"""

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.analyses._meetings import alike, transfers
from stepscope.analyses._messages import messages
from stepscope.trace import Trace

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
    "wait_ns": pl.Int64,  # of the calls whose wait is known
    "known_waits": pl.Int64,  # such calls
    "matched": pl.Int64,  # calls that have their like on the other recorded ranks
    "transit_ns": pl.Int64,  # bytes on their way, as the source says; null where it does not say it of every call
    "idle_ns": pl.Int64,  # neither bytes on their way nor a wait, as the source says
    "overlapped_ns": pl.Int64,
    "exposed_ns": pl.Int64,
    "device_calls": pl.Int64,  # of which it is known what hides them: in steps whose device work is completely recorded
    "bytes": pl.Int64,
    "bytes_per_s": pl.Float64,
    "unsized": pl.Int64,
    "note": pl.String,
}

# Where more than this share of the meetings could not have happened as recorded, the clocks of the ranks are not one clock.
_IMPOSSIBLE_SHARE = 0.1


def communication(trace: Trace) -> pl.DataFrame:
    """Per rank, operator and process group: calls, time, wait, what is hidden behind computation and what is not, bytes and bandwidth.

    The wait of a call is what the recording itself says of it (torch_npu, MindSpore on Ascend); transit, wait and idle time are then the
    whole call. Else it is the time from the call's start until the last recorded rank has started the same one, for the `matched` calls:
    the same place in the order of its group, step and size on every rank, or the same sequence number; a send and its receive are the nth
    between two ranks. It is null for one rank alone, and where the clocks cannot be compared; `note` says which. Overlapped and exposed
    time are of the `device_calls`, and add up to their time: calls that run at the same time count each for itself. Bytes are of the
    larger of a call's input and output, and bandwidth is these bytes by the time of the calls that say theirs; `unsized` is how many do
    not.
    """
    calls = waits(trace)
    if calls.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    calls = _hidden(trace, calls)
    duration = pl.col("end_ns") - pl.col("start_ns")
    sized = pl.col("bytes").is_not_null()
    seconds = duration.filter(sized).sum() / 1e9
    wait, hidden = pl.col("wait_ns"), pl.col("overlapped_ns").is_not_null()
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
            matched=pl.col("comparable").sum(),
            transit_ns=said_of_all("told_transit_ns"),
            idle_ns=said_of_all("told_idle_ns"),
            overlapped_ns=pl.when(hidden.any()).then(pl.col("overlapped_ns").sum()),
            exposed_ns=pl.when(hidden.any()).then((duration - pl.col("overlapped_ns")).sum()),
            device_calls=hidden.sum(),
            bytes=pl.when(sized.any()).then(pl.col("bytes").sum()),
            bytes_per_s=pl.when(seconds > 0).then(pl.col("bytes").sum() / seconds),
            unsized=(~sized).sum(),
            # Why a wait is missing is said before how the others are known.
            note=pl.coalesce(pl.col("note").filter(wait.is_null()).first(), pl.col("note").drop_nulls().first()),
        )
        .sort("rank", "total_ns", "name", descending=[False, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _hidden(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """How much of each call runs while its rank computes: on a device, or in operators where there is no device."""
    work = (
        trace.table("spans")
        .filter(pl.col("kind").is_in(["kernel", "op"]))
        .select("rank", "start_ns", on_device=pl.col("kind") == "kernel", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .filter(pl.col("on_device") == pl.col("on_device").any().over("rank"))
        .collect()
    )
    overlapped = np.zeros(calls.height, np.int64)
    for (rank,), rows in calls.with_row_index().group_by("rank"):
        mine = work.filter(pl.col("rank") == rank)
        computing = intervals.merge(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
        overlapped[rows["index"].to_numpy()] = intervals.covered(computing, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    # What has no place in time overlaps nobody knows what, and so does what runs while kernels are not recorded.
    found = coverage(trace)
    unknown = found.steps.filter(~pl.col("complete")).select("rank", "step", unknown=True)
    bare = pl.col("rank").is_in([rank for rank, what in found.data.items() if what == "none"])
    known = pl.col("placed").fill_null(True) & pl.col("unknown").is_null() & ~bare
    return (
        calls.with_columns(pl.Series("overlapped_ns", overlapped))
        .join(unknown, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(overlapped_ns=pl.when(known).then("overlapped_ns"))
        .drop("unknown")
    )


def said_of_all(column: str) -> pl.Expr:
    """The sum of a column over calls, where the source says it of each."""
    return pl.when(pl.col(column).null_count() == 0).then(pl.col(column).sum())


def waits(trace: Trace) -> pl.DataFrame:
    """Every communication call, with `wait_ns` where it is known and a `note` on how or why not: the one definition of wait.

    `comparable` calls have their like on the other recorded ranks, by clocks that agree.
    """
    every, nowhere = messages(trace), _unplaced(trace)
    calls = alike(every.join(nowhere, on=["rank", "span"], how="anti", maintain_order="left"))
    calls = calls.join(transfers(calls), on=["rank", "span"], how="left", maintain_order="left")
    paired = pl.col("call").is_not_null()
    calls = calls.with_columns(
        matched=pl.col("matched") | paired,
        last_start=pl.when(paired).then(pl.col("start_ns").max().over("call")).otherwise("last_start"),
        # Nobody can leave a meeting before all have come, and nothing arrives before it is sent.
        meeting=pl.col("meeting") | (pl.col("role") == "recv").fill_null(False),
        first_end=pl.when(paired).then("end_ns").otherwise("first_end"),
    )
    calls = calls.with_columns(impossible=pl.col("matched") & pl.col("meeting") & (pl.col("first_end") < pl.col("last_start")))
    meetings = calls.filter(pl.col("matched") & pl.col("meeting"))["impossible"]
    one_clock = meetings.sum() <= _IMPOSSIBLE_SHARE * meetings.len()
    impossible = pl.when(paired).then(pl.col("impossible").any().over("call")).otherwise("impossible")
    calls = calls.with_columns(comparable=pl.col("matched") & ~impossible & pl.lit(one_clock))
    # A send that ends before its receive starts was buffered: it waited for nobody.
    buffered = (pl.col("role") == "send").fill_null(False) & (pl.col("end_ns") <= pl.col("last_start"))
    until = pl.when(buffered).then("start_ns").otherwise(pl.min_horizontal("last_start", "end_ns"))
    told, recorded = pl.col("told_wait_ns").is_not_null(), pl.col("rank").n_unique().over("group", "members")
    found = calls.with_columns(
        wait_ns=pl.when(told).then("told_wait_ns").when("comparable").then(until - pl.col("start_ns")),
        note=pl.when(told)
        .then(pl.lit("wait as the recording says"))
        .when(pl.col("comparable") & pl.col("together") & (pl.col("group_size") > recorded))
        .then(pl.lit("wait at least: some ranks of the group are not recorded"))
        .when("comparable")
        .then(None)
        .when(pl.lit(calls["rank"].n_unique() == 1))
        .then(pl.lit("no wait: one rank"))
        .when(pl.col("matched"))
        .then(pl.lit("no wait: the ranks' clocks differ, or calls are missing"))
        .when(pl.col("together"))
        .then(pl.lit("no wait: the other ranks have no such call"))
        .when(pl.col("collective").is_null())
        .then(pl.lit("no wait: not known to be a collective"))
        .otherwise(pl.lit("no wait: the other side of the transfer is not known")),
    )
    # Of those only the source can tell.
    unplaced = every.join(nowhere, on=["rank", "span"]).with_columns(
        wait_ns="told_wait_ns", comparable=pl.lit(False), note=pl.when(told).then(pl.lit("wait as the recording says"))
    )
    return pl.concat([found, unplaced], how="diagonal")


def _unplaced(trace: Trace) -> pl.DataFrame:
    """The calls of which only the length is known, not the place in time."""
    nowhere = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track")
    calls = trace.spans.filter(pl.col("kind") == "communication").join(nowhere, on=["rank", "track"], how="semi")
    unplaced: pl.DataFrame = calls.select("rank", "span", placed=pl.lit(False)).collect()
    return unplaced
