"""When is a device idle inside a step, and why?"""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.analyses.shared.device_work import Device, SpanArrays, cut, devices, find, or_null, span_arrays
from stepscope.analyses.shared.steps.coverage import unknown_times
from stepscope.analyses.shared.steps.host_phases import main_threads, on_host
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.model import intervals
from stepscope.model.columns.texts import as_text
from stepscope.model.intervals import Bools, Ints, Set
from stepscope.model.memo import memoized
from stepscope.model.schema import KINDS
from stepscope.model.trace import Trace

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


@memoized
def gaps(trace: Trace, *, min_ns: int = 0) -> pl.DataFrame:
    """Idle gaps: every interval of a step, of at least `min_ns`, in which no stream of the device runs anything, with its cause.

    A gap ends with the start of `next_kernel`. If its launch call began before the gap, the cause is launch latency: the device, or
    another process on it, started the work late. Otherwise the device waited for the host to launch work, and the cause is the activity
    of the host until the launch: data wait if it waited for input for at least half of that time; sync if the gap began inside a
    synchronizing call, or such calls took at least half; communication if transfers on host threads took at least half while the
    launching thread took part in them or ran no operators; else host-bound. The cause is unknown if the source does not link the work to
    its launch, or if the host is not recorded. `host_activity` is the innermost span of the launching thread in the middle of that time.
    The launching thread is the thread of the operator behind the work, even if another thread makes the call.

    On a rank without a device, a gap is a time in which no thread runs an operator; its device is null. Steps whose device work is not
    completely recorded (see `overlap`) have no gaps. A gap over the border of two steps is split; time between steps is in no gap.
    Steps are those of the device, as in `overlap`. Recording makes gaps longer: see `recording_overhead`.
    """
    steps = device_steps(trace).partition_by("rank", as_dict=True)
    threads: dict[int, int] = dict(main_threads(trace).iter_rows())
    spans = span_arrays(trace)
    tables = [pl.DataFrame(schema=COLUMNS)]
    for device in devices(trace):
        if (rank := (device.rank,)) in steps:
            unknown = unknown_times(trace, device.rank)
            tables.append(_idle(device, steps[rank], _Host(trace, spans, device.rank), threads.get(device.rank, -1), unknown))
    return pl.concat(tables).filter(pl.col("dur_ns") >= min_ns)


class _Thread(NamedTuple):
    """The spans of one track of a thread, by start; of several with the same start, the longest first."""

    row: Ints
    kind: NDArray[np.uint8]
    start: Ints
    end: Ints
    span: Ints
    parent: Ints  # -1 for none

    def union(self, kind: str) -> Set:
        rows = self.kind == KINDS.index(kind)
        return intervals.merge(self.start[rows], self.end[rows])


_ON_HOST = ("op", "api", "sync", "python", "data", "communication")


class _Host:
    """The host spans of one rank."""

    def __init__(self, trace: Trace, spans: SpanArrays, rank: int) -> None:
        self._spans = spans
        self._of_rank = spans.rank == rank
        tracks = trace.tracks.filter(pl.col("rank") == rank).select("rank", "track").unique()
        self._thread_of = {
            track: thread for _, track, thread in on_host(tracks, trace).select("rank", "track", "thread").collect().iter_rows()
        }
        self._device_tracks = set(tracks.collect()["track"].to_list()) - set(self._thread_of)
        busy = np.isin(spans.kind, [KINDS.index(kind) for kind in _ON_HOST])
        self.is_recorded = bool((busy & self._of_rank & ~np.isin(spans.track, list(self._device_tracks))).any())

    def thread(self, track: int) -> list[_Thread]:
        """The spans of a thread: its own track first, then the annotation tracks of the same thread."""
        return [self._track_spans(number) for number in self._tracks(track)]

    def union(self, kind: str, thread: int | None = None) -> Set:
        """The times of the spans of a kind on a thread, or on any thread."""
        rows = np.flatnonzero(self._spans.kind == KINDS.index(kind))
        track = self._spans.track[rows]
        on_thread = ~np.isin(track, list(self._device_tracks)) if thread is None else np.isin(track, self._tracks(thread))
        rows = rows[on_thread & self._of_rank[rows]]
        return intervals.merge(self._spans.start[rows], self._spans.end[rows])

    def names(self, rows: Ints) -> pl.Series:
        return self._spans.name.gather(or_null(rows))

    def _tracks(self, thread: int) -> list[int]:
        others = sorted(track for track, home in self._thread_of.items() if home == thread and track != thread)
        return others if thread in self._device_tracks or self._thread_of.get(thread, thread) != thread else [thread, *others]

    def _track_spans(self, track: int) -> _Thread:
        spans = self._spans
        rows = np.flatnonzero((spans.track == track) & self._of_rank)
        rows = rows[spans.kind[rows] != KINDS.index("instant")]
        start, end = spans.start[rows], spans.end[rows]
        if not ((start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))).all():
            rows = rows[np.lexsort((-end, start))]
        return _Thread(rows, spans.kind[rows], spans.start[rows], spans.end[rows], spans.span[rows], spans.parent[rows])


