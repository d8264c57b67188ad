"""Counters of the cores: what each kernel did with its cycles, in the columns of msprof's op_summary."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

from stepscope.intervals import Ints
from stepscope.readers._prof_device import NEWEST, NO_CONTEXT, Device, numbers
from stepscope.readers._prof_files import DEVICE_MAGIC, Clock, Notes, Side, lost, records

_AICORE = np.dtype(
    [
        *[
            ("head", "u1"),
            ("pad", "u1"),
            ("magic", "<u2"),
            ("pad2", "<u2"),
            ("task", "<u2"),
            ("pad3", "V8"),
            ("cycles", "<u8"),
            ("pad4", "V8"),
        ],
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
_NEWEST_PROFILE = np.dtype(
    [
        *[("head", "<u2"), ("magic", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("cycles", "<u8"), ("context", "u1"), ("flags", "u1")],
        *[("pad", "<u2"), ("core", "u1"), ("core_id", "u1"), ("pad2", "<u2"), ("sub_block", "<u2"), ("block", "<u2"), ("pad3", "<u4")],
        *[("values", "<u8", 10), ("start", "<u8"), ("end", "<u8")],
    ]
)
_FREQUENCIES = np.dtype([("count", "<u4"), ("pad", "<u4"), ("points", np.dtype([("at", "<u8"), ("mhz", "<u4"), ("pad", "<u4")]), 55)])
_OF_KERNEL, _OF_BLOCK, _OF_NEWEST = 0b101000, 0b101001, 0b101010
_MASTER, _OVERFLOW = 1, 4  # flags of the newest chips' records
CORE_TIMES = ("aicore_time(us)", "aiv_time(us)")


class Sum(NamedTuple):
    """So many of these events, each weighing this much."""

    events: tuple[int, ...]
    weights: tuple[float, ...] = ()


# Column -> how it is computed, in the alternatives of the chips: the first whose events were counted.
_RATIOS: dict[str, list[tuple[int, ...]]] = {
    "vec": [(0x8,)],
    "mac": [(0x416, 0x417), (0xA,)],
    "scalar": [(0x9,)],
    "mte1": [(0x302,), (0xB,)],
    "mte2": [(0xC,)],
    "mte3": [(0xD,)],
    "fixpipe": [(0x303,)],
    "mac_fp16": [(0x49,)],
    "mac_int8": [(0x4A,)],
    "vec_fp32": [(0x4B,)],
    "vec_fp16": [(0x4C, 0x4D)],
    "vec_int32": [(0x4E,)],
    "vec_misc": [(0x4F,)],
    "vec_bankgroup_cflt": [(0x64,)],
    "vec_bank_cflt": [(0x65,)],
    "vec_resc_cflt": [(0x66,)],
}
_BANDWIDTHS = {  # event, and the bits that each of them moves as pipe x scalar
    "ub_read_bw": (0x15, 256, 4),
    "ub_write_bw": (0x16, 256, 4),
    "l1_read_bw": (0x31, 256, 16),
    "l1_write_bw": (0x32, 256, 8),
    "main_mem_read_bw": (0x12, 8, 8),
    "main_mem_write_bw": (0x13, 8, 8),
    "l0a_read_bw": (0x1B, 256, 16),
    "l0a_write_bw": (0x1C, 256, 16),
    "l0b_read_bw": (0x21, 256, 8),
    "l0b_write_bw": (0x22, 256, 8),
    "l0c_read_bw": (0x27, 256, 8),
    "l0c_write_bw": (0x29, 256, 8),
    "l0c_read_bw_cube": (0x28, 256, 8),
    "l0c_write_bw_cube": (0x2A, 256, 8),
    "ub_read_bw_vector": (0x43, 128, 2),
    "ub_write_bw_vector": (0x44, 128, 2),
    "ub_read_bw_scalar": (0x37, 128, 1),
    "ub_write_bw_scalar": (0x38, 128, 1),
}
_CACHE = {
    "write_cache_hit": 0x500,
    "write_cache_miss_allocate": 0x502,
    "r0_read_cache_hit": 0x504,
    "r0_read_cache_miss_allocate": 0x506,
    "r1_read_cache_hit": 0x508,
    "r1_read_cache_miss_allocate": 0x50A,
}
_DATAS = {
    "read_main_memory_datas": Sum((0x50D, 0x50E), (0.125, 0.125)),
    "write_main_memory_datas": Sum((0x50C,), (0.125,)),
    "GM_to_L1_datas": Sum((0x32, 0x206), (0.25, -0.25)),
    "L0C_to_L1_datas": Sum((0x206,), (0.125,)),
    "L0C_to_GM_datas": Sum((0x20C, 0x206), (0.125, -0.125)),
    "GM_to_UB_datas": Sum((0x3E,), (0.125,)),
    "UB_to_GM_datas": Sum((0x3D,), (0.125,)),
}
_COLUMNS: dict[str, list[tuple[str, Sum]]] = {
    **{f"{pipe}_ratio": [("ratio", Sum(events)) for events in ways] for pipe, ways in _RATIOS.items()},
    "icache_miss_rate": [("quotient", Sum((0x55, 0x54)))],
    "cube_fops": [("sum", Sum((0x49, 0x4A), (8192, 16384)))],
    "vector_fops": [("sum", Sum((0x4B, 0x4C, 0x4D, 0x4E, 0x4F), (64, 128, 64, 64, 32)))],
    **{f"{name}(GB/s)": [("bandwidth", Sum((event,), (pipe * scalar,)))] for name, (event, pipe, scalar) in _BANDWIDTHS.items()},
    **{name: [("count", Sum((event,)))] for name, event in _CACHE.items()},
    **{f"{name}(KB)": [("sum", how)] for name, how in _DATAS.items()},
}
_PIPES = {"mac", "scalar", "mte1", "mte2", "mte3", "vec", "fixpipe"}  # these also as times


def _named(pattern: str, words: str) -> list[str]:
    return [pattern.format(word) for word in words.split()]


# Metric group -> columns of the cube core, of the vector core, and of chips that have but one kind of core.
_GROUPS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "PipeUtilization": (
        [*_named("{}_ratio", "mac scalar mte1 mte2 fixpipe"), "icache_miss_rate"],
        [*_named("{}_ratio", "vec scalar mte2 mte3"), "icache_miss_rate"],
        [*_named("{}_ratio", "vec mac scalar mte1 mte2 mte3"), "icache_miss_rate"],
    ),
    "ArithmeticUtilization": (
        [*_named("{}_ratio", "mac_fp16 mac_int8"), "cube_fops"],
        [*_named("{}_ratio", "vec_fp32 vec_fp16 vec_int32 vec_misc"), "vector_fops"],
        [*_named("{}_ratio", "mac_fp16 mac_int8 vec_fp32 vec_fp16 vec_int32 vec_misc"), "cube_fops", "vector_fops"],
    ),
    "Memory": (
        _named("{}_bw(GB/s)", "l1_read l1_write main_mem_read main_mem_write"),
        _named("{}_bw(GB/s)", "ub_read ub_write main_mem_read main_mem_write"),
        _named("{}_bw(GB/s)", "ub_read ub_write l1_read l1_write main_mem_read main_mem_write"),
    ),
    "MemoryL0": (
        _named("{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw_cube l0c_write_bw_cube"),
        _named("{}(GB/s)", "l0c_read_bw l0c_write_bw"),
        _named("{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw l0c_write_bw l0c_read_bw_cube l0c_write_bw_cube"),
    ),
    "MemoryUB": (
        _named("ub_{}(GB/s)", "read_bw_scalar write_bw_scalar"),
        _named("ub_{}(GB/s)", "read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
        _named("ub_{}(GB/s)", "read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
    ),
    "ResourceConflictRatio": (
        [],
        _named("vec_{}_cflt_ratio", "bankgroup bank resc"),
        _named("vec_{}_cflt_ratio", "bankgroup bank resc"),
    ),
    "L2Cache": (list(_CACHE), list(_CACHE), list(_CACHE)),
    "MemoryAccess": (_named("{}(KB)", " ".join(_DATAS)),) * 3,
}


# The newest chips count other events, and ten of them; both kinds of core have the same columns, as far as their events were asked for.
_NEWEST_RATIOS = {
    "vec": (0x501,),
    "mac": (0x301,),
    "scalar": (0x1,),
    "mte1": (0x701,),
    "mte2": (0x202,),
    "mte3": (0x203,),
    "fixpipe": (0x714,),
    "mac_fp16": (0x323,),
    "mac_int8": (0x324,),
    "vec_bank_cflt": (0x540, 0x556),
}
_NEWEST_BANDWIDTHS = {  # events, and the bits that each of them moves
    "ub_read_bw": ((0x56F, 0x571), 256 * 4),
    "ub_write_bw": ((0x570, 0x572), 256 * 4),
    "l1_read_bw": ((0x707,), 256 * 16),
    "l1_write_bw": ((0x709,), 256 * 8),
    "main_mem_read_bw": ((0x400,), 8 * 8),
    "main_mem_write_bw": ((0x401,), 8 * 8),
    "l0a_read_bw": ((0x304,), 256 * 16),
    "l0a_write_bw": ((0x703,), 256 * 16),
    "l0b_read_bw": ((0x306,), 256 * 8),
    "l0b_write_bw": ((0x705,), 256 * 8),
    "l0c_read_bw": ((0x712,), 256 * 8),
    "l0c_read_bw_cube": ((0x30A,), 256 * 8),
    "l0c_write_bw_cube": ((0x308,), 256 * 8),
    "ub_read_bw_mte": ((0x204,), 128),
    "ub_write_bw_mte": ((0x206,), 128),
    "ub_read_bw_vector": ((0x571,), 128 * 2),
    "ub_write_bw_vector": ((0x572,), 128),
    "ub_read_bw_scalar": ((0x3,), 128),
    "ub_write_bw_scalar": ((0x5,), 128),
    "fixp2ub_write_bw": ((0x70C,), 256 * 8),
}
_NEWEST_CACHE = {
    "read_local_l2_hit": 0x424,
    "read_local_l2_miss": 0x425,
    "read_local_l2_victim": 0x426,
    "write_local_l2_hit": 0x42A,
    "write_local_l2_miss": 0x42B,
    "write_local_l2_victim": 0x42C,
}
_NEWEST_COLUMNS: dict[str, list[tuple[str, Sum]]] = {
    **{f"{pipe}_ratio": [("ratio", Sum(events))] for pipe, events in _NEWEST_RATIOS.items()},
    "icache_miss_rate": [("quotient", Sum((0x35, 0x34)))],
    "vec_resc_cflt_ratio": [("quotient", Sum((0x528, 0x502)))],
    "cube_fops": [("sum", Sum((0x323, 0x324), (8192, 16384)))],
    **{f"{name}(GB/s)": [("bandwidth", Sum(events, (float(bits),) * len(events)))] for name, (events, bits) in _NEWEST_BANDWIDTHS.items()},
    **{name: [("count", Sum((event,)))] for name, event in _NEWEST_CACHE.items()},
}
_NEWEST_GROUPS: dict[str, list[str]] = {
    "PipeUtilization": [*_named("{}_ratio", "vec mac scalar mte1 mte2 mte3 fixpipe"), "icache_miss_rate"],
    "ArithmeticUtilization": [*_named("{}_ratio", "mac_fp16 mac_int8"), "cube_fops"],
    "Memory": _named("{}_bw(GB/s)", "ub_read ub_write l1_read l1_write main_mem_read main_mem_write"),
    "MemoryL0": _named("{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw l0c_read_bw_cube l0c_write_bw_cube"),
    "MemoryUB": [
        *_named("ub_{}(GB/s)", "read_bw_mte write_bw_mte read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
        "fixp2ub_write_bw(GB/s)",
    ],
    "L2Cache": list(_NEWEST_CACHE),
    "ResourceConflictRatio": _named("vec_{}_cflt_ratio", "bank resc"),
}


def read(side: Side, device: Device, executions: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """A row per execution that has counters: `execution`, and op_summary's columns in its order."""
    frequency = frequencies(side, device.clock, notes)
    found = pl.DataFrame()
    if files := side.slices(r"ffts_profile\.data\.\d+"):
        found = (_newest if side.chip in NEWEST else _stars)(side, files, device, executions, frequency, notes)
    elif files := side.slices(r"aicore\.data\.\d+"):
        found = _hwts(side, files, executions, frequency, notes)
    # The times of cores stay as they are: msprof rounds them to two digits before anything is made of them.
    return found.with_columns(cs.float().fill_nan(None)).with_columns((cs.float() - cs.by_name(CORE_TIMES, require_all=False)).round(9))


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


