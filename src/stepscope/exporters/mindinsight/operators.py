"""The operator pages of MindInsight: AI cores, AI CPUs, GPU kernels, and operators on the host."""

import json
from pathlib import Path

import polars as pl

from stepscope.exporters.mindinsight import side_files
from stepscope.model.trace import Trace


def write_operators(trace: Trace, rank: int, pages: str, folder: Path, origin: int) -> None:
    if pages == "ascend":  # its pages are about cores: transfers and copies are on other pages
        computing = trace.spans.filter(~pl.col("kind").is_in(["communication", "copy", "set"]))
        trace = Trace(trace.tables | {"spans": computing}, trace.meta)
    rows = trace.analyse("operators").with_columns(full=_full_name(), last=_last_part("name"))
    types = trace.analyse("operator_types")
    host, host_types = rows.filter(pl.col("device") == "cpu"), types.filter(pl.col("device") == "cpu")
    if pages == "ascend":
        _write_ai_core(rows.filter(pl.col("device") == "aicore"), types.filter(pl.col("device") == "aicore"), rank, folder)
        _write_ai_cpu(trace, rank, folder, origin)
    elif pages == "gpu":
        on_device = rows.filter(pl.col("device") != "cpu")
        if on_device.height:
            _write_gpu(on_device, types.filter(pl.col("device") != "cpu"), "Device", rank, folder)
        else:
            _write_gpu(host, host_types, "Host", rank, folder)
        _write_kernels(trace, rank, folder)
    # MindInsight shows a folder with host operators as heterogeneous training, and hides its memory.
    if host.height and not (pages == "ascend" and side_files.has_memory(trace)):
        steps = max(trace.steps.select(pl.len()).collect().item(), 1)
        _write_host(host, host_types, steps, rank, folder)


def _write_ai_core(rows: pl.DataFrame, types: pl.DataFrame, rank: int, folder: Path) -> None:
    if rows.is_empty():
        return
    # MindInsight splits the file of FLOPs at commas, also within quotes.
    rows = rows.with_columns(full=pl.col("full").str.replace_all(",", ";"))
    names = rows.group_by("full", maintain_order=True).agg(
        pl.col("calls", "total_ns", "flops").sum(), pl.col("type", "last", "shapes", "dtypes").first(), counted=pl.col("flops").count()
    )
    types.select(
        kernel_type="type", total_time=_ms("total_ns"), execution_frequency="calls", percent="share"
    ).write_csv(folder / f"aicore_intermediate_{rank}_type.csv")  # fmt: skip
    names.select(
        full_kernel_name="full", execution_time=_ms("total_ns") / pl.col("calls"), execution_frequency="calls"
    ).write_csv(folder / f"aicore_intermediate_{rank}_detail.csv")  # fmt: skip
    operands = [_operands(*row) for row in names.select("shapes", "dtypes").iter_rows()]
    top = pl.col("full").str.extract(r"^(Default|Gradients|recompute_Default)/").fill_null("Default")
    names.select(
        task_id=pl.int_range(pl.len()), stream_id=pl.lit(0), block_dim=pl.lit(0), full_kernel_name="full", op_name="full",
        kernel_name="last", kernel_type="type", subgraph=top, op_info=pl.Series(operands, dtype=pl.String), graph_id=pl.lit(0),
    ).write_csv(folder / f"framework_raw_{rank}.csv")  # fmt: skip
    side_files.write_flops(names.filter(pl.col("counted") > 0), rank, folder)


def _operands(shapes: str | None, dtypes: str | None) -> str:
    inputs = {}
    types = _parse_list(dtypes)
    for nth, shape in enumerate(_parse_list(shapes)):
        sizes = shape if isinstance(shape, list) else []
        data_type = str(types[nth]) if nth < len(types) else ""
        inputs[f"input_{nth}"] = {"format": "DefaultFormat", "data_type": data_type, "shape": ",".join(map(str, sizes))}
    return json.dumps(inputs)


def _parse_list(text: str | None) -> list[object]:
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _write_ai_cpu(trace: Trace, rank: int, folder: Path, origin: int) -> None:
    """Every call. MindInsight reads the part before the first hyphen as the type."""
    calls = (
        trace.spans.filter(pl.col("kind") == "kernel", pl.col("category").cast(pl.String).str.contains("AI_?CPU"))
        .select("start_ns", "dur_ns", "args", pl.col("name", "op_type").cast(pl.String))
        .sort("start_ns")
        .collect()
    )
    if calls.is_empty():
        return
    op_type = pl.coalesce("op_type", "name").str.replace_all("-", "_")
    last = _last_part("name")
    start = pl.col("start_ns") - origin
    calls.select(
        serial_number=pl.int_range(1, pl.len() + 1),
        kernel_type=pl.when(last.str.starts_with(pl.format("{}-", op_type))).then(last).otherwise(op_type),
        total_time=_ms("dur_ns"),
        dispatch_time=pl.col("args").str.json_path_match("$.dispatch_time").fill_null("0"),
        execution_time=_ms("dur_ns"),
        run_start=start / 1000,
        run_end=(start + pl.col("dur_ns")) / 1000,
    ).write_csv(folder / f"aicpu_intermediate_{rank}.csv")


