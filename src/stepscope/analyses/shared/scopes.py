"""Times of scopes: from the first to the last span of a scope before another scope begins, for each level of the path."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace

_COLUMNS = {"rank": pl.Int32, "group": pl.String, "level": pl.Int32, "scope": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def scope_ranges(trace: Trace, levels: int) -> pl.DataFrame:
    """Per device, or for the thread with the most scoped operators if device work has no scopes: the ranges of the first `levels` levels.

    A range ends where the next step begins. The name of a scope is its whole path. The columns: rank, group (name of the device or the
    process), level (from 1), scope, start_ns and end_ns.
    """
    tracks = trace.tracks.select("rank", "track", pl.col("group").cast(pl.String), "device", is_stream=pl.col("kind") == "stream")
    spans = (
        trace.spans.select(
            "rank", "track", "kind", pl.col("scope").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
        )
        .filter(pl.col("kind").is_in([*DEVICE_WORK, "op"]))
        .join(tracks, on=["rank", "track"], how="left")
    )
    work = spans.filter("is_stream", pl.col("kind") != "op").collect()
    scoped = work.filter(pl.col("scope").is_not_null()).select("rank").unique()
    host = spans.filter(pl.col("kind") == "op", pl.col("scope").is_not_null()).join(scoped.lazy(), on="rank", how="anti").collect()
    busiest = host.group_by("rank", "track").len().sort("len", "track", descending=[True, False]).unique("rank", keep="first")
    selected = [work.join(scoped, on="rank"), host.join(busiest.select("rank", "track"), on=["rank", "track"])]
    steps = trace.steps.select("rank", "start_ns").sort("start_ns").collect().partition_by("rank", as_dict=True)
    tables = [pl.DataFrame(schema=_COLUMNS)]
    for (rank, group, _), spans_of_group in pl.concat(selected).partition_by("rank", "group", "device", as_dict=True).items():
        begun = steps[(rank,)]["start_ns"].to_numpy() if (rank,) in steps else np.empty(0, np.int64)
        for level, part in _levels(spans_of_group.sort("start_ns", maintain_order=True), begun, levels):
            ranges = part.select(
                rank=pl.lit(rank), group=pl.lit(group or ""), level=pl.lit(level), scope="scope", start_ns="start_ns", end_ns="end_ns"
            )
            tables.append(ranges.cast(_COLUMNS))  # type: ignore[arg-type]
    return pl.concat(tables)


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
        ranges = pl.DataFrame({"scope": path.gather(first), "start_ns": start[first], "end_ns": until})
        yield level, ranges.filter(pl.col("scope").is_not_null())