def _stars(
    side: Side, files: list[Path], device: Device, executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes
) -> pl.DataFrame:
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
    values = found["values"].astype(np.float64)
    del found  # of millions of kernels
    return _of_both(side, files[0], rows, values, executions, frequency, notes, ["stream", "task"])


def _newest(
    side: Side, files: list[Path], device: Device, executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes
) -> pl.DataFrame:
    """Chips 15 and 16: of a kernel on both kinds of core each kind has its record, that of the one which leads with a flag."""
    found = records(files, _NEWEST_PROFILE, notes, DEVICE_MAGIC)
    function = found["head"] & 63
    found = found[function == _OF_NEWEST]  # those of single blocks are in them already
    if not len(found):
        return pl.DataFrame()
    if overflown := int((found["flags"] & _OVERFLOW != 0).sum()):
        notes.add(files[0], "kernels whose counters ran over: their cycles are too few", overflown)
    rows = pl.DataFrame(
        {
            "record": np.arange(len(found)),
            "task": numbers(found["stream"], found["task"], None, side)[1],
            "start_ns": device.clock.ns(found["end"]),
            "of_block": found["flags"] & _MASTER == 0,
            "vector": found["core"] & 1 == 1,
            "cycles": found["cycles"].astype(np.int64),
        }
    )
    return _of_both(side, files[0], rows, found["values"].astype(np.float64), executions, frequency, notes, ["task"])