def _write_gpu(rows: pl.DataFrame, types: pl.DataFrame, side: str, rank: int, folder: Path) -> None:
    """Device work by the operator that launched it; without a device, the operators themselves with their self time."""
    time, on_device = ("total_ns", pl.lit(True)) if side == "Device" else ("self_ns", pl.lit(False))
    types.select(
        pl.col("type").alias("op_type"), pl.col("calls").alias("type_occurrences"), _us(time).alias("total_time(us)"),
        pl.col("share").alias("total_proportion"), (_us(time) / pl.col("calls")).alias("avg_time(us)"),
    ).write_csv(folder / f"gpu_op_type_info_{rank}.csv")  # fmt: skip
    rows.select(
        pl.lit(side).alias("op_side"), pl.col("type").alias("op_type"), pl.col("last").alias("op_name"),
        pl.col("full").alias("op_full_name"), pl.col("calls").alias("op_occurrences"), _us(time).alias("op_total_time(us)"),
        (_us(time) / pl.col("calls")).alias("op_avg_time(us)"),
        pl.col("share").alias("total_proportion"), pl.when(on_device).then(_us(time)).otherwise(0.0).alias("cuda_activity_cost_time(us)"),
        pl.when(on_device).then("calls").otherwise(0).alias("cuda_activity_call_count"),
    ).write_csv(folder / f"gpu_op_detail_info_{rank}.csv")  # fmt: skip


def _write_kernels(trace: Trace, rank: int, folder: Path) -> None:
    rows = trace.analyse("kernels", copies=True, by_scope=True)
    if rows.is_empty():
        return
    copies = trace.spans.filter(pl.col("kind").is_in(["copy", "set"])).select(pl.col("name", "kind").cast(pl.String)).unique().collect()
    calls = {"copy": "cuMemcpy", "set": "cuMemset"}
    activity = pl.col("name").replace_strict(dict(copies.iter_rows()), default=None, return_dtype=pl.String)
    activity = activity.replace_strict(calls, default="cuLaunchKernel", return_dtype=pl.String)
    full_name = pl.concat_str([pl.when(pl.col("scope") != "").then("scope"), pl.coalesce("op", "name")], separator="/", ignore_nulls=True)
    sizes = [pl.col(name).str.replace_all("x", ",").fill_null("").alias(f"{name}_dim") for name in ("block", "grid")]
    rows.select(
        pl.col("name"), activity.alias("type"), full_name.alias("op_full_name"), pl.col("stream").alias("stream_id"), *sizes,
        pl.col("calls").alias("occurrences"), *(_us(f"{word}_ns").alias(f"{word}_duration(us)") for word in ("total", "avg", "max", "min")),
    ).write_csv(folder / f"gpu_activity_data_{rank}.csv")  # fmt: skip


def _write_host(rows: pl.DataFrame, types: pl.DataFrame, steps: int, rank: int, folder: Path) -> None:
    """Operators on the host with their self time, so that they add up."""
    types.select(
        pl.col("type").alias("op_type"), pl.col("calls").alias("type_occurrences"),
        (pl.col("calls") / steps).round().cast(pl.Int64).alias("execution_frequency(per-step)"), _ms("self_ns").alias("total_compute_time"),
        (_ms("self_ns") / pl.col("calls")).alias("avg_time(ms)"), pl.col("share").alias("percent"),
    ).write_csv(folder / f"cpu_op_type_info_{rank}.csv")  # fmt: skip
    rows.select(
        pl.lit("Host").alias("op_side"), pl.col("type").alias("op_type"), pl.col("last").alias("op_name"),
        pl.col("full").alias("full_op_name"), pl.col("calls").alias("op_occurrences"), _ms("self_ns").alias("op_total_time(ms)"),
        (_ms("self_ns") / pl.col("calls")).alias("op_avg_time(ms)"), pl.col("share").alias("total_proportion"),
        pl.col("full").str.extract(r"^(Default|Gradients)/").fill_null("Default").alias("subgraph"), pl.lit(0).alias("pid"),
    ).write_csv(folder / f"cpu_op_detail_info_{rank}.csv")  # fmt: skip


def _full_name() -> pl.Expr:
    """Scope and operator, as MindSpore names an operator."""
    separate = pl.col("scope").is_not_null() & (pl.col("scope") != "") & ~pl.col("name").str.starts_with(pl.format("{}/", "scope"))
    return pl.when(separate.fill_null(False)).then(pl.format("{}/{}", "scope", _last_part("name"))).otherwise("name")


def _last_part(column: str) -> pl.Expr:
    return pl.coalesce(pl.col(column).str.extract(r"([^/]+)$"), column)


def _ms(column: str) -> pl.Expr:
    return (pl.col(column) / 1e6).round(6)


def _us(column: str) -> pl.Expr:
    return (pl.col(column) / 1e3).round(6)
