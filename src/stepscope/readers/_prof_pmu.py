"""Counters of the cores: what each kernel did with its cycles, in the columns of msprof's op_summary."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.intervals import Ints
from stepscope.readers._prof_device import NO_CONTEXT, Device, numbers
from stepscope.readers._prof_files import DEVICE_MAGIC, Clock, Notes, Records, Side, lost, number, records

_AICORE = np.dtype(
    [
        *[("head", "u1"), ("pad", "u1"), ("magic", "<u2"), ("pad2", "<u2"), ("task", "<u2"), ("pad3", "V8"), ("cycles", "<u8"), ("pad4", "V8")],
        *[("values", "<u8", 8), ("stream", "<u4"), ("rest", "V28")],
    ]
)
_PROFILE = np.dtype(
    [
        *[("head", "<u2"), ("magic", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("at", "<u8"), ("sub", "<u2"), ("context", "<u2")],
        *[("core", "u1"), ("ffts", "u1"), ("pad", "V6"), ("sub_block", "<u2"), ("block", "<u2"), ("cycles", "<u8"), ("pad2", "V8")],
        *[("values", "<u8", 8), ("start", "<u8"), ("end", "<u8")],
    ]
)
_FREQUENCIES = np.dtype([("count", "<u4"), ("pad", "<u4"), ("points", np.dtype([("at", "<u8"), ("mhz", "<u4"), ("pad", "<u4")]), 55)])
_OF_KERNEL, _OF_BLOCK = 0b101000, 0b101001


class Sum(NamedTuple):
    """So many of these events, each weighing this much."""

    events: tuple[int, ...]
    weights: tuple[float, ...] = ()


def _bandwidth(event: int, pipe: int, scalar: int) -> tuple[str, Sum]:
    return "bandwidth", Sum((event,), (pipe * scalar,))


def _ratio(*events: int) -> tuple[str, Sum]:
    return "ratio", Sum(events)


# Column -> how it is computed, in the alternatives of the chips: the first whose events were counted.
_COLUMNS: dict[str, list[tuple[str, Sum]]] = {
    **{f"{pipe}_ratio": [_ratio(*events) for events in ways] for pipe, ways in {
        "vec": [(0x8,)], "mac": [(0x416, 0x417), (0xA,)], "scalar": [(0x9,)], "mte1": [(0x302,), (0xB,)], "mte2": [(0xC,)], "mte3": [(0xD,)],
        "fixpipe": [(0x303,)],
        "mac_fp16": [(0x49,)], "mac_int8": [(0x4A,)], "vec_fp32": [(0x4B,)], "vec_fp16": [(0x4C, 0x4D)], "vec_int32": [(0x4E,)], "vec_misc": [(0x4F,)],
        "vec_bankgroup_cflt": [(0x64,)], "vec_bank_cflt": [(0x65,)], "vec_resc_cflt": [(0x66,)],
    }.items()},
    "icache_miss_rate": [("quotient", Sum((0x55, 0x54)))],
    "cube_fops": [("sum", Sum((0x49, 0x4A), (8192, 16384)))],
    "vector_fops": [("sum", Sum((0x4B, 0x4C, 0x4D, 0x4E, 0x4F), (64, 128, 64, 64, 32)))],
    **{f"{name}(GB/s)": [_bandwidth(*how)] for name, how in {
        "ub_read_bw": (0x15, 256, 4), "ub_write_bw": (0x16, 256, 4), "l1_read_bw": (0x31, 256, 16), "l1_write_bw": (0x32, 256, 8),
        "main_mem_read_bw": (0x12, 8, 8), "main_mem_write_bw": (0x13, 8, 8),
        "l0a_read_bw": (0x1B, 256, 16), "l0a_write_bw": (0x1C, 256, 16), "l0b_read_bw": (0x21, 256, 8), "l0b_write_bw": (0x22, 256, 8),
        "l0c_read_bw": (0x27, 256, 8), "l0c_write_bw": (0x29, 256, 8), "l0c_read_bw_cube": (0x28, 256, 8), "l0c_write_bw_cube": (0x2A, 256, 8),
        "ub_read_bw_vector": (0x43, 128, 2), "ub_write_bw_vector": (0x44, 128, 2), "ub_read_bw_scalar": (0x37, 128, 1), "ub_write_bw_scalar": (0x38, 128, 1),
    }.items()},
    **{name: [("count", Sum((event,)))] for name, event in {
        "write_cache_hit": 0x500, "write_cache_miss_allocate": 0x502, "r0_read_cache_hit": 0x504, "r0_read_cache_miss_allocate": 0x506,
        "r1_read_cache_hit": 0x508, "r1_read_cache_miss_allocate": 0x50A,
    }.items()},
    **{f"{name}(KB)": [("sum", how)] for name, how in {
        "read_main_memory_datas": Sum((0x50D, 0x50E), (0.125, 0.125)), "write_main_memory_datas": Sum((0x50C,), (0.125,)),
        "GM_to_L1_datas": Sum((0x32, 0x206), (0.25, -0.25)), "L0C_to_L1_datas": Sum((0x206,), (0.125,)),
        "L0C_to_GM_datas": Sum((0x20C, 0x206), (0.125, -0.125)), "GM_to_UB_datas": Sum((0x3E,), (0.125,)), "UB_to_GM_datas": Sum((0x3D,), (0.125,)),
    }.items()},
}  # fmt: skip
_CACHE = [name for name in _COLUMNS if "_cache_" in name]
_DATAS = [name for name in _COLUMNS if name.endswith("(KB)")]
_PIPE = {"mac", "scalar", "mte1", "mte2", "mte3", "vec", "fixpipe"}
# Metric group -> columns of the cube core, of the vector core, and of chips that have but one kind of core.
_GROUPS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "PipeUtilization": (
        ["mac_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "fixpipe_ratio", "icache_miss_rate"],
        ["vec_ratio", "scalar_ratio", "mte2_ratio", "mte3_ratio", "icache_miss_rate"],
        ["vec_ratio", "mac_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "mte3_ratio", "icache_miss_rate"],
    ),
    "ArithmeticUtilization": (
        ["mac_fp16_ratio", "mac_int8_ratio", "cube_fops"],
        ["vec_fp32_ratio", "vec_fp16_ratio", "vec_int32_ratio", "vec_misc_ratio", "vector_fops"],
        ["mac_fp16_ratio", "mac_int8_ratio", "vec_fp32_ratio", "vec_fp16_ratio", "vec_int32_ratio", "vec_misc_ratio", "cube_fops", "vector_fops"],
    ),
    "Memory": (
        ["l1_read_bw(GB/s)", "l1_write_bw(GB/s)", "main_mem_read_bw(GB/s)", "main_mem_write_bw(GB/s)"],
        ["ub_read_bw(GB/s)", "ub_write_bw(GB/s)", "main_mem_read_bw(GB/s)", "main_mem_write_bw(GB/s)"],
        ["ub_read_bw(GB/s)", "ub_write_bw(GB/s)", "l1_read_bw(GB/s)", "l1_write_bw(GB/s)", "main_mem_read_bw(GB/s)", "main_mem_write_bw(GB/s)"],
    ),
    "MemoryL0": (
        [f"{what}(GB/s)" for what in ("l0a_read_bw", "l0a_write_bw", "l0b_read_bw", "l0b_write_bw", "l0c_read_bw_cube", "l0c_write_bw_cube")],
        ["l0c_read_bw(GB/s)", "l0c_write_bw(GB/s)"],
        [f"{what}(GB/s)" for what in ("l0a_read_bw", "l0a_write_bw", "l0b_read_bw", "l0b_write_bw", "l0c_read_bw", "l0c_write_bw", "l0c_read_bw_cube",
                                      "l0c_write_bw_cube")],
    ),
    "MemoryUB": (
        ["ub_read_bw_scalar(GB/s)", "ub_write_bw_scalar(GB/s)"],
        [f"{what}(GB/s)" for what in ("ub_read_bw_vector", "ub_write_bw_vector", "ub_read_bw_scalar", "ub_write_bw_scalar")],
        [f"{what}(GB/s)" for what in ("ub_read_bw_vector", "ub_write_bw_vector", "ub_read_bw_scalar", "ub_write_bw_scalar")],
    ),
    "ResourceConflictRatio": (
        [],
        ["vec_bankgroup_cflt_ratio", "vec_bank_cflt_ratio", "vec_resc_cflt_ratio"],
        ["vec_bankgroup_cflt_ratio", "vec_bank_cflt_ratio", "vec_resc_cflt_ratio"],
    ),
    "L2Cache": (_CACHE, _CACHE, _CACHE),
    "MemoryAccess": (_DATAS, _DATAS, _DATAS),
}  # fmt: skip


def read(side: Side, device: Device, executions: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """A row per execution that has counters: `execution`, and op_summary's columns in its order."""
    frequency = frequencies(side, device.clock, notes)
    if files := side.slices(r"ffts_profile\.data\.\d+"):
        return _stars(side, files, device, executions, frequency, notes)
    if files := side.slices(r"aicore\.data\.\d+"):
        return _hwts(side, files, executions, frequency, notes)
    return pl.DataFrame()


