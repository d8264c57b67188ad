"""Device work by device, with the host calls that launched it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.analyses.shared.steps.host_phases import threads
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.model.memo import memoized
from stepscope.model.schema import KINDS
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace


class Device(NamedTuple):
    """The work of one device of one rank, by start. A rank without a device has its host operators, and `number` None."""

    rank: int
    number: int | None
    on_host: bool
    work: pl.DataFrame

    @property
    def busy(self) -> intervals.Set:
        return intervals.merge(self.work["start_ns"].to_numpy(), self.work["end_ns"].to_numpy())


def devices(trace: Trace) -> Iterator[Device]:
    """Every device of every rank, in order."""
    work = device_work(trace)
    no_launch = {"launch_ns": pl.lit(None, pl.Int64), "launch_track": pl.lit(None, pl.Int32), "op_track": pl.lit(None, pl.Int32)}
    ops = trace.spans.filter(pl.col("kind") == "op")
    # Most spans are operators: they are read only for ranks without a device, and not where device work is missing.
    host_ranks = set(ops.select(pl.col("rank").unique()).collect().to_series().to_list()) - set(work["rank"].unique().to_list())
    host_ranks -= {rank for rank, data in coverage(trace).data.items() if data not in ("host", None)}
    host = (
        ops.filter(pl.col("rank").is_in(host_ranks) if host_ranks else pl.lit(False))
        .select("rank", "span", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), **no_launch)
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
    )
    by_device = [Device(rank, number, False, rows) for (rank, number), rows in work.group_by("rank", "device")]
    by_device += [Device(rank, None, True, rows) for (rank,), rows in host.group_by("rank")]
    yield from sorted(by_device, key=lambda device: (device.rank, -1 if device.number is None else device.number))


@memoized
def device_work(trace: Trace) -> pl.DataFrame:
    """Spans on device streams, by rank and start; the launch is null where the source does not link it.

    `op_track` is the thread of the operator behind the span. It differs from `launch_track` where the framework launches from a queue.
    """
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track", "device", stream="label")
    work: pl.DataFrame = (
        trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK))
        .select("rank", "track", "span", "kind", "name", "step", "start_ns", "flow_in", "op", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(streams, on=["rank", "track"])
        .sort("rank", "start_ns", "span")
        .collect()
    )
    spans = span_arrays(trace)
    launch, op = _rows(spans, work, "flow_in"), _rows(spans, work, "op")
    is_call = launch.is_not_null() & pl.Series(spans.kind[launch.fill_null(0).to_numpy()] if work.height else []).is_in(_CALLS)
    launch = launch.set(~is_call, None)
    columns: dict[str, tuple[pl.Series, NDArray[Any]]] = {
        "launch_track": (launch, spans.track),
        "launch_ns": (launch, spans.start),
        "launched_ns": (launch, spans.end),
        "op_track": (op, spans.track),
    }
    work = work.with_columns(
        pl.Series(name, values[rows.fill_null(0).to_numpy()]).set(rows.is_null(), None) for name, (rows, values) in columns.items()
    )
    thread_of = threads(trace).collect()
    for name in ("launch_track", "op_track"):
        work = work.join(thread_of.rename({"track": name}), on=["rank", name], how="left", maintain_order="left")
        work = work.with_columns(pl.coalesce("thread", name).alias(name)).drop("thread")
    return work


_CALLS = [KINDS.index(kind) for kind in ("api", "sync", "op")]


class SpanArrays(NamedTuple):
    """All spans of a trace, column by column."""

    rank: NDArray[np.int32]
    track: NDArray[np.int32]
    kind: NDArray[np.uint8]
    start: Ints
    end: Ints
    span: Ints
    parent: Ints  # -1 for none
    name: pl.Series


@memoized
def span_arrays(trace: Trace) -> SpanArrays:
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
    # Column by column: each is freed once it is an array.
    rank, track, kind, start, end, span, parent = (frame.drop_in_place(name).to_numpy() for name in frame.columns[:-1])
    return SpanArrays(rank, track, kind, start, end, span, parent, frame["name"])


def _rows(spans: SpanArrays, work: pl.DataFrame, column: str) -> pl.Series:
    """The row of the span that a column of `work` names; null for none."""
    rows = np.full(work.height, -1, np.int64)
    ids, work_rank = work[column].fill_null(-1).to_numpy(), work["rank"].to_numpy()
    for rank in np.unique(work_rank).tolist():
        wanted = np.flatnonzero((work_rank == rank) & (ids >= 0))
        if (spans.rank == rank).all():
            rows[wanted] = find(spans.span, ids[wanted])
        else:
            rank_rows = np.flatnonzero(spans.rank == rank)
            at = find(spans.span[rank_rows], ids[wanted])
            rows[wanted] = np.where(at >= 0, rank_rows[at], -1)
    return or_null(rows)


def find(ids: Ints, wanted: Ints) -> Ints:
    """The position of each wanted id in `ids`, which are distinct; -1 for none."""
    if len(ids) == 0:
        return np.full(len(wanted), -1, np.int64)
    order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids)
    ordered = ids if order is None else ids[order]
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # nearly always: consecutive numbers
        at = np.clip(wanted - ordered[0], 0, len(ordered) - 1)
    else:
        at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, at if order is None else order[at], -1)


def or_null(index: Ints) -> pl.Series:
    return pl.Series(index).set(pl.Series(index < 0), None)


class Pieces(NamedTuple):
    """Intervals cut at the steps: interval and step of each piece, and its bounds."""

    interval: Ints
    step: Ints
    starts: Ints
    ends: Ints


def cut(starts: Ints, ends: Ints, step_starts: Ints, step_ends: Ints) -> Pieces:
    """Sorted disjoint intervals cut at the steps, in the order of the steps; time between two steps is left out."""
    first, last = np.searchsorted(ends, step_starts, "right"), np.searchsorted(starts, step_ends, "left")
    count = np.where(step_ends > step_starts, np.maximum(last - first, 0), 0)
    step = np.repeat(np.arange(len(step_starts)), count)
    interval = np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count) + first[step]
    return Pieces(interval, step, np.maximum(starts[interval], step_starts[step]), np.minimum(ends[interval], step_ends[step]))
