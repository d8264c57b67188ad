"""When does a device stand idle inside a step, and why?"""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analyses._coverage import unknown_times
from stepscope.analyses._host import main_threads, on_host
from stepscope.analyses._windows import device_steps
from stepscope.analyses._work import Every, Lane, cut, find, lanes, or_null
from stepscope.intervals import Bools, Ints, Set
from stepscope.schema import KINDS
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "cause": pl.String,
    "next_kernel": pl.String,
    "host_activity": pl.String,
    "share_of_step": pl.Float64,
    "next_span": pl.Int64,
}


def gaps(trace: Trace, *, min_ns: int = 0) -> pl.DataFrame:
    """Every stretch of a step, of at least `min_ns`, in which no stream of the device runs anything, with its cause.

    A gap ends with a piece of work, `next_kernel`. Where its launch call began before the gap did, the cause is launch latency: the
    work was there, and the device, or another process on it, took its time. Otherwise the device waited for its host to launch
    something, and the cause is what the host did until then: data wait, when it waited for input for at least half of that time; sync,
    when the device ran dry while the host was in a synchronising call, or such calls took at least half; communication, when transfers
    on host threads took at least half while the launching thread took part in them or ran no operators; else host-bound. The cause is
    unknown where the source does not say what launched the work, or nothing of the host is recorded. `host_activity` is the
    innermost span of the launching thread at the middle of the time the host took; null where nothing is recorded there. The launching
    thread is that of the operator behind the work, also where another one makes the call.

    A rank without a device is judged by its host operators, with a null device: a gap is when no thread runs an operator.
    Steps whose device work is not completely recorded (see `overlap`) have no gaps: what is not recorded is not idle.
    A gap over the border of two steps counts in each for its part; time between steps is in none. Steps are those of
    the device, as in `overlap`. Gaps are longer for being recorded:
    `recording_overhead` says by how much in all.
    """
    steps = device_steps(trace).partition_by("rank", as_dict=True)
    threads: dict[int, int] = dict(main_threads(trace).iter_rows())
    every = Every.of(trace)
    tables = [pl.DataFrame(schema=COLUMNS)]
    for lane in lanes(trace, every):
        if (rank := (lane.rank,)) in steps:
            unknown = unknown_times(trace, lane.rank)
            tables.append(_idle(lane, steps[rank], _Host(trace, every, lane.rank), threads.get(lane.rank, -1), unknown))
    return pl.concat(tables).filter(pl.col("dur_ns") >= min_ns)


class _Thread(NamedTuple):
    """The spans of one track of a thread: by start and, of those that start together, the longest first."""

    row: Ints
    kind: NDArray[np.uint8]
    start: Ints
    end: Ints
    span: Ints
    parent: Ints  # -1 for none

    def union(self, kind: str) -> Set:
        some = self.kind == KINDS.index(kind)
        return intervals.merge(self.start[some], self.end[some])


_ON_HOST = ("op", "api", "sync", "python", "data", "communication")


class _Host:
    """What ran on the host of one rank."""

    def __init__(self, trace: Trace, every: Every, rank: int) -> None:
        self._every = every
        self._alone = bool((every.rank == rank).all())
        self._rank = rank
        tracks = trace.tracks.filter(pl.col("rank") == rank).select("rank", "track").unique()
        known = set(tracks.collect()["track"].to_list())
        self._thread_of = {
            track: thread for _, track, thread in on_host(tracks, trace).select("rank", "track", "thread").collect().iter_rows()
        }
        self._elsewhere = known - set(self._thread_of)  # on a device
        busy = np.isin(every.kind, [KINDS.index(kind) for kind in _ON_HOST])
        self.is_recorded = bool((busy & (every.rank == rank) & ~np.isin(every.track, list(self._elsewhere))).any())

    def thread(self, track: int) -> list[_Thread]:
        """What stands on a thread's own track, and on those beside it."""
        return [self._of(one) for one in self._tracks(track)]

    def union(self, kind: str, thread: int | None = None) -> Set:
        """When something of a kind ran on a thread, or on any."""
        rows = np.flatnonzero(self._every.kind == KINDS.index(kind))
        track = self._every.track[rows]
        there = ~np.isin(track, list(self._elsewhere)) if thread is None else np.isin(track, self._tracks(thread))
        rows = rows[there & (self._every.rank[rows] == self._rank)]
        return intervals.merge(self._every.start[rows], self._every.end[rows])

    def names(self, rows: Ints) -> pl.Series:
        return self._every.name.gather(or_null(rows))

    def _tracks(self, thread: int) -> list[int]:
        beside = sorted(one for one, home in self._thread_of.items() if home == thread and one != thread)
        return beside if thread in self._elsewhere or self._thread_of.get(thread, thread) != thread else [thread, *beside]

    def _of(self, track: int) -> _Thread:
        every = self._every
        is_own = every.track == track
        rows = np.flatnonzero(is_own if self._alone else is_own & (every.rank == self._rank))
        rows = rows[every.kind[rows] != KINDS.index("instant")]
        start, end = every.start[rows], every.end[rows]
        if not ((start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))).all():
            rows = rows[np.lexsort((-end, start))]
        return _Thread(rows, every.kind[rows], every.start[rows], every.end[rows], every.span[rows], every.parent[rows])