def frequencies(side: Side, clock: Clock, notes: Notes) -> tuple[Ints, Ints]:
    """When the cores' frequency changed, and to how many Hz."""
    found = records(side.slices(r"lpmFreqConv\.data\.\d+"), _FREQUENCIES, notes)
    points = [block["points"][: min(int(block["count"]), 55)] for block in found]
    steps = np.concatenate(points) if points else np.empty(0, _FREQUENCIES["points"].base)
    order = np.argsort(steps["at"], kind="stable")
    return clock.ns(steps["at"][order]), steps["mhz"][order].astype(np.int64) * 1_000_000


def _at(frequency: tuple[Ints, Ints], usual: int, at: Ints) -> Any:
    times, hertz = frequency
    if not len(times):
        return np.full(len(at), usual, np.float64)
    here = np.searchsorted(times, at, "right") - 1
    return np.where(here < 0, usual, hertz[np.maximum(here, 0)]).astype(np.float64)


def _usual(side: Side) -> int:
    return int(number(side.unit.get("aic_frequency")) * 1_000_000)


def _events(side: Side, key: str) -> list[int]:
    found = []
    for word in str(side.sample.get(key, "")).split(","):
        try:
            found.append(int(word.strip(), 0))
        except ValueError:
            continue
    return found


def _group(side: Side, key: str) -> str:
    return str(side.sample.get(key, "")).removesuffix("Exct")