def _of_both(
    side: Side,
    file: Path,
    rows: pl.DataFrame,
    values: Any,
    executions: pl.DataFrame,
    frequency: tuple[Ints, Ints],
    notes: Notes,
    by: list[str],
) -> pl.DataFrame:
    """Counters of the cube cores and of the vector cores, each kernel's in one row."""
    both = _joined(side, file, rows, values, executions, frequency, notes, by)
    # A kind of core that a kernel does not use did nothing.
    both = both.with_columns(pl.exclude("execution").fill_null(0))
    return _with_cube(both, executions, side, "aic_") if _group(side, "ai_core_metrics") == "PipeUtilization" else both


def _joined(
    side: Side,
    file: Path,
    rows: pl.DataFrame,
    values: Any,
    executions: pl.DataFrame,
    frequency: tuple[Ints, Ints],
    notes: Notes,
    by: list[str],
) -> pl.DataFrame:
    runs = executions.select("execution", "stream", "task", "start_ns", run_end="end_ns").sort("start_ns")
    rows = rows.sort("start_ns", maintain_order=True).join_asof(runs, on="start_ns", by=by, check_sortedness=False, suffix="_ran")
    stray = rows.filter(pl.col("execution").is_null()).height
    if stray:
        notes.add(file, "counters of kernels whose start or end is lost", stray)
    rows = rows.filter(pl.col("execution").is_not_null())
    both = rows.select("execution").unique(maintain_order=True)
    for vector, prefix, metrics, events in (
        (False, "aic_", "ai_core_metrics", "ai_core_profiling_events"),
        (True, "aiv_", "aiv_metrics", "aiv_profiling_events"),
    ):
        part = rows.filter(pl.col("vector") == vector)
        core = _core(side, part, values, executions, frequency, prefix, _group(side, metrics), _events(side, events), vector)
        both = both.join(core, on="execution", how="left", maintain_order="left")
    return both


