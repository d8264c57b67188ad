"""memory_record and operator_memory of msprof's folder: allocated and reserved memory over time, and the allocations of operators."""

import polars as pl

from stepscope.exporters.msprof.summaries import time, us
from stepscope.exporters.msprof.tasks import npu_samples
from stepscope.model.trace import Trace

_KIB = 1024
_COMPONENTS = {"cann": "GE", "pytorch": "PTA", "mindspore": "MindSpore"}  # the allocator of each framework


def tables(trace: Trace) -> dict[str, pl.DataFrame]:
    totals = _totals(trace)
    component = _COMPONENTS.get(trace.meta.framework)
    return {"memory_record": _record(totals, component), "operator_memory": _blocks(trace, totals)}


def _totals(trace: Trace) -> pl.DataFrame:
    """device, at_ns, allocated, reserved: of NPUs with memory counters of the framework or of the graph engine."""
    samples = npu_samples(trace)
    allocated, reserved = (
        samples.filter(pl.col("series") == series)
        .select("device", "at_ns", pl.col("value").alias(series))
        .unique(["device", "at_ns"], keep="last", maintain_order=True)
        for series in ("allocated", "reserved")
    )
    return allocated.join(reserved, on=["device", "at_ns"], how="left", maintain_order="left").sort("device", "at_ns", maintain_order=True)


def _record(totals: pl.DataFrame, component: str | None) -> pl.DataFrame:
    return totals.select(
        **{
            "Device_id": pl.col("device"),
            "Component": pl.lit(component, pl.String),
            "Timestamp(us)": time("at_ns"),
            "Total Allocated(KB)": pl.col("allocated") / _KIB,
            "Total Reserved(KB)": pl.col("reserved") / _KIB,
            "Device": pl.format("NPU:{}", "device"),
        }
    )


def _blocks(trace: Trace, totals: pl.DataFrame) -> pl.DataFrame:
    is_npu = (pl.col("owner").cast(pl.String) == "npu") & pl.col("number").is_not_null()
    blocks = trace.allocations.filter(is_npu, pl.col("alloc_ns").is_not_null())
    device = pl.col("number").cast(pl.Int32)
    rows = blocks.select("bytes", "alloc_ns", "free_ns", pl.col("op").cast(pl.String), device=device).collect()
    rows = rows.sort("device", "alloc_ns", maintain_order=True)
    for when in ("alloc", "free"):
        then = totals.rename({"allocated": f"{when}_allocated", "reserved": f"{when}_reserved", "at_ns": f"{when}_ns"})
        rows = rows.join(then, on=["device", f"{when}_ns"], how="left", maintain_order="left")
    return rows.select(
        **{
            "Device_id": pl.col("device"),
            "Name": pl.col("op"),
            "Size(KB)": pl.col("bytes") / _KIB,
            "Allocation Time(us)": time("alloc_ns"),
            "Duration(us)": us(pl.col("free_ns") - pl.col("alloc_ns")),
            "Allocation Total Allocated(KB)": pl.col("alloc_allocated") / _KIB,
            "Allocation Total Reserved(KB)": pl.col("alloc_reserved") / _KIB,
            "Release Total Allocated(KB)": pl.col("free_allocated") / _KIB,
            "Release Total Reserved(KB)": pl.col("free_reserved") / _KIB,
            "Device": pl.format("NPU:{}", "device"),
        }
    )
