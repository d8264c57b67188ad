"""Replays of representative steps with the changes that rules propose.

Costs are bounded: the replay covers the steps around the median one, at most `_NODES` nodes of their graph, and never a warm-up step.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Change
from stepscope.analyses.shared.replays.changes import NEVER, Durations, remove, unchanged
from stepscope.analyses.shared.replays.graph import build
from stepscope.analyses.shared.replays.nodes import KINDS, Graph
from stepscope.analyses.shared.replays.replay import path_shares, replay
from stepscope.analyses.shared.steps.coverage import step_ranges, unrecorded_steps
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace

_NODES = 60_000
_NODES_PER_SPAN = 0.6  # of host calls and device work; measured on PyTorch recordings, 0.2 to 0.5
_HOST, _INPUT, _SYNC = (KINDS.index(kind) for kind in ("host", "input", "sync"))


class Outcome(NamedTuple):
    """A replay with changes. Times are means per rank, as the losses that findings name: rank, step_ns, bottleneck, bottleneck_share."""

    steps: pl.DataFrame
    rank: int | None  # that gains most
    step_ns: int  # of the rank that gains most: all ranks of a job have about the same
    gain_ns: int
    bottleneck: str | None
    device_ns: int  # time per step that the device works less, whether or not the step gets shorter


class Replays:
    """The graph of the representative steps of a trace, and its replays."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.coverage = representative(trace)
        self.graph = build(self.trace)
        self._outcomes: dict[tuple[int, ...], tuple[list[Change], Outcome]] = {}  # by the ids of the changes, which it keeps alive
        self._pace = 1.0
        self._unchanged: pl.DataFrame | None = None

    @functools.cached_property
    def has_device(self) -> bool:
        return bool(np.isin(self.graph.kind, [KINDS.index(kind) for kind in ("kernel", "copy")]).any())

    @functools.cached_property
    def recorded(self) -> pl.DataFrame:
        """rank, step_ns, bottleneck, bottleneck_share as recorded."""
        return self._steps(unchanged(self.graph))

    @property
    def unchanged(self) -> pl.DataFrame:
        """The same at this pace, without a change."""
        if self._unchanged is None:
            self._unchanged = self.recorded if self._pace == 1 else self._steps(self._paced(unchanged(self.graph)))
        return self._unchanged

    @property
    def step_ns(self) -> int:
        """The longest step of a rank at this pace, without a change; 0 without steps."""
        return int(self.unchanged["step_ns"].max() or 0)  # type: ignore[arg-type]

    @property
    def pace(self) -> float:
        """Factor of the time of the host in all replays: recording makes it longer."""
        return self._pace

    @pace.setter
    def pace(self, factor: float) -> None:
        self._pace, self._unchanged, self._outcomes = factor, None, {}

    def step_at(self, pace: float) -> int:
        """`step_ns` at another pace."""
        times = self.graph.step_times(replay(self.graph, *self._paced(unchanged(self.graph), pace)).ends)
        rows = self.graph.steps.select("rank").with_columns(step_ns=pl.Series(times))
        return round(rows.group_by("rank").agg(pl.col("step_ns").median())["step_ns"].max() or 0)  # type: ignore[arg-type]

    def _paced(self, durations: Durations, pace: float | None = None) -> Durations:
        program = np.isin(self.graph.kind, [_HOST, _INPUT])
        factor = self._pace if pace is None else pace
        durations.duration[program] = np.rint(durations.duration[program] * factor).astype(np.int64)
        return durations

    def outcome(self, changes: Iterable[Change]) -> Outcome:
        """The steps with all of these changes together: overlapping ones count once."""
        wanted = list(changes)
        key = tuple(id(change) for change in wanted)
        if key not in self._outcomes:
            self._outcomes[key] = wanted, self._outcome(wanted)
        return self._outcomes[key][1]

    def _outcome(self, changes: list[Change]) -> Outcome:
        durations = self._changed(changes)
        device_ns = self._device_ns(durations)
        steps = self._steps(durations)
        both = self.unchanged.select("rank", before="step_ns").join(steps, on="rank")
        both = both.with_columns(gain=pl.col("before") - pl.col("step_ns")).sort("gain", descending=True, maintain_order=True)
        if both.is_empty():
            return Outcome(steps, None, 0, 0, None, device_ns)
        first = both.row(0, named=True)
        return Outcome(steps, int(first["rank"]), int(first["step_ns"]), int(first["gain"]), first["bottleneck"], device_ns)

    def _device_ns(self, durations: Durations) -> int:
        tasks = np.isin(self.graph.kind, [KINDS.index(kind) for kind in ("kernel", "copy", "communication")])
        less = (self.graph.duration - durations.duration)[tasks].sum()
        return round(float(less) / max(self.graph.steps.height, 1))

    def _steps(self, durations: Durations) -> pl.DataFrame:
        replayed = replay(self.graph, *durations)
        times = self.graph.step_times(replayed.ends)
        rows = self.graph.steps.select("rank").with_columns(step_ns=pl.Series(times))
        means = rows.group_by("rank", maintain_order=True).agg(pl.col("step_ns").mean().round().cast(pl.Int64))
        return means.join(path_shares(self.graph, replayed, durations.duration), on="rank", how="left", maintain_order="left")

    def _changed(self, changes: list[Change]) -> Durations:
        graph, durations = self.graph, unchanged(self.graph)
        for change in changes:
            if change.how == "remove":
                self._remove(durations, change)
            elif change.how == "waits":
                self._skip_waits(durations, change.rows)
            elif change.how == "latency":
                edges = graph.on_host & np.isin(_targets(graph), self._nodes(change.rows)["node"].to_numpy())
                durations.lag[edges] = np.minimum(durations.lag[edges], 0)
        work = [change.rows for change in changes if change.how == "work"]
        if work:
            rows = self._nodes(pl.concat(work)).group_by("node").agg(pl.col("factor").min())
            node = rows["node"].to_numpy()
            scaled = np.rint(graph.duration[node] * rows["factor"].to_numpy()).astype(np.int64)
            durations.duration[node] = np.minimum(durations.duration[node], scaled)
        host = [change.rows for change in changes if change.how == "host"]
        if host:
            self._scale_host(durations, pl.concat(host))
        return self._paced(durations)

    def _nodes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of device work (rank, span) with `node`."""
        return rows.join(self._node_of_span, on=["rank", "span"])

    @functools.cached_property
    def _node_of_span(self) -> pl.DataFrame:
        columns = {"rank": self.graph.rank.astype(np.int32), "span": self.graph.span, "node": np.arange(len(self.graph.span))}
        return pl.DataFrame(columns).filter(pl.col("span") >= 0)

    def _remove(self, durations: Durations, change: Change) -> None:
        everywhere = unchanged(self.graph)
        remove(self.graph, everywhere, change.word)
        ranks = change.rows["rank"].to_numpy()
        nodes = np.isin(self.graph.rank, ranks)
        edges = np.isin(self.graph.rank[_targets(self.graph)], ranks)
        durations.duration[nodes] = np.minimum(durations.duration, everywhere.duration)[nodes]
        durations.lag[edges] = np.minimum(durations.lag, everywhere.lag)[edges]

    def _skip_waits(self, durations: Durations, rows: pl.DataFrame) -> None:
        graph = self.graph
        for rank, ranges in _by_rank(rows):
            nodes = np.flatnonzero((graph.kind == _SYNC) & (graph.rank == rank))
            inside = nodes[intervals.enclosing(ranges.starts, ranges.ends, graph.start[nodes]) >= 0]
            durations.lag[graph.on_host & np.isin(_targets(graph), inside)] = NEVER

    def _scale_host(self, durations: Durations, rows: pl.DataFrame) -> None:
        """Where ranges overlap, the smallest factor counts."""
        graph = self.graph
        program = np.isin(graph.kind, [_HOST, _INPUT])
        for (rank,), of_rank in rows.group_by("rank"):
            nodes = np.flatnonzero(program & (graph.rank == rank))
            taken = intervals.NONE
            saved = np.zeros(len(nodes))
            for (factor,), part in of_rank.sort("factor").group_by("factor", maintain_order=True):
                ranges = intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
                fresh = intervals.subtract(ranges, taken)
                saved += intervals.covered(fresh, graph.start[nodes], graph.end[nodes]) * (1 - float(str(factor)))
                taken = intervals.join(taken, ranges)
            durations.duration[nodes] = np.maximum(durations.duration[nodes] - np.rint(saved).astype(np.int64), 0)


def _by_rank(rows: pl.DataFrame) -> Iterable[tuple[int, intervals.Set]]:
    for (rank,), part in rows.group_by("rank"):
        yield int(str(rank)), intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())


def _targets(graph: Graph) -> Ints:
    """The node of each dependency."""
    return np.repeat(np.arange(len(graph.kind)), np.diff(graph.offset))


def representative(trace: Trace) -> tuple[Trace, str | None]:
    """The trace with as many steps around the median one as the replay can take, and which these are; None for all steps."""
    steps = counting_steps(trace, None).join(unrecorded_steps(trace), on=["rank", "step"], how="anti").filter(pl.col("total_ns") > 0)
    numbers = steps.group_by("step").agg(pl.col("total_ns").max(), ranks=pl.len()).sort("step")
    everything = trace.steps.select("step").unique().collect().height
    if numbers.is_empty():
        return trace, None
    kinds = pl.col("kind").is_in(["kernel", "copy", "set", "communication", "api", "sync", "data"])
    spans = trace.spans.filter(kinds).select(pl.len()).collect().item()
    count = max(1, min(numbers.height, int(_NODES / max(spans * _NODES_PER_SPAN / max(everything, 1), 1))))
    if count == numbers.height == everything:
        return trace, None
    times = numbers["total_ns"].to_numpy()
    means = np.convolve(times, np.ones(count) / count, "valid")
    first = int(np.argmin(np.abs(means - np.median(times))))
    chosen = numbers["step"].slice(first, count).to_list()
    part = trace.of_steps(chosen[0], chosen[-1])
    return part, f"steps {step_ranges(chosen)}: {len(chosen):,} of {everything:,}"
