"""When work of a scope ran: a stretch from its first piece to its last before another scope's, for each level of the path."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses._work import DEVICE_KINDS
from stepscope.trace import Trace

_COLUMNS = {"rank": pl.Int32, "group": pl.String, "level": pl.Int32, "scope": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def stretches(trace: Trace, levels: int) -> pl.DataFrame:
    """Per device, or of the thread with the most scoped operators where no device says: the stretches of so many levels.

    A stretch ends where the next step begins. A scope is called by its whole path. The columns: rank, group (the device's or the
    process's name), level (from 1), scope, start_ns and end_ns.
    """
    tracks = trace.tracks.select("rank", "track", pl.col("group").cast(pl.String), "device", is_stream=pl.col("kind") == "stream")
    spans = (
        trace.spans.select(
            "rank", "track", "kind", pl.col("scope").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
        )
        .filter(pl.col("kind").is_in([*DEVICE_KINDS, "op"]))
        .join(tracks, on=["rank", "track"], how="left")
    )
    work = spans.filter("is_stream", pl.col("kind") != "op").collect()
    scoped = work.filter(pl.col("scope").is_not_null()).select("rank").unique()
    host = spans.filter(pl.col("kind") == "op", pl.col("scope").is_not_null()).join(scoped.lazy(), on="rank", how="anti").collect()
    busiest = host.group_by("rank", "track").len().sort("len", "track", descending=[True, False]).unique("rank", keep="first")
    chosen = [work.join(scoped, on="rank"), host.join(busiest.select("rank", "track"), on=["rank", "track"])]
    steps = trace.steps.select("rank", "start_ns").sort("start_ns").collect().partition_by("rank", as_dict=True)
    found = [pl.DataFrame(schema=_COLUMNS)]
    for (rank, group, _), own in pl.concat(chosen).partition_by("rank", "group", "device", as_dict=True).items():
        begun = steps[(rank,)]["start_ns"].to_numpy() if (rank,) in steps else np.empty(0, np.int64)
        for level, part in _levels(own.sort("start_ns", maintain_order=True), begun, levels):
            about = part.select(
                rank=pl.lit(rank), group=pl.lit(group or ""), level=pl.lit(level), scope="scope", start_ns="start_ns", end_ns="end_ns"
            )
            found.append(about.cast(_COLUMNS))  # type: ignore[arg-type]
    return pl.concat(found)


def _levels(work: pl.DataFrame, steps: "np.ndarray[tuple[int], np.dtype[np.int64]]", levels: int) -> Iterator[tuple[int, pl.DataFrame]]:
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    step = np.searchsorted(steps, start, "right")
    parts = work["scope"].str.split("/")
    for level in range(1, levels + 1):
        deep = parts.list.len() >= level
        path = work.select(pl.when(deep).then(parts.list.head(level).list.join("/"))).to_series()
        if path.null_count() == len(path):
            return
        code = path.rank("dense").fill_null(0).to_numpy()
        change = np.ones(len(code), np.bool_)
        np.logical_or(code[1:] != code[:-1], step[1:] != step[:-1], out=change[1:])
        first = np.flatnonzero(change)
        until = np.minimum(np.maximum.reduceat(end, first), np.append(start[first[1:]], np.iinfo(np.int64).max))
        some = pl.DataFrame({"scope": path.gather(first), "start_ns": start[first], "end_ns": until})
        yield level, some.filter(pl.col("scope").is_not_null())
