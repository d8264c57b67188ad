"""Host records about streams: captured graphs (aclgraph), streams of compiled graphs, and streams that serve kernels which both compute and
communicate (MC2)."""

import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model import schema, units
from stepscope.readers.ascend.common.kinds import SERVING
from stepscope.readers.ascend.prof.files import HOST_MAGIC, Notes, Records, Side, records
from stepscope.readers.ascend.prof.host.records import CORES, HEAD, Host, record
from stepscope.readers.ascend.prof.host.tensors import TENSOR, TENSOR_TEXTS, tensor_texts

_CAPTURE = record(64, ("status", "<u2"), ("stream", "<u2"), ("original", "<u2"), ("model", "<u2"), ("device", "<u2"))
_OPERATOR_FIELDS: list[Any] = [
    *[("model", "<u4"), ("device", "<u4"), ("stream", "<u4"), ("task", "<u4"), ("core", "<u4"), ("blocks", "<u4")],
    *[("op", "<u8"), ("op_type", "<u8"), ("attributes", "<u8"), ("pad", "<u8"), ("flag", "<u4"), ("count", "<u4")],
]
_OPERATOR = np.dtype([*HEAD, *_OPERATOR_FIELDS])
_SHORT_OPERATOR = record(256, *_OPERATOR_FIELDS, ("tensors", TENSOR, 3))
_LOGIC = record(256, ("logic", "<u4"), ("count", "<u4"), ("streams", "<u4", 56))
_MC2 = record(
    256,
    ("group", "<u8"),
    ("ranks", "<u4"),
    ("rank", "<u4"),
    ("user_rank", "<u4"),
    ("kernels", "<u4"),
    ("count", "<u4"),
    ("streams", "<u4", 8),
)
_BEGINS = 0


class Streams(NamedTuple):
    """Roles of streams, by number."""

    logic: dict[int, int]  # the graph's stream that contains this stream
    serving: set[int]  # streams whose kernels only serve the communication of other kernels


NONE = Streams({}, set())


def read(side: Side, host: Host, notes: Notes) -> Streams:
    logic = _records_of_both_ages(side, "additional.logic_stream_info", _LOGIC, notes)
    pieces = {
        int(stream): int(row["logic"]) for row in logic for stream in row["streams"][: min(int(row["count"]), 56)]
    }  # fmt: skip
    mc2 = _records_of_both_ages(side, "additional.mc2_comm_info", _MC2, notes)
    serving = {int(stream) for stream in mc2["kernels"]}
    captured = _captured_streams(side, host, notes)
    # The streams of a captured graph differ from the streams of the capture.
    return Streams(pieces, serving | {int(stream) for stream in captured.filter(pl.col("original").is_in(serving))["stream"]})


def _records_of_both_ages(side: Side, name: str, layout: np.dtype[Any], notes: Notes) -> Records:
    parts = [records(side.slices(re.escape(f"{age}.{name}")), layout, notes, HOST_MAGIC) for age in ("aging", "unaging")]
    return np.concatenate(parts)


# Captured graphs


def with_captured(host: Host, side: Side, notes: Notes) -> Host:
    """The host with the model, original stream and operator of tasks of captured graphs.

    A recording of later runs of the graph contains no calls that launch its tasks.
    """
    streams, operators = _captured_streams(side, host, notes), _operators(side, host, notes)
    tasks = host.tasks
    if streams.height:
        tasks = _on_captured(tasks, streams)
    if operators.height:
        tasks = _with_operators(tasks, operators)
    return host._replace(tasks=tasks)


def _captured_streams(side: Side, host: Host, notes: Notes) -> pl.DataFrame:
    """device, stream, original, model, at_ns, until_ns: the graph that a stream belonged to in this time."""
    raw = _records_of_both_ages(side, "compact.capture_stream_info", _CAPTURE, notes)
    rows = pl.DataFrame(
        {
            **{name: raw[name].astype(np.int64) for name in ("device", "stream", "original", "status")},
            "captured_model": raw["model"].astype(np.uint64),
            "at_ns": host.clock.ns(raw["at"]),
        }
    ).sort("at_ns", maintain_order=True)
    until = pl.col("at_ns").shift(-1).over("device", "stream").fill_null(2**63 - 1)
    return rows.with_columns(until_ns=until).filter(pl.col("status") == _BEGINS).drop("status")


