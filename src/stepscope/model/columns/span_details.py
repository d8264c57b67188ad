"""Typed details of spans: the tables that are keyed by `span`, and the keys of `args` under which sources write the same values.

A source without these tables (a timeline that another tool exported, a run folder of an earlier release) has the details only in `args`,
which are then decoded.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.model.trace import Trace

# Of each table: columns, and the keys of `args`.
KEYS: dict[str, dict[str, str]] = {
    "tasks": {
        "model": "Model Id",
        "stream": "Physic Stream Id",
        "task": "Task Id",
        "batch": "Batch Id",
        "context": "Subtask Id",
        "connection": "connection_id",
        "runtime_type": "runtime type",
        "kernel_name": "kernel_name",
        "launched_ns": "launched_ns",
        "received_ns": "received_ns",
        "whole_start_ns": "task start_ns",
        "whole_dur_ns": "task dur_ns",
        "op_name": "Op Name",
        "op_type": "OP Type",
        "op_state": "OP State",
        "blocks": "Block Num",
        "mix_blocks": "Mix Block Num",
        "hf32": "HF32 Eligible",
        "input_shapes": "Input Shapes",
        "input_dtypes": "Input Data Types",
        "input_formats": "Input Formats",
        "output_shapes": "Output Shapes",
        "output_dtypes": "Output Data Types",
        "output_formats": "Output Formats",
        "attributes": "attributes",
        "copy_bytes": "size(B)",
        "copy_direction": "operation",
        "aicpu_start_ns": "aicpu start_ns",
        **{name: name for name in ("compute_us", "memcpy_us", "dispatch_us", "run_ns", "total_ns")},
    },
    "calls": {"level": "level", "mode": "Mode", "item": "id", "item_id": "item_id", "event": "event"},
    "collectives": {
        "group": "Process Group Name",
        "rank_size": "rank_size",
        "connection": "connection_id",
        "model": "model id",
        "data_type": "data_type",
        "algorithm": "alg_type",
        "count": "count",
        "relay": "relay",
        "retry": "retry",
    },
    "communication_tasks": {
        "operator": "operator",
        "master": "master",
        "notify_id": "notify_id",
        "estimated_us": "duration estimated(us)",
        "stream": "stream id",
        "task": "task id",
        "context": "context id",
        "task_type": "task type",
        "src": "src rank",
        "dst": "dst rank",
        "transport": "transport type",
        "bytes": "size(Byte)",
        "data_type": "data type",
        "link": "link type",
        "bandwidth": "bandwidth(GB/s)",
        "rdma": "rdma type",
        "model": "model id",
    },
    "marks": {
        "mark": "mark_id",
        "event_type": "event_type",
        "domain": "domain",
        "category": "Category",
        "payload_type": "Payload_type",
        "payload_value": "Payload_value",
        "message_type": "Message_type",
        "stream": "Physic Stream Id",
        "task": "Task Id",
    },
}
# Keys of counters that `args` of a kernel may have: of the groups of metrics, or registers that the user chose.
_COUNTER = re.compile(
    r"(aic_|aiv_)?(\w+_time\(us\)|\w+_ratio|total_cycles|icache_miss_rate|\w+_fops|\w+\(GB/s\)|\w+\(KB\)|\w+_cache_\w+|r[0-9a-f]+)"
    r"|memory_bound|cube_utilization\(%\)|l2_hit_rate|l2_victim_rate"
)


def tables_of(rows: pl.DataFrame, table: str) -> dict[str, pl.DataFrame]:
    """`span` and args by their keys as rows of a table of details; keys that the table does not have are counters of cores."""
    columns = {key: column for column, key in KEYS[table].items() if key in rows.columns}
    tables = {table: rows.select("span", *columns).rename(columns)}
    counters = [key for key in rows.columns if key not in columns and _COUNTER.fullmatch(key)] if table == "tasks" else []
    if counters:
        long = [rows.select("span", name=pl.lit(key, schema.Text), value=pl.col(key).cast(pl.Float64)) for key in counters]
        tables["core_counters"] = pl.concat(long)
    return tables


def details(trace: Trace, table: str, spans: pl.Series, columns: Iterable[str] | None = None) -> pl.DataFrame:
    """Columns of a table of details, of a trace of one rank: one row per span, in their order; null where the span has none."""
    keys = KEYS[table]
    types = {column: schema.TABLES[table][column] for column in (keys if columns is None else columns)}
    rows = trace.table(table).select("span", *types).filter(pl.any_horizontal(pl.col(*types).is_not_null())).collect()
    if rows.height:
        return pl.DataFrame({"span": spans}).join(rows, on="span", how="left", maintain_order="left").drop("span")
    # A count may be a number or a text. Other tools call the stream of a kernel just that.
    decoded = {keys[column]: pl.String if column == "count" else dtype for column, dtype in types.items()}
    rows = trace.span_args(spans, decoded | ({"stream": pl.Int64} if table == "tasks" and "stream" in types else {}))
    values = {column: pl.col(keys[column]) for column in types}
    if "stream" in rows.columns:
        values["stream"] = pl.coalesce(keys["stream"], "stream")
    return rows.select(values[column].cast(dtype, strict=False).alias(column) for column, dtype in types.items())


def counter_rows(trace: Trace, spans: pl.Series, samples: Iterable[int]) -> pl.DataFrame:
    """Counters of the cores, of a trace of one rank: span, name, value. Where only `args` contain them, the keys of the spans `samples` are
    used for all spans."""
    rows = trace.table("core_counters").select("span", "name", "value").collect()
    if rows.height:
        return rows
    names = _counter_keys(trace, samples)
    if not names:
        return rows
    wide = trace.span_args(spans, dict.fromkeys(names, pl.Float64)).with_columns(spans.alias("span"))
    return wide.unpivot(index="span", variable_name="name").select(rows.columns).cast(rows.schema)


def core_counters(trace: Trace, spans: pl.Series, samples: Iterable[int]) -> pl.DataFrame:
    """The same with one column per counter and one row per span, in their order."""
    numbers = spans.to_numpy()
    order = np.argsort(numbers, kind="stable")
    columns: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
    parts = counter_rows(trace, spans, samples).partition_by("name", as_dict=True, include_key=False, maintain_order=True)
    for (name,), part in parts.items() if len(numbers) else ():
        of_part = part["span"].to_numpy()
        at = np.minimum(np.searchsorted(numbers[order], of_part), len(numbers) - 1)
        known = numbers[order][at] == of_part
        values = columns.setdefault(str(name), np.full(len(numbers), np.nan))
        values[order[at[known]]] = part["value"].fill_null(np.nan).to_numpy()[known]
    return pl.DataFrame([pl.Series(name, values).fill_nan(None).cast(_counter_type(name)) for name, values in columns.items()])


def iterations(trace: Trace) -> pl.DataFrame:
    """Iterations of models on devices: rank, span, device, model, iteration, step, start_ns, dur_ns."""
    tracks = trace.tracks.select("rank", "track", "device", "tid")
    spans = trace.spans.filter(pl.col("kind") == "step").join(tracks, on=["rank", "track"], maintain_order="left")
    typed = trace.table("tasks").filter(pl.col("iteration").is_not_null()).select("rank", "span", "model", "iteration").collect()
    if typed.height:
        spans = spans.join(typed.lazy(), on=["rank", "span"], maintain_order="left")
    else:  # only the names contain the numbers
        name = pl.col("name").cast(pl.String)
        spans = spans.with_columns(
            model=pl.col("tid").str.extract(r"^model ([0-9]+)$").cast(pl.Int64, strict=False),
            iteration=name.str.extract(r"([0-9]+)\s*$").cast(pl.Int64, strict=False),
        )
    columns = ("rank", "span", "device", "model", "iteration", "step", "start_ns", "dur_ns")
    return spans.select(columns).drop_nulls(["model", "iteration"]).collect()


def _counter_type(name: str) -> pl.DataType:
    return pl.Int64() if name.endswith("_cycles") else pl.Float64()


def _counter_keys(trace: Trace, spans: Iterable[int]) -> list[str]:
    texts = trace.spans.filter(pl.col("span").is_in(list(spans))).select("args").collect().to_series().drop_nulls()
    return list(dict.fromkeys(key for text in texts for key in _object(text) if _COUNTER.fullmatch(key)))


def _object(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
