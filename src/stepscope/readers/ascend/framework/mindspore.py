"""MindSpore's raw files: operators and memory."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.readers.ascend.common.kinds import first_match
from stepscope.readers.ascend.framework import tlv
from stepscope.readers.ascend.framework.columns import MEMORY, SPANS, convert_times, find_file, float64, int64, scatter, sort_calls
from stepscope.readers.ascend.prof.files import Clock
from stepscope.readers.ascend.prof.host.records import Around
from stepscope.readers.common.problems import Problem

_OP = np.dtype(
    [
        *[("thread", "<u8"), ("flow", "<u8"), ("step", "<u8"), ("start", "<u8"), ("end", "<u8"), ("pid", "<i4"), ("module", "<u2")],
        *[("event", "<u2"), ("stage", "<u2"), ("level", "i1"), ("in_graph", "?"), ("is_stage", "?"), ("is_stack", "?")],
    ]
)
_MEMORY = np.dtype(
    [
        *[("device", "<i4"), ("thread", "<u8"), ("pid", "<u8"), ("at", "<u8"), ("address", "<u8"), ("bytes", "<u8"), ("allocated", "<u8")],
        *[("peak", "<u8"), ("reserved", "<u8"), ("used_by_event", "<u8"), ("eager_free", "<u8"), ("stream_ptr", "<u8")],
        *[("stream", "<u4"), ("from_persistent", "u1"), ("persistent", "u1"), ("mode", "u1"), ("kind", "u1")],
    ]
)
_NONE = 2**64 - 1
# The words of the numbers in the records.
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


def operators(folder: Path, clock: Clock, problems: list[Problem]) -> pl.DataFrame:
    file = find_file(folder, "mindspore.op_range")
    if file is None:
        return pl.DataFrame(schema=SPANS)
    records = tlv.read(file, _OP, problems)
    heads, in_graph = records.heads, pl.Series(records.heads["in_graph"])
    start, end, valid = convert_times(file, clock, heads["start"], heads["end"], problems)
    text = {field: records.text(field).fill_null("") for field in (13, 14, 15, 16)}
    rows = pl.DataFrame(
        {
            **int64(heads, "pid", "thread", "step"),
            "start_ns": start,
            "dur_ns": end - start,
            "flow": heads["flow"],
            "is_stage": heads["is_stage"] & ~heads["in_graph"],
            "is_stack": heads["is_stack"],
            "stage": _words(heads["stage"], _STAGES),
            "module": text[15].zip_with(in_graph, _words(heads["module"], _MODULES)),
            "event": text[16].zip_with(in_graph, _words(heads["event"], _EVENTS)),
            "text": text[13],
            "operator": text[13].zip_with(in_graph, text[14]),
            "custom": records.text(17),
        }
    ).filter(pl.Series(valid))
    event = pl.concat_str("module", "event", separator="::")
    name = pl.when("is_stack").then("text").when("is_stage").then("stage").otherwise(pl.concat_str(event, pl.lit("::"), "operator"))
    rows = rows.with_columns(
        name=name, category=pl.when("is_stack").then(pl.lit("python_function")).otherwise(event)
    )  # fmt: skip
    rows = rows.with_columns(kind=_kind())
    flows = rows.filter((pl.col("text") == "flow") & (pl.col("flow") != _NONE))
    rows = rows.filter(pl.col("text") != "flow")
    operator, is_op = pl.col("operator"), pl.col("kind") == "op"
    return rows.with_columns(
        op_type=pl.when(is_op).then(operator.str.extract(r"([^/]*?)(?:-op[0-9]+)?(?:_[0-9]+)?$")),
        module=pl.when(is_op & operator.str.contains("/")).then(operator.str.extract(r"^(.*)/[^/]*$")),
        args=pl.struct("step", "custom").struct.json_encode(),
        forward=_flow_starts(rows, flows),
    )


def _kind() -> pl.Expr:
    event = pl.col("event")
    return first_match(
        (pl.col("is_stack"), "python"),
        (pl.col("name").str.contains(r"ProfilerStep#\d+"), "step"),
        (pl.col("dur_ns") == 0, "instant"),
        (event.str.contains(_WAITS) | (pl.col("name") == "SyncStream"), "sync"),
        (pl.col("is_stage"), "annotation"),
        (event.str.contains(_OPERATORS) & (pl.col("operator") != ""), "op"),
        default="other",
    )


def _words(numbers: NDArray[Any], names: str) -> pl.Series:
    """The words of these numbers; the number itself if it has none."""
    words = names.split()
    column = pl.Series(numbers.astype(np.int64))
    return column.replace_strict(list(range(len(words))), words, default=column.cast(pl.String), return_dtype=pl.String)


def _flow_starts(rows: pl.DataFrame, flows: pl.DataFrame) -> pl.Series:
    """The call in which a flow started, for the row at which it ends."""
    ends = rows.with_row_index("row").filter(pl.col("flow") != _NONE).select("flow", end=pl.col("row").cast(pl.Int64))
    calls = rows.with_row_index("row").select(
        "row", "thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), level=pl.lit("any")
    )
    around = Around(sort_calls(calls)).find("any", flows["thread"].to_numpy(), flows["start_ns"].to_numpy())
    begins = flows.select("flow", begin=pl.Series(around)).filter(pl.col("begin") >= 0)
    pairs = ends.join(begins, on="flow").filter(pl.col("begin") != pl.col("end")).unique("end", keep="first", maintain_order=True)
    return scatter(rows.height, pairs["end"], pairs["begin"])


def memory(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    file = find_file(folder, "mindspore.memory_usage")
    if file is None:
        return pl.DataFrame(schema=MEMORY)
    records = tlv.read(file, _MEMORY, problems)
    heads = records.heads
    freed = heads["bytes"] == _NONE
    rows = pl.DataFrame(
        {
            **int64(heads, "pid", "thread", "device"),
            **float64(heads, "allocated", "reserved"),
            "at_ns": heads["at"].astype(np.int64),
            "event": freed.astype(np.int64),
            "address": heads["address"],
            "bytes": np.where(freed, 0, heads["bytes"]).astype(np.int64),
            "op": records.text(13),
        }
    )
    return rows.with_columns(component=pl.lit("MindSpore"), is_block=pl.lit(True), npu="device").sort("at_ns", maintain_order=True)
