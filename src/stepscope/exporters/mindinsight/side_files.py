"""FLOPs, memory and communication between ranks, for MindInsight's Ascend pages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.exporters.common.json_lines import write_json
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace

_CUBE = r"(?i)matmul|conv|gemm|attention|bmm|linear"
_NODES = 1000  # points in time with memory: MindInsight stores all live tensors at each of them
_GIB = 1 << 30

Waits = dict[tuple[int, int, str], int]


def write_flops(rows: pl.DataFrame, rank: int, folder: Path) -> None:
    """MFLOPs of a call and GFLOPS: of the cube unit for matrix products, else of the vector unit."""
    if rows.is_empty():
        return
    millions, rate = pl.col("flops") / pl.col("calls") / 1e6, pl.col("flops") / pl.col("total_ns")
    cube = pl.col("type").str.contains(_CUBE)
    table = rows.select(
        pl.col("full").alias("full_kernel_name"),
        pl.when(cube).then(millions).otherwise(0.0).alias(" MFLOPs(10^6 cube)"),
        pl.when(cube).then(rate).otherwise(0.0).alias(" GFLOPS(10^9 cube)"),
        pl.when(cube).then(0.0).otherwise(millions).alias(" MFLOPs(10^6 vector)"),
        pl.when(cube).then(0.0).otherwise(rate).alias(" GFLOPS(10^9 vector)"),
    )
    table.write_csv(folder / f"flops_{rank}.txt")
    sums = rows.group_by(cube.alias("cube")).agg(
        millions=(pl.col("flops") / pl.col("calls")).sum() / 1e6, rate=pl.col("flops").sum() / pl.col("total_ns").sum()
    )
    units = {bool(row["cube"]): row for row in sums.iter_rows(named=True)}
    none = {"millions": 0.0, "rate": 0.0}
    summary = {
        f"{unit}_{key}": units.get(is_cube, none)[column]
        for unit, is_cube in (("cube", True), ("vec", False))
        for key, column in (("FLOPs", "millions"), ("FLOPS", "rate"))
    }
    write_json(folder / f"flops_summary_{rank}.json", summary)


def has_memory(trace: Trace) -> bool:
    return _device_memory(trace).height > 0


def _device_memory(trace: Trace, pixels: int | None = None) -> pl.DataFrame:
    """Memory over time on the first device."""
    rows = trace.analyse("memory", pixels=pixels).filter(pl.col("device") != "cpu", pl.col("allocated_bytes").is_not_null())
    return rows.filter(pl.col("device") == pl.col("device").first()) if rows.height else rows


def write_memory(trace: Trace, rank: int, folder: Path) -> None:
    rows = _device_memory(trace, pixels=_NODES // 6)
    if rows.is_empty():
        return
    blocks = trace.allocations.filter(pl.col("device").cast(pl.String) == str(rows["device"][0])).collect()
    size = trace.devices.filter(pl.col("kind").cast(pl.String) != "cpu").select(pl.col("memory_bytes").max()).collect().item()
    peak, reserved, static = (rows[f"{name}_bytes"].max() or 0 for name in ("allocated", "reserved", "static"))
    summary = {
        # If the capacity is unknown, it is at least the reserved memory.
        "capacity": (size or max(peak, reserved)) / _GIB,  # type: ignore[operator]
        "allocations": blocks["alloc_ns"].count(),
        "deallocations": blocks["free_ns"].count(),
        "peak_mem": peak / _GIB,  # type: ignore[operator]
        "static_mem": static / _GIB,  # type: ignore[operator]
    }
    write_json(folder / f"memory_usage_summary_{rank}.json", summary)
    times = rows["at_ns"].to_numpy()
    nodes = [
        {"node_id": nth, "name": op or f"point {nth}", "fullname": op or f"point {nth}", "size": abs(change or 0) / _GIB,
         "allocated": allocated / _GIB, "inputs": [], "outputs": []}
        for nth, (op, change, allocated) in enumerate(rows.select("op", "change_bytes", "allocated_bytes").iter_rows())
    ]  # fmt: skip
    points = trace.analyse("step_trace").select("fp_start_ns", "bp_end_ns").drop_nulls().head(1)
    first, last = (int(np.searchsorted(times, at)) for at in points.row(0)) if points.height else (None, None)
    graph = {
        "graph_id": 0, "static_mem": summary["static_mem"], "fp_start": first, "bp_end": last, "nodes": nodes,
        "lines": [value / _GIB for value in rows["allocated_bytes"]], "breakdowns": [_live_tensors(blocks, at, times) for at in times],
    }  # fmt: skip
    write_json(folder / f"memory_usage_details_{rank}.json", {"0": graph})


def _live_tensors(blocks: pl.DataFrame, at: int, times: Ints) -> list[dict[str, Any]]:
    """The tensors that are live at a time. Start and end of their lifetimes are indices of `times`."""
    live = (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") <= at)) & (pl.col("free_ns").is_null() | (pl.col("free_ns") > at))
    rows = blocks.filter(live).sort("bytes", descending=True)
    texts = rows.select(pl.col("name", "op", "dtype", "shape", "format", "category").cast(pl.String).fill_null(""))
    start = np.searchsorted(times, rows["alloc_ns"].fill_null(int(times[0])).to_numpy())
    end = np.searchsorted(times, rows["free_ns"].fill_null(int(times[-1])).to_numpy())
    last = len(times) - 1
    return [
        {"tensor_name": name or op, "size": size / _GIB, "type": category, "data_type": dtype, "shape": shape, "format": layout,
         "life_start": min(int(since), last), "life_end": min(int(to), last)}
        for (name, op, dtype, shape, layout, category), size, since, to in zip(texts.iter_rows(), rows["bytes"], start, end, strict=True)
    ]  # fmt: skip


def wait_times(trace: Trace) -> Waits:
    """Time that calls wait for other ranks, by rank, step and operator. It needs all ranks."""
    if len(trace.meta.ranks) < 2 or not trace.table("links").select(pl.len()).collect().item():
        return {}
    waits: Waits = {}
    for step in trace.steps.select(pl.col("step").unique().sort()).collect().to_series():
        rows = trace.analyse("communication", steps=(step, step)).drop_nulls("wait_ns")
        for rank, name, wait in rows.select("rank", "name", "wait_ns").iter_rows():
            waits[rank, step, name] = waits.get((rank, step, name), 0) + wait
    return waits


def write_communication(trace: Trace, rank: int, folder: Path, waits: Waits) -> None:
    """Per step: communication and wait in ms; ms, KB and KB/s per link and transport; the same per operator. Then the mean."""
    links = trace.table("links").with_columns(pl.col("op", "transport").cast(pl.String)).collect()
    steps = trace.steps.select("step").sort("step").collect().to_series().to_list()
    if links.is_empty() or not steps:
        return
    calls = trace.analyse("reduces")
    rows = [_step_row(nth, step, links, calls, rank, waits) for nth, step in enumerate(steps, 1)]
    columns = ["step_num", "communication_cost", "wait_cost", "link_info", "communication_operator_cost"]
    means = [sum(row[index] for row in rows) / len(rows) for index in (1, 2)]
    average = ("-", *means, _link_info(links, len(steps)), {})
    table = [(row[0], row[1], row[2], json.dumps(row[3]), json.dumps(row[4])) for row in [*rows, average]]
    pl.DataFrame(table, columns, orient="row").write_csv(folder / f"hccl_raw_{rank}.csv")


def _step_row(nth: int, step: int, links: pl.DataFrame, calls: pl.DataFrame, rank: int, waits: Waits) -> tuple[Any, ...]:
    links, calls = links.filter(pl.col("step") == step), calls.filter(pl.col("step") == step)
    durations = dict(calls.group_by("name").agg(pl.col("dur_ns").sum()).iter_rows())
    operators = {}
    for name in dict.fromkeys([*durations, *links["op"].drop_nulls()]):
        wait = waits.get((rank, step, name), 0)
        time = max(durations.get(name, 0) - wait, 0)
        operators[name] = [str(nth), time / 1e6, wait / 1e6, _link_info(links.filter(pl.col("op") == name), 1)]
    cost, wait = (sum(values[index] for values in operators.values()) for index in (1, 2))
    return str(nth), cost, wait, _link_info(links, 1), operators


def _link_info(links: pl.DataFrame, steps: int) -> dict[str, dict[str, list[float]]]:
    """Per pair and transport: ms and KB per step, and KB/s, which are the bytes by the time."""
    info: dict[str, dict[str, list[float]]] = {}
    sums = links.drop_nulls(["src", "dst"]).group_by("src", "dst", "transport", maintain_order=True).agg(pl.col("dur_ns", "bytes").sum())
    for src, dst, transport, time, size in sums.iter_rows():
        rate = size / 1e3 / (time / 1e9) if time else 0.0
        info.setdefault(f"{src}-{dst}", {})[transport or "SDMA"] = [time / 1e6 / steps, size / 1e3 / steps, rate]
    return info