def _core(
    side: Side,
    part: pl.DataFrame,
    values: Any,
    executions: pl.DataFrame,
    frequency: tuple[Ints, Ints],
    prefix: str,
    group: str,
    events: list[int],
    vector: bool,
) -> pl.DataFrame:
    """One kind of core: the counters of a kernel, or the sum of those of its blocks."""
    kernel = part.select("execution").unique(maintain_order=True).with_row_index("kernel").with_columns(pl.col("kernel").cast(pl.Int64))
    part = part.join(kernel, on="execution", how="left", maintain_order="left")
    at = part["kernel"].to_numpy()
    summed = np.zeros((kernel.height, values.shape[1]))
    cycles = np.zeros(kernel.height, np.int64)
    np.add.at(summed, at, values[part["record"].to_numpy()])
    np.add.at(cycles, at, part["cycles"].to_numpy())
    about = kernel.join(
        part.group_by("kernel").agg(pl.col("start_ns").max().alias("ended"), pl.col("of_block").any()),
        on="kernel",
        how="left",
        maintain_order="left",
    )
    about = about.join(executions.select("execution", "blocks", "mix_blocks"), on="execution", how="left", maintain_order="left")
    hertz = _at(frequency, side.core_hertz, about["ended"].to_numpy())
    blocks = about.select(pl.when("of_block").then("mix_blocks").otherwise("blocks").fill_null(0)).to_series().to_numpy()
    cores = side.cores("aiv_num" if vector else "ai_core_num")
    time = _time_us(cycles, hertz, blocks, cores)
    columns = {f"{'aiv_time' if vector else 'aicore_time'}(us)": time, f"{prefix}total_cycles": cycles}
    core = 3 if side.chip in NEWEST else 1 if vector else 0
    columns |= {prefix + name: column for name, column in metrics(group, core, events, summed, cycles, hertz, time).items()}
    return kernel.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())


