"""Replay of a graph of dependent durations, with these or other durations."""

import ctypes
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.replays.nodes import COMMUNICATION, COPY, HOST, INPUT, KERNEL, MEETING, SYNC, Graph
from stepscope.model.intervals import Ints
from stepscope.process.compiled.choice import chosen_library

_NEVER = -(1 << 62)  # before every time, also with dependencies that never bind


class Replay(NamedTuple):
    """End of each node, and the node that it waited for: the first of several, -1 for none."""

    ends: Ints
    waited: Ints


def replay(graph: Graph, duration: Ints | None = None, lag: Ints | None = None) -> Replay:
    """The replay with these durations and lags; unchanged where they are not given."""
    durations, lags = graph.duration if duration is None else duration, graph.lag if lag is None else lag
    library = chosen_library()
    return (library and _compiled_replay(library, graph, durations, lags)) or _python_replay(graph, durations, lags)


def _compiled_replay(library: ctypes.CDLL, graph: Graph, duration: Ints, lag: Ints) -> Replay | None:
    """None for times beyond 64 bits."""
    ends, waited = np.empty(len(duration), np.int64), np.empty(len(duration), np.int64)
    columns = [np.ascontiguousarray(column, np.int64) for column in (graph.offset, graph.node, lag, duration, graph.start)]
    fits = library.stepscope_replay(len(ends), *(column.ctypes.data for column in (*columns, ends, waited)))
    return Replay(ends, waited) if fits else None


def _python_replay(graph: Graph, duration: Ints, lag: Ints) -> Replay:
    counts, nodes, lags = np.diff(graph.offset).tolist(), iter(graph.node.tolist()), iter(lag.tolist())
    ends, waited = list[int](), list[int]()
    # One pass over plain lists: a node depends on a few earlier ones, which no array operation can express.
    for count, length, recorded in zip(counts, duration.tolist(), graph.start.tolist(), strict=True):
        at, last = _NEVER if count else recorded, -1  # without dependencies, nothing recorded holds it
        for _ in range(count):
            node = next(nodes)
            when = ends[node] + next(lags)
            if when > at:
                at, last = when, node
        ends.append(at + length)
        waited.append(last)
    return Replay(np.array(ends, np.int64), np.array(waited, np.int64))


def path_shares(graph: Graph, replayed: Replay, duration: Ints | None = None) -> pl.DataFrame:
    """Per rank `bottleneck` and `bottleneck_share`: the kind of time with the largest part of the critical path of all its steps.

    The path leads back from the last node of the last step, over the ranks that it waited for, to the start of the first one. `duration`
    are those of the replay.
    """
    ends, durations = replayed.ends, graph.duration if duration is None else duration
    rows = []
    for (rank,), steps in graph.steps.group_by("rank", maintain_order=True):
        tasks = np.flatnonzero((graph.task_step >= 0) & (graph.rank == rank))
        candidates = np.append(tasks, steps["last"].to_numpy())
        last, low = int(candidates[np.argmax(ends[candidates])]), int(ends[max(int(steps["first"][0]), 0)])
        sums = _path_times(graph, _path(replayed, last, low), replayed, durations, low)
        total, largest = int(sums.sum()), int(np.argmax(sums))
        rows.append((int(str(rank)), _PARTS[largest] if total else None, int(sums[largest]) / total if total else None))
    return pl.DataFrame(rows, {"rank": pl.Int32, "bottleneck": pl.String, "bottleneck_share": pl.Float64}, orient="row")


def _path(replayed: Replay, last: int, low: int) -> Ints:
    """The nodes from `last` back that end after `low`."""
    ends, waited = replayed
    path = np.empty(len(ends), np.int64)
    if library := chosen_library():
        return path[: library.stepscope_path(len(ends), waited.ctypes.data, ends.ctypes.data, last, low, path.ctypes.data)]
    length, before, end_of = 0, waited.tolist(), ends.tolist()
    while last >= 0 and end_of[last] > low:
        path[length] = last
        length, last = length + 1, before[last]
    return path[:length]


def _path_times(graph: Graph, path: Ints, replayed: Replay, duration: Ints, low: int) -> Ints:
    """The time of each of `_PARTS` on a path, later than `low`: the durations of its nodes, and the lags before them."""
    ends, waited = replayed
    part, on_host = _PART_OF_KIND[graph.kind[path]], np.isin(graph.kind, (HOST, INPUT, SYNC))
    sums = np.zeros(len(_PARTS), np.int64)
    np.add.at(sums, part, np.minimum(duration[path], ends[path] - low))
    part, path = part[waited[path] >= 0], path[waited[path] >= 0]  # the rest is a lag
    before = waited[path]
    lags = np.maximum(ends[path] - duration[path] - ends[before], 0)
    np.add.at(sums, np.where(on_host[before] != on_host[path], _PARTS.index("launch"), part), lags)
    return sums


_PATH = {
    HOST: "host",
    INPUT: "input",
    SYNC: "launch",
    KERNEL: "kernel",
    COPY: "copy",
    COMMUNICATION: "communication",
    MEETING: "communication",
}
_PARTS = tuple(dict.fromkeys(_PATH.values()))
_PART_OF_KIND = np.array([_PARTS.index(_PATH[kind]) for kind in range(len(_PATH))])
