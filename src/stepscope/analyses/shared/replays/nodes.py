"""Nodes and dependencies of a graph of durations: the graph as a whole, and its parts while they are collected."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model.intervals import Bools, Ints

KINDS = ("host", "input", "sync", "kernel", "copy", "communication", "meeting")
HOST, INPUT, SYNC, KERNEL, COPY, COMMUNICATION, MEETING = range(len(KINDS))


class Graph(NamedTuple):
    """Nodes of all ranks, each after the nodes that it depends on."""

    rank: Ints
    kind: Ints  # index in KINDS
    start: Ints  # as recorded
    end: Ints
    duration: Ints
    span: Ints  # of a task; -1 for the other kinds
    offset: Ints  # the dependencies of node i are the entries offset[i] to offset[i + 1] of `node` and `lag`
    node: Ints
    lag: Ints
    on_host: Bools  # of each dependency: the lag is a latency between host and device
    steps: pl.DataFrame  # rank, step, first and last: the nodes that end as the step starts and ends; -1 for none
    task_step: Ints  # row of `steps` in which a task was launched, -1 for none

    def step_times(self, end: Ints) -> Ints:
        """Duration of each row of `steps` with these ends of the nodes.

        A step ends when its host part and all device work launched in it have ended. It starts with its host part, or when the step
        before it ends, if that is later: where the host runs ahead, this is the rate of the device.
        """
        finished = end[self.steps["last"].to_numpy()]
        tasks = np.flatnonzero(self.task_step >= 0)
        np.maximum.at(finished, self.task_step[tasks], end[tasks])
        first = self.steps["first"].to_numpy()
        begun = np.where(first >= 0, end[first], self.steps["start_ns"].to_numpy())
        rank = self.steps["rank"].to_numpy()
        before = np.append(np.iinfo(np.int64).min, finished[:-1])
        before[np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))] = np.iinfo(np.int64).min
        times: Ints = finished - np.maximum(begun, np.minimum(before, finished))
        return times


class Parts:
    """Nodes and dependencies as they are collected, rank by rank."""

    def __init__(self, calls: pl.DataFrame | None) -> None:
        self.calls = calls  # the transfers that several ranks make together
        self.count = 0
        self._nodes: list[dict[str, Ints]] = []
        self._edges: list[tuple[Ints, Ints, Ints, Bools]] = []
        self._steps: list[pl.DataFrame] = []
        self._rows = 0

    def add_nodes(self, rank: int, kind: Ints, start: Ints, end: Ints, duration: Ints, span: Ints, order: Ints, step: Ints) -> Ints:
        count = len(start)
        columns = {"kind": kind, "start": start, "end": end, "duration": duration, "span": span, "order": order, "step": step}
        self._nodes.append({"rank": np.full(count, rank), **columns})
        self.count += count
        return np.arange(self.count - count, self.count)

    def add_edges(self, node: Ints, depends_on: Ints, lag: Ints, on_host: bool = False) -> None:
        known = depends_on >= 0
        self._edges.append((node[known], depends_on[known], lag[known], np.full(int(known.sum()), on_host)))

    def add_steps(self, steps: pl.DataFrame) -> int:
        self._steps.append(steps)
        self._rows += steps.height
        return self._rows - steps.height

    def graph(self) -> Graph:
        names = ("rank", "kind", "start", "end", "duration", "span", "order", "step")
        columns = {name: np.concatenate([part[name] for part in self._nodes] or [np.empty(0, np.int64)]) for name in names}
        self._add_meetings(columns)
        # A node that waits is due when it has waited; at equal times a wait comes before what follows it.
        due = np.where(columns["kind"] == SYNC, columns["end"], columns["start"])
        by_time = np.lexsort((columns["order"], due))
        place = np.empty(len(by_time), np.int64)
        place[by_time] = np.arange(len(by_time))
        empty = (np.empty(0, np.int64),) * 3 + (np.empty(0, np.bool_),)
        node, depends_on, lag, on_host = (np.concatenate(part) for part in zip(*(self._edges or [empty]), strict=True))
        node, depends_on = place[node], place[depends_on]
        # Clocks of two ranks may disagree by more than a transfer takes: such a dependency cannot be kept.
        forward = depends_on < node
        node, depends_on, lag, on_host = (column[forward] for column in (node, depends_on, lag, on_host))
        by_node = np.argsort(node, kind="stable")
        offset = np.searchsorted(node[by_node], np.arange(len(by_time) + 1))
        schema: dict[Any, Any] = {
            "rank": pl.Int32,
            "step": pl.Int32,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "first": pl.Int64,
            "last": pl.Int64,
        }
        steps = pl.concat([pl.DataFrame(schema=schema), *(part.cast(schema) for part in self._steps)])
        moved = {name: np.where(steps[name] >= 0, place[steps[name].to_numpy()], -1) for name in ("first", "last")}
        ordered = {name: column[by_time] for name, column in columns.items()}
        return Graph(
            rank=ordered["rank"],
            kind=ordered["kind"],
            start=ordered["start"],
            end=ordered["end"],
            duration=ordered["duration"],
            span=ordered["span"],
            offset=offset,
            node=depends_on[by_node],
            lag=lag[by_node],
            on_host=on_host[by_node],
            steps=steps.with_columns(pl.Series(name, column) for name, column in moved.items()),
            task_step=ordered["step"],
        )

    def _add_meetings(self, columns: dict[str, Ints]) -> None:
        """A collective of several ranks ends for each of them a transfer time after the last of them has started it."""
        if self.calls is None or self.calls.is_empty():
            return
        tasks = pl.DataFrame({"rank": columns["rank"], "span": columns["span"]}).with_row_index("node")
        tasks = tasks.filter((pl.Series(columns["kind"]) == COMMUNICATION) & (pl.col("span") >= 0))
        joined = self.calls.join(tasks.cast({"rank": self.calls.schema["rank"]}), on=["rank", "span"])
        nodes = joined["node"].cast(pl.Int64).to_numpy()
        joined = joined.with_columns(start=pl.Series(columns["start"][nodes]), end=pl.Series(columns["end"][nodes]))
        joined = joined.with_columns(last=pl.col("start").max().over("call"), first_end=pl.col("end").min().over("call"))
        joined = joined.filter((pl.col("last") < pl.col("first_end")) & (pl.len().over("call") > 1))
        if joined.is_empty():
            return
        calls = joined.unique("call", maintain_order=True).with_columns(number=pl.int_range(pl.len()))
        joined = joined.join(calls.select("call", "number"), on="call")
        last = calls["last"].to_numpy()
        zero = np.zeros(len(last), np.int64)
        added = np.arange(self.count, self.count + len(last))
        self.count += len(last)
        extra = {
            "rank": zero - 1,
            "kind": zero + MEETING,
            "start": last,
            "end": last,
            "duration": zero,
            "span": zero - 1,
            "order": zero + 3,
        }
        extra["step"] = zero - 1
        for name, column in extra.items():
            columns[name] = np.append(columns[name], column)
        # Each task becomes its arrival; a second node is its end, which everything that depended on the task waits for.
        nodes, of = joined["node"].cast(pl.Int64).to_numpy(), added[joined["number"].to_numpy()]
        ends = np.arange(self.count, self.count + len(nodes))
        self.count += len(nodes)
        transit = columns["end"][nodes] - joined["last"].to_numpy()
        for name, column in columns.items():
            columns[name] = np.append(column, column[nodes])
        columns["start"][ends], columns["duration"][ends], columns["order"][ends] = joined["last"].to_numpy(), transit, 4
        columns["end"][nodes], columns["duration"][nodes] = columns["start"][nodes], 0
        columns["step"][nodes] = -1
        moved = np.arange(self.count)
        moved[nodes] = ends
        self._edges = [(node, moved[depends_on], lag, on_host) for node, depends_on, lag, on_host in self._edges]
        none = np.zeros(len(nodes), np.int64)
        self.add_edges(of, nodes, none)
        self.add_edges(ends, of, none)
