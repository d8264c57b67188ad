"""What torch_npu and MindSpore record of themselves: the raw files in FRAMEWORK of a result folder.

    torch.op_range, mindspore.op_range              operators on the host
    torch.op_mark                                   the queue between the thread that asks for operators and the one that launches them
    torch.memory_usage, mindspore.memory_usage      blocks of the allocator
    torch.python_tracer_func, torch.python_tracer_hash, torch.gc_record       Python's calls and its garbage collector

Times are readings of the host's counter, or nanoseconds of the monotonic clock; only MindSpore's memory has the time of day.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import units
from stepscope.intervals import Bools, Ints
from stepscope.readers import _ascend_tlv
from stepscope.readers._ascend_texts import json_list
from stepscope.readers._kineto import Problem
from stepscope.readers._prof_device import paired
from stepscope.readers._prof_files import Clock
from stepscope.readers._prof_host import Around

_OP = np.dtype(
    [
        *[("start", "<u8"), ("end", "<u8"), ("sequence", "<i8"), ("pid", "<u8"), ("thread", "<u8"), ("end_thread", "<u8")],
        *[("forward", "<u8"), ("scope", "u1"), ("asynchronous", "u1")],
    ]
)
_MARK = np.dtype([("at", "<u8"), ("category", "<u8"), ("queue", "<u8"), ("thread", "<u8"), ("pid", "<u8")])
_MEMORY = np.dtype(
    [
        *[("address", "<u8"), ("at", "<u8"), ("bytes", "<i8"), ("allocated", "<i8"), ("reserved", "<i8"), ("active", "<i8")],
        *[("stream", "<i8"), ("device_type", "i1"), ("device", "i1"), ("component", "u1"), ("what", "u1"), ("allocator", "u1")],
        *[("thread", "<u8"), ("pid", "<u8")],
    ]
)
_FRAME = np.dtype([("at", "<u8"), ("thread", "<u8"), ("pid", "<u8"), ("key", "<u8"), ("tag", "u1")])
_GARBAGE = np.dtype([("pid", "<u8"), ("start", "<u8"), ("end", "<u8")])
_MINDSPORE_OP = np.dtype(
    [
        *[("thread", "<u8"), ("flow", "<u8"), ("step", "<u8"), ("start", "<u8"), ("end", "<u8"), ("pid", "<i4"), ("module", "<u2")],
        *[("event", "<u2"), ("stage", "<u2"), ("level", "i1"), ("of_graph", "?"), ("of_stage", "?"), ("of_stack", "?")],
    ]
)
_MINDSPORE_MEMORY = np.dtype(
    [
        *[("device", "<i4"), ("thread", "<u8"), ("pid", "<u8"), ("at", "<u8"), ("address", "<u8"), ("bytes", "<u8"), ("used", "<u8")],
        *[("peak", "<u8"), ("reserved", "<u8"), ("used_by_event", "<u8"), ("eager_free", "<u8"), ("stream_ptr", "<u8")],
        *[("stream", "<u4"), ("from_persistent", "u1"), ("persistent", "u1"), ("mode", "u1"), ("kind", "u1")],
    ]
)
_NOTHING = 2**64 - 1
_NPU = 20  # PyTorch's number for devices of this kind
_MODULE_MARK = "######"  # between a module's class and its number
_FILES = (
    "torch.op_range",
    "torch.op_mark",
    "torch.memory_usage",
    "torch.python_tracer_func",
    "mindspore.op_range",
    "mindspore.memory_usage",
)

SPANS: dict[str, Any] = {
    "kind": pl.String,
    "category": pl.String,
    "name": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "pid": pl.Int64,
    "thread": pl.Int64,
    "op_type": pl.String,
    "shapes": pl.String,
    "dtypes": pl.String,
    "flops": pl.Int64,
    "module": pl.String,
    "args": pl.String,
    "queue": pl.Int64,  # both ends of the queue have the same
    "forward": pl.Int64,  # row of the forward operator, or of what handed this over
}
MEMORY: dict[str, Any] = {
    "component": pl.String,
    "at_ns": pl.Int64,
    "what": pl.Int64,  # 0 taken, 1 given back, 2 no longer in use by the device
    "address": pl.UInt64,
    "bytes": pl.Int64,
    "allocated": pl.Float64,
    "reserved": pl.Float64,
    "active": pl.Float64,
    "device": pl.String,
    "pid": pl.Int64,
    "thread": pl.Int64,
    "owner": pl.String,
    "of_block": pl.Boolean,  # whether the record is of a block that an operator takes; others are of memory that other libraries ask for
}


class Framework(NamedTuple):
    spans: pl.DataFrame
    memory: pl.DataFrame
    name: str  # pytorch, mindspore


def claims(folder: Path) -> bool:
    return folder.is_dir() and any(_file(folder, name) for name in _FILES)


def read(folder: Path, clock: Clock, problems: list[Problem]) -> Framework:
    pytorch = any(_file(folder, name) for name in _FILES if name.startswith("torch"))
    found = [_torch_operators, _marks, _frames, _garbage] if pytorch else [_mindspore_operators]
    parts = [pl.DataFrame(schema=SPANS)]
    for part in found:
        rows = part(folder, clock, problems)
        before = sum(one.height for one in parts)
        parts.append(_typed(rows, SPANS).with_columns(pl.col("forward") + before))
    memory = _torch_memory(folder, clock, problems) if pytorch else _mindspore_memory(folder, problems)
    named = {*(f"{name}" for name in _FILES), "torch.gc_record", "torch.python_tracer_hash"}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("torch.", "mindspore.")) and not any(path.name.startswith(name) for name in named):
            problems.append(Problem(path.name, f"not read: {units.count(path.stat().st_size, 'byte')}", 0))
    return Framework(pl.concat(parts), _typed(memory, MEMORY), "pytorch" if pytorch else "mindspore")


def _file(folder: Path, name: str) -> Path | None:
    """`name`, or the same with something behind it."""
    return next((path for path in sorted(folder.glob(f"{name}*")) if path.is_file()), None)


def _typed(rows: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    return rows.select(
        (pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name)) for name, dtype in columns.items()
    )


def _whole(column: NDArray[Any]) -> Ints:
    return column.astype(np.int64)


def _times(file: Path, clock: Clock, start: NDArray[Any], end: NDArray[Any], problems: list[Problem]) -> tuple[Ints, Ints, Bools]:
    """In nanoseconds of the time of day; and which can be."""
    starts, ends = clock.ns(start.astype(np.uint64)), clock.ns(end.astype(np.uint64))
    possible: Bools = clock.plausible(starts, ends) & (ends >= starts) & (start > 0)
    if not possible.all():
        problems.append(Problem(file.name, "records with times that cannot be", int((~possible).sum())))
    return starts, ends, possible


# PyTorch


def _torch_operators(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = _file(folder, "torch.op_range")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    found = _ascend_tlv.read(file, _OP, problems)
    start, end, possible = _times(file, clock, found.heads["start"], found.heads["end"], problems)
    rows = pl.DataFrame(
        {
            "start_ns": start,
            "dur_ns": end - start,
            "pid": _whole(found.heads["pid"]),
            "thread": _whole(found.heads["thread"]),
            "sequence": found.heads["sequence"],
            "forward_thread": _whole(found.heads["forward"]),
            "name": found.text(2).fill_null("?"),
            "dtypes": _listed(found.text(3)),
            "shapes": _listed(found.text(4)),
            "stack": found.text(8),
            "module": found.text(9).replace("", None),
            "flops": found.text(10).cast(pl.Int64, strict=False),
        }
    ).filter(pl.Series(possible))
    name = pl.col("name")
    kind = (
        pl.when(name.str.contains(r"^ProfilerStep#\d+"))
        .then(pl.lit("step"))
        .when(name.str.starts_with("enumerate(DataLoader)#"))
        .then(pl.lit("data"))
        .when(name.str.contains(r"^Optimizer\.|^mstx_"))
        .then(pl.lit("annotation"))
        .otherwise(pl.lit("op"))
    )
    about = pl.struct(
        pl.col("sequence").alias("Sequence number"), pl.col("forward_thread").alias("Fwd thread id"), pl.col("stack").alias("Call stack")
    )
    rows = rows.with_columns(
        kind=kind, category=pl.lit("cpu_op"), op_type=pl.when(kind == "op").then("name"), args=about.struct.json_encode()
    )
    return rows.with_columns(forward=_forward(rows))


def _forward(rows: pl.DataFrame) -> pl.Series:
    """Of a backward operator the last forward one with the same number: it has no thread of a forward pass to tell of."""
    numbered = rows.with_row_index("row").filter(pl.col("sequence") >= 0).sort("start_ns", maintain_order=True)
    came = numbered.filter(pl.col("forward_thread") == 0).select("sequence", forward=pl.col("row").cast(pl.Int64))
    back = numbered.filter(pl.col("forward_thread") != 0).unique("sequence", keep="last", maintain_order=True)
    pairs = back.join(came.unique("sequence", keep="last"), on="sequence", maintain_order="left")
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, rows.height).scatter(pairs["row"], pairs["forward"])


def _listed(text: pl.Series) -> pl.Series:
    distinct = text.unique().drop_nulls()
    known = distinct.filter(distinct != "")
    return text.replace_strict(known, pl.Series([json_list(one) for one in known], dtype=pl.String), default=None, return_dtype=pl.String)


def _marks(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    """An operator that is put into the queue by one thread and taken out by another, each from its start to its end."""
    file = _file(folder, "torch.op_mark")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    found = _ascend_tlv.read(file, _MARK, problems)
    at, _, possible = _times(file, clock, found.heads["at"], found.heads["at"], problems)
    heads, name, at = found.heads[possible], found.text(1).fill_null("").filter(pl.Series(possible)), at[possible]
    key = pl.DataFrame({"thread": heads["thread"], "name": name, "taken": heads["category"] // 2}).select(
        pl.struct(pl.all()).rank("dense").cast(pl.Int64)
    )
    starts, ends, alone = paired(key.to_series().to_numpy(), at, heads["category"] % 2 == 0)
    if any(alone):
        problems.append(Problem(file.name, "marks of the queue without their start or end", sum(alone)))
    rows = pl.DataFrame(
        {
            "start_ns": at[starts],
            "dur_ns": at[ends] - at[starts],
            "pid": _whole(heads["pid"][ends]),
            "thread": _whole(heads["thread"][ends]),
            "queue": _whole(heads["queue"][ends]),
            "taken": heads["category"][ends] >= 2,
            "origin": name.gather(ends),
        }
    )
    names = rows.filter("taken").select("queue", known="origin").unique("queue", keep="first")
    rows = rows.join(names, on="queue", how="left", maintain_order="left")
    put = (
        rows.with_row_index("row")
        .filter(~pl.col("taken"))
        .select("queue", forward=pl.col("row").cast(pl.Int64))
        .unique("queue", keep="first")
    )
    rows = rows.join(put, on="queue", how="left", maintain_order="left")
    word = pl.when("taken").then(pl.lit("Dequeue")).otherwise(pl.lit("Enqueue"))
    return rows.with_columns(
        name=pl.concat_str(word, pl.coalesce(pl.format("@{}", "known"), pl.lit(""))),
        category=word.str.to_lowercase(),
        kind=pl.lit("api"),
        forward=pl.when("taken").then("forward"),
        args=pl.struct(correlation_id="queue").struct.json_encode(),
    )


def _frames(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    """Python's calls, from the moments at which functions are entered (even tags) and left (odd ones)."""
    file, words = _file(folder, "torch.python_tracer_func"), _file(folder, "torch.python_tracer_hash")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    raw = _cut(file, _FRAME, problems)
    at, _, possible = _times(file, clock, raw["at"], raw["at"], problems)
    raw, at = raw[possible], at[possible]
    order = np.lexsort((at, raw["thread"]))  # stable: what happens at the same time stays in the order of the file
    raw, at = raw[order], at[order]
    entered = raw["tag"] % 2 == 0
    parts = [pl.DataFrame(schema=SPANS)]
    hashes = _ascend_tlv.read(words, np.dtype([("key", "<u8")]), problems) if words else None
    names = dict(zip(hashes.heads["key"].tolist(), hashes.text(1).to_list(), strict=True)) if hashes else {}
    for thread in np.unique(raw["thread"]):
        mine = np.flatnonzero(raw["thread"] == thread)
        first, last = _calls(entered[mine])
        keys = raw["key"][mine[first]]
        words_of = _named(keys, names)
        rows = pl.DataFrame(
            {
                "start_ns": at[mine[first]],
                "dur_ns": at[mine[last]] - at[mine[first]],
                "pid": _whole(raw["pid"][mine[first]]),
                "thread": _whole(raw["thread"][mine[first]]),
                "name": words_of,
            }
        )
        module = pl.col("name").str.starts_with("nn.Module: ")
        parts.append(
            _typed(
                rows.with_columns(
                    kind=pl.when(module).then(pl.lit("scope")).otherwise(pl.lit("python")), category=pl.lit("python_function")
                ),
                SPANS,
            )
        )
    return pl.concat(parts)