# STARS: counters of a kernel, and of each block where a kernel runs on both kinds of core.


def _stars(side: Side, files: list[Path], device: Device, executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes) -> pl.DataFrame:
    found = records(files, _PROFILE, notes, DEVICE_MAGIC)
    if not len(found):
        return pl.DataFrame()
    lost((found["head"] >> 6) & 15, files[0], notes)
    function = found["head"] & 63
    stream, task = numbers(found["stream"], found["task"], None, side)
    sub = found["sub"] & 0xFF
    ffts = found["ffts"] >> 5
    vector_first = np.where(ffts == 4, (sub == 1) | (sub == 7), ffts == 1)  # which kind of core leads
    mix = (ffts == 4) & (sub >= 6)
    block_vector = found["core"] & 1 == 1
    rows = pl.DataFrame(
        {
            "record": np.arange(len(found)),
            "stream": stream,
            "task": task,
            "start_ns": device.clock.ns(found["end"]),
            "context": np.where(mix | ((ffts == 4) & (found["context"] != 0xFFFF)), found["context"], NO_CONTEXT).astype(np.int64),
            "of_block": function == _OF_BLOCK,
            "vector": np.where(function == _OF_BLOCK, block_vector, vector_first),
            "leads": (function == _OF_KERNEL) | (block_vector == vector_first),
            "known": (function == _OF_KERNEL) | (function == _OF_BLOCK),
            "cycles": found["cycles"].astype(np.int64),
        }
    )
    rows = rows.filter(pl.col("known") & ~(pl.col("of_block") & pl.col("leads")))
    runs = executions.select("execution", "stream", "task", "start_ns", run_end="end_ns").sort("start_ns")
    rows = rows.sort("start_ns", maintain_order=True).join_asof(runs, on="start_ns", by=["stream", "task"], check_sortedness=False)
    stray = rows.filter(pl.col("execution").is_null()).height
    if stray:
        notes.add(files[0], "counters of kernels whose start or end is lost", stray)
    rows = rows.filter(pl.col("execution").is_not_null())
    values = found["values"].astype(np.float64)
    sides = []
    for vector, prefix, metrics, events in ((False, "aic_", "ai_core_metrics", "ai_core_profiling_events"), (True, "aiv_", "aiv_metrics", "aiv_profiling_events")):
        part = rows.filter(pl.col("vector") == vector)
        sides.append(_core(side, part, values, executions, frequency, prefix, _group(side, metrics), _events(side, events), vector))
    both = rows.select("execution").unique(maintain_order=True)
    for one in sides:
        both = both.join(one, on="execution", how="left", maintain_order="left")
    # A kind of core that a kernel does not use did nothing.
    both = both.with_columns(pl.exclude("execution").fill_null(0))
    if _group(side, "ai_core_metrics") == "PipeUtilization":
        both = _with_cube(both, executions, side, "aic_total_cycles")
    return both


