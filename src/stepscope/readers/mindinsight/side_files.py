"""The device, its memory, the input pipeline and its queues."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.columns.counters import COLUMNS
from stepscope.readers.ascend.common.tables import column, report_lost
from stepscope.readers.common import minddata
from stepscope.readers.common.documents import as_list, to_int
from stepscope.readers.common.problems import Problem
from stepscope.readers.mindinsight.files import Folder, is_number, parse_cell

_ASCEND_FILES = ("aicore", "aicpu", "ascend", "framework_raw", "output_", "pynative", "hccl", "timeline_")
_BLOCKS = {"device": pl.String, "owner": pl.String, "number": pl.Int64, "bytes": pl.Int64, "alloc_ns": pl.Int64, "free_ns": pl.Int64}
_BLOCKS |= dict.fromkeys(("name", "dtype", "format", "category", "shape"), pl.String)


def devices(folder: Folder) -> pl.DataFrame:
    columns = {"device": pl.Int32, "kind": pl.String, "memory_bytes": pl.Int64, "step_flops": pl.Int64, "flops_per_s": pl.Float64}
    names = {file.name for file in folder.path.glob(f"*_{folder.rank}*")}
    kinds = ((_ASCEND_FILES, "aicore"), (("gpu_",), "gpu"), (("step_trace_raw", "memory_usage", "flops_"), "aicore"))
    kind = next((kind for prefixes, kind in kinds if any(name.startswith(prefixes) for name in names)), None)
    if kind is None:
        return pl.DataFrame(schema=columns)
    capacity = folder.object("memory_usage_summary_{}.json").get("capacity")
    size = round(float(str(capacity)) * 2**30) if is_number(capacity) and 0 < float(str(capacity)) < 2**32 else None
    return pl.DataFrame([(folder.rank, kind, size, *_flops_sums(folder))], columns, orient="row")


def _flops_sums(folder: Folder) -> tuple[int | None, float | None]:
    """FLOPs of a step (the file has millions), and FLOP/s (billions). The rates of cube and vector unit are means that do not add up."""
    summary = folder.object("flops_summary_{}.json")
    counts = [summary[key] for key in ("FLOPs", "cube_FLOPs", "vec_FLOPs") if is_number(summary.get(key))]
    rate = summary.get("FLOPS")
    total = sum(float(str(count)) for count in counts) * 1e6
    return round(total) if counts and 0 <= total < 2**62 else None, float(str(rate)) * 1e9 if is_number(rate) else None


def memory(folder: Folder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Counters and allocations of all graphs, in the order of execution: a microsecond per node, as the file has no times."""
    samples: list[tuple[Any, ...]] = []
    blocks: list[tuple[Any, ...]] = []
    device, first, invalid = f"npu {folder.rank}", 0, 0
    for graph in folder.object("memory_usage_details_{}.json").values():
        if not isinstance(graph, dict):
            continue
        lines = [line for line in as_list(graph.get("lines")) if is_number(line)]
        counter = ("allocated", "npu", folder.rank)
        samples += [
            (f"allocated {device}", (first + order) * 1000, float(line) * 2**30, "bytes", *counter) for order, line in enumerate(lines)
        ]
        tensors = {json.dumps(tensor, sort_keys=True): tensor for alive in as_list(graph.get("breakdowns")) for tensor in as_list(alive)}
        for tensor in tensors.values():
            try:
                blocks.append((device, "npu", folder.rank, *_block(tensor, first)))
            except (KeyError, TypeError, ValueError):
                invalid += 1
        first += max(len(lines), len(as_list(graph.get("nodes"))), 1)
    if first:
        text = "memory is MindSpore's prediction in the order of execution: each node is drawn as a microsecond"
        folder.problems.append(Problem("memory_usage_details", text, 0))
    report_lost(folder.problems, "memory_usage_details", invalid, "tensor", "without a size or with an invalid lifetime")
    return pl.DataFrame(samples, COLUMNS, orient="row"), pl.DataFrame(blocks, _BLOCKS, orient="row", strict=False)


