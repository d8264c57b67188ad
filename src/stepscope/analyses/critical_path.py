"""Which chain of work, each piece waiting for the one before it, makes a step as long as it is?"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import unrecorded_steps
from stepscope.analyses._host import host_spans, main_threads
from stepscope.analyses._work import cut, device_work
from stepscope.intervals import Bools, Ints
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "kind": pl.String,  # kernel, copy, communication, launch, host or wait
    "name": pl.String,  # of a launch, what is launched; null where the host runs nothing that was recorded
    "span": pl.Int64,
    "share_of_step": pl.Float64,
}
_READING = "aten::_local_scalar_dense"
_ON_DEVICE = {"kernel": "kernel", "copy": "copy", "set": "copy", "communication": "communication"}


def critical_path(trace: Trace) -> pl.DataFrame:
    """The longest dependent chain through each step, found from its end backwards; its pieces do not overlap and add up to the step.

    The last piece is the work that runs on the device as the step ends, or else what its thread does then. Device work waited for
    whatever was over last: the work before it on its stream, its launch, or, if its launch call had returned long before, work of another
    stream. A host thread waited for the device where it was in a synchronising call while work ended there, or, where such calls are not
    recorded, in the operator that reads a value of the device (`aten::_local_scalar_dense`, of `item()`) until nothing ran there.

    `kernel`, `copy` and `communication` are that work (communication on host threads, too, while no operator runs); `launch` is from a
    launch call's start, or from the end of the work before, until the device begins; `wait` is for input, or for what is not known;
    `host` is the rest. Shortening anything that is not on the path makes no step shorter. Steps whose device work is not completely
    recorded (see `overlap`) have no path.
    """
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect()
    steps = steps.join(unrecorded_steps(trace), on=["rank", "step"], how="anti", maintain_order="left")
    of_rank = device_work(trace).partition_by("rank", as_dict=True)
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
    for (rank,), own in steps.group_by("rank", maintain_order=True):
        spans = host.get((rank,))
        work = of_rank.get((rank,))
        if spans is None and work is None:
            continue  # nothing is known of it
        chain = _chain(work, spans, threads.get(int(str(rank)), -1))
        layers = _layers(spans, chain) if spans is not None else []
        tables += [_path(chain, layers, *row) for row in own.iter_rows() if row[3] > row[2]]
    return pl.concat(tables)


class _Chain(NamedTuple):
    """Device work of a rank by start, and of each piece what it waited for."""

    work: pl.DataFrame
    start: Ints
    end: Ints
    before: Ints  # the work that it waited for, perhaps through the host; -1 for none
    arrive: Ints  # when the host launched it, where it waited for the host; -1 where it did not
    linked: Bools  # its launch is known
    sync_end: Ints  # when the host had waited for the device, in order
    sync_for: Ints  # and for which work
    main: int
    launchers: list[int]


class _Layer(NamedTuple):
    """What a host does, in stretches that do not overlap; what is in an earlier layer hides what is in a later one."""

    kind: str
    start: Ints
    end: Ints
    names: pl.Series
    spans: pl.Series


def _chain(work: pl.DataFrame | None, spans: pl.DataFrame | None, main: int) -> _Chain:
    known = ["span", "kind", "name", "track", "start_ns", "end_ns", "launch_ns", "launched_ns", "launch_track"]
    nothing = pl.DataFrame(schema=dict.fromkeys(known, pl.Int64))
    # What takes no time holds nothing up, and could not be told from what it waits for.
    work = nothing if work is None else work.select(known).filter(pl.col("end_ns") > pl.col("start_ns"))
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    by_end = np.argsort(end, kind="stable")
    linked = work["launch_ns"].is_not_null().to_numpy()
    launch = np.minimum(work["launch_ns"].fill_null(0).to_numpy(), start)
    launched = work["launched_ns"].fill_null(0).to_numpy()
    anywhere, on_stream = _last_over(by_end, end, start), _before_on_stream(work["track"].to_numpy(), start, end)
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


def _last_over(by_end: Ints, end: Ints, at: Ints) -> Ints:
    """The work that was over last at each moment, -1 for none."""
    return np.append(by_end, -1)[np.searchsorted(end[by_end], at, "right") - 1]


def _before_on_stream(track: Ints, start: Ints, end: Ints) -> Ints:
    found = np.full(len(start), -1, np.int64)
    for one in np.unique(track):
        rows = np.flatnonzero(track == one)
        by_end = rows[np.argsort(end[rows], kind="stable")]
        found[rows] = _last_over(by_end, end, start[rows])
    return found


def _or_never(end: Ints, index: Ints) -> Ints:
    return np.append(end, np.iinfo(np.int64).min)[index]


def _waits(spans: pl.DataFrame | None, threads: list[int], by_end: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The calls that waited for the device, in which work ended: when they returned, in order, and the work that was over last."""
    if spans is None or len(end) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    own = spans.filter(pl.col("thread").is_in(threads))
    calls = own.filter(pl.col("kind") == "sync")
    reads = own.filter(pl.col("kind") == "op", pl.col("name").cast(pl.String) == _READING)
    begun, returned = reads["start_ns"].to_numpy(), reads["end_ns"].to_numpy()
    inside = np.diff(np.searchsorted(calls["start_ns"].to_numpy(), np.stack([begun, returned])), axis=0)[0]  # they say it themselves
    running = np.searchsorted(start, returned, "right") - np.searchsorted(end[by_end], returned, "right")
    calls = pl.concat([calls, reads.filter(pl.Series((inside == 0) & (running == 0)))]).sort("end_ns")
    begun, returned = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    work = _last_over(by_end, end, returned)
    waited = _or_never(end, work) > begun
    return returned[waited], work[waited]