# A later cause overrides an earlier one.
_CAUSES = ("host-bound", "communication", "sync", "data wait", "unknown", "launch latency")


def _idle(device: Device, steps: pl.DataFrame, host: _Host, main: int, unknown: Set) -> pl.DataFrame:
    """The idle gaps of one device, cut at the steps."""
    step_starts, step_ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    idle = intervals.subtract(intervals.gaps(device.busy, int(step_starts.min()), int(step_ends.max())), unknown)
    index = np.searchsorted(device.work["start_ns"].to_numpy(), idle.ends, "left")
    following = np.where(index < device.work.height, index, -1)
    following[np.isin(idle.ends, unknown.starts)] = -1  # the work after the gap is not recorded
    thread = pl.coalesce("op_track", "launch_track").alias("thread")
    after = device.work.select(pl.col("name", "span", "launch_ns").gather(or_null(following)), thread.gather(or_null(following)))
    linked = after["launch_ns"].is_not_null().to_numpy()
    launch = after["launch_ns"].fill_null(0).to_numpy()
    until = np.where(linked, np.clip(launch, idle.starts, idle.ends), idle.ends)
    cause, activity = _host_side(host, main, idle.starts, until, after["thread"].fill_null(main).to_numpy())
    cause[~linked & (cause == 0) & ((following >= 0) | (not host.is_recorded)) & (not device.on_host)] = _CAUSES.index("unknown")
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
            rank=pl.lit(device.rank),
            device=pl.lit(device.number),
        )
        .rename({"name": "next_kernel", "span": "next_span"})
        .with_columns(as_text("next_kernel"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _host_side(host: _Host, main: int, starts: Ints, ends: Ints, tracks: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Why the host did not launch between each start and end: the cause, and the row of the launching thread's span half way."""
    cause, activity = np.zeros(len(starts), np.uint8), np.full(len(starts), -1, np.int64)
    transfers = host.union("communication")
    waiting = host.union("data", main)
    for number in np.unique(tracks).tolist():
        rows = np.flatnonzero(tracks == number)
        begin, end = starts[rows], ends[rows]
        thread = host.thread(number)
        ops, shared, sync = (intervals.join(*(track.union(kind) for track in thread)) for kind in ("op", "communication", "sync"))
        idle_or_part = ~_half(ops, begin, end) | _half(shared, begin, end)
        cause[rows[_half(transfers, begin, end) & idle_or_part]] = _CAUSES.index("communication")
        cause[rows[_half(sync, begin, end) | _open(sync, begin)]] = _CAUSES.index("sync")
        cause[rows[_half(waiting, begin, end)]] = _CAUSES.index("data wait")
        for spans in thread:  # annotations of the user count only where the thread itself has no span
            unknown = rows[activity[rows] < 0]
            activity[unknown] = _innermost(spans, (starts[unknown] + ends[unknown]) // 2)
    return cause, activity


def _half(a: Set, starts: Ints, ends: Ints) -> Bools:
    """Where `a` covers at least half of an interval that is not empty."""
    if len(a.starts) == 0:
        return np.zeros(len(starts), np.bool_)
    return (ends > starts) & (2 * intervals.covered(a, starts, ends) >= ends - starts)


def _open(a: Set, at: Ints) -> Bools:
    """Where an interval of `a` is open: it begins before the timestamp and does not end before it."""
    index = np.searchsorted(a.starts, at, "left") - 1
    return (index >= 0) & (np.append(a.ends, 0)[index] >= at)


_DEEPEST = 20_000  # nested calls; damaged parents may form a circle


def _innermost(spans: _Thread, at: Ints) -> Ints:
    """The `row` of the deepest span around each timestamp; -1 for none, and for a step."""
    index = np.searchsorted(spans.start, at, "right") - 1
    # The span that started last may have ended: then one of its parents is the deepest that is still open.
    ended = np.flatnonzero(index >= 0)
    for _ in range(_DEEPEST):
        ended = ended[spans.end[index[ended]] <= at[ended]]
        if not len(ended):
            break
        index[ended] = find(spans.span, spans.parent[index[ended]])  # -1 for none, and for a span outside the chosen steps
        ended = ended[index[ended] >= 0]
    else:
        index[ended] = -1
    return np.where((index >= 0) & (spans.kind[index] != KINDS.index("step")), spans.row[index], -1) if len(spans.row) else index