def _block(tensor: dict[str, Any], first: int) -> tuple[Any, ...]:
    size, start, end = to_int(tensor["size"], 2**30), tensor.get("life_start"), tensor.get("life_end")
    alloc = None if start is None else to_int((first + to_int(start)) * 1000)
    free = None if end is None else to_int((first + to_int(end) + 1) * 1000)
    if size < 0 or (alloc is not None and free is not None and free < alloc):
        raise ValueError("a negative size, or a lifetime that ends before it starts")
    texts = (tensor.get(key) for key in ("tensor_name", "data_type", "format", "type"))
    shape = tensor.get("shape")
    return size, alloc, free, *(None if text is None else str(text) for text in texts), None if shape is None else json.dumps(shape)


def pipeline(folder: Folder) -> pl.DataFrame:
    operators = minddata.pipeline(folder.path, str(folder.rank))
    if operators.height or "op_id" not in (rows := folder.table("minddata_pipeline_raw_{}.csv")).columns:
        return operators
    numbers = {"workers": "num_workers", "parent": "parent_id", "queue_capacity": "output_queue_length"}
    return rows.select(
        op_id=pl.col("op_id").cast(pl.Int32, strict=False),
        op_type=column(rows, "op_type"),
        **{name: column(rows, source).cast(pl.Int32, strict=False) for name, source in numbers.items()},
    )


def queue_counters(folder: Folder, first_ns: int) -> Iterator[pl.DataFrame]:
    """Counters of the input pipeline. Samples without times start at `first_ns`."""
    origin = first_ns + folder.shift_ns
    problems: list[tuple[str, str, int]] = []
    header = {"monotonic_offset_ns": [folder.shift_ns]}
    yield from minddata.counters(folder.path, header, problems, str(folder.rank), origin)
    yield from minddata.machine_counters(folder.path, str(folder.rank), folder.shift_ns)
    if folder.file("pipeline_profiling_{}.json") is None:
        for row in folder.table("minddata_pipeline_raw_{}.csv").iter_rows(named=True):
            sizes = parse_cell(row.get("output_queue_size"))
            interval = row.get("sample_interval") or 1
            interval_ns = float(interval) * 1e6 if is_number(interval) and abs(float(interval)) < 2**32 else 1e6
            if isinstance(sizes, list):
                depths = [float(size) if is_number(size) else None for size in sizes]
                series = minddata.queue_series(row["op_id"], row.get("op_type") or "", depths)
                yield series.frame([round(interval_ns * nth) + origin for nth in range(len(sizes))])
    for name, scale in (("minddata_aicpu_{}.txt", 1e3), ("minddata_getnext_profiling_{}.txt", 1.0)):
        if (file := folder.file(name)) is not None:
            yield _get_next_counters(folder, file, scale)
    folder.problems += [Problem(*problem) for problem in problems]


def _get_next_counters(folder: Folder, file: Path, scale: float) -> pl.DataFrame:
    """`GetNext_... start end size` of the queue on the device; microseconds on Ascend, nanoseconds on a GPU."""
    samples, invalid = [], 0
    for line in file.read_text("utf-8", "replace").splitlines():
        cells = line.split()
        if not cells or not cells[0].startswith("GetNext"):
            continue
        try:
            start, end, size = float(cells[1]), float(cells[2]), float(cells[3])
            at = to_int(end, scale) + folder.shift_ns
        except (ValueError, IndexError):
            invalid += 1
            continue
        samples += [
            ("queue device", at, size, "rows", "depth", "device", None),
            ("batch time device", at, (end - start) * scale / 1e6, "ms", "batch time device", None, None),
        ]
    report_lost(folder.problems, file.name, invalid, "line", "without start, end and size")
    return pl.DataFrame(samples, COLUMNS, orient="row")