def _layers(spans: pl.DataFrame, chain: _Chain) -> list[_Layer]:
    on_main, launches = pl.col("thread") == chain.main, pl.col("thread").is_in(chain.launchers)
    is_op = pl.col("kind") == "op"
    chosen = [
        ("host", (pl.col("kind") == "sync") & launches),
        ("wait", (pl.col("kind") == "data") & on_main),
        ("host", is_op & on_main),
        ("communication", pl.col("kind") == "communication"),
        ("host", is_op & ~on_main),
    ]
    return [_apart(kind, spans.filter(which)) for kind, which in chosen]


def _apart(kind: str, spans: pl.DataFrame) -> _Layer:
    """The outermost of the spans, which are sorted by start; of two that overlap, the later one after the earlier."""
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    reach = np.maximum.accumulate(end) if len(end) else end
    start = np.maximum(start, np.append(np.iinfo(np.int64).min, reach[:-1])) if len(end) else start
    some = spans.filter(pl.Series(end > start))
    return _Layer(kind, start[end > start], end[end > start], some["name"].cast(pl.String), some["span"])


def _path(chain: _Chain, layers: list[_Layer], rank: int, step: int, low: int, high: int) -> pl.DataFrame:
    """The pieces of one step, by start."""
    on_device = np.flatnonzero((chain.start < high) & (chain.end >= high))
    first = int(on_device[np.argmax(chain.end[on_device])]) if len(on_device) else -1
    host = [np.empty(0, np.int64), np.empty(0, np.int64)]
    tail = intervals.NONE
    if first < 0 and (layers or len(chain.start) == 0):
        last = int(np.searchsorted(chain.sync_end, high, "right")) - 1
        first = int(chain.sync_for[last]) if last >= 0 else -1
        host = [np.array([max(low, int(chain.end[first]) if first >= 0 else low)]), np.array([high])]
    elif first < 0:  # nothing is known of the host
        over = np.flatnonzero(chain.end < high)
        first = int(over[np.argmax(chain.end[over])]) if len(over) else -1
        tail = intervals.merge(np.array([max(low, int(chain.end[first]) if first >= 0 else low)]), np.array([high]))
    nodes = np.array(_followed(chain, first, low), np.int64)
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


def _followed(chain: _Chain, first: int, low: int) -> list[int]:
    """The work on the path, the latest first."""
    before, end = chain.before.tolist(), chain.end.tolist()
    found = []
    while first >= 0 and end[first] > low:
        found.append(first)
        first = before[first]
    return found


def _on_host(layers: list[_Layer], start: Ints, end: Ints) -> list[pl.DataFrame]:
    """What the host did in these stretches, which are in order."""
    left = intervals.merge(start, end)
    found = []
    for layer in layers:
        pieces = cut(layer.start, layer.end, left.starts, left.ends)
        names, spans = layer.names.gather(pieces.interval), layer.spans.gather(pieces.interval)
        found.append(_pieces(pieces.starts, pieces.ends, layer.kind, names, spans))
        left = intervals.subtract(left, intervals.merge(pieces.starts, pieces.ends))
    return [*found, _pieces(left.starts, left.ends, "host")]


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
