"""What MindInsight's folders have beside what ran: the device, its memory, the input pipeline and its queues."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import units
from stepscope.readers import _minddata
from stepscope.readers import _mindinsight_cluster as cluster
from stepscope.readers._ascend_tables import column
from stepscope.readers._documents import exact, listed
from stepscope.readers._kineto import Problem
from stepscope.readers._mindinsight_files import COUNTERS, Folder, is_number


def devices(folder: Folder) -> pl.DataFrame:
    columns = {"device": pl.Int32, "kind": pl.String, "memory_bytes": pl.Int64, "step_flops": pl.Int64, "flops_per_s": pl.Float64}
    names = {file.name for file in folder.path.glob(f"*_{folder.rank}*")}
    if any(name.startswith(("aicore", "aicpu", "ascend", "framework_raw", "output_", "pynative", "hccl", "timeline_")) for name in names):
        kind = "aicore"
    elif any(name.startswith("gpu_") for name in names):
        kind = "gpu"
    elif any(name.startswith(("step_trace_raw", "memory_usage", "flops_")) for name in names):
        kind = "aicore"
    else:
        return pl.DataFrame(schema=columns)
    capacity = folder.object("memory_usage_summary_{}.json").get("capacity")
    size = round(float(str(capacity)) * 2**30) if is_number(capacity) and 0 < float(str(capacity)) < 2**32 else None
    return pl.DataFrame([(folder.rank, kind, size, *_flops_sums(folder))], columns, orient="row")


def _flops_sums(folder: Folder) -> tuple[int | None, float | None]:
    """FLOPs of a step, in millions, and FLOP/s, in billions; where each unit has its own, their rates are means that do not add up."""
    said = folder.object("flops_summary_{}.json")
    counts = [said[key] for key in ("FLOPs", "cube_FLOPs", "vec_FLOPs") if is_number(said.get(key))]
    rate = said.get("FLOPS")
    total = sum(float(str(one)) for one in counts) * 1e6
    return round(total) if counts and 0 <= total < 2**62 else None, float(str(rate)) * 1e9 if is_number(rate) else None


def memory(folder: Folder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tensors alive in the order of execution, of every graph: a microsecond for each node, as there are no times."""
    samples: list[tuple[str, int, float, str]] = []
    blocks: list[tuple[Any, ...]] = []
    device, first, odd = f"npu {folder.rank}", 0, 0
    for graph in folder.object("memory_usage_details_{}.json").values():
        if not isinstance(graph, dict):
            continue
        lines = [line for line in listed(graph.get("lines")) if is_number(line)]
        samples += [(f"allocated {device}", (first + order) * 1000, float(line) * 2**30, "bytes") for order, line in enumerate(lines)]
        seen: set[str] = set()
        for tensors in listed(graph.get("breakdowns")):
            for tensor in listed(tensors):
                text = json.dumps(tensor, sort_keys=True)
                if text in seen:
                    continue
                seen.add(text)
                try:
                    size, start, end = exact(tensor["size"], 2**30), tensor.get("life_start"), tensor.get("life_end")
                    alloc = None if start is None else exact((first + exact(start)) * 1000)
                    free = None if end is None else exact((first + exact(end) + 1) * 1000)
                    if size < 0 or (alloc is not None and free is not None and free < alloc):
                        raise ValueError("a size below zero, or a life that ends before it begins")
                    said = [_text(tensor.get(key)) if key != "shape" else tensor.get(key) for key in _TENSOR]
                    shape = None if said[2] is None else json.dumps(said[2])
                    blocks.append((device, size, alloc, free, *said[:2], shape, *said[3:]))
                except (KeyError, TypeError, ValueError):
                    odd += 1
        first += max(len(lines), len(listed(graph.get("nodes"))), 1)
    if first:
        folder.problems.append(
            Problem(
                "memory_usage_details",
                "memory is MindSpore's prediction, in the order of execution: a microsecond stands for a node",
                0,
            )
        )
    if odd:
        folder.problems.append(
            Problem("memory_usage_details", f"{units.count(odd, 'tensor')} without a size or with an impossible life", odd)
        )
    texts: dict[str, type[pl.DataType]] = dict.fromkeys(("name", "dtype", "shape", "format", "category"), pl.String)
    return (
        pl.DataFrame(samples, COUNTERS, orient="row"),
        pl.DataFrame(
            blocks,
            {"device": pl.String, "bytes": pl.Int64, "alloc_ns": pl.Int64, "free_ns": pl.Int64} | texts,
            orient="row",
            strict=False,
        ),
    )


