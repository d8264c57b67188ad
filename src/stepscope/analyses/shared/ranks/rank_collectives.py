"""Communication calls of each rank, as its own recording has them. Waits that only the other ranks explain are in `waits`."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.messages import messages
from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import TABLES, stored_rows
from stepscope.model.trace import Trace

COLUMNS = TABLES["rank_collectives"]


@memoized
def rank_collectives(trace: Trace) -> pl.DataFrame:
    """One row per rank and communication call, by rank and start; null where the source has no such figure."""
    if (stored := stored_rows(trace, "rank_collectives")) is not None:
        return stored
    tracks = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track")
    untimed = trace.spans.filter(pl.col("kind") == "communication").join(tracks, on=["rank", "track"], how="semi")
    untimed = untimed.select("rank", "span", untimed=True)
    calls = messages(trace).join(untimed.collect(), on=["rank", "span"], how="left", maintain_order="left")
    calls = calls.with_columns(has_times=pl.col("untimed").is_null(), sequence="seq", overlapped_ns=_overlapped(trace, calls))
    parts = {f"{part}_ns": f"recorded_{part}_ns" for part in ("transit", "wait", "idle")}
    return calls.with_columns(**parts).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _overlapped(trace: Trace, calls: pl.DataFrame) -> pl.Series:
    """The time of each call during which its rank computes: on a device, or in operators if there is no device."""
    overlapped = np.zeros(calls.height, np.int64)
    if calls.is_empty():
        return pl.Series(overlapped)
    spans = trace.spans.filter(pl.col("rank").is_in(calls["rank"].unique().implode()))
    work = (
        spans.filter(pl.col("kind").is_in(["kernel", "op"]))
        .select("rank", "start_ns", on_device=pl.col("kind") == "kernel", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .filter(pl.col("on_device") == pl.col("on_device").any().over("rank"))
        .collect()
        .partition_by("rank", as_dict=True)
    )
    for rank, rows in calls.with_row_index().partition_by("rank", as_dict=True).items():
        if (rank_work := work.get(rank)) is not None:
            computing = intervals.merge(rank_work["start_ns"].to_numpy(), rank_work["end_ns"].to_numpy())
            overlapped[rows["index"].to_numpy()] = intervals.covered(computing, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return pl.Series(overlapped)
