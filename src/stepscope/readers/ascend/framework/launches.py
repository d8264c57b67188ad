"""Joins the framework's host operators with the calls into Ascend's libraries, and with the device work that these launched."""

from typing import Any

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.model.columns.counters import device_columns
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import steps_by_time
from stepscope.model.trace import Trace, complete
from stepscope.readers.ascend.common.memory_tables import record_counters
from stepscope.readers.ascend.framework.columns import sort_calls
from stepscope.readers.ascend.framework.records import Framework
from stepscope.readers.ascend.prof.host.records import Around
from stepscope.readers.chrome.kineto.scopes import assign_scopes
from stepscope.readers.chrome.kineto.spans import optional_rows
from stepscope.readers.chrome.kineto.steps import assign_steps, find_steps

_ALLOCATOR_CALLS = ("empty_tensor", "malloc_workspace")  # calls of torch_npu's allocator, not operators


def add_framework(trace: Trace, framework: Framework) -> Trace:
    """The trace with the framework's spans, steps and memory. Spans of `trace` are numbered from 0."""
    tables: dict[str, Any] = {name: frame.collect() for name, frame in trace.tables.items()}
    first, tracks = tables["spans"].height, tables["tracks"]
    host_spans, all_tracks = _host_spans(framework.spans, first, tracks)
    spans = pl.concat([tables["spans"].rename({"scope": "module"}), host_spans], how="diagonal")
    spans = assign_scopes(_link_causes(spans, _Operators(framework.spans, first), tracks))
    tables["steps"], spans = _assign_steps(spans, tables["steps"], framework)
    tables["spans"] = spans.select(list(schema.TABLES["spans"]))
    tables["tracks"] = all_tracks
    tables["links"] = _steps_of_links(tables["links"], spans)
    if not (tables["steps"]["how"] == "whole").any():
        tables["problems"] = tables["problems"].filter(~pl.col("what").str.starts_with("no iterations are marked").fill_null(False))
    rank = trace.meta.ranks[0] if trace.meta.ranks else 0
    for name, rows in memory_tables(framework).items():
        tables[name] = pl.concat([tables[name], schema.conform(rows.with_columns(rank=pl.lit(rank)).lazy(), name).collect()])
    for name in ("spans", "tracks", "steps"):
        tables[name] = tables[name].with_columns(rank=pl.lit(rank, pl.Int32))
    return Trace(tables, trace.meta)


def _host_spans(rows: pl.DataFrame, first: int, tracks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The framework's spans, numbered from `first`, on a track per thread; and all tracks, with those of CANN calls after them."""
    groups = dict(tracks.filter(pl.col("device").is_null()).select("pid", pl.col("group").cast(pl.String)).iter_rows())
    threads = rows.select("pid", "thread").unique(maintain_order=True).sort("pid", "thread").with_row_index("nth")
    begin = int(tracks["track"].max()) + 1 if tracks.height else 0  # type: ignore[arg-type]
    threads = threads.with_columns(track=(pl.col("nth") + begin).cast(pl.Int32))
    host_tracks = threads.select(
        "track",
        group=pl.col("pid").map_elements(lambda pid: groups.get(str(pid), f"Python {pid}"), return_dtype=pl.String),
        label=pl.format("Thread {}", "thread"),
        kind=pl.lit("thread"),
        sort=pl.col("nth").cast(pl.Int32),
        pid=pl.col("pid").cast(pl.String),
        tid=pl.col("thread").cast(pl.String),
    )
    is_cann = pl.col("device").is_null() & (pl.col("kind") == "thread")
    label = pl.when(is_cann).then(pl.format("{} CANN", "label")).otherwise("label")
    others = tracks.with_columns(label=label, sort=pl.col("sort") + threads.height)
    rows = rows.join(threads.select("pid", "thread", "track"), on=["pid", "thread"], how="left", maintain_order="left")
    spans = complete(rows.with_columns(span=pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)))
    typed = schema.conform(spans.with_columns(correlation=pl.lit(None, pl.Int64)).lazy(), "spans").collect()
    spans = typed.drop("scope").with_columns(module=spans["module"].cast(pl.Categorical))
    return spans, pl.concat([schema.conform(host_tracks.lazy(), "tracks").collect(), others])


class _Operators:
    """The operators of the framework's rows, and the calls that take launches out of the queue. Rows are numbered from `first`."""

    def __init__(self, rows: pl.DataFrame, first: int) -> None:
        self.rows, self.first = rows, first
        is_operator = (pl.col("kind") == "op") & ~pl.col("name").is_in(_ALLOCATOR_CALLS)
        level = pl.when(is_operator).then(pl.lit("op")).when(pl.col("category") == "dequeue").then(pl.lit("dequeue"))
        end, row = pl.col("start_ns") + pl.col("dur_ns"), pl.int_range(pl.len(), dtype=pl.Int64) + first
        calls = rows.select("thread", "start_ns", row=row, end_ns=end, level=level)
        self._around = Around(sort_calls(calls.filter(pl.col("level").is_not_null())))

    def find(self, thread: Ints, at: Ints) -> Ints:
        """The operator that is open on a thread at a time; for a launch out of the queue, the one that put it in. -1 for none."""
        if self.rows.height:
            dequeue = self._around.find("dequeue", thread, at)
            enqueue = self.rows["forward"].fill_null(-1).gather(np.maximum(dequeue - self.first, 0)).to_numpy()
            enqueue = np.where(dequeue >= 0, enqueue, -1)
            row = np.maximum(enqueue, 0)
            thread = np.where(enqueue >= 0, self.rows["thread"].gather(row).to_numpy(), thread)
            at = np.where(enqueue >= 0, self.rows["start_ns"].gather(row).to_numpy(), at)
        return self._around.find("op", thread, at)


