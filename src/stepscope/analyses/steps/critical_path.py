"""Which chain of dependent work determines the duration of a step?"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import cut, device_work
from stepscope.analyses.shared.steps.coverage import unrecorded_steps
from stepscope.analyses.shared.steps.host_phases import host_spans, main_threads
from stepscope.model import intervals
from stepscope.model.intervals import Bools, Ints
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "kind": pl.String,  # kernel, copy, communication, launch, host or wait
    "name": pl.String,  # of a launch, the kernel; null if no span of the host is recorded
    "span": pl.Int64,
    "share_of_step": pl.Float64,
}
_READING = "aten::_local_scalar_dense"
_ON_DEVICE = {"kernel": "kernel", "copy": "copy", "set": "copy", "communication": "communication"}


@memoized
def critical_path(trace: Trace) -> pl.DataFrame:
    """The longest dependent chain through each step, followed from its end backwards; its parts do not overlap and add up to the step.

    The last part is the work that runs on the device at the end of the step, or else the activity of its thread. Device work waited for
    the latest end among the previous work on its stream, its launch, and, if its launch call had returned long before, work of another
    stream. A host thread waited for the device if work ended there during a synchronizing call, or, if such calls are not recorded, in the
    operator that reads a value of the device (`aten::_local_scalar_dense`, of `item()`) until the device was idle.

    `kernel`, `copy` and `communication` are that work (also communication on host threads while no operator runs); `launch` is the time
    from the start of a launch call, or from the end of the previous work, until the device starts; `wait` is a wait for input, or for an
    unknown cause; `host` is the rest. Shortening a span that is not on the path does not shorten the step. Steps whose device work is not
    completely recorded (see `overlap`) have no path.
    """
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect()
    steps = steps.join(unrecorded_steps(trace), on=["rank", "step"], how="anti", maintain_order="left")
    rank_work = device_work(trace).partition_by("rank", as_dict=True)
    threads: dict[int, int] = dict(main_threads(trace).iter_rows())
    host = (
        host_spans(trace)
        .filter(pl.col("kind").is_in(["op", "data", "sync", "communication"]))
        .select("rank", "thread", "kind", "name", "span", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
        .partition_by("rank", as_dict=True)
    )
    tables = [pl.DataFrame(schema=COLUMNS)]
    for (rank,), rank_steps in steps.group_by("rank", maintain_order=True):
        spans = host.get((rank,))
        work = rank_work.get((rank,))
        if spans is None and work is None:
            continue  # nothing is recorded
        chain = _chain(work, spans, threads.get(int(str(rank)), -1))
        layers = _layers(spans, chain) if spans is not None else []
        tables += [_path(chain, layers, *row) for row in rank_steps.iter_rows() if row[3] > row[2]]
    return pl.concat(tables)


class _Chain(NamedTuple):
    """Device work of a rank by start, and the work that each span waited for."""

    work: pl.DataFrame
    start: Ints
    end: Ints
    before: Ints  # the work that it waited for, directly or through the host; -1 for none
    arrive: Ints  # its launch, if it waited for the host; else -1
    linked: Bools  # whether its launch is known
    sync_end: Ints  # ends of waits of the host for the device, in order
    sync_for: Ints  # the work of these waits
    main: int
    launchers: list[int]


class _Layer(NamedTuple):
    """Disjoint spans of the host; spans of an earlier layer hide those of a later one."""

    kind: str
    start: Ints
    end: Ints
    names: pl.Series
    spans: pl.Series


def _chain(work: pl.DataFrame | None, spans: pl.DataFrame | None, main: int) -> _Chain:
    columns = ["span", "kind", "name", "track", "start_ns", "end_ns", "launch_ns", "launched_ns", "launch_track"]
    no_work = pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
    # A span without duration delays nothing.
    work = no_work if work is None else work.select(columns).filter(pl.col("end_ns") > pl.col("start_ns"))
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    by_end = np.argsort(end, kind="stable")
    linked = work["launch_ns"].is_not_null().to_numpy()
    launch = np.minimum(work["launch_ns"].fill_null(0).to_numpy(), start)
    launched = work["launched_ns"].fill_null(0).to_numpy()
    anywhere, on_stream = _last_ended(by_end, end, start), _before_on_stream(work["track"].to_numpy(), start, end)
    stream_end, any_end = _or_never(end, on_stream), _or_never(end, anywhere)
    before = np.where(~linked | ((any_end >= launched) & (any_end > stream_end)), anywhere, on_stream)
    by_host = np.where(linked, (_or_never(end, before) < launch), before < 0)
    if spans is None:
        by_host &= linked
    launchers = sorted({main, *work["launch_track"].drop_nulls().unique().to_list()})
    sync_end, sync_for = _waits(spans, launchers, by_end, start, end)
    arrive = np.where(by_host, np.where(linked, launch, start), -1)
    last = np.searchsorted(sync_end, arrive, "right") - 1
    through = np.append(sync_for, -1)[last]
    return _Chain(work, start, end, np.where(by_host, through, before), arrive, linked, sync_end, sync_for, main, launchers)


def _last_ended(by_end: Ints, end: Ints, at: Ints) -> Ints:
    """The work with the latest end before each timestamp, -1 for none."""
    return np.append(by_end, -1)[np.searchsorted(end[by_end], at, "right") - 1]


def _before_on_stream(track: Ints, start: Ints, end: Ints) -> Ints:
    before = np.full(len(start), -1, np.int64)
    for number in np.unique(track):
        rows = np.flatnonzero(track == number)
        by_end = rows[np.argsort(end[rows], kind="stable")]
        before[rows] = _last_ended(by_end, end, start[rows])
    return before


def _or_never(end: Ints, index: Ints) -> Ints:
    return np.append(end, np.iinfo(np.int64).min)[index]


def _waits(spans: pl.DataFrame | None, threads: list[int], by_end: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Calls that waited for the device while work ended: their ends, in order, and the last work."""
    if spans is None or len(end) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    host = spans.filter(pl.col("thread").is_in(threads))
    calls = host.filter(pl.col("kind") == "sync")
    reads = host.filter(pl.col("kind") == "op", pl.col("name").cast(pl.String) == _READING)
    begun, returned = reads["start_ns"].to_numpy(), reads["end_ns"].to_numpy()
    inside = np.diff(np.searchsorted(calls["start_ns"].to_numpy(), np.stack([begun, returned])), axis=0)[0]  # recorded synchronizing calls
    running = np.searchsorted(start, returned, "right") - np.searchsorted(end[by_end], returned, "right")
    calls = pl.concat([calls, reads.filter(pl.Series((inside == 0) & (running == 0)))]).sort("end_ns")
    begun, returned = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    work = _last_ended(by_end, end, returned)
    waited = _or_never(end, work) > begun
    return returned[waited], work[waited]


