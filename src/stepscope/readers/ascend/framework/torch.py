"""torch_npu's raw files: operators, the launch queue, Python calls, garbage collections and memory."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model.intervals import Bools, Ints
from stepscope.readers.ascend.common.kinds import first_match, host_call_kind
from stepscope.readers.ascend.common.texts import json_lists, json_object
from stepscope.readers.ascend.framework import tlv
from stepscope.readers.ascend.framework.columns import MEMORY, SPANS, conform, convert_times, find_file, float64, int64, scatter
from stepscope.readers.ascend.prof.device.records import pair_starts_and_ends
from stepscope.readers.ascend.prof.files import Clock
from stepscope.readers.common.problems import Problem

_OP = np.dtype(
    [
        *[("start", "<u8"), ("end", "<u8"), ("sequence", "<i8"), ("pid", "<u8"), ("thread", "<u8"), ("end_thread", "<u8")],
        *[("forward_thread", "<u8"), ("scope", "u1"), ("asynchronous", "u1")],
    ]
)
_MARK = np.dtype([("at", "<u8"), ("category", "<u8"), ("queue", "<u8"), ("thread", "<u8"), ("pid", "<u8")])
_MEMORY = np.dtype(
    [
        *[("address", "<u8"), ("at", "<u8"), ("bytes", "<i8"), ("allocated", "<i8"), ("reserved", "<i8"), ("active", "<i8")],
        *[("stream", "<i8"), ("device_type", "i1"), ("device", "i1"), ("component", "u1"), ("event", "u1"), ("allocator", "u1")],
        *[("thread", "<u8"), ("pid", "<u8")],
    ]
)
_FRAME = np.dtype([("at", "<u8"), ("thread", "<u8"), ("pid", "<u8"), ("key", "<u8"), ("tag", "u1")])
_GARBAGE = np.dtype([("pid", "<u8"), ("start", "<u8"), ("end", "<u8")])
_NPU = 20  # PyTorch's number of this device type
_MODULE_MARK = "######"  # between a module's class and its number


def _operators(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = find_file(folder, "torch.op_range")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    records = tlv.read(file, _OP, problems)
    start, end, valid = convert_times(file, clock, records.heads["start"], records.heads["end"], problems)
    rows = pl.DataFrame(
        {
            **int64(records.heads, "pid", "thread", "sequence", "forward_thread"),
            "start_ns": start,
            "dur_ns": end - start,
            "name": records.text(2).fill_null("?"),
            "dtypes": records.text(3).replace("", None),
            "shapes": records.text(4).replace("", None),
            "stack": records.text(8),
            "module": records.text(9).replace("", None),
            "flops": records.text(10).cast(pl.Int64, strict=False),
        }
    ).filter(pl.Series(valid))
    name = pl.col("name")
    kind = host_call_kind(name, first_match((name.str.starts_with("mstx_"), "annotation"), default="op"))
    args = {"Sequence number": "sequence", "Fwd thread id": "forward_thread", "Call stack": "stack"}
    rows = rows.with_columns(
        json_lists(pl.col("dtypes")),
        json_lists(pl.col("shapes")),
        kind=kind,
        category=pl.lit("cpu_op"),
        op_type=pl.when(kind == "op").then("name"),
        args=json_object(args),
    )
    return rows.with_columns(forward=_forward_operators(rows))


def _forward_operators(rows: pl.DataFrame) -> pl.Series:
    """The last forward operator with the sequence number of a backward operator. Forward operators have no forward thread."""
    numbered = rows.with_row_index("row").filter(pl.col("sequence") >= 0).sort("start_ns", maintain_order=True)
    forward = numbered.filter(pl.col("forward_thread") == 0).select("sequence", forward=pl.col("row").cast(pl.Int64))
    backward = numbered.filter(pl.col("forward_thread") != 0).unique("sequence", keep="last", maintain_order=True)
    pairs = backward.join(forward.unique("sequence", keep="last"), on="sequence", maintain_order="left")
    return scatter(rows.height, pairs["row"], pairs["forward"])


def _queue_calls(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    """Enqueue and Dequeue of operators, each from its start mark to its end mark."""
    file = find_file(folder, "torch.op_mark")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    records = tlv.read(file, _MARK, problems)
    at, _, valid = convert_times(file, clock, records.heads["at"], records.heads["at"], problems)
    heads, name, at = records.heads[valid], records.text(1).fill_null("").filter(pl.Series(valid)), at[valid]
    key = pl.DataFrame({"thread": heads["thread"], "name": name, "dequeue": heads["category"] // 2}).select(
        pl.struct(pl.all()).rank("dense").cast(pl.Int64)
    )
    starts, ends, unpaired = pair_starts_and_ends(key.to_series().to_numpy(), at, heads["category"] % 2 == 0)
    if any(unpaired):
        problems.append(Problem(file.name, "marks of the queue without a start or an end", sum(unpaired)))
    rows = pl.DataFrame(
        {
            **int64(heads[ends], "pid", "thread", "queue"),
            "start_ns": at[starts],
            "dur_ns": at[ends] - at[starts],
            "dequeue": heads["category"][ends] >= 2,
            "origin": name.gather(ends),
        }
    )
    names = rows.filter("dequeue").select("queue", operator="origin").unique("queue", keep="first")
    enqueued = rows.with_row_index("row").filter(~pl.col("dequeue")).select("queue", forward=pl.col("row").cast(pl.Int64))
    for columns in (names, enqueued.unique("queue", keep="first")):
        rows = rows.join(columns, on="queue", how="left", maintain_order="left")
    word = first_match((pl.col("dequeue"), "Dequeue"), default="Enqueue")
    return rows.with_columns(
        name=pl.concat_str(word, pl.coalesce(pl.format("@{}", "operator"), pl.lit(""))),
        category=word.str.to_lowercase(),
        kind=pl.lit("api"),
        forward=pl.when("dequeue").then("forward"),
        args=pl.struct(correlation_id="queue").struct.json_encode(),
    )


def _python_calls(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    """Calls of Python functions, from the times at which functions are entered (even tags) and left (odd tags)."""
    file, names_file = find_file(folder, "torch.python_tracer_func"), find_file(folder, "torch.python_tracer_hash")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    raw = tlv.read_fixed(file, _FRAME, problems)
    at, _, valid = convert_times(file, clock, raw["at"], raw["at"], problems)
    raw, at = raw[valid], at[valid]
    order = np.lexsort((at, raw["thread"]))  # stable: records of the same time stay in the order of the file
    raw, at = raw[order], at[order]
    hashes = tlv.read(names_file, np.dtype([("key", "<u8")]), problems) if names_file else None
    names = dict(zip(hashes.heads["key"].tolist(), hashes.text(1).to_list(), strict=True)) if hashes else {}
    parts = [pl.DataFrame(schema=SPANS)]
    for thread in np.unique(raw["thread"]):
        records = np.flatnonzero(raw["thread"] == thread)
        calls, returns = _match_returns(raw["tag"][records] % 2 == 0)
        entered, left = records[calls], records[returns]
        rows = pl.DataFrame(
            {
                **int64(raw[entered], "pid", "thread"),
                "start_ns": at[entered],
                "dur_ns": at[left] - at[entered],
                "name": _function_names(raw["key"][entered], names),
            }
        )
        kind = first_match((pl.col("name").str.starts_with("nn.Module: "), "scope"), default="python")
        parts.append(conform(rows.with_columns(kind=kind, category=pl.lit("python_function")), SPANS))
    return pl.concat(parts)


def _match_returns(entered: Bools) -> tuple[Ints, Ints]:
    """Calls and their returns. Returns of calls before the recording are dropped; calls without a return end with the last record."""
    level = np.cumsum(np.where(entered, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(level, 0))
    previous = np.concatenate(([0], lowest[:-1])) if len(lowest) else lowest
    unopened = ~entered & (lowest < previous)
    depth = level - lowest + np.where(entered, 0, 1)  # a call and its return have the same depth
    matched = np.flatnonzero(~unopened)
    order = matched[np.argsort(depth[matched], kind="stable")]
    calls = order[entered[order]]
    following = np.append(order[1:], -1)[entered[order]] if len(order) else order
    closes = (following >= 0) & ~entered[following] & (depth[following] == depth[calls])
    return calls, np.where(closes, following, len(entered) - 1)


def _function_names(keys: NDArray[np.uint64], names: dict[int, str | None]) -> pl.Series:
    """Modules of one class are numbered in the order of their first calls."""
    counts: dict[str, int] = {}
    texts: dict[int, str] = {}
    distinct, first = np.unique(keys, return_index=True)
    for key in distinct[np.argsort(first)].tolist():
        name = names.get(key) or str(key)
        if _MODULE_MARK in name:
            kind = name.partition(_MODULE_MARK)[0]
            counts[kind] = counts.get(kind, -1) + 1
            name = f"nn.Module: {kind}_{counts[kind]}"
        texts[key] = name
    return pl.Series([texts[key] for key in keys.tolist()], dtype=pl.String)


def _garbage_collections(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = find_file(folder, "torch.gc_record")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    raw = tlv.read_fixed(file, _GARBAGE, problems)
    start, end, valid = convert_times(file, clock, raw["start"], raw["end"], problems)
    rows = pl.DataFrame({**int64(raw, "pid"), "start_ns": start, "dur_ns": end - start}).filter(pl.Series(valid))
    return rows.with_columns(thread="pid", name=pl.lit("GC"), kind=pl.lit("python"), category=pl.lit("gc"))


LOADERS = (_operators, _queue_calls, _python_calls, _garbage_collections)


def memory(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = find_file(folder, "torch.memory_usage")
    if file is None:
        return pl.DataFrame(schema=MEMORY)
    heads = tlv.read(file, _MEMORY, problems).heads
    at, _, valid = convert_times(file, clock, heads["at"], heads["at"], problems)
    rows = pl.DataFrame(
        {
            **int64(heads, "event", "pid", "thread", "device"),
            **float64(heads, "allocated", "reserved", "active"),
            "component": np.where(heads["component"] == 1, "WORKSPACE", "PTA"),
            "at_ns": at,
            "address": heads["address"],
            "bytes": np.abs(heads["bytes"]),
            "is_npu": heads["device_type"] == _NPU,
            "is_block": heads["allocator"] == 0,
        }
    ).filter(pl.Series(valid))
    return rows.with_columns(npu=pl.when("is_npu").then("device")).sort("at_ns", maintain_order=True)
