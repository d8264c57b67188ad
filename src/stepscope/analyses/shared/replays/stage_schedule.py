"""The schedule of a pipeline-parallel step: which operation of a stage follows which, and which operations meet.

It is the same for all replicas (data-parallel copies of the model) and steps, and rebuilt from the usual order of the operations on
each stage: computation is one stream; sends and receives of each direction are streams of their own; a receive lets the computation of
its micro-batch start, and a computation its send. Operations that end together are one meeting: a send and its receive, and collectives.
"""

from collections import deque
from typing import NamedTuple

import polars as pl

FORWARD, BACKWARD = "forward-compute", "backward-compute"
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORM, EMBEDDING, CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
GC, OPTIMIZER = "gc", "optimizer"
_SENDS, _RECEIVES = ("forward-send", "backward-send"), ("forward-recv", "backward-recv")
TRANSFERS = (*_SENDS, *_RECEIVES)
COMMUNICATION = (*TRANSFERS, GATHER, SCATTER, SEPARATE, NORM, EMBEDDING, CLIP)
OPERATIONS = (FORWARD, BACKWARD, *COMMUNICATION, GC, OPTIMIZER)
_ACROSS = (GATHER, SCATTER, SEPARATE, CLIP)  # all replicas meet
_CLOCK_NS = 50_000  # clocks of two stages agree within this time
_NO_SCHEDULE = "the operations of a stage do not follow a pipeline schedule: {}"


class Meeting(NamedTuple):
    """Operations that end together; a single one where nothing is waited for."""

    members: tuple[int, ...]
    waits: bool  # each starts its own time after the last of them has begun
    across: bool  # of all replicas


class Schedule(NamedTuple):
    """The operations of one replica in one step, numbered, and an order in which they can be replayed."""

    nodes: pl.DataFrame  # node, stage, operation, sequence
    before: list[list[int]]  # per node
    order: list[Meeting]


class _Operation(NamedTuple):
    node: int
    stage: int
    operation: str
    sequence: int
    chunk: int
    model_chunk: int
    start: int
    end: int


def build(operations: pl.DataFrame, data_parallel: bool) -> Schedule:
    """The schedule of operations (stage, operation, sequence, chunk, model_chunk, start_ns and end_ns since the start of their step).

    Raises ValueError where they follow none.
    """
    if operations.is_empty():
        raise ValueError(_NO_SCHEDULE.format("no operation is in half of the steps"))
    key = ["stage", "operation", "sequence"]
    usual = operations.filter(pl.col("operation").is_in(OPERATIONS)).group_by(key)
    table = usual.agg(pl.col("chunk", "model_chunk").first(), pl.col("start_ns", "end_ns").median().round().cast(pl.Int64)).sort(key)
    rows = [_Operation(node, *row) for node, row in enumerate(table.iter_rows())]
    before: list[list[int]] = [[] for _ in rows]
    count = max(row.stage for row in rows) + 1
    stages = [_Stage([row for row in rows if row.stage == stage], before) for stage in range(count)]
    chunks = count * (max((row.chunk for row in rows if row.operation == FORWARD), default=0) + 1)
    for stage in stages:
        stage.add_computation(chunks)
        stage.add_rest(data_parallel)
    meetings = [*_transfers(stages), *_collectives(rows, count, data_parallel)]
    return Schedule(table.with_row_index("node").select("node", *key), before, _ordered(len(rows), before, meetings))


