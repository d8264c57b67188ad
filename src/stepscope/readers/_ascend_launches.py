"""The framework's operators on the host, joined with the calls into Ascend's libraries and with what these launched."""

from typing import Any

import numpy as np
import polars as pl

from stepscope import intervals, schema
from stepscope.intervals import Ints
from stepscope.readers import _ascend_tables, _kineto
from stepscope.readers._ascend_framework import Framework, in_order
from stepscope.readers._prof_host import Around
from stepscope.trace import Trace, complete

_NO_OPERATORS = ("empty_tensor", "malloc_workspace")  # how torch_npu asks its own allocator


def joined(trace: Trace, framework: Framework) -> Trace:
    """The trace with the framework's part: its spans, steps, and memory. Spans of `trace` are numbered from 0 on."""
    tables: dict[str, Any] = {name: frame.collect() for name, frame in trace.tables.items()}
    spans, tracks = tables["spans"], tables["tracks"]
    more, lanes = _placed(framework.spans, spans.height, tracks)
    whole = pl.concat([spans.rename({"scope": "module"}), more], how="diagonal")
    around = _around(framework.spans, spans.height)
    whole = _linked(whole, framework.spans, tracks, around, spans.height)
    whole = _kineto.scoped(whole)
    tables["steps"], whole = _stepped(whole, tables["steps"], framework)
    tables["spans"] = whole.select(list(schema.TABLES["spans"]))
    tables["tracks"] = lanes
    tables["links"] = _in_steps(tables["links"], whole)
    if not (tables["steps"]["how"] == "whole").any():
        tables["problems"] = tables["problems"].filter(~pl.col("what").str.starts_with("no iterations are marked").fill_null(False))
    rank = trace.meta.ranks[0] if trace.meta.ranks else 0
    for name, rows in memory(framework).items():
        tables[name] = pl.concat([tables[name], schema.conform(rows.with_columns(rank=pl.lit(rank)).lazy(), name).collect()])
    for name in ("spans", "tracks", "steps"):
        tables[name] = tables[name].with_columns(rank=pl.lit(rank, pl.Int32))
    return Trace(tables, trace.meta)


