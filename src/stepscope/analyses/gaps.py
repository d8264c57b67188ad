"""When does a device stand idle inside a step, and why?"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analyses._host import host_spans, main_threads
from stepscope.analyses._work import Lane, cut, lanes
from stepscope.intervals import Bools, Ints, Set
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
_Texts = NDArray[np.str_]


def gaps(trace: Trace, *, min_ns: int = 0) -> pl.DataFrame:
    """Every stretch of a step, of at least `min_ns`, in which no stream of the device runs anything, with its cause.

    A gap ends with a piece of work, `next_kernel`. Where its launch call began before the gap did, the cause is launch latency: the
    work was there, and the device, or another process on it, took its time. Otherwise the device waited for its host to launch
    something, and the cause is what the host did until then: data wait, when it waited for input for at least half of that time; sync,
    when the device ran dry while the host was in a synchronising call, or such calls took at least half; communication, when transfers
    on host threads took at least half while the launching thread took part in them or ran no operators; else host-bound. The cause is
    unknown where the source does not say what launched the work. `host_activity` is the innermost span of the launching thread at the
    middle of the time the host took; null where nothing is recorded there.

    A rank without device work is judged by its host operators, with a null device: a gap is when no thread runs an operator.
    A gap over the border of two steps counts in each for its part; time between steps is in none.
    """
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect().partition_by("rank", as_dict=True)
    threads: dict[int, int] = dict(main_threads(trace).iter_rows())
    hosts = (
        host_spans(trace)
        .filter(pl.col("kind") != "instant")
        .select("rank", "track", "thread", "span", "parent", "kind", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("rank", "track", "start_ns", "end_ns", descending=[False, False, False, True])
        .collect()
    )
    of_rank = hosts.partition_by("rank", as_dict=True)
    tables = [pl.DataFrame(schema=COLUMNS)]
    for lane in lanes(trace):
        if (rank := (lane.rank,)) in steps:
            host = of_rank.get(rank, hosts.clear()).with_row_index("row")
            tables.append(_idle(lane, steps[rank], host, threads.get(lane.rank, -1)))
    return pl.concat(tables).filter(pl.col("dur_ns") >= min_ns)


def _idle(lane: Lane, steps: pl.DataFrame, host: pl.DataFrame, main: int) -> pl.DataFrame:
    """The idle stretches of one lane, cut at the steps."""
    step_starts, step_ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    idle = intervals.gaps(lane.busy, int(step_starts.min()), int(step_ends.max()))
    index = np.searchsorted(lane.work["start_ns"].to_numpy(), idle.ends, "left")
    following = np.where(index < lane.work.height, index, -1)
    after = lane.work.select(pl.col("name", "span", "launch_ns", "launch_track").gather(_or_null(following)))
    linked = after["launch_ns"].is_not_null().to_numpy()
    launch = after["launch_ns"].fill_null(0).to_numpy()
    until = np.where(linked, np.clip(launch, idle.starts, idle.ends), idle.ends)
    cause, activity = _host_side(host, main, idle.starts, until, after["launch_track"].fill_null(main).to_numpy())
    cause[~linked & (cause == "host-bound") & (following >= 0) & (not lane.on_host)] = "unknown"
    latency = linked & (launch <= idle.starts)
    cause[latency], activity[latency] = "launch latency", -1
    pieces = cut(idle.starts, idle.ends, step_starts, step_ends)
    return (
        after.with_columns(pl.Series("cause", cause), host_activity=host["name"].gather(_or_null(activity)))
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


def _host_side(host: pl.DataFrame, main: int, starts: Ints, ends: Ints, tracks: Ints) -> tuple[_Texts, Ints]:
    """What kept the host from launching between each start and end: the cause, and what the launching thread was doing half way."""
    cause, activity = np.full(len(starts), "host-bound", "U16"), np.full(len(starts), -1, np.int64)
    waiting, transfers = _union(host.filter(pl.col("thread") == main), "data"), _union(host, "communication")
    for track in np.unique(tracks):
        rows = np.flatnonzero(tracks == track)
        thread = host.filter(pl.col("thread") == track)
        begin, end = starts[rows], ends[rows]
        idle_or_part = ~_half(_union(thread, "op"), begin, end) | _half(_union(thread, "communication"), begin, end)
        sync = _union(thread, "sync")
        # In the order of the least to the most telling.
        cause[rows[_half(transfers, begin, end) & idle_or_part]] = "communication"
        cause[rows[_half(sync, begin, end) | _open(sync, begin)]] = "sync"
        cause[rows[_half(waiting, begin, end)]] = "data wait"
        for beside in (False, True):  # a range of the user's is all we know where nothing of the thread itself is recorded
            unknown = rows[activity[rows] < 0]
            spans = thread.filter((pl.col("track") != track) == beside)
            activity[unknown] = _innermost(spans, (starts[unknown] + ends[unknown]) // 2)
    return cause, activity


def _union(spans: pl.DataFrame, kind: str) -> Set:
    some = spans.filter(pl.col("kind") == kind)
    return intervals.merge(some["start_ns"].to_numpy(), some["end_ns"].to_numpy())


def _half(a: Set, starts: Ints, ends: Ints) -> Bools:
    """Where `a` covers at least half of an interval that has a length."""
    return (ends > starts) & (2 * intervals.covered(a, starts, ends) >= ends - starts)


def _open(a: Set, at: Ints) -> Bools:
    """Where an interval of `a` began before the moment and had not ended before it."""
    index = np.searchsorted(a.starts, at, "left") - 1
    return (index >= 0) & (np.append(a.ends, 0)[index] >= at)


def _innermost(spans: pl.DataFrame, at: Ints) -> Ints:
    """The `row` of the deepest span around each moment, -1 for none but a step. The spans, of one track, are sorted by start."""
    rows = np.append(spans.select(pl.when(pl.col("kind") == "step").then(-1).otherwise("row")).to_series().to_numpy(), -1)
    ends, ids, parents = spans["end_ns"].to_numpy(), spans["span"].to_numpy(), spans["parent"].fill_null(-1).to_numpy()
    by_id = np.argsort(ids)
    parent = np.append(by_id, -1)[np.searchsorted(ids[by_id], parents)]
    parent[np.append(ids, -1)[parent] != parents] = -1  # none, or in a step that was not asked for
    index = np.searchsorted(spans["start_ns"].to_numpy(), at, "right") - 1
    # The span that started last may have ended: then one of those around it is the deepest that is still open.
    while (ended := (index >= 0) & (np.append(ends, 0)[index] <= at)).any():
        index[ended] = parent[index[ended]]
    found: Ints = rows[index]
    return found


def _or_null(index: Ints) -> pl.Series:
    return pl.Series(index).set(pl.Series(index < 0), None)
