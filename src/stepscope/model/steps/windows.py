"""Traces of several windows: a process that recorded, stopped and recorded again, as one trace."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from stepscope.model import intervals, schema, units
from stepscope.model.steps import selection
from stepscope.model.trace import Meta, Trace, Window


def join_windows(traces: list[Trace]) -> Trace:
    """Windows of one process, in order of time, as one trace: tracks with the same names are joined, span numbers continue.

    Steps keep their numbers; where a window repeats some, its steps are counted on. The time between two windows was not recorded, and an
    allocation ends and starts at the edges of each window.
    """
    if len(traces) == 1:
        return traces[0]
    ends, repeats = _window_ends(traces)
    rank = traces[0].meta.ranks[0]
    parts: dict[str, list[pl.LazyFrame]] = {name: [] for name in schema.TABLES}
    problems: list[str] = []
    last: _Steps | None = None
    for number, (trace, (start, end)) in enumerate(zip(join_numbers(traces), ends, strict=True)):
        tables = trace.tables
        steps = _Steps.of(trace, start, end)
        if last is not None:
            steps, moved = steps.after(last)
            if moved:
                problems.append(f"step numbers begin again in window {number + 1}: {steps.moved(-moved).spelled} shown as {steps.spelled}")
                for name in ("spans", "steps", "links"):
                    tables[name] = tables[name].with_columns(pl.col("step") + moved)
            where = f"window {number} and window {number + 1}"
            if last.last is not None and steps.first is not None:
                where = f"step {last.last} and step {steps.first}"
            problems.append(f"not recorded between {where} ({units.cell('gap_ns', max(steps.start_ns - last.end_ns, 0))})")
        last = steps if steps.last is not None or last is None else steps._replace(last=last.last)
        alloc, free = pl.col("alloc_ns"), pl.col("free_ns")
        tables["allocations"] = tables["allocations"].with_columns(
            alloc if number == 0 else alloc.fill_null(start), free if number == len(traces) - 1 else free.fill_null(end)
        )
        for name, frame in tables.items():
            parts[name].append(frame)
    tables = {name: pl.concat(frames) for name, frames in parts.items()}
    if repeats:
        tables["counters"] = tables["counters"].unique(maintain_order=True)
    for name, key in (("tracks", "track"), ("devices", "device"), ("pipeline", "op_id"), ("models", "model")):  # the same in each window
        tables[name] = tables[name].unique(["rank", key], keep="first", maintain_order=True)
    first, final = traces[0].meta, traces[-1].meta
    ended = {"end_ns": final.extra["end_ns"]} if "end_ns" in final.extra else {}
    meta = msgspec.structs.replace(first, extra=first.extra | ended, windows=[Window(rank, start, end) for start, end in ends])
    # A remark that holds for each window appears once.
    tables["problems"] = tables["problems"].filter((pl.col("lost") > 0) | pl.struct(pl.all()).is_first_distinct())
    return Trace(tables, meta).with_problems([{"rank": rank, "what": message, "lost": 0} for message in problems])


def _window_ends(traces: list[Trace]) -> tuple[list[tuple[int, int]], bool]:
    """The first and the last timestamp of each window, and whether later windows repeat counters of earlier ones, as MindSpore's do."""
    ends: list[tuple[int, int]] = []
    repeats = False
    for trace in traces:
        start, end = trace.ends()
        if ends and start <= ends[-1][1]:
            first = selection.time_range(trace.tables | {"counters": trace.counters.filter(pl.lit(value=False))})[0]
            if first > ends[-1][1]:
                start, repeats = first, True
        ends.append((start, end))
    return ends, repeats