def pipeline(folder: Folder) -> pl.DataFrame:
    found = _minddata.pipeline(folder.path, str(folder.rank))
    if found.height:
        return found
    rows = folder.table("minddata_pipeline_raw_{}.csv")
    if "op_id" not in rows.columns:
        return found
    return rows.select(
        op_id=pl.col("op_id").cast(pl.Int32, strict=False),
        op_type=column(rows, "op_type"),
        workers=column(rows, "num_workers").cast(pl.Int32, strict=False),
        parent=column(rows, "parent_id").cast(pl.Int32, strict=False),
        queue_capacity=column(rows, "output_queue_length").cast(pl.Int32, strict=False),
    )


def queues(folder: Folder, first: int) -> Iterator[pl.DataFrame]:
    """Samples without times begin at the first moment that is known."""
    since = first + folder.shift_ns
    noted: list[tuple[str, str, int]] = []
    header = {"monotonic_offset_ns": [folder.shift_ns]}
    yield from _minddata.counters(folder.path, header, noted, str(folder.rank), since)
    yield from _minddata.machine(folder.path, str(folder.rank), folder.shift_ns)
    if folder.file("pipeline_profiling_{}.json") is None:
        rows = folder.table("minddata_pipeline_raw_{}.csv")
        for row in rows.iter_rows(named=True):
            sizes = cluster.decoded(row.get("output_queue_size"))
            interval = row.get("sample_interval") or 1
            every = float(interval) * 1e6 if is_number(interval) and abs(float(interval)) < 2**32 else 1e6
            if isinstance(sizes, list):
                sizes = [size if is_number(size) else None for size in sizes]
                at = [round(every * nth) + since for nth in range(len(sizes))]
                columns = {
                    "name": f"queue {row['op_id']} {row.get('op_type') or ''}".strip(),
                    "at_ns": at,
                    "value": sizes,
                    "unit": "rows",
                }
                yield pl.DataFrame(columns, COUNTERS, strict=False)
    for name, scale in (("minddata_aicpu_{}.txt", 1e3), ("minddata_getnext_profiling_{}.txt", 1.0)):
        if (file := folder.file(name)) is not None:
            yield _get_next(folder, file, scale)
    folder.problems += [Problem(where, what, lost) for where, what, lost in noted]


def _get_next(folder: Folder, file: Path, scale: float) -> pl.DataFrame:
    """`GetNext_... start end size` of the queue on the device; microseconds on Ascend, nanoseconds on a GPU."""
    samples, odd = [], 0
    for line in file.read_text("utf-8", "replace").splitlines():
        cells = line.split()
        if not cells or not cells[0].startswith("GetNext"):
            continue
        try:
            begin, finish, size = float(cells[1]), float(cells[2]), float(cells[3])
            at = exact(finish, scale) + folder.shift_ns
        except (ValueError, IndexError):
            odd += 1
            continue
        samples += [("queue device", at, size, "rows"), ("batch time device", at, (finish - begin) * scale / 1e6, "ms")]
    if odd:
        folder.problems.append(Problem(file.name, f"{units.count(odd, 'line')} without start, end and size", odd))
    return pl.DataFrame(samples, COUNTERS, orient="row")


_TENSOR = ("tensor_name", "data_type", "shape", "format", "type")


def _text(value: object) -> str | None:
    return None if value is None else str(value)