def _time_us(cycles: Any, hertz: Any, blocks: Any, cores: int) -> Any:
    """Blocks beyond the number of cores wait for their turn. Not a number where it is not said how fast or how many they are."""
    if cores <= 0:
        return np.full(len(cycles), np.nan)
    # In this order, which decides on which side of the middle between two printed digits it lies.
    return np.where(hertz > 0, _quotient(_quotient(cycles * 1e6, hertz), blocks) * np.ceil(blocks / cores), np.nan)


def _quotient(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.zeros(len(above)), where=np.asarray(below) != 0)


def metrics(group: str, core: int, events: list[int], values: Any, cycles: Any, hertz: Any, time: Any) -> dict[str, Any]:
    """The columns of a metric group for these counters: `core` is 0 for cube, 1 for vector, 2 for chips with one kind, 3 for the newest."""
    events = events[: values.shape[1]]
    known = _NEWEST_GROUPS if core == 3 else {name: columns[core] for name, columns in _GROUPS.items()}
    if group not in known:  # a custom set: the counters as they are
        return {f"r{event:x}": values[:, place] for place, event in enumerate(events)}
    place = {event: at for at, event in reversed(list(enumerate(events)))}
    columns: dict[str, Any] = {}
    ways = _NEWEST_COLUMNS if core == 3 else _COLUMNS
    for name in known[group]:
        way = next(((how, of) for how, of in ways[name] if all(event in place for event in of.events)), None)
        if way is None:
            continue
        how, of = way
        parts = [values[:, place[event]] for event in of.events]
        total = sum(part * weight for part, weight in zip(parts, of.weights or (1,) * len(parts), strict=True))
        if how == "ratio":
            ratio = _quotient(total, cycles)
            pipe = name.removesuffix("_ratio")
            if pipe in _PIPES:
                columns[f"{pipe}_time(us)"] = time * ratio
            columns[name] = ratio
        elif how == "quotient":
            columns[name] = _quotient(parts[0], parts[1])
        elif how == "bandwidth":
            columns[name] = np.where(hertz > 0, _quotient(total, _quotient(cycles, hertz)) / 2**33, np.nan)
        else:
            columns[name] = total
    return columns


