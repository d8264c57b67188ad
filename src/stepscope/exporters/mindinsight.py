"""A training folder that MindInsight 2.3.1 lists and shows, also for recordings of other frameworks: the files of its `profiler` folder.

What a device ran fills its Ascend pages or its GPU pages. Its CPU pages have operators only, so a recording of the CPU alone fills the GPU
pages as well, with operators of the side Host; `--pages cpu` fills the CPU pages instead. The folder that OUT lies in is MindInsight's
`--summary-base-dir`. Every rank has files of its own.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import UsageError
from stepscope.exporters import _mindinsight_beside as beside
from stepscope.exporters import _mindinsight_data as data
from stepscope.exporters import chrome, whole
from stepscope.parameters import check_word
from stepscope.trace import Trace

_PAGES = ("ascend", "gpu", "cpu")
_COUNT_NS = 10  # step traces are counts of the system's clock


def export(trace: Trace, out: Path, *, overwrite: bool = False, pages: str | None = None) -> None:
    if pages is not None:
        check_word("MindInsight pages", pages, _PAGES)
    if overwrite and out.exists() and not (out.is_dir() and [entry.name for entry in out.iterdir()] == ["profiler"]):
        raise UsageError(f"{out} holds more than a profiler folder, so it is not replaced; choose another name")
    # MindInsight computes with floats of milliseconds: times count from just before the first one, and `diff_time` says when that was.
    origin = trace.ends()[0] // 1000 * 1000 - 1_000_000
    with whole(out, overwrite=overwrite) as folder:
        profiler = folder / "profiler"
        profiler.mkdir(parents=True)
        waits = beside.waits(trace)
        for rank in trace.meta.ranks or [0]:
            own = trace.of_rank(rank)
            chosen = pages or _pages(own)
            _information(trace, own, rank, profiler, origin)
            _steps(own, rank, profiler, origin)
            _operators(own, rank, chosen, profiler, origin)
            _timeline(own, rank, chosen, profiler)
            data.write(own, rank, profiler, origin, on_gpu=chosen != "ascend")
            beside.communication(own, rank, profiler, waits)
            if chosen == "ascend":
                beside.memory(own, rank, profiler)


def _pages(trace: Trace) -> str:
    kinds = set(trace.devices.select(pl.col("kind").cast(pl.String)).collect().to_series())
    return "ascend" if kinds & {"aicore", "aicpu"} else "gpu"


def _information(trace: Trace, own: Trace, rank: int, folder: Path, origin: int) -> None:
    said = own.meta.extra
    information: dict[str, Any] = {
        # MindInsight shows no step trace of any other mode, and none of a heterogeneous training.
        "context_mode": "graph",
        "is_heterogeneous": False,
        "rank_id": str(rank),
        "rank_size": str(own.meta.world_size or len(trace.meta.ranks) or 1),
        "parallel_mode": said.get("parallel_mode") or "data_parallel",
        "stage_num": said.get("stage_num") or 1,
        "diff_time": -(origin // 1000),
        "all_export": False,
    }
    if version := own.meta.versions.get("mindspore"):
        information["ms_version"] = version
    _write_json(folder / f"profiler_info_{rank}.json", information)
    # What only our own reader asks for.
    (folder / f"stepscope_{rank}.json").write_bytes(msgspec.json.encode(chrome.header_of(own, rank)))


# Steps


def _steps(trace: Trace, rank: int, folder: Path, origin: int) -> None:
    """Interval, forward and backward, tail; the last row is the average. A step whose stages are unknown is all forward and backward."""
    rows = trace.analyse("step_trace")
    if rows.is_empty():
        return
    start, end = pl.col("start_ns"), pl.col("end_ns")
    forward = pl.when(pl.col("interval_ns").is_not_null()).then(start + pl.col("interval_ns")).otherwise(start)
    backward = pl.when(pl.col("tail_ns").is_not_null()).then(end - pl.col("tail_ns")).otherwise(end)
    points = rows.select("step", start_point=start, end_point=end, fp_point=forward, bp_point=backward)
    points = points.with_columns((pl.exclude("step") - origin + _COUNT_NS // 2) // _COUNT_NS)
    trains = rows["bp_end_ns"].count() > 0 or rows["interval_ns"].count() == 0
    between = {"total": ("start_point", "end_point"), "iteration_interval": ("start_point", "fp_point")}
    between |= {"fp_and_bp": ("fp_point", "bp_point"), "tail": ("bp_point", "end_point")} if trains else {"fp": ("fp_point", "bp_point")}
    table = points.with_columns((pl.col(to) - pl.col(since)).alias(name) for name, (since, to) in between.items())
    backwards = ["bp_point", "iteration_interval", "fp_and_bp", "tail"] if trains else ["fp", "iteration_interval"]
    table = table.select("step", "start_point", "end_point", "total", "fp_point", *backwards)
    table = table.join(_transfers(trace, origin), on="step", how="left", maintain_order="left")
    # MindInsight takes the nth row for step n.
    numbered = table.with_columns(step=pl.int_range(1, pl.len() + 1).cast(pl.String)).rename({"step": "step_num"})
    average = numbered.select(pl.lit("-").alias("step_num"), pl.exclude("step_num").mean().round().cast(pl.Int64))
    # A transfer that a step does not have is 0, which MindInsight leaves out.
    pl.concat([numbered, average]).fill_null(0).write_csv(folder / f"step_trace_raw_{rank}_detail_time.csv")
    points_of = {
        "fp_start": _named(trace, rows, "fp_start", "start_ns"),
        "bp_end": _named(trace, rows, "bp_end", "end_ns") if trains else "",
    }
    _write_json(folder / f"step_trace_point_info_{rank}.json", points_of)


def _named(trace: Trace, steps: pl.DataFrame, point: str, edge: str) -> str:
    """The operator of a point in most steps. MindInsight takes a training whose backward pass ends with nothing for an inference."""
    known = steps[f"{point}_op"].drop_nulls()
    if known.is_empty():
        work = trace.spans.filter(pl.col("kind").is_in(["op", "kernel"])).select(
            "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), name=pl.col("name").cast(pl.String)
        )
        moments = steps.lazy().select(pl.col(f"{point}_ns").alias(edge)).drop_nulls()
        known = work.join(moments, on=edge, how="semi").select("name").collect().to_series()
    return str(known.mode().sort()[0]) if known.len() else "-"


def _transfers(trace: Trace, origin: int) -> pl.DataFrame:
    """Per step, three columns for each transfer: `stream_7_1_AllReduce-op3` and its start and end."""
    rows = trace.analyse("reduces").filter(pl.col("dur_ns") > 0)
    streams = {label: _number(label, index) for index, label in enumerate(rows["stream"].unique(maintain_order=True).to_list())}
    number = pl.col("stream").replace_strict(streams, return_dtype=pl.Int64) if streams else pl.lit(0)
    nth = pl.int_range(1, pl.len() + 1).over("step", "stream", "name")
    slot = pl.format("stream_{}_{}_{}", number, nth, "name")
    begin, finish = ((pl.col(name) - origin + _COUNT_NS // 2) // _COUNT_NS for name in ("start_ns", "end_ns"))
    long = rows.with_columns(slot=slot, start_point=begin, end_point=finish)
    table = rows.select("step").unique(maintain_order=True)
    for (name,), calls in long.group_by("slot", maintain_order=True):
        columns = calls.select(
            "step",
            pl.col("start_point").alias(f"{name}_start_point"),
            pl.col("end_point").alias(f"{name}_end_point"),
            (pl.col("end_point") - pl.col("start_point")).alias(str(name)),
        )
        table = table.join(columns, on="step", how="left", maintain_order="left")
    return table


def _number(label: str | None, index: int) -> int:
    digits = (label or "").rpartition(" ")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 1_000_000 + index


# Operators


def _operators(trace: Trace, rank: int, pages: str, folder: Path, origin: int) -> None:
    if pages == "ascend":  # its pages are about cores: transfers and copies are elsewhere
        trace = Trace(trace.tables | {"spans": trace.spans.filter(~pl.col("kind").is_in(["communication", "copy", "set"]))}, trace.meta)
    rows = trace.analyse("operators").with_columns(full=_full_name(), last=_last_part("name"))
    types = trace.analyse("operator_types")
    host, host_types = rows.filter(pl.col("device") == "cpu"), types.filter(pl.col("device") == "cpu")
    if pages == "ascend":
        _ai_core(rows.filter(pl.col("device") == "aicore"), types.filter(pl.col("device") == "aicore"), rank, folder)
        _ai_cpu(trace, rank, folder, origin)
    elif pages == "gpu":
        on_device = rows.filter(pl.col("device") != "cpu")
        side = "Device" if on_device.height else "Host"
        chosen, of = (on_device, types.filter(pl.col("device") != "cpu")) if on_device.height else (host, host_types)
        _gpu(chosen, of, side, rank, folder)
        _kernels(trace, rank, folder)
    steps = max(trace.steps.select(pl.len()).collect().item(), 1)
    # MindInsight takes a folder with host operators for one of heterogeneous training, and hides its memory.
    if host.height and not (pages == "ascend" and beside.has_memory(trace)):
        _host(host, host_types, steps, rank, folder)


def _ai_core(rows: pl.DataFrame, types: pl.DataFrame, rank: int, folder: Path) -> None:
    if rows.is_empty():
        return
    # The file of FLOPs is cut at commas, quotes or not.
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
    beside.flops(names.filter(pl.col("counted") > 0), rank, folder)


def _operands(shapes: str | None, dtypes: str | None) -> str:
    try:
        sizes, types = (json.loads(text) if text else [] for text in (shapes, dtypes))
    except ValueError:
        sizes, types = [], []
    listed = [size if isinstance(size, list) else [] for size in sizes] if isinstance(sizes, list) else []
    said = types if isinstance(types, list) else []
    return json.dumps(
        {
            f"input_{nth}": {
                "format": "DefaultFormat",
                "data_type": str(said[nth]) if nth < len(said) else "",
                "shape": ",".join(str(number) for number in size),
            }
            for nth, size in enumerate(listed)
        }
    )


def _ai_cpu(trace: Trace, rank: int, folder: Path, origin: int) -> None:
    """Every call. MindInsight takes what stands before the first hyphen for the type."""
    calls = (
        trace.spans.filter(pl.col("kind") == "kernel", pl.col("category").cast(pl.String).str.contains("AI_?CPU"))
        .select("start_ns", "dur_ns", "args", pl.col("name", "op_type").cast(pl.String))
        .sort("start_ns")
        .collect()
    )
    if calls.is_empty():
        return
    kind = pl.coalesce("op_type", "name").str.replace_all("-", "_")
    last = _last_part("name")
    begin = pl.col("start_ns") - origin
    calls.select(
        serial_number=pl.int_range(1, pl.len() + 1),
        kernel_type=pl.when(last.str.starts_with(pl.format("{}-", kind))).then(last).otherwise(kind),
        total_time=_ms("dur_ns"),
        dispatch_time=pl.col("args").str.extract(r'"dispatch_time":\s*"?([\d.]+)').fill_null("0"),
        execution_time=_ms("dur_ns"),
        run_start=begin / 1000,
        run_end=(begin + pl.col("dur_ns")) / 1000,
    ).write_csv(folder / f"aicpu_intermediate_{rank}.csv")


def _gpu(rows: pl.DataFrame, types: pl.DataFrame, side: str, rank: int, folder: Path) -> None:
    """Device work by the operator that launched it; without a device, the operators themselves, by the time that is their own."""
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


def _kernels(trace: Trace, rank: int, folder: Path) -> None:
    rows = trace.analyse("kernels", copies=True, by_scope=True)
    if rows.is_empty():
        return
    what = (
        pl.when(pl.col("name").str.contains(r"^(?i)memcpy"))
        .then(pl.lit("cuMemcpy"))
        .when(pl.col("name").str.contains(r"^(?i)memset"))
        .then(pl.lit("cuMemset"))
        .otherwise(pl.lit("cuLaunchKernel"))
    )
    of = pl.concat_str([pl.when(pl.col("scope") != "").then("scope"), pl.coalesce("op", "name")], separator="/", ignore_nulls=True)
    way = {name: pl.col(name.removesuffix("_dim")).str.replace_all("x", ",").fill_null("") for name in ("block_dim", "grid_dim")}
    rows.select(
        pl.col("name"), what.alias("type"), of.alias("op_full_name"), pl.col("stream").alias("stream_id"),
        *(value.alias(name) for name, value in way.items()), pl.col("calls").alias("occurrences"),
        *(_us(f"{word}_ns").alias(f"{word}_duration(us)") for word in ("total", "avg", "max", "min")),
    ).write_csv(folder / f"gpu_activity_data_{rank}.csv")  # fmt: skip


def _host(rows: pl.DataFrame, types: pl.DataFrame, steps: int, rank: int, folder: Path) -> None:
    """Operators on the host, each with the time that is its own, so that they add up."""
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
    """The scope and the operator, as MindSpore names it."""
    apart = pl.col("scope").is_not_null() & (pl.col("scope") != "") & ~pl.col("name").str.starts_with(pl.format("{}/", "scope"))
    return pl.when(apart.fill_null(False)).then(pl.format("{}/{}", "scope", _last_part("name"))).otherwise("name")


def _last_part(column: str) -> pl.Expr:
    return pl.coalesce(pl.col(column).str.extract(r"([^/]+)$"), column)


# The timeline


def _timeline(trace: Trace, rank: int, pages: str, folder: Path) -> None:
    """What MindInsight offers for download: a list of Chrome events. It finds none for a CPU, and so does not mistake this name for one."""
    word = "" if pages == "cpu" else f"{pages}_"
    with (folder / f"{word}timeline_display_{rank}.json").open("wb") as file:
        file.write(b"[")
        chrome.write_events(trace, file)
        file.write(b"]\n")
    kinds = ["kernel", "communication", "copy", "set"] if trace.analyse("kernels").height else ["op", "communication"]
    work = trace.spans.filter(pl.col("kind").is_in(kinds))
    found = work.select(
        total=pl.col("dur_ns").sum(), streams=pl.col("track").n_unique(), names=pl.col("name").n_unique(), calls=pl.len()
    ).collect().row(0, named=True)  # fmt: skip
    summary = {
        "total_time": found["total"] / 1e6,
        "num_of_streams": found["streams"],
        "num_of_ops": found["names"],
        "op_exe_times": found["calls"],
        "max_scope_name_num": 0,
    }
    if word:
        _write_json(folder / f"{word}timeline_summary_{rank}.json", summary)


def _ms(column: str) -> pl.Expr:
    return (pl.col(column) / 1e6).round(6)


def _us(column: str) -> pl.Expr:
    return (pl.col(column) / 1e3).round(6)


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), "utf-8")
