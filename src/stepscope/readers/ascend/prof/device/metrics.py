"""Groups of metrics: columns of msprof's op_summary, computed from the events that a core counts."""

from typing import Any, NamedTuple

import numpy as np


class Sum(NamedTuple):
    """A weighted sum of events."""

    events: tuple[int, ...]
    weights: tuple[float, ...] = ()


# Column -> events, one alternative per kind of chip: the first alternative with all of its events counted.
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
_BANDWIDTHS = {  # event, and the bits per event as pipe x scalar
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
_PIPES = {"mac", "scalar", "mte1", "mte2", "mte3", "vec", "fixpipe"}  # these columns also exist as times


def _columns(pattern: str, words: str) -> list[str]:
    return [pattern.format(word) for word in words.split()]


# Metric group -> columns of the cube core, of the vector core, and of chips with one kind of core.
_GROUPS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "PipeUtilization": (
        [*_columns("{}_ratio", "mac scalar mte1 mte2 fixpipe"), "icache_miss_rate"],
        [*_columns("{}_ratio", "vec scalar mte2 mte3"), "icache_miss_rate"],
        [*_columns("{}_ratio", "vec mac scalar mte1 mte2 mte3"), "icache_miss_rate"],
    ),
    "ArithmeticUtilization": (
        [*_columns("{}_ratio", "mac_fp16 mac_int8"), "cube_fops"],
        [*_columns("{}_ratio", "vec_fp32 vec_fp16 vec_int32 vec_misc"), "vector_fops"],
        [*_columns("{}_ratio", "mac_fp16 mac_int8 vec_fp32 vec_fp16 vec_int32 vec_misc"), "cube_fops", "vector_fops"],
    ),
    "Memory": (
        _columns("{}_bw(GB/s)", "l1_read l1_write main_mem_read main_mem_write"),
        _columns("{}_bw(GB/s)", "ub_read ub_write main_mem_read main_mem_write"),
        _columns("{}_bw(GB/s)", "ub_read ub_write l1_read l1_write main_mem_read main_mem_write"),
    ),
    "MemoryL0": (
        _columns("{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw_cube l0c_write_bw_cube"),
        _columns("{}(GB/s)", "l0c_read_bw l0c_write_bw"),
        _columns(
            "{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw l0c_write_bw l0c_read_bw_cube l0c_write_bw_cube"
        ),
    ),
    "MemoryUB": (
        _columns("ub_{}(GB/s)", "read_bw_scalar write_bw_scalar"),
        _columns("ub_{}(GB/s)", "read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
        _columns("ub_{}(GB/s)", "read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
    ),
    "ResourceConflictRatio": (
        [],
        _columns("vec_{}_cflt_ratio", "bankgroup bank resc"),
        _columns("vec_{}_cflt_ratio", "bankgroup bank resc"),
    ),
    "L2Cache": (list(_CACHE), list(_CACHE), list(_CACHE)),
    "MemoryAccess": (_columns("{}(KB)", " ".join(_DATAS)),) * 3,
}


# The newest chips count ten events instead of eight, and other ones; both kinds of core have the same columns.
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
_NEWEST_BANDWIDTHS = {  # events, and the bits per event
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
    "PipeUtilization": [*_columns("{}_ratio", "vec mac scalar mte1 mte2 mte3 fixpipe"), "icache_miss_rate"],
    "ArithmeticUtilization": [*_columns("{}_ratio", "mac_fp16 mac_int8"), "cube_fops"],
    "Memory": _columns("{}_bw(GB/s)", "ub_read ub_write l1_read l1_write main_mem_read main_mem_write"),
    "MemoryL0": _columns("{}(GB/s)", "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw l0c_read_bw_cube l0c_write_bw_cube"),
    "MemoryUB": [
        *_columns("ub_{}(GB/s)", "read_bw_mte write_bw_mte read_bw_vector write_bw_vector read_bw_scalar write_bw_scalar"),
        "fixp2ub_write_bw(GB/s)",
    ],
    "L2Cache": list(_NEWEST_CACHE),
    "ResourceConflictRatio": _columns("vec_{}_cflt_ratio", "bank resc"),
}


def metrics(group: str, core: int, events: list[int], values: Any, cycles: Any, hertz: Any, time: Any) -> dict[str, Any]:
    """The columns of a metric group for these counters: `core` is 0 for cube, 1 for vector, 2 for chips with one kind, 3 for the newest."""
    events = events[: values.shape[1]]
    known = _NEWEST_GROUPS if core == 3 else {name: columns[core] for name, columns in _GROUPS.items()}
    if group not in known:  # a custom set: raw counters
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
            ratio = quotient(total, cycles)
            pipe = name.removesuffix("_ratio")
            if pipe in _PIPES:
                columns[f"{pipe}_time(us)"] = time * ratio
            columns[name] = ratio
        elif how == "quotient":
            columns[name] = quotient(parts[0], parts[1])
        elif how == "bandwidth":
            columns[name] = np.where(hertz > 0, quotient(total, quotient(cycles, hertz)) / 2**33, np.nan)
        else:
            columns[name] = total
    return columns


def quotient(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.zeros(len(above)), where=np.asarray(below) != 0)