def _with_cube(rows: pl.DataFrame, executions: pl.DataFrame, side: Side, prefix: str) -> pl.DataFrame:
    """Which part of the cycles that all cube cores make at their usual frequency, while the kernel ran, it used: none if it multiplied
    nothing that three digits show."""
    multiplied = f"{prefix}mac_ratio"
    if multiplied not in rows.columns:
        return rows
    about = rows.join(executions.select("execution", "start_ns", "end_ns"), on="execution", how="left", maintain_order="left")
    hertz = np.full(about.height, side.core_hertz, np.float64)
    cores = side.cores("ai_core_num")
    lasted = (about["end_ns"] - about["start_ns"]).to_numpy() / 1e9
    used = _quotient(about[f"{prefix}total_cycles"].to_numpy() * 100.0, hertz * cores * lasted)
    used[(about[multiplied].round(3) == 0).to_numpy()] = 0
    return rows.with_columns(pl.Series("cube_utilization(%)", np.where(hertz * cores > 0, used, np.nan)))


# HWTS: one kind of core, and nothing but the order says which execution the counters are of.


def _hwts(side: Side, files: list[Path], executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes) -> pl.DataFrame:
    found = records(files, _AICORE, notes, DEVICE_MAGIC)
    if not len(found):
        return pl.DataFrame()
    lost(found["head"] >> 4, files[0], notes)
    nth = pl.int_range(pl.len()).over("stream", "task")
    rows = pl.DataFrame(
        {"record": np.arange(len(found)), "stream": found["stream"].astype(np.int64) % 2048, "task": found["task"].astype(np.int64)}
    )
    runs = executions.filter(pl.col("type") != "AI_CPU").select("execution", "stream", "task", "end_ns", "blocks").with_columns(nth=nth)
    rows = rows.with_columns(nth=nth).join(runs, on=["stream", "task", "nth"], how="left", maintain_order="left")
    stray = rows["execution"].null_count()
    if stray:
        notes.add(files[0], "counters of kernels whose start or end is lost", stray)
        rows = rows.filter(pl.col("execution").is_not_null())
    cycles = found["cycles"].astype(np.int64)[rows["record"].to_numpy()]
    hertz = _at(frequency, side.core_hertz, rows["end_ns"].to_numpy())
    time = _time_us(cycles, hertz, rows["blocks"].fill_null(0).to_numpy(), side.cores("ai_core_num"))
    group = _group(side, "ai_core_metrics")
    columns = {"aicore_time(us)": time, "total_cycles": cycles}
    values = found["values"].astype(np.float64)[rows["record"].to_numpy()]
    columns |= metrics(group, 2, _events(side, "ai_core_profiling_events"), values, cycles, hertz, time)
    if {"vec_ratio", "mac_ratio", "mte2_ratio"} <= set(columns):  # a ratio of what is printed of them
        mte2, mac, vec = (np.round(columns[f"{pipe}_ratio"], 3) for pipe in ("mte2", "mac", "vec"))
        columns["memory_bound"] = _quotient(mte2, np.maximum(mac, vec))
    result = rows.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())
    return _with_cube(result, executions, side, "") if group == "PipeUtilization" else result