def _link_causes(spans: pl.DataFrame, operators: _Operators, tracks: pl.DataFrame) -> pl.DataFrame:
    """Device work with its operator, backward operators with their forward operator, the end of a queue with its start."""
    flow_in, op = (spans[name].fill_null(-1).to_numpy().copy() for name in ("flow_in", "op"))
    forward = operators.rows["forward"].fill_null(-1).to_numpy()
    flow_in[operators.first :] = np.where(forward >= 0, forward + operators.first, -1)
    on_device = tracks.filter(pl.col("device").is_not_null())["track"]
    work = np.flatnonzero(spans["track"].is_in(on_device.implode()).to_numpy() & (flow_in >= 0))
    if len(work):
        calls = spans.select("track", "start_ns")[flow_in[work]].join(
            tracks.select("track", "tid"), on="track", how="left", maintain_order="left"
        )
        thread = calls["tid"].cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
        op[work] = operators.find(thread, calls["start_ns"].to_numpy())
    untyped = pl.col("op_type").is_null() & pl.Series(op >= 0) & pl.col("kind").is_in(["copy", "set"])
    return spans.with_columns(
        optional_rows("flow_in", flow_in), optional_rows("op", op), op_type=pl.when(untyped).then("name").otherwise("op_type")
    )


def _assign_steps(spans: pl.DataFrame, steps: pl.DataFrame, framework: Framework) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps that the framework marked, else steps that the device marked."""
    is_marked = (framework.spans["kind"] == "step").any()
    if is_marked or (steps["how"] == "whole").all():
        # Iterations that a graph marks on the device are ordinary ranges next to the framework's steps.
        steps, _ = find_steps(spans.tail(framework.spans.height) if is_marked else spans)
        return schema.conform(steps.lazy(), "steps").collect(), assign_steps(spans, steps)
    return steps, spans.with_columns(step=pl.coalesce("step", steps_by_time(spans, steps)))


def _steps_of_links(links: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Links with the step of their operator."""
    is_operator = pl.col("kind") == "communication"
    operators = spans.filter(is_operator).select(operator=pl.col("name").cast(pl.String), op_step="step").unique("operator")
    rows = links.with_columns(operator=pl.col("op").cast(pl.String)).join(operators, on="operator", how="left", maintain_order="left")
    return rows.with_columns(step=pl.coalesce("op_step", "step")).drop("op_step", "operator")


def memory_tables(framework: Framework) -> dict[str, pl.DataFrame]:
    """Blocks with the operator that allocated them, and counters of allocated and reserved memory."""
    records = framework.memory
    if records.is_empty():
        return {}
    on_device = records.filter(pl.col("npu").is_not_null())
    counters = {"counters": record_counters(on_device)} if on_device.height else {}
    return {"allocations": _blocks(records.filter("is_block"), framework.spans), **counters}


def _blocks(records: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """A block is allocated at an address and freed before the next one there. A block that is freed first is from before the recording."""
    device, key = ["device", "owner", "number"], ["pid", "device", "address"]
    rows = records.with_columns(**device_columns("npu", pl.col("npu"))).filter(pl.col("event") < 2).sort("at_ns", maintain_order=True)
    rows = rows.with_columns(
        next_ns=pl.col("at_ns").shift(-1).over(key),
        next_event=pl.col("event").shift(-1).over(key),
        last_event=pl.col("event").shift(1).over(key),
    )
    allocated = rows.filter(pl.col("event") == 0)
    op = _Operators(spans, 0).find(allocated["thread"].to_numpy(), allocated["at_ns"].to_numpy())
    names = pl.concat([spans["name"], pl.Series([None], dtype=pl.String)]).gather(np.where(op < 0, spans.height, op))
    blocks = allocated.select(
        *device,
        "address",
        "bytes",
        op=pl.coalesce("op", names),
        alloc_ns="at_ns",
        free_ns=pl.when(pl.col("next_event") == 1).then("next_ns"),
        category="component",
    )
    is_older = (pl.col("event") == 1) & (pl.col("last_event").is_null() | (pl.col("last_event") == 1)) & (pl.col("bytes") > 0)
    older = rows.filter(is_older).select(*device, "address", "bytes", free_ns="at_ns", category="component")
    return pl.concat([blocks, older], how="diagonal")
