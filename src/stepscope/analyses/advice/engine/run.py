"""What a rule reads: one rank of a recording, or all ranks, with tables that several rules share."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.lines import most_common
from stepscope.analyses.shared.device_work import device_work, or_null
from stepscope.analyses.shared.operator_calls import host_operators, nearest, rows_of
from stepscope.analyses.shared.replays.nodes import Graph
from stepscope.analyses.shared.steps.host_phases import host_spans, main_threads
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.model import intervals
from stepscope.model.columns.texts import as_text
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace

# Names of copies from the host to the device, as CUDA, ROCm, XLA and CANN write them.
FROM_HOST = r"(?i)HtoD|Host ?To ?Device|Host -> Device|MEMCPYH2D|H2D"
# Launches that follow each other within this time are one chain, which a graph would launch at once; a longer pause has a cause of its own.
CHAIN_NS = 500_000


class Run:
    """Rank `rank` of a recording; all ranks where it is None. Figures per step are means over `steps`."""

    def __init__(self, trace: Trace, rank: int | None, graph: Graph, typical: pl.DataFrame) -> None:
        # The only rank is the whole trace, which has computed most of the shared results.
        self.trace = trace if rank is None or trace.meta.ranks == [rank] else trace.of_rank(rank)
        self.rank = rank
        self._graph = graph
        self._typical = typical

    @property
    def framework(self) -> str:
        """pytorch, mindspore, jax, tensorflow or empty."""
        return self.trace.meta.framework

    @functools.cached_property
    def step_ns(self) -> int:
        """Mean step of the replay, to which shares of findings refer; 0 without steps."""
        return self._mine(self._typical).select(pl.col("step_ns").median().fill_null(0).round().cast(pl.Int64)).item()  # type: ignore[no-any-return]

    @functools.cached_property
    def steps(self) -> pl.DataFrame:
        """rank, step, start_ns, end_ns: the steps of the replay, on the host. Their device work is completely recorded."""
        return self._mine(self._graph.steps).select("rank", "step", "start_ns", "end_ns")

    def table(self, analysis: str, **arguments: Any) -> pl.DataFrame:
        """The table of an analysis, over all steps of the recording."""
        return self.trace.analyse(analysis, **arguments)

    @functools.cached_property
    def work(self) -> pl.DataFrame:
        """Device work of `steps`: rank, step, span, kind, name, type, track, start_ns, end_ns, dur_ns, launch_ns, launched_ns,
        launch_track, op and op_name, the operator that launched it."""
        spans = self.trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK)).select("rank", "span", type="op_type").collect()
        ops = self.operators.select("rank", op="span", op_name="name")
        every = device_work(self.trace).with_columns(at_ns=pl.coalesce("launch_ns", "start_ns"))
        # Of steps of the device, an earlier one may have launched the work: then only the source knows the step.
        known = every.join(self.steps.select("rank", "step"), on=["rank", "step"], how="semi")
        others = self.in_steps(every.filter(pl.col("step").is_null()), "at_ns").select(known.columns)
        in_steps = pl.concat([known, others]).sort("rank", "start_ns", "span")
        return (
            in_steps.with_columns(as_text("name"), dur_ns=pl.col("end_ns") - pl.col("start_ns"))
            .join(spans, on=["rank", "span"], how="left", maintain_order="left")
            .with_columns(as_text("type"))
            .join(ops, on=["rank", "op"], how="left", maintain_order="left")
        )

    @functools.cached_property
    def operators(self) -> pl.DataFrame:
        """All host operators of `steps`: rank, step, span, name, track, thread, depth, parent, start_ns, end_ns, dur_ns, self_ns,
        device_ns and launches, the device work launched in it, outermost (inside no other operator), shapes, dtypes, scope."""
        columns = ("rank", "span", "start_ns", "dur_ns", "name", "track", "depth", "parent", "shapes", "dtypes", "scope")
        near = pl.col("start_ns").is_between(self.steps["start_ns"].min(), self.steps["end_ns"].max())
        ops = self.trace.spans.filter(pl.col("kind") == "op", near).select(columns).collect()
        ops = self.in_steps(ops, "start_ns")
        nesting = self.nesting[rows_of(self.nesting, ops["rank"], ops["span"])].drop("rank", "span")
        rows = ops.hstack(nesting).with_columns(outermost=pl.col("outer") < 0).drop("outer")
        texts = as_text("name", "shapes", "dtypes", "scope")
        thread = self.host["thread"].gather(or_null(rows_of(self.host, rows["rank"], rows["span"])))
        return rows.with_columns(texts, thread, end_ns=pl.col("start_ns") + pl.col("dur_ns"))

    @functools.cached_property
    def nesting(self) -> pl.DataFrame:
        """rank, span, outer, self_ns, device_ns and launches of all host operators of the recording, as in `host_operators`."""
        return host_operators(self.trace).drop("start_ns", "dur_ns")

    @functools.cached_property
    def top_level(self) -> pl.DataFrame:
        """The operators of `steps` that no other one of them calls, by rank, thread and start."""
        return self.outermost(self.operators).sort("rank", "thread", "start_ns")

    def outermost(self, calls: pl.DataFrame) -> pl.DataFrame:
        """These calls of operators (rank, span) without those inside another one of them."""
        rows = rows_of(self.nesting, calls["rank"], calls["span"])
        marked = np.zeros(self.nesting.height, np.bool_)
        marked[rows[rows >= 0]] = True
        return calls.filter(pl.Series((rows >= 0) & (nearest(self.nesting["outer"].to_numpy(), marked)[rows] < 0)))

    @functools.cached_property
    def host(self) -> pl.DataFrame:
        """All spans of the host in `steps`: rank, step, span, kind, name, track, thread, main, depth, parent, start_ns, end_ns, dur_ns.

        `main`: on the thread that runs the steps.
        """
        columns = ("rank", "span", "name", "track", "thread", "depth", "parent", "start_ns", "dur_ns")
        near = pl.col("start_ns").is_between(self.steps["start_ns"].min(), self.steps["end_ns"].max())
        rows = self.in_steps(host_spans(self.trace).filter(near).select(*columns, "kind").collect(), "start_ns")
        rows = rows.with_columns(as_text("name", "kind"), end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        main = main_threads(self.trace).with_columns(main=True)
        return rows.join(main, on=["rank", "thread"], how="left", maintain_order="left").with_columns(pl.col("main").fill_null(False))

    @functools.cached_property
    def all_steps(self) -> pl.DataFrame:
        """rank, step, start_ns, end_ns, total_ns of all steps of the recording but a warm-up step: for what happens in some steps only."""
        return counting_steps(self.trace, None)

    @functools.cached_property
    def first_step(self) -> int | None:
        """The number of the first recorded step, which may compile and allocate."""
        numbers = self.trace.steps.sort("start_ns").select("step").head(1).collect()["step"]
        return int(numbers[0]) if numbers.len() else None

    @functools.cached_property
    def launching_threads(self) -> list[int]:
        """The threads that launch device work: the program, and the one of its backward pass."""
        return sorted(self.work["launch_track"].drop_nulls().unique().to_list())

    def outside_input(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows (start_ns) that do not start while the program waits for its input."""
        data = self.host.filter((pl.col("kind") == "data") & pl.col("main"))
        waits = intervals.merge(data["start_ns"].to_numpy(), data["end_ns"].to_numpy())
        return rows.filter(pl.Series(intervals.enclosing(waits.starts, waits.ends, rows["start_ns"].to_numpy()) < 0))

    @functools.cached_property
    def gaps(self) -> pl.DataFrame:
        """Idle gaps of the devices in `steps`, as the analysis `gaps` has them, with end_ns."""
        rows = self.table("gaps").with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        return rows.join(self.steps.select("rank", "step"), on=["rank", "step"], how="semi", maintain_order="left")

    def in_steps(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        """The rows whose timestamp lies in one of `steps`, with `step`."""
        return _with_steps(rows, column, self.steps)

    def in_all_steps(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        """The rows whose timestamp lies in one of `all_steps`, with `step`."""
        return _with_steps(rows, column, self.all_steps)

    def per_step(self, durations: pl.Series) -> int:
        """The sum of durations in `steps` as the mean of a step."""
        return round(int(durations.sum()) / max(self.steps.height, 1))

    def share(self, dur_ns: float) -> float:
        """A duration per step as a share of the replayed step."""
        return dur_ns / self.step_ns if self.step_ns else 0.0

    def share_of_steps(self, durations: pl.Series) -> float:
        """The sum of durations on the device in `steps` as a share of the time of these steps there, as in `overview` and `gap_causes`."""
        on_device = device_steps(self.trace).join(self.steps, on=["rank", "step"], how="semi")
        whole = int((on_device["end_ns"] - on_device["start_ns"]).sum())
        return int(durations.sum()) / whole if whole else 0.0

    def source_of(self, spans: pl.DataFrame) -> str | None:
        """`train.py:41`: the line of the program that most of these host spans (rank, span) were called from; None without stacks."""
        return most_common(self.trace, spans)

    def options(self) -> Mapping[str, Any]:
        """Options of the recording: record_shapes, with_stack, ..."""
        return self.trace.meta.options

    def _mine(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows if self.rank is None else rows.filter(pl.col("rank") == self.rank)


def _with_steps(rows: pl.DataFrame, column: str, steps: pl.DataFrame) -> pl.DataFrame:
    bounds = steps.select("rank", "step", step_start="start_ns", step_end="end_ns").sort("step_start")
    near = pl.col(column).is_between(bounds["step_start"].min(), bounds["step_end"].max())  # sorting all rows would take longer
    in_steps = (
        rows.select("rank", column)
        .with_row_index("row")
        .filter(near)
        .sort(column)
        .join_asof(bounds, left_on=column, right_on="step_start", by="rank", check_sortedness=False)
        .filter(pl.col(column) < pl.col("step_end"))
        .select("row", "step")
        .sort("row")
    )
    return rows.drop("step", strict=False)[in_steps["row"]].with_columns(in_steps["step"])