def _on_captured(tasks: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    order = tasks.select("device", "stream", "at_ns").with_row_index("row").sort("at_ns", maintain_order=True)
    captures = order.join_asof(streams, on="at_ns", by=["device", "stream"], check_sortedness=False)
    inside = pl.col("at_ns") < pl.col("until_ns")
    captures = captures.select(
        "row", original=pl.when(inside).then("original"), captured_model=pl.when(inside).then("captured_model")
    )  # fmt: skip
    tasks = tasks.hstack(captures.sort("row").drop("row"))
    return tasks.with_columns(model_id=pl.coalesce("model_id", "captured_model")).drop("captured_model")


def _operators(side: Side, host: Host, notes: Notes) -> pl.DataFrame:
    """Operators of captured tasks, by device, stream, task and time."""
    parts = []
    for age in ("aging", "unaging"):
        raw = records(side.slices(rf"{age}\.additional\.capture_op_info"), _SHORT_OPERATOR, notes, HOST_MAGIC)
        tensors = [row["tensors"][: min(int(row["count"]), 3)] for row in raw]
        parts.append(_operator_rows(raw, tensors, age, host))
    for age in ("aging", "unaging"):
        raw, tensors = _long(side, age, notes)
        parts.append(_operator_rows(raw, tensors, age, host))
    return pl.concat(parts).sort("at_ns", maintain_order=True)


def _long(side: Side, age: str, notes: Notes) -> tuple[Records, list[Records]]:
    """Records of variable length, which depends on the number of tensors and follows their head."""
    files = side.slices(rf"{age}\.variable\.capture_op_info")
    data = b"".join(path.read_bytes() for path in files)
    head = np.dtype(HEAD).itemsize
    rows, tensors, start = [], [], 0
    while start + _OPERATOR.itemsize <= len(data):
        row = np.frombuffer(data, _OPERATOR, 1, start)
        count, behind = int(row["count"][0]), start + _OPERATOR.itemsize
        until = start + head + int(row["length"][0])
        if row["magic"][0] != HOST_MAGIC or behind + count * TENSOR.itemsize > min(until, len(data)):
            break
        rows.append(row)
        tensors.append(np.frombuffer(data, TENSOR, count, behind))
        start = until
    if start < len(data):
        notes.add(files[0], f"{units.count(len(data) - start, 'byte belongs', 'bytes belong')} to no complete record", 1)
    return (np.concatenate(rows) if rows else np.empty(0, _OPERATOR)), tensors


def _operator_rows(raw: Records, tensors: list[Records], age: str, host: Host) -> pl.DataFrame:
    texts = pl.DataFrame([tensor_texts([part]) for part in tensors], schema=dict.fromkeys(TENSOR_TEXTS, schema.Text), orient="row")
    return pl.DataFrame(
        {
            **{name: raw[name].astype(np.int64) for name in ("device", "stream", "task")},
            "at_ns": host.clock.ns(raw["at"]),
            "captured_model": raw["model"].astype(np.uint64),
            "op": host.words.names_of(raw["op"]),
            "op_type": host.words.names_of(raw["op_type"]),
            "attributes": host.words.names_of(raw["attributes"]),
            "core": pl.Series(raw["core"].astype(np.int64)).replace_strict(CORES, default=None, return_dtype=schema.Text),
            "blocks": (raw["blocks"] & 0xFFFF).astype(np.int64),
            "mix_blocks": ((raw["blocks"] & 0xFFFF) * (raw["blocks"] >> 16)).astype(np.int64),
            "hf32": raw["flag"] & 1 == 1,
            "static_op": np.full(len(raw), age == "unaging"),
        }
    ).hstack(texts)


_OF_OPERATOR = ("op", "op_type", "attributes", "core", "blocks", "mix_blocks", "hf32", "static_op", *TENSOR_TEXTS)


def _with_operators(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Tasks with the operator of the nearest record, for tasks without one: numbers of streams and tasks repeat in time."""
    order = tasks.select("device", "stream", "task", "at_ns").with_row_index("row").sort("at_ns", maintain_order=True)
    by = ["device", "stream", "task"]
    nearest = order.join_asof(operators, on="at_ns", by=by, strategy="nearest", check_sortedness=False).sort("row")
    missing = tasks["op"].is_null()
    details = {name: nearest[name].alias(f"nearest_{name}") for name in (*_OF_OPERATOR, "captured_model")}
    filled = tasks.with_columns(details.values()).with_columns(
        *(pl.when(missing).then(pl.coalesce(name, f"nearest_{name}")).otherwise(name).alias(name) for name in _OF_OPERATOR),
        model_id=pl.when(missing).then(pl.coalesce("model_id", "nearest_captured_model")).otherwise("model_id"),
    )
    return filled.drop(f"nearest_{name}" for name in details)


# Executions


def with_shown_streams(executions: pl.DataFrame, streams: Streams) -> pl.DataFrame:
    """Executions with the stream that shows them (`logic`), and whether they only serve communication and compute nothing (`serving`)."""
    if streams.logic:
        shown = pl.col("stream").replace_strict(streams.logic, default=pl.col("stream"), return_dtype=pl.Int64)
        executions = executions.with_columns(logic=shown)
    serves = pl.col("stream").is_in(streams.serving)
    for column in ("op", "node_item"):  # each distinct name once: there may be millions of kernels
        names = executions[column].drop_nulls().unique().cast(pl.String)
        names = names.filter(names.str.contains(SERVING))
        serves |= pl.col(column).is_in(names.to_list()).fill_null(False)
    serving = executions.select(serves & (pl.col("kind") == "kernel")).to_series()
    return executions.with_columns(serving.alias("serving")) if serving.any() else executions