def _layers(spans: pl.DataFrame, chain: _Chain) -> list[_Layer]:
    on_main, launches = pl.col("thread") == chain.main, pl.col("thread").is_in(chain.launchers)
    is_op = pl.col("kind") == "op"
    layers = [
        ("host", (pl.col("kind") == "sync") & launches),
        ("wait", (pl.col("kind") == "data") & on_main),
        ("host", is_op & on_main),
        ("communication", pl.col("kind") == "communication"),
        ("host", is_op & ~on_main),
    ]
    return [_layer(kind, spans.filter(selected)) for kind, selected in layers]


def _layer(kind: str, spans: pl.DataFrame) -> _Layer:
    """The outermost of the spans, which are sorted by start; of two that overlap, the later begins at the end of the earlier."""
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    reach = np.maximum.accumulate(end) if len(end) else end
    start = np.maximum(start, np.append(np.iinfo(np.int64).min, reach[:-1])) if len(end) else start
    rows = spans.filter(pl.Series(end > start))
    return _Layer(kind, start[end > start], end[end > start], rows["name"].cast(pl.String), rows["span"])


def _path(chain: _Chain, layers: list[_Layer], rank: int, step: int, low: int, high: int) -> pl.DataFrame:
    """The path of one step, by start."""
    on_device = np.flatnonzero((chain.start < high) & (chain.end >= high))
    first = int(on_device[np.argmax(chain.end[on_device])]) if len(on_device) else -1
    host = [np.empty(0, np.int64), np.empty(0, np.int64)]
    tail = intervals.NONE
    if first < 0 and (layers or len(chain.start) == 0):
        last = int(np.searchsorted(chain.sync_end, high, "right")) - 1
        first = int(chain.sync_for[last]) if last >= 0 else -1
        host = [np.array([max(low, int(chain.end[first]) if first >= 0 else low)]), np.array([high])]
    elif first < 0:  # the host is not recorded
        ended = np.flatnonzero(chain.end < high)
        first = int(ended[np.argmax(chain.end[ended])]) if len(ended) else -1
        tail = intervals.merge(np.array([max(low, int(chain.end[first]) if first >= 0 else low)]), np.array([high]))
    nodes = np.array(_work_on_path(chain, first, low), np.int64)
    start, end = np.clip(chain.start[nodes], low, high), np.clip(chain.end[nodes], low, high)
    reached = np.clip(_or_never(chain.end, chain.before[nodes]), low, high)
    by_host = chain.arrive[nodes] >= 0
    launch = np.where(by_host, np.clip(chain.arrive[nodes], reached, start), reached)
    host = [np.append(reached[by_host], host[0])[::-1], np.append(launch[by_host], host[1])[::-1]]
    names, spans = chain.work["name"].cast(pl.String).gather(nodes), chain.work["span"].gather(nodes)
    kinds = chain.work["kind"].cast(pl.String).gather(nodes).replace(_ON_DEVICE)
    latent = pl.Series(np.where(chain.linked[nodes], "launch", "wait"), dtype=pl.String)
    pieces = [
        _pieces(start, end, kinds, names, spans),
        _pieces(launch, start, latent, names, spans),
        *_on_host(layers, *host),
        _pieces(tail.starts, tail.ends, "wait"),
    ]
    length = high - low
    return (
        pl.concat(pieces)
        .filter(pl.col("dur_ns") > 0)
        .sort("start_ns")
        .with_columns(rank=pl.lit(rank), step=pl.lit(step), share_of_step=pl.col("dur_ns") / length)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _work_on_path(chain: _Chain, first: int, low: int) -> list[int]:
    """The work on the path, the latest first."""
    before, end = chain.before.tolist(), chain.end.tolist()
    rows = []
    while first >= 0 and end[first] > low:
        rows.append(first)
        first = before[first]
    return rows


def _on_host(layers: list[_Layer], start: Ints, end: Ints) -> list[pl.DataFrame]:
    """The spans of the host in these intervals, which are in order."""
    left = intervals.merge(start, end)
    parts = []
    for layer in layers:
        pieces = cut(layer.start, layer.end, left.starts, left.ends)
        names, spans = layer.names.gather(pieces.interval), layer.spans.gather(pieces.interval)
        parts.append(_pieces(pieces.starts, pieces.ends, layer.kind, names, spans))
        left = intervals.subtract(left, intervals.merge(pieces.starts, pieces.ends))
    return [*parts, _pieces(left.starts, left.ends, "host")]


def _pieces(start: Ints, end: Ints, kind: str | pl.Series, names: pl.Series | None = None, spans: pl.Series | None = None) -> pl.DataFrame:
    count = len(start)
    return pl.DataFrame(
        {
            "start_ns": pl.Series(start, dtype=pl.Int64),
            "dur_ns": pl.Series(end - start, dtype=pl.Int64),
            "kind": kind if isinstance(kind, pl.Series) else pl.Series([kind] * count, dtype=pl.String),
            "name": pl.Series([None] * count, dtype=pl.String) if names is None else names,
            "span": pl.Series([None] * count, dtype=pl.Int64) if spans is None else spans,
        }
    )
