"""Replay of a graph of dependent durations, with these or other durations."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.replays.graph import COMMUNICATION, COPY, HOST, INPUT, KERNEL, MEETING, SYNC, Graph
from stepscope.model.intervals import Ints


def replay(graph: Graph, duration: Ints | None = None, lag: Ints | None = None) -> Ints:
    """End of each node with these durations and lags; unchanged where they are not given."""
    ends, _ = _run(graph, duration, lag)
    return ends


def binding(graph: Graph, duration: Ints | None = None, lag: Ints | None = None) -> tuple[Ints, Ints]:
    """End of each node, and the node that it waited for; -1 for none."""
    return _run(graph, duration, lag)


def _run(graph: Graph, duration: Ints | None, lag: Ints | None) -> tuple[Ints, Ints]:
    durations = (graph.duration if duration is None else duration).tolist()
    lags = (graph.lag if lag is None else lag).tolist()
    offset, nodes, recorded = graph.offset.tolist(), graph.node.tolist(), graph.start.tolist()
    ends = [0] * len(durations)
    waited = [-1] * len(durations)
    # One pass over plain lists: a node depends on a few earlier ones, which no array operation can express.
    for i, length in enumerate(durations):
        low, high = offset[i], offset[i + 1]
        if low == high:  # nothing recorded holds it
            ends[i] = recorded[i] + length
            continue
        at, cause = -(1 << 62), -1
        for k in range(low, high):
            when = ends[nodes[k]] + lags[k]
            if when > at:
                at, cause = when, nodes[k]
        ends[i] = at + length
        waited[i] = cause
    return np.array(ends, np.int64), np.array(waited, np.int64)


def path_shares(graph: Graph, duration: Ints | None = None, lag: Ints | None = None) -> pl.DataFrame:
    """Per rank `bottleneck` and `bottleneck_share`: the kind of time with the largest part of the critical path of all its steps.

    The path leads back from the last node of the last step, over the ranks that it waited for, to the start of the first one.
    """
    ends, waited = _run(graph, duration, lag)
    durations = graph.duration if duration is None else duration
    rows = []
    for (rank,), steps in graph.steps.group_by("rank", maintain_order=True):
        tasks = np.flatnonzero((graph.task_step >= 0) & (graph.rank == rank))
        candidates = np.append(tasks, steps["last"].to_numpy())
        node, low = int(candidates[np.argmax(ends[candidates])]), int(ends[max(int(steps["first"][0]), 0)])
        sums = dict.fromkeys(_PATH.values(), 0)
        while node >= 0 and ends[node] > low:
            before = int(waited[node])
            sums[_PATH[int(graph.kind[node])]] += int(min(durations[node], ends[node] - low))
            if before >= 0:  # the rest is a lag
                lags = int(ends[node] - durations[node] - ends[before])
                sums["launch" if _is_host(graph, before) != _is_host(graph, node) else _PATH[int(graph.kind[node])]] += max(lags, 0)
            node = before
        total = sum(sums.values())
        kind = max(sums, key=lambda name: sums[name])
        rows.append((int(str(rank)), kind if total else None, sums[kind] / total if total else None))
    return pl.DataFrame(rows, {"rank": pl.Int32, "bottleneck": pl.String, "bottleneck_share": pl.Float64}, orient="row")


_PATH = {
    HOST: "host",
    INPUT: "input",
    SYNC: "launch",
    KERNEL: "kernel",
    COPY: "copy",
    COMMUNICATION: "communication",
    MEETING: "communication",
}


def _is_host(graph: Graph, node: int) -> bool:
    return int(graph.kind[node]) in (HOST, INPUT, SYNC)
