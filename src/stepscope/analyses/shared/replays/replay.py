"""Replay of a graph of dependent durations, with these or other durations."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.replays.nodes import COMMUNICATION, COPY, HOST, INPUT, KERNEL, MEETING, SYNC, Graph
from stepscope.model.intervals import Ints

_NEVER = -(1 << 62)  # before every time, also with dependencies that never bind


def replay(graph: Graph, duration: Ints | None = None, lag: Ints | None = None) -> Ints:
    """End of each node with these durations and lags; unchanged where they are not given."""
    durations = (graph.duration if duration is None else duration).tolist()
    counts, nodes = np.diff(graph.offset).tolist(), iter(graph.node.tolist())
    lags = iter((graph.lag if lag is None else lag).tolist())
    ends: list[int] = []
    # One pass over plain lists: a node depends on a few earlier ones, which no array operation can express.
    for count, length, recorded in zip(counts, durations, graph.start.tolist(), strict=True):
        if not count:  # nothing recorded holds it
            ends.append(recorded + length)
            continue
        at = _NEVER
        for _ in range(count):
            when = ends[next(nodes)] + next(lags)
            at = max(at, when)
        ends.append(at + length)
    return np.array(ends, np.int64)


def binding(graph: Graph, ends: Ints, duration: Ints | None = None, lag: Ints | None = None) -> Ints:
    """The node that each node waited for in a replay with these ends: the first of them; -1 for none."""
    duration, lag = graph.duration if duration is None else duration, graph.lag if lag is None else lag
    target = np.repeat(np.arange(len(graph.kind)), np.diff(graph.offset))
    due = (ends - duration)[target]
    binds = np.flatnonzero((ends[graph.node] + lag == due) & (due > _NEVER))[::-1]
    waited = np.full(len(graph.kind), -1)
    waited[target[binds]] = graph.node[binds]  # of several values for a node, the last one stays
    return waited


def path_shares(graph: Graph, ends: Ints, duration: Ints | None = None, lag: Ints | None = None) -> pl.DataFrame:
    """Per rank `bottleneck` and `bottleneck_share`: the kind of time with the largest part of the critical path of all its steps.

    The path leads back from the last node of the last step, over the ranks that it waited for, to the start of the first one. `ends` are
    those of the replay with these durations.
    """
    waited = binding(graph, ends, duration, lag)
    before, end_of = waited.tolist(), ends.tolist()
    rows = []
    for (rank,), steps in graph.steps.group_by("rank", maintain_order=True):
        tasks = np.flatnonzero((graph.task_step >= 0) & (graph.rank == rank))
        candidates = np.append(tasks, steps["last"].to_numpy())
        node, low = int(candidates[np.argmax(ends[candidates])]), end_of[max(int(steps["first"][0]), 0)]
        path = []
        while node >= 0 and end_of[node] > low:
            path.append(node)
            node = before[node]
        sums = _path_times(graph, np.array(path, np.int64), waited, ends, graph.duration if duration is None else duration, low)
        total, largest = int(sums.sum()), int(np.argmax(sums))
        rows.append((int(str(rank)), _PARTS[largest] if total else None, int(sums[largest]) / total if total else None))
    return pl.DataFrame(rows, {"rank": pl.Int32, "bottleneck": pl.String, "bottleneck_share": pl.Float64}, orient="row")


def _path_times(graph: Graph, path: Ints, waited: Ints, ends: Ints, duration: Ints, low: int) -> Ints:
    """The time of each of `_PARTS` on a path, later than `low`: the durations of its nodes, and the lags before them."""
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