class _Stage:
    """The operations of one stage, by their usual start."""

    def __init__(self, rows: list[_Operation], before: list[list[int]]) -> None:
        self.rows = sorted(rows, key=lambda row: (row.start, row.sequence, row.operation))
        self.before = before
        self.valid: dict[str, list[_Operation]] = {name: [] for name in TRANSFERS}  # transfers that took place

    def of(self, *names: str) -> list[_Operation]:
        return [row for row in self.rows if row.operation in names]

    def chain(self, rows: list[_Operation], after: list[_Operation] | None = None) -> None:
        last = list(after or [])
        for row in rows:
            self.before[row.node] += [earlier.node for earlier in last]
            last = [row]

    def add_computation(self, chunks: int) -> None:
        computation = self.of(FORWARD, BACKWARD)
        self.chain(computation)
        for direction in ("forward", "backward"):
            self._add_transfers(direction, chunks)
        first_backward = next((place for place, row in enumerate(computation) if row.operation == BACKWARD), 0)
        if first_backward >= 2:
            for name in ("backward-recv", "backward-send"):
                for row in self.of(name)[:1]:
                    self.before[row.node].append(computation[first_backward - 2].node)

    def _add_transfers(self, direction: str, chunks: int) -> None:
        computation = sorted(self.of(f"{direction}-compute"), key=lambda row: row.sequence)
        for name in (f"{direction}-send", f"{direction}-recv"):
            rows = self.of(name)
            self.chain(rows)
            receives = name in _RECEIVES
            if rows and not computation:
                raise ValueError(_NO_SCHEDULE.format(f"{name} without {direction}-compute"))
            # Recorders also write transfers at the edges of a step that were never launched.
            taken = [row for row in rows if _is_launched(row, computation, receives)]
            missing = len(computation) - len(taken)
            if taken and missing not in (0, 1):
                raise ValueError(_NO_SCHEDULE.format(f"{len(taken)} {name} for {len(computation)} {direction}-compute"))
            first = missing if receives else 0
            ahead = 1 if name in ("forward-send", "backward-recv") else -1
            for place, row in enumerate(taken, first):
                if receives:
                    self.before[computation[place].node].append(row.node)
                    self.before[row.node] += [computation[place - 1].node] if place else []
                else:
                    self.before[row.node].append(computation[place].node)
                if 0 <= computation[place].model_chunk + ahead < chunks:
                    self.valid[name].append(row)

    def add_rest(self, data_parallel: bool) -> None:
        """Collectives and the optimizer, before and after the computation."""
        computation = self.of(FORWARD, BACKWARD)
        if not computation:
            raise ValueError(_NO_SCHEDULE.format("a stage without computation"))
        last = max(computation, key=lambda row: row.end)
        self.chain(self.of(GC), [last])
        overlapped = bool(self.of(SEPARATE))
        scatters = self.of(SCATTER) if data_parallel else []
        if data_parallel:
            self.chain(self.of(GATHER, SCATTER))
            for chunk in {row.chunk for row in self.of(GATHER)}:
                first = [row for row in self.of(FORWARD) if row.chunk == chunk]
                self.before[first[0].node] += [[row.node for row in self.of(GATHER) if row.chunk == chunk][-1]] if first else []
        if overlapped:
            for chunk in {row.chunk for row in scatters}:
                done = [row for row in self.of(BACKWARD) if row.chunk == chunk]
                first = [row for row in scatters if row.chunk == chunk]
                self.before[first[0].node] += [max(done, key=lambda row: row.end).node] if done else []
        tail = [self.of(NORM), self.of(EMBEDDING), [] if overlapped else scatters, self.of(SEPARATE), self.of(CLIP), self.of(OPTIMIZER)]
        ready = (self.of(GC) or [last]) + (scatters[-1:] if overlapped else [])
        self.chain([row for part in tail for row in part], ready)


def _is_launched(row: _Operation, computation: list[_Operation], receives: bool) -> bool:
    if receives:
        return row.start <= max(other.start for other in computation) + _CLOCK_NS
    return row.end >= min(other.end for other in computation) - _CLOCK_NS


def _transfers(stages: list[_Stage]) -> list[Meeting]:
    """Each send with its receive: the nth on both sides."""
    meetings = []
    for number, stage in enumerate(stages):
        for name, peer, step in (("forward-send", "forward-recv", 1), ("backward-send", "backward-recv", -1)):
            receives = stages[(number + step) % len(stages)].valid[peer]
            if len(stage.valid[name]) != len(receives):
                raise ValueError(_NO_SCHEDULE.format(f"{len(stage.valid[name])} {name} and {len(receives)} {peer} between two stages"))
            meetings += [Meeting((send.node, receive.node), True, False) for send, receive in zip(stage.valid[name], receives, strict=True)]
        met = {row.node for rows in stage.valid.values() for row in rows}
        meetings += [Meeting((row.node,), True, False) for row in stage.of(*TRANSFERS) if row.node not in met]
    return meetings


def _collectives(rows: list[_Operation], stages: int, data_parallel: bool) -> list[Meeting]:
    ends = {0, stages - 1}
    embedding = [row.node for row in rows if row.operation == EMBEDDING and row.stage in ends]
    clip = [row.node for row in rows if row.operation == CLIP]
    meetings = [Meeting(tuple(nodes), True, nodes is clip) for nodes in (embedding, clip) if nodes]
    if data_parallel:
        meetings += [Meeting((row.node,), True, True) for row in rows if row.operation in (GATHER, SCATTER, SEPARATE)]
    return meetings


def _ordered(count: int, before: list[list[int]], meetings: list[Meeting]) -> list[Meeting]:
    """All operations in an order in which each comes after the operations that it waits for."""
    met = {node for meeting in meetings for node in meeting.members}
    every = [*meetings, *(Meeting((node,), False, False) for node in range(count) if node not in met)]
    of = {node: place for place, meeting in enumerate(every) for node in meeting.members}
    waits_for = [{of[earlier] for node in meeting.members for earlier in before[node]} for meeting in every]
    after: list[list[int]] = [[] for _ in every]
    for place, awaited in enumerate(waits_for):
        for earlier in awaited:
            after[earlier].append(place)
    left = [len(awaited) for awaited in waits_for]
    ready, order = deque(place for place, number in enumerate(left) if not number), []
    while ready:
        place = ready.popleft()
        order.append(every[place])
        for later in after[place]:
            left[later] -= 1
            if not left[later]:
                ready.append(later)
    if len(order) < len(every):
        raise ValueError(_NO_SCHEDULE.format("operations that wait for each other"))
    return order