# In the order of the least to the most telling.
_CAUSES = ("host-bound", "communication", "sync", "data wait", "unknown", "launch latency")


def _idle(lane: Lane, steps: pl.DataFrame, host: _Host, main: int, unknown: Set) -> pl.DataFrame:
    """The idle stretches of one lane, cut at the steps."""
    step_starts, step_ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    idle = intervals.subtract(intervals.gaps(lane.busy, int(step_starts.min()), int(step_ends.max())), unknown)
    index = np.searchsorted(lane.work["start_ns"].to_numpy(), idle.ends, "left")
    following = np.where(index < lane.work.height, index, -1)
    following[np.isin(idle.ends, unknown.starts)] = -1  # what came next was not recorded
    thread = pl.coalesce("op_track", "launch_track").alias("thread")
    after = lane.work.select(pl.col("name", "span", "launch_ns").gather(or_null(following)), thread.gather(or_null(following)))
    linked = after["launch_ns"].is_not_null().to_numpy()
    launch = after["launch_ns"].fill_null(0).to_numpy()
    until = np.where(linked, np.clip(launch, idle.starts, idle.ends), idle.ends)
    cause, activity = _host_side(host, main, idle.starts, until, after["thread"].fill_null(main).to_numpy())
    cause[~linked & (cause == 0) & ((following >= 0) | (not host.is_recorded)) & (not lane.on_host)] = _CAUSES.index("unknown")
    latency = linked & (launch <= idle.starts)
    cause[latency], activity[latency] = _CAUSES.index("launch latency"), -1
    pieces = cut(idle.starts, idle.ends, step_starts, step_ends)
    return (
        after.with_columns(pl.Series(_CAUSES).gather(cause).alias("cause"), host_activity=host.names(activity))
        .select(pl.all().gather(pieces.interval))
        .with_columns(
            pl.Series("start_ns", pieces.starts),
            pl.Series("dur_ns", pieces.ends - pieces.starts),
            pl.Series("share_of_step", (pieces.ends - pieces.starts) / (step_ends - step_starts)[pieces.step]),
            steps["step"].gather(pieces.step),
            rank=pl.lit(lane.rank),
            device=pl.lit(lane.device),
        )
        .rename({"name": "next_kernel", "span": "next_span"})
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _host_side(host: _Host, main: int, starts: Ints, ends: Ints, tracks: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """What kept the host from launching between each start and end: the cause, and what the launching thread was doing half way."""
    cause, activity = np.zeros(len(starts), np.uint8), np.full(len(starts), -1, np.int64)
    transfers = host.union("communication")
    waiting = host.union("data", main)
    for track in np.unique(tracks).tolist():
        rows = np.flatnonzero(tracks == track)
        begin, end = starts[rows], ends[rows]
        thread = host.thread(track)
        ops, shared, sync = (intervals.join(*(own.union(kind) for own in thread)) for kind in ("op", "communication", "sync"))
        idle_or_part = ~_half(ops, begin, end) | _half(shared, begin, end)
        cause[rows[_half(transfers, begin, end) & idle_or_part]] = _CAUSES.index("communication")
        cause[rows[_half(sync, begin, end) | _open(sync, begin)]] = _CAUSES.index("sync")
        cause[rows[_half(waiting, begin, end)]] = _CAUSES.index("data wait")
        for own in thread:  # a range of the user's is all we know where nothing of the thread itself is recorded
            unknown = rows[activity[rows] < 0]
            activity[unknown] = _innermost(own, (starts[unknown] + ends[unknown]) // 2)
    return cause, activity


def _half(a: Set, starts: Ints, ends: Ints) -> Bools:
    """Where `a` covers at least half of an interval that has a length."""
    if len(a.starts) == 0:
        return np.zeros(len(starts), np.bool_)
    return (ends > starts) & (2 * intervals.covered(a, starts, ends) >= ends - starts)


def _open(a: Set, at: Ints) -> Bools:
    """Where an interval of `a` began before the moment and had not ended before it."""
    index = np.searchsorted(a.starts, at, "left") - 1
    return (index >= 0) & (np.append(a.ends, 0)[index] >= at)


def _innermost(spans: _Thread, at: Ints) -> Ints:
    """The `row` of the deepest span around each moment, -1 for none but a step."""
    index = np.searchsorted(spans.start, at, "right") - 1
    # The span that started last may have ended: then one of those around it is the deepest that is still open.
    asked = np.flatnonzero(index >= 0)
    while len(asked := asked[spans.end[index[asked]] <= at[asked]]):
        index[asked] = find(spans.span, spans.parent[index[asked]])  # none, or in a step that was not asked for: -1
        asked = asked[index[asked] >= 0]
    return np.where((index >= 0) & (spans.kind[index] != KINDS.index("step")), spans.row[index], -1) if len(spans.row) else index