def _core(
    side: Side, part: pl.DataFrame, values: Any, executions: pl.DataFrame, frequency: tuple[Ints, Ints], prefix: str, group: str, events: list[int], vector: bool
) -> pl.DataFrame:
    """One kind of core: the counters of a kernel, or the sum of those of its blocks."""
    kernel = part.select("execution").unique(maintain_order=True).with_row_index("kernel").with_columns(pl.col("kernel").cast(pl.Int64))
    part = part.join(kernel, on="execution", how="left", maintain_order="left")
    at = part["kernel"].to_numpy()
    summed = np.zeros((kernel.height, 8))
    cycles = np.zeros(kernel.height, np.int64)
    np.add.at(summed, at, values[part["record"].to_numpy()])
    np.add.at(cycles, at, part["cycles"].to_numpy())
    about = kernel.join(part.group_by("kernel").agg(pl.col("start_ns").max().alias("ended"), pl.col("of_block").any()), on="kernel", how="left", maintain_order="left")
    about = about.join(executions.select("execution", "blocks", "mix_blocks"), on="execution", how="left", maintain_order="left")
    hertz = _at(frequency, _usual(side), about["ended"].to_numpy())
    blocks = about.select(pl.when("of_block").then("mix_blocks").otherwise("blocks").fill_null(0)).to_series().to_numpy()
    cores = int(number(side.unit.get("aiv_num" if vector else "ai_core_num")))
    time = _time_us(cycles, hertz, blocks, cores)
    columns = {f"{'aiv_time' if vector else 'aicore_time'}(us)": time, f"{prefix}total_cycles": cycles}
    columns |= {prefix + name: column for name, column in metrics(group, 1 if vector else 0, events, summed, cycles, hertz, time).items()}
    return kernel.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())


def _time_us(cycles: Any, hertz: Any, blocks: Any, cores: int) -> Any:
    """Blocks beyond the number of cores wait for their turn."""
    turns = np.ceil(blocks / cores) if cores > 0 else np.ones(len(blocks))
    return _quotient(cycles * 1e6 * turns, hertz * blocks)


def _quotient(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.zeros(len(above)), where=np.asarray(below) != 0)


