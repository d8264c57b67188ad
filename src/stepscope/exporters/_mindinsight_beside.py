"""What MindInsight shows beside operators and steps, on its Ascend pages: FLOPs, memory, and communication between ranks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.trace import Trace

_CUBE = r"(?i)matmul|conv|gemm|attention|bmm|linear"
_NODES = 1000  # moments of memory that are written: MindInsight keeps all tensors alive at each of them
_GIB = 1 << 30

Waits = dict[tuple[int, int, str], int]


def flops(rows: pl.DataFrame, rank: int, folder: Path) -> None:
    """Millions of FLOPs of a call, and billions a second: of the cube unit for matrix products, else of the vector unit."""
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
    of = {bool(row["cube"]): row for row in sums.iter_rows(named=True)}
    nothing = {"millions": 0.0, "rate": 0.0}
    summary = {
        f"{word}_{key}": of.get(which, nothing)[column]
        for word, which in (("cube", True), ("vec", False))
        for key, column in (("FLOPs", "millions"), ("FLOPS", "rate"))
    }
    _write_json(folder / f"flops_summary_{rank}.json", summary)


# Memory


def has_memory(trace: Trace) -> bool:
    return _of_device(trace.analyse("memory")).height > 0


def _of_device(moments: pl.DataFrame) -> pl.DataFrame:
    """The moments of the first device that is not the host."""
    rows = moments.filter(pl.col("device") != "cpu", pl.col("allocated_bytes").is_not_null())
    return rows.filter(pl.col("device") == pl.col("device").first()) if rows.height else rows


def memory(trace: Trace, rank: int, folder: Path) -> None:
    rows = _of_device(trace.analyse("memory", pixels=_NODES // 6))
    if rows.is_empty():
        return
    device = str(rows["device"][0])
    blocks = trace.allocations.filter(pl.col("device").cast(pl.String) == device).collect()
    size = trace.devices.filter(pl.col("kind").cast(pl.String) != "cpu").select(pl.col("memory_bytes").max()).collect().item()
    peak = int(str(rows["allocated_bytes"].max()))
    static = (int(str(rows["static_bytes"].max() or 0))) / _GIB
    summary = {
        # Where nobody says how much the device has, it has at least what was reserved.
        "capacity": (size or max(peak, int(str(rows["reserved_bytes"].max() or 0)))) / _GIB,
        "allocations": blocks["alloc_ns"].count(),
        "deallocations": blocks["free_ns"].count(),
        "peak_mem": peak / _GIB,
        "static_mem": static,
    }
    _write_json(folder / f"memory_usage_summary_{rank}.json", summary)
    moments = rows["at_ns"].to_numpy()
    nodes = [
        {"node_id": nth, "name": op or f"moment {nth}", "fullname": op or f"moment {nth}", "size": abs(change or 0) / _GIB,
         "allocated": allocated / _GIB, "inputs": [], "outputs": []}
        for nth, (op, change, allocated) in enumerate(rows.select("op", "change_bytes", "allocated_bytes").iter_rows())
    ]  # fmt: skip
    points = trace.analyse("step_trace").select("fp_start_ns", "bp_end_ns").drop_nulls().head(1)
    first, last = (int(np.searchsorted(moments, at)) for at in points.row(0)) if points.height else (None, None)
    graph = {
        "graph_id": 0, "static_mem": static, "fp_start": first, "bp_end": last, "nodes": nodes,
        "lines": [value / _GIB for value in rows["allocated_bytes"]], "breakdowns": [_alive(blocks, at, moments) for at in moments],
    }  # fmt: skip
    _write_json(folder / f"memory_usage_details_{rank}.json", {"0": graph})


def _alive(blocks: pl.DataFrame, at: int, moments: "np.ndarray[Any, Any]") -> list[dict[str, Any]]:
    """The tensors alive at a moment; their life counts in moments."""
    there = (pl.col("alloc_ns").is_null() | (pl.col("alloc_ns") <= at)) & (pl.col("free_ns").is_null() | (pl.col("free_ns") > at))
    rows = blocks.filter(there).sort("bytes", descending=True)
    texts = rows.select(pl.col("name", "op", "dtype", "shape", "format", "category").cast(pl.String).fill_null(""))
    start = np.searchsorted(moments, rows["alloc_ns"].fill_null(int(moments[0])).to_numpy())
    end = np.searchsorted(moments, rows["free_ns"].fill_null(int(moments[-1])).to_numpy())
    last = len(moments) - 1
    return [
        {"tensor_name": name or op, "size": size / _GIB, "type": category, "data_type": dtype, "shape": shape, "format": layout,
         "life_start": min(int(since), last), "life_end": min(int(to), last)}
        for (name, op, dtype, shape, layout, category), size, since, to in zip(texts.iter_rows(), rows["bytes"], start, end, strict=True)
    ]  # fmt: skip


# Communication


def waits(trace: Trace) -> Waits:
    """By rank, step and operator: how long its calls wait for other ranks. It takes all ranks to tell."""
    if len(trace.meta.ranks) < 2 or not trace.table("links").select(pl.len()).collect().item():
        return {}
    found: Waits = {}
    for step in trace.steps.select(pl.col("step").unique().sort()).collect().to_series():
        rows = trace.analyse("communication", steps=(step, step)).drop_nulls("wait_ns")
        for rank, name, wait in rows.select("rank", "name", "wait_ns").iter_rows():
            found[rank, step, name] = found.get((rank, step, name), 0) + wait
    return found


def communication(trace: Trace, rank: int, folder: Path, waits: Waits) -> None:
    """Per step: communication and wait in ms, and for each link and transport ms, KB and KB/s; again for each operator; then the mean."""
    links = trace.table("links").with_columns(pl.col("op", "transport").cast(pl.String)).collect()
    if links.is_empty():
        return
    calls = trace.analyse("reduces")
    steps = trace.steps.select("step").sort("step").collect().to_series().to_list()
    rows = [_of_step(nth, step, links, calls, rank, waits) for nth, step in enumerate(steps, 1)]
    if not rows:
        return
    columns = ["step_num", "communication_cost", "wait_cost", "link_info", "communication_operator_cost"]
    times = [sum(row[at] for row in rows) / len(rows) for at in (1, 2)]
    average = ("-", *times, _link_info(links, len(steps)), {})
    written = [(row[0], row[1], row[2], json.dumps(row[3]), json.dumps(row[4])) for row in [*rows, average]]
    pl.DataFrame(written, columns, orient="row").write_csv(folder / f"hccl_raw_{rank}.csv")


def _of_step(nth: int, step: int, links: pl.DataFrame, calls: pl.DataFrame, rank: int, waits: Waits) -> tuple[Any, ...]:
    own, took = links.filter(pl.col("step") == step), calls.filter(pl.col("step") == step)
    by_name = dict(took.group_by("name").agg(pl.col("dur_ns").sum()).iter_rows())
    operators = {}
    for name in dict.fromkeys([*by_name, *own["op"].drop_nulls()]):
        wait = waits.get((rank, step, name), 0)
        time = max(by_name.get(name, 0) - wait, 0)
        operators[name] = [str(nth), time / 1e6, wait / 1e6, _link_info(own.filter(pl.col("op") == name), 1)]
    cost, wait = (sum(values[at] for values in operators.values()) for at in (1, 2))
    return str(nth), cost, wait, _link_info(own, 1), operators


def _link_info(links: pl.DataFrame, over: int) -> dict[str, dict[str, list[float]]]:
    """The rate is the bytes by the time."""
    found: dict[str, dict[str, list[float]]] = {}
    sums = links.drop_nulls(["src", "dst"]).group_by("src", "dst", "transport", maintain_order=True).agg(pl.col("dur_ns", "bytes").sum())
    for src, dst, transport, time, size in sums.iter_rows():
        rate = size / 1e3 / (time / 1e9) if time else 0.0
        found.setdefault(f"{src}-{dst}", {})[transport or "SDMA"] = [time / 1e6 / over, size / 1e3 / over, rate]
    return found


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), "utf-8")
