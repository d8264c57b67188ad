"""Device work by lane, with the host calls that launched it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.analyses._host import threads
from stepscope.intervals import Ints
from stepscope.schema import KINDS
from stepscope.trace import Trace

DEVICE_KINDS = ["kernel", "copy", "set", "communication"]


class Lane(NamedTuple):
    """What one device of one rank did, by start. A rank without a device has one lane, its host operators, and `device` None."""

    rank: int
    device: int | None
    on_host: bool
    work: pl.DataFrame

    @property
    def busy(self) -> intervals.Set:
        return intervals.merge(self.work["start_ns"].to_numpy(), self.work["end_ns"].to_numpy())


def lanes(trace: Trace, every: "Every | None" = None) -> Iterator[Lane]:
    """Every device of every rank, in order; `every` where it is read already."""
    device = device_work(trace, every)
    nothing = {"launch_ns": pl.lit(None, pl.Int64), "launch_track": pl.lit(None, pl.Int32), "op_track": pl.lit(None, pl.Int32)}
    ops = trace.spans.filter(pl.col("kind") == "op")
    # Most of what there is are operators: they are read only where they are needed.
    without = set(ops.select(pl.col("rank").unique()).collect().to_series().to_list()) - set(device["rank"].unique().to_list())
    # Where a device's work is not recorded, operators do not stand in for it.
    without -= {rank for rank, what in coverage(trace).data.items() if what not in ("host", None)}
    host = (
        ops.filter(pl.col("rank").is_in(without) if without else pl.lit(False))
        .select("rank", "span", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), **nothing)
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
    )
    found = [Lane(rank, number, False, work) for (rank, number), work in device.group_by("rank", "device")]
    found += [Lane(rank, None, True, work) for (rank,), work in host.group_by("rank")]
    yield from sorted(found, key=lambda lane: (lane.rank, -1 if lane.device is None else lane.device))


def device_work(trace: Trace, every: "Every | None" = None) -> pl.DataFrame:
    """Every piece of work on a device stream, by rank and start; the launch is null where the source does not link it.

    `op_track` is the thread of the operator behind it: another one launches where the framework hands its work on through a queue.
    """
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track", "device", stream="label")
    work: pl.DataFrame = (
        trace.spans.filter(pl.col("kind").is_in(DEVICE_KINDS))
        .select("rank", "track", "span", "kind", "name", "step", "start_ns", "flow_in", "op", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(streams, on=["rank", "track"])
        .sort("rank", "start_ns", "span")
        .collect()
    )
    every = every or Every.of(trace)
    at, op = _positions(every, work, "flow_in"), _positions(every, work, "op")
    known = at.is_not_null() & pl.Series(every.kind[at.fill_null(0).to_numpy()] if work.height else []).is_in(_CALLS)
    at = at.set(~known, None)
    places: dict[str, tuple[pl.Series, NDArray[Any]]] = {
        "launch_track": (at, every.track),
        "launch_ns": (at, every.start),
        "launched_ns": (at, every.end),
        "op_track": (op, every.track),
    }
    found = work.with_columns(
        pl.Series(name, column[rows.fill_null(0).to_numpy()]).set(rows.is_null(), None) for name, (rows, column) in places.items()
    )
    same = threads(trace).collect()
    for name in ("launch_track", "op_track"):
        found = found.join(same.rename({"track": name}), on=["rank", name], how="left", maintain_order="left")
        found = found.with_columns(pl.coalesce("thread", name).alias(name)).drop("thread")
    return found


_CALLS = [KINDS.index(kind) for kind in ("api", "sync", "op")]


class Every(NamedTuple):
    """All spans of a trace, column by column."""

    rank: NDArray[np.int32]
    track: NDArray[np.int32]
    kind: NDArray[np.uint8]
    start: Ints
    end: Ints
    span: Ints
    parent: Ints  # -1 for none
    name: pl.Series

    @staticmethod
    def of(trace: Trace) -> "Every":
        frame = trace.spans.select(
            pl.col("rank").fill_null(0),
            pl.col("track").fill_null(-1),
            pl.col("kind").to_physical().fill_null(len(KINDS) - 1).cast(pl.UInt8),
            "start_ns",
            (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
            pl.col("span").fill_null(-1),
            pl.col("parent").fill_null(-1),
            "name",
        ).collect()
        # One after the other: each goes when it is in one piece.
        rank, track, kind, start, end, span, parent = (frame.drop_in_place(name).to_numpy() for name in frame.columns[:-1])
        return Every(rank, track, kind, start, end, span, parent, frame["name"])


def _positions(every: Every, work: pl.DataFrame, column: str) -> pl.Series:
    """Where the span stands that a column names for each piece of work; null for none."""
    found = np.full(work.height, -1, np.int64)
    flows, of_rank = work[column].fill_null(-1).to_numpy(), work["rank"].to_numpy()
    for rank in np.unique(of_rank).tolist():
        wanted = np.flatnonzero((of_rank == rank) & (flows >= 0))
        if (every.rank == rank).all():
            found[wanted] = find(every.span, flows[wanted])
        else:
            own = np.flatnonzero(every.rank == rank)
            place = find(every.span[own], flows[wanted])
            found[wanted] = np.where(place >= 0, own[place], -1)
    return or_null(found)


def find(ids: Ints, wanted: Ints) -> Ints:
    """Where each of the wanted stands among the ids, each of which is there once; -1 where it is not."""
    if len(ids) == 0:
        return np.full(len(wanted), -1, np.int64)
    order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids)
    known = ids if order is None else ids[order]
    if known[-1] - known[0] == len(known) - 1:  # nearly always: counted on
        at = np.clip(wanted - known[0], 0, len(known) - 1)
    else:
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at if order is None else order[at], -1)


def or_null(index: Ints) -> pl.Series:
    return pl.Series(index).set(pl.Series(index < 0), None)


class Pieces(NamedTuple):
    """Intervals cut at the steps: which interval and which step each piece is of, and its bounds."""

    interval: Ints
    step: Ints
    starts: Ints
    ends: Ints


def cut(starts: Ints, ends: Ints, step_starts: Ints, step_ends: Ints) -> Pieces:
    """Sorted disjoint intervals cut at the steps, in the order of the steps; what lies between two steps is left out."""
    first, last = np.searchsorted(ends, step_starts, "right"), np.searchsorted(starts, step_ends, "left")
    count = np.where(step_ends > step_starts, np.maximum(last - first, 0), 0)
    step = np.repeat(np.arange(len(step_starts)), count)
    interval = np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count) + first[step]
    return Pieces(interval, step, np.maximum(starts[interval], step_starts[step]), np.minimum(ends[interval], step_ends[step]))