def _calls(entered: Bools) -> tuple[Ints, Ints]:
    """Which call ends with which return. What returns first began before; what never returns ends with the last moment."""
    level = np.cumsum(np.where(entered, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(level, 0))
    before = np.concatenate(([0], lowest[:-1])) if len(lowest) else lowest
    strange = ~entered & (lowest < before)
    depth = level - lowest + np.where(entered, 0, 1)  # a call and its return have the same
    known = np.flatnonzero(~strange)
    order = known[np.argsort(depth[known], kind="stable")]
    calls = order[entered[order]]
    after = np.append(order[1:], -1)[entered[order]] if len(order) else order
    closes = (after >= 0) & ~entered[after] & (depth[after] == depth[calls])
    return calls, np.where(closes, after, len(entered) - 1)


def _named(keys: NDArray[np.uint64], names: dict[int, str | None]) -> pl.Series:
    """Modules of one class are counted, in the order in which they are first called."""
    counts: dict[str, int] = {}
    words: dict[int, str] = {}
    distinct, first = np.unique(keys, return_index=True)
    for key in distinct[np.argsort(first)].tolist():
        name = names.get(key) or str(key)
        if _MODULE_MARK in name:
            kind = name.partition(_MODULE_MARK)[0]
            counts[kind] = counts.get(kind, -1) + 1
            name = f"nn.Module: {kind}_{counts[kind]}"
        words[key] = name
    return pl.Series([words[key] for key in keys.tolist()], dtype=pl.String)


def _garbage(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = _file(folder, "torch.gc_record")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    raw = _cut(file, _GARBAGE, problems)
    start, end, possible = _times(file, clock, raw["start"], raw["end"], problems)
    pid = _whole(raw["pid"])
    rows = pl.DataFrame({"start_ns": start, "dur_ns": end - start, "pid": pid, "thread": pid}).filter(pl.Series(possible))
    return rows.with_columns(name=pl.lit("GC"), kind=pl.lit("python"), category=pl.lit("gc"))


def _cut(file: Path, layout: np.dtype[Any], problems: list[Problem]) -> NDArray[Any]:
    data = file.read_bytes()
    if rest := len(data) % layout.itemsize:
        problems.append(
            Problem(file.name, f"{units.count(rest, 'byte at the end belongs', 'bytes at the end belong')} to no whole record", 1)
        )
    return np.frombuffer(data, layout, count=len(data) // layout.itemsize)


def _torch_memory(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = _file(folder, "torch.memory_usage")
    if file is None:
        return pl.DataFrame(schema=MEMORY)
    heads = _ascend_tlv.read(file, _MEMORY, problems).heads
    at, _, possible = _times(file, clock, heads["at"], heads["at"], problems)
    npu = heads["device_type"] == _NPU
    rows = pl.DataFrame(
        {
            "component": np.where(heads["component"] == 1, "WORKSPACE", "PTA"),
            "at_ns": at,
            "what": _whole(heads["what"]),
            "address": heads["address"],
            "bytes": np.abs(heads["bytes"]),
            "allocated": heads["allocated"].astype(np.float64),
            "reserved": heads["reserved"].astype(np.float64),
            "active": heads["active"].astype(np.float64),
            "number": _whole(heads["device"]),
            "npu": npu,
            "pid": _whole(heads["pid"]),
            "thread": _whole(heads["thread"]),
            "of_block": heads["allocator"] == 0,
        }
    ).filter(pl.Series(possible))
    return rows.with_columns(device=pl.when("npu").then(pl.format("npu {}", "number")).otherwise(pl.lit("cpu"))).sort(
        "at_ns", maintain_order=True
    )


# MindSpore: numbers stand for these words.

_MODULES = "Default GraphExecutorPy RuntimeFramework PynativeFramework Kernel Python Capture Other"
_STAGES = "Default Python Capture RunGraph RunGrad RunOp Asnumpy CompileGradGraph WaitPipeline SyncStream"
_EVENTS = """
Default KernelInfer KernelResize KernelInferAndResize KernelLaunch KernelLaunckCallback KernelUpdate KernelPrepareData GraphLaunch
InputProcess OutputProcess WaitTaskFinish PreLaunch PostLaunch SendOutput MemoryAlloc MemoryFree CopyData StreamSync ProcessMultiStream
WaitKernelsInferFinish WaitKernelsResizeFinish WaitKernelsLaunchFinish KernelInferInner KernelInferDataSync KernelResizeInner
KernelLaunchInner BackendGraphRunInner RunOp PyNativeFrontendTask PyNativeBackendTask PyNativeDeviceTask PyNativeLaunchTask
PyNativeBpropTask Wait PyNativeGilAcquire PyNativeCast PyNativeInfer PyNativeOpCompile PyNativeGradExpander PyNativeGradUpdateSens
PyNativeGradClearTopCell PyNativeGradClearAutoGradCell PyBoostInferOutput PyBoostInferByOpDef PyBoostCreateOutputTensor PyBoostDeviceTask
PyBoostMallocInput PyBoostMallocOutput PyBoostLaunchAclnn PyBoostLaunchAtb PyNativeNewGraph PyNativeEndGraph PythonObserved
CaptureRunGraph CaptureProcess CaptureCompile CaptureGuard AclnnHitCacheStage1 AclnnHitCacheStage2 AclnnMissCacheStage1
AclnnMissCacheStage2 AclnnUpdateAddress AclnnRunOp RunExpanderFunc EmitOp Execute ReleaseResource NativeFunc
"""
_OPERATORS = r"^(KernelLaunch|RunOp|PyNativeLaunchTask|PyBoostDeviceTask|PyNativeDeviceTask)$"
_WAITS = r"^(Wait\w*|StreamSync|SyncStream)$"


def _mindspore_operators(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = _file(folder, "mindspore.op_range")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    found = _ascend_tlv.read(file, _MINDSPORE_OP, problems)
    heads = found.heads
    start, end, possible = _times(file, clock, heads["start"], heads["end"], problems)
    rows = pl.DataFrame(
        {
            "start_ns": start,
            "dur_ns": end - start,
            "pid": _whole(heads["pid"]),
            "thread": _whole(heads["thread"]),
            "flow": heads["flow"],
            "step": _whole(heads["step"]),
            "of_graph": heads["of_graph"],
            "of_stage": heads["of_stage"],
            "of_stack": heads["of_stack"],
            "stage": _word(heads["stage"], _STAGES),
            "own_module": _word(heads["module"], _MODULES),
            "own_event": _word(heads["event"], _EVENTS),
            "word": found.text(13).fill_null(""),
            "full": found.text(14).fill_null(""),
            "graph_module": found.text(15).fill_null(""),
            "graph_event": found.text(16).fill_null(""),
            "custom": found.text(17),
        }
    ).filter(pl.Series(possible))
    event = pl.when("of_graph").then("graph_event").otherwise("own_event")
    module = pl.when("of_graph").then("graph_module").otherwise("own_module")
    of = pl.when("of_graph").then("word").otherwise("full")
    name = (
        pl.when("of_stack")
        .then("word")
        .when(~pl.col("of_graph") & pl.col("of_stage"))
        .then("stage")
        .otherwise(pl.concat_str(module, event, of, separator="::"))
    )
    kind = (
        pl.when("of_stack")
        .then(pl.lit("python"))
        .when(name.str.contains(r"ProfilerStep#\d+"))
        .then(pl.lit("step"))
        .when(pl.col("dur_ns") == 0)
        .then(pl.lit("instant"))
        .when(event.str.contains(_WAITS) | (name == "SyncStream"))
        .then(pl.lit("sync"))
        .when(~pl.col("of_graph") & pl.col("of_stage"))
        .then(pl.lit("annotation"))
        .when(event.str.contains(_OPERATORS) & (of != ""))
        .then(pl.lit("op"))
        .otherwise(pl.lit("other"))
    )
    rows = rows.with_columns(name=name, kind=kind, own_type=of.str.extract(r"([^/]*?)(?:-op\d+)?(?:_\d+)?$"), of=of)
    handed = rows.filter((pl.col("word") == "flow") & (pl.col("flow") != _NOTHING))
    rows = rows.filter(pl.col("word") != "flow")
    return rows.with_columns(
        category=pl.when("of_stack").then(pl.lit("python_function")).otherwise(pl.concat_str(module, event, separator="::")),
        op_type=pl.when(pl.col("kind") == "op").then("own_type"),
        module=pl.when((pl.col("kind") == "op") & pl.col("of").str.contains("/")).then(pl.col("of").str.extract(r"^(.*)/[^/]*$")),
        args=pl.struct("step", custom="custom").struct.json_encode(),
        forward=_handed(rows, handed),
    )


def _word(numbers: NDArray[Any], names: str) -> pl.Series:
    words = names.split()
    known = pl.Series(numbers.astype(np.int64))
    return known.replace_strict(list(range(len(words))), words, default=known.cast(pl.String), return_dtype=pl.String)


def _handed(rows: pl.DataFrame, handed: pl.DataFrame) -> pl.Series:
    """What was going on where a flow began, for the row at which it ends."""
    ends = rows.with_row_index("row").filter(pl.col("flow") != _NOTHING).select("flow", end=pl.col("row").cast(pl.Int64))
    calls = rows.with_row_index("row").select(
        "row", "thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), level=pl.lit("any")
    )
    found = Around(in_order(calls)).find("any", handed["thread"].to_numpy(), handed["start_ns"].to_numpy())
    begins = handed.select("flow", begin=pl.Series(found)).filter(pl.col("begin") >= 0)
    pairs = ends.join(begins, on="flow").filter(pl.col("begin") != pl.col("end")).unique("end", keep="first", maintain_order=True)
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, rows.height).scatter(pairs["end"], pairs["begin"])


def in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """As `Around` wants them."""
    return calls.sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)


def _mindspore_memory(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    file = _file(folder, "mindspore.memory_usage")
    if file is None:
        return pl.DataFrame(schema=MEMORY)
    found = _ascend_tlv.read(file, _MINDSPORE_MEMORY, problems)
    heads = found.heads
    freed = heads["bytes"] == _NOTHING
    return pl.DataFrame(
        {
            "component": np.full(len(heads), "MindSpore"),
            "at_ns": _whole(heads["at"]),
            "what": freed.astype(np.int64),
            "address": heads["address"],
            "bytes": np.where(freed, 0, heads["bytes"]).astype(np.int64),
            "allocated": heads["used"].astype(np.float64),
            "reserved": heads["reserved"].astype(np.float64),
            "number": _whole(heads["device"]),
            "pid": _whole(heads["pid"]),
            "thread": _whole(heads["thread"]),
            "owner": found.text(13),
            "of_block": np.full(len(heads), True),
        }
    ).with_columns(device=pl.format("npu {}", "number")).sort("at_ns", maintain_order=True)  # fmt: skip