class _Steps(NamedTuple):
    """The steps of a window: their numbers, and their start and end, or those of a window without steps."""

    first: int | None
    last: int | None
    start_ns: int
    end_ns: int

    @staticmethod
    def of(trace: Trace, start_ns: int, end_ns: int) -> "_Steps":
        first, last, start, end = (
            trace.steps.select(
                pl.col("step").min().alias("first"), pl.col("step").max().alias("last"), pl.col("start_ns").min(), pl.col("end_ns").max()
            )
            .collect()
            .row(0)
        )
        return _Steps(first, last, start_ns if start is None else start, end_ns if end is None else end)

    def moved(self, by: int) -> "_Steps":
        return self if self.first is None or self.last is None else self._replace(first=self.first + by, last=self.last + by)

    def after(self, before: "_Steps") -> tuple["_Steps", int]:
        """The steps with numbers after those of the window before, where they would repeat some, and the shift."""
        if self.first is None or before.last is None or self.first > before.last:
            return self, 0
        by = before.last + 1 - self.first
        return self.moved(by), by

    @property
    def spelled(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"


_IDS = ("span", "parent", "op", "flow_in")


def join_numbers(traces: list[Trace]) -> list[Trace]:
    """Traces of one process with unique numbers: the same number for tracks with the same names, different numbers for spans."""
    numbers: dict[tuple[Any, ...], int] = {}
    first_span = first_correlation = 0
    joined = []
    for trace in traces:
        tracks = trace.tracks.collect()
        # Two tracks of one trace may have the same names: they stay two.
        same = pl.int_range(pl.len()).over("group", "label", "kind", "pid", "tid", "device")
        keys = tracks.select(pl.col("group", "label", "kind", "pid", "tid").cast(pl.String), "device", same=same)
        tracks = tracks.with_columns(new=pl.Series([numbers.setdefault(key, len(numbers)) for key in keys.iter_rows()], dtype=pl.Int32))
        track = pl.col("track").replace_strict(tracks["track"], tracks["new"], default=None, return_dtype=pl.Int32)
        spans = trace.spans.with_columns(track, pl.col("correlation") + first_correlation, *(pl.col(name) + first_span for name in _IDS))
        details = {name: trace.table(name).with_columns(pl.col("span") + first_span) for name in schema.SPAN_DETAILS}
        last = trace.spans.select(pl.col("span").max(), pl.col("correlation").max()).collect().row(0)
        first_span, first_correlation = first_span + (-1 if last[0] is None else last[0]) + 1, first_correlation + (last[1] or 0) + 1
        tracks = tracks.with_columns(track="new", sort="new").drop("new")
        joined.append(Trace(trace.tables | details | {"spans": spans, "tracks": tracks.lazy()}, trace.meta))
    return joined


def with_windows(rows: pl.DataFrame, meta: Meta, at: str) -> pl.DataFrame:
    """The rows, in their order, with the number of their `window`; 0 in a trace of one window."""
    windows = windows_of(meta)
    if windows.is_empty():
        return rows.with_columns(window=pl.lit(0, pl.Int32))
    bounds = windows.sort("rank", "from_ns").select("rank", "from_ns", window=pl.int_range(pl.len(), dtype=pl.Int32).over("rank"))
    rows = (
        rows.with_row_index("_row")
        .sort(at)
        .join_asof(bounds.sort("from_ns"), left_on=at, right_on="from_ns", by="rank", check_sortedness=False)
    )
    return rows.sort("_row").drop("_row", "from_ns").with_columns(pl.col("window").fill_null(0))


def not_recorded(meta: Meta, rank: int) -> intervals.Set:
    """The time between the windows of a rank."""
    windows = windows_of(meta).filter(pl.col("rank") == rank).sort("from_ns")
    starts, ends = windows["from_ns"].to_numpy(), windows["to_ns"].to_numpy()
    return intervals.merge(np.maximum.accumulate(ends)[:-1], starts[1:]) if len(starts) > 1 else intervals.NONE


def windows_of(meta: Meta) -> pl.DataFrame:
    """The windows of a trace: a row per rank and window, none where the recording was not interrupted."""
    rows = [(window.rank, window.from_ns, window.to_ns) for window in meta.windows]
    return pl.DataFrame(rows, schema={"rank": pl.Int32, "from_ns": pl.Int64, "to_ns": pl.Int64}, orient="row")