def metrics(group: str, core: int, events: list[int], values: Any, cycles: Any, hertz: Any, time: Any) -> dict[str, Any]:
    """The columns of a metric group for these counters: `core` is 0 for cube, 1 for vector, 2 for chips with one kind."""
    if group not in _GROUPS:  # a custom set: the counters as they are
        return {f"r{event:x}": values[:, place] for place, event in enumerate(events[:8])}
    place = {event: at for at, event in reversed(list(enumerate(events[:8])))}
    columns: dict[str, Any] = {}
    for name in _GROUPS[group][core]:
        way = next(((how, of) for how, of in _COLUMNS[name] if all(event in place for event in of.events)), None)
        if way is None:
            continue
        how, of = way
        parts = [values[:, place[event]] for event in of.events]
        total = sum(part * weight for part, weight in zip(parts, of.weights or (1,) * len(parts), strict=True))
        if how == "ratio":
            ratio = _quotient(total, cycles)
            pipe = name.removesuffix("_ratio")
            if pipe in _PIPE:
                columns[f"{pipe}_time(us)"] = time * ratio
            columns[name] = ratio
        elif how == "quotient":
            columns[name] = _quotient(parts[0], parts[1])
        elif how == "bandwidth":
            columns[name] = _quotient(total, _quotient(cycles, hertz)) / 2**33
        else:
            columns[name] = total
    return columns


def _with_cube(rows: pl.DataFrame, executions: pl.DataFrame, side: Side, cycles: str) -> pl.DataFrame:
    """Which part of the cycles that all cube cores make at their usual frequency, while the kernel ran, it used."""
    about = rows.join(executions.select("execution", "start_ns", "end_ns"), on="execution", how="left", maintain_order="left")
    hertz = np.full(about.height, _usual(side), np.float64)
    cores = int(number(side.unit.get("ai_core_num")))
    lasted = (about["end_ns"] - about["start_ns"]).to_numpy() / 1e9
    return rows.with_columns(pl.Series("cube_utilization(%)", _quotient(about[cycles].to_numpy() * 100.0, hertz * cores * lasted)))


# HWTS: one kind of core, and nothing but the order says which execution the counters are of.


def _hwts(side: Side, files: list[Path], executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes) -> pl.DataFrame:
    found = records(files, _AICORE, notes, DEVICE_MAGIC)
    if not len(found):
        return pl.DataFrame()
    lost(found["head"] >> 4, files[0], notes)
    nth = pl.int_range(pl.len()).over("stream", "task")
    rows = pl.DataFrame({"record": np.arange(len(found)), "stream": found["stream"].astype(np.int64) % 2048, "task": found["task"].astype(np.int64)})
    runs = executions.filter(pl.col("type") != "AI_CPU").select("execution", "stream", "task", "end_ns", "blocks").with_columns(nth=nth)
    rows = rows.with_columns(nth=nth).join(runs, on=["stream", "task", "nth"], how="left", maintain_order="left")
    stray = rows["execution"].null_count()
    if stray:
        notes.add(files[0], "counters of kernels whose start or end is lost", stray)
        rows = rows.filter(pl.col("execution").is_not_null())
    cycles = found["cycles"].astype(np.int64)[rows["record"].to_numpy()]
    hertz = _at(frequency, _usual(side), rows["end_ns"].to_numpy())
    time = _time_us(cycles, hertz, rows["blocks"].fill_null(0).to_numpy(), int(number(side.unit.get("ai_core_num"))))
    group = _group(side, "ai_core_metrics")
    columns = {"aicore_time(us)": time, "total_cycles": cycles}
    values = found["values"].astype(np.float64)[rows["record"].to_numpy()]
    columns |= metrics(group, 2, _events(side, "ai_core_profiling_events"), values, cycles, hertz, time)
    if {"vec_ratio", "mac_ratio", "mte2_ratio"} <= set(columns):
        columns["memory_bound"] = _quotient(columns["mte2_ratio"], np.maximum(columns["mac_ratio"], columns["vec_ratio"]))
    result = rows.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())
    return _with_cube(result, executions, side, "total_cycles") if group == "PipeUtilization" else result