def _placed(rows: pl.DataFrame, first: int, tracks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The framework's spans, numbered on from `first`, on a lane for each thread; and all lanes, calls into CANN beside them."""
    host = tracks.filter(pl.col("device").is_null())
    groups = dict(host.select("pid", pl.col("group").cast(pl.String)).iter_rows())
    threads = rows.select("pid", "thread").unique(maintain_order=True).sort("pid", "thread").with_row_index("nth")
    begin = int(tracks["track"].max()) + 1 if tracks.height else 0  # type: ignore[arg-type]
    threads = threads.with_columns(track=(pl.col("nth") + begin).cast(pl.Int32))
    lanes = threads.select(
        "track",
        group=pl.col("pid").map_elements(lambda pid: groups.get(str(pid), f"Python {pid}"), return_dtype=pl.String),
        label=pl.format("Thread {}", "thread"),
        kind=pl.lit("thread"),
        sort=pl.col("nth").cast(pl.Int32),
        pid=pl.col("pid").cast(pl.String),
        tid=pl.col("thread").cast(pl.String),
    )
    cann = pl.col("device").is_null() & (pl.col("kind") == "thread")
    beside = tracks.with_columns(
        label=pl.when(cann).then(pl.format("{} CANN", "label")).otherwise("label"), sort=pl.col("sort") + threads.height
    )
    every = pl.concat([schema.conform(lanes.lazy(), "tracks").collect(), beside])
    spans = complete(
        rows.join(threads.select("pid", "thread", "track"), on=["pid", "thread"], how="left", maintain_order="left").with_columns(
            span=pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
        )
    )
    typed = schema.conform(spans.with_columns(correlation=pl.lit(None, pl.Int64)).lazy(), "spans").collect()
    return typed.drop("scope").with_columns(module=spans["module"].cast(pl.Categorical)), every


def _around(rows: pl.DataFrame, first: int) -> Around:
    """Which operator, or which end of the queue, was open on a thread. Rows are numbered as spans."""
    level = (
        pl.when((pl.col("kind") == "op") & ~pl.col("name").is_in(_NO_OPERATORS))
        .then(pl.lit("op"))
        .when(pl.col("category") == "dequeue")
        .then(pl.lit("dequeue"))
    )
    calls = rows.select(
        "thread", "start_ns", row=pl.int_range(pl.len(), dtype=pl.Int64) + first, end_ns=pl.col("start_ns") + pl.col("dur_ns"), level=level
    )
    return Around(in_order(calls.filter(pl.col("level").is_not_null())))


def _operator(rows: pl.DataFrame, first: int, around: Around, thread: Ints, at: Ints) -> Ints:
    """The operator that was open; where a thread only takes launches out of the queue, the one that put it in. -1 where there is none."""
    taken = around.find("dequeue", thread, at)
    put = rows["forward"].fill_null(-1).gather(np.maximum(taken - first, 0)).to_numpy() if rows.height else taken
    put = np.where(taken >= 0, put, -1)
    where = np.maximum(put, 0)
    thread = np.where(put >= 0, rows["thread"].gather(where).to_numpy(), thread) if rows.height else thread
    at = np.where(put >= 0, rows["start_ns"].gather(where).to_numpy(), at) if rows.height else at
    return around.find("op", thread, at)


def _linked(whole: pl.DataFrame, rows: pl.DataFrame, tracks: pl.DataFrame, around: Around, first: int) -> pl.DataFrame:
    """Device work with the operator that launched it; a backward operator with its forward one, an end of the queue with its start."""
    flow_in, op = (whole[name].fill_null(-1).to_numpy().copy() for name in ("flow_in", "op"))
    caused = rows["forward"].fill_null(-1).to_numpy()
    flow_in[first:] = np.where(caused >= 0, caused + first, -1)
    on_device = whole.select("track").join(
        tracks.filter(pl.col("device").is_not_null()).select("track", "device"), on="track", how="left", maintain_order="left"
    )
    work = np.flatnonzero(on_device["device"].is_not_null().to_numpy() & (flow_in >= 0))
    if len(work):
        calls = whole.select("track", "start_ns")[flow_in[work]]
        thread = calls.join(tracks.select("track", "tid"), on="track", how="left", maintain_order="left")["tid"].cast(
            pl.Int64, strict=False
        )
        op[work] = _operator(rows, first, around, thread.fill_null(-1).to_numpy(), calls["start_ns"].to_numpy())
    named = pl.col("op_type").is_null() & pl.Series(op >= 0) & pl.col("kind").is_in(["copy", "set"])
    return whole.with_columns(_kineto.or_null("flow_in", flow_in), _kineto.or_null("op", op)).with_columns(
        op_type=pl.when(named).then("name").otherwise("op_type")
    )


def _stepped(whole: pl.DataFrame, steps: pl.DataFrame, framework: Framework) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps as the framework marked them, else as the device did."""
    marked = (framework.spans["kind"] == "step").any()
    if marked or (steps["how"] == "whole").all():
        # Beside the framework's steps, iterations that a graph marks on the device are ranges like others.
        found, _ = _kineto.steps_of(whole.tail(framework.spans.height) if marked else whole)
        return schema.conform(found.lazy(), "steps").collect(), _kineto.stepped(whole, found)
    index = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), whole["start_ns"].to_numpy())
    by_time = steps["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None)
    return steps, whole.with_columns(step=pl.coalesce("step", by_time))


def _in_steps(links: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """A transfer is of the step of its operator."""
    known = (
        whole.filter(pl.col("kind") == "communication")
        .select(pl.col("name").cast(pl.String).alias("operator"), own="step")
        .unique("operator")
    )
    rows = links.with_columns(operator=pl.col("op").cast(pl.String)).join(known, on="operator", how="left", maintain_order="left")
    return rows.with_columns(step=pl.coalesce("own", "step")).drop("own", "operator")


# Memory


def memory(framework: Framework) -> dict[str, pl.DataFrame]:
    """Blocks with the operator that took them, and what was allocated and reserved over time."""
    records = framework.memory
    if records.is_empty():
        return {}
    on_device = records.filter(pl.col("device") != "cpu")
    counters = _ascend_tables.record_counters(on_device) if on_device.height else pl.DataFrame()
    return {"allocations": _blocks(records.filter("of_block"), framework.spans), **({"counters": counters} if counters.height else {})}


def _blocks(records: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """A block is taken at an address and given back before the address is taken again. What is given back first was there before."""
    key = ["pid", "device", "address"]
    rows = records.filter(pl.col("what") < 2).sort("at_ns", maintain_order=True)
    rows = rows.with_columns(
        next_ns=pl.col("at_ns").shift(-1).over(key),
        next_what=pl.col("what").shift(-1).over(key),
        last_what=pl.col("what").shift(1).over(key),
    )
    taken = rows.filter(pl.col("what") == 0)
    op = _operator(spans, 0, _around(spans, 0), taken["thread"].to_numpy(), taken["at_ns"].to_numpy())
    names = pl.concat([spans["name"], pl.Series([None], dtype=pl.String)]).gather(np.where(op < 0, spans.height, op))
    blocks = taken.with_columns(op=pl.coalesce("owner", names)).select(
        "device",
        "address",
        "bytes",
        "op",
        alloc_ns="at_ns",
        free_ns=pl.when(pl.col("next_what") == 1).then("next_ns"),
        category="component",
    )
    before = rows.filter((pl.col("what") == 1) & (pl.col("last_what").is_null() | (pl.col("last_what") == 1)) & (pl.col("bytes") > 0))
    return pl.concat([blocks, before.select("device", "address", "bytes", free_ns="at_ns", category="component")], how="diagonal")
