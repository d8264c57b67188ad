"""How long does communication take, how much of it is waiting for other ranks, and how fast is the rest?"""

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.analyses._meetings import alike
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
    "wait_ns": pl.Int64,
    "matched": pl.Int64,
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

    Wait is the time from a call's start until the last recorded rank has started the same collective, for the `matched` calls: the
    same place in the order of its group, step and size on every rank, or the same sequence number. It is null for one rank alone,
    for sends and receives, and where the clocks cannot be compared; `note` says which. There it is what the recording itself says of the
    call's wait, if it does (torch_npu, MindSpore on Ascend). Overlapped and exposed time are of the
    `device_calls`, and add up to their time: calls that run at the same time count each for itself. Bytes are of the larger of a call's
    input and output, and bandwidth is these bytes by the time of the calls that say theirs; `unsized` is how many do not.
    """
    calls = waits(trace)
    if calls.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    calls = _hidden(trace, calls)
    duration = pl.col("end_ns") - pl.col("start_ns")
    sized = pl.col("bytes").is_not_null()
    seconds = duration.filter(sized).sum() / 1e9
    matched, hidden = pl.col("wait_ns").count(), pl.col("overlapped_ns").is_not_null()
    told = pl.coalesce("wait_ns", "told_wait_ns")
    return (
        calls.group_by("rank", "name", "collective", "group")
        .agg(
            calls=pl.len(),
            total_ns=duration.sum(),
            avg_ns=duration.mean(),
            min_ns=duration.min(),
            max_ns=duration.max(),
            wait_ns=pl.when(told.count() > 0).then(told.sum()),
            matched=matched,
            overlapped_ns=pl.when(hidden.any()).then(pl.col("overlapped_ns").sum()),
            exposed_ns=pl.when(hidden.any()).then((duration - pl.col("overlapped_ns")).sum()),
            device_calls=hidden.sum(),
            bytes=pl.when(sized.any()).then(pl.col("bytes").sum()),
            bytes_per_s=pl.when(seconds > 0).then(pl.col("bytes").sum() / seconds),
            unsized=(~sized).sum(),
            note=pl.when(pl.col("told_wait_ns").filter(pl.col("note").is_not_null()).count() > 0)
            .then(pl.lit("wait as the recording says"))
            .otherwise(pl.col("note").drop_nulls().first()),
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


def waits(trace: Trace) -> pl.DataFrame:
    """Every communication call, with `wait_ns` where it has its like on the other ranks, and a `note` where it has none."""
    every, nowhere = messages(trace), _unplaced(trace)
    calls = alike(every.join(nowhere, on=["rank", "span"], how="anti", maintain_order="left")).with_columns(
        impossible=pl.col("matched") & pl.col("meeting") & (pl.col("first_end") < pl.col("last_start"))
    )
    meetings = calls.filter(pl.col("matched") & pl.col("meeting"))["impossible"]
    one_clock = meetings.sum() <= _IMPOSSIBLE_SHARE * meetings.len()
    known = pl.col("matched") & ~pl.col("impossible") & pl.lit(one_clock)
    found = calls.with_columns(
        wait_ns=pl.when(known).then(pl.min_horizontal("last_start", "end_ns") - pl.col("start_ns")),
        note=pl.when(known)
        .then(None)
        .when(pl.lit(calls["rank"].n_unique() == 1))
        .then(pl.lit("no wait: one rank"))
        .when(~pl.col("together"))
        .then(pl.lit("no wait: not known to be a collective"))
        .when(~pl.col("matched"))
        .then(pl.lit("no wait: the other ranks have no such call"))
        .otherwise(pl.lit("no wait: the ranks' clocks differ, or calls are missing")),
    )
    # Of those only the source can tell.
    return pl.concat([found, every.join(nowhere, on=["rank", "span"]).with_columns(wait_ns="told_wait_ns")], how="diagonal")


def _unplaced(trace: Trace) -> pl.DataFrame:
    """The calls of which only the length is known, not the place in time."""
    nowhere = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track")
    calls = trace.spans.filter(pl.col("kind") == "communication").join(nowhere, on=["rank", "track"], how="semi")
    unplaced: pl.DataFrame = calls.select("rank", "span", placed=pl.lit(False)).collect()
    return unplaced
