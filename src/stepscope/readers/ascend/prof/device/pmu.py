"""Counters of the cores: cycles, times and ratios of each kernel, in the columns of msprof's op_summary."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

from stepscope.model.intervals import Ints
from stepscope.readers.ascend.prof.device.metrics import metrics, quotient
from stepscope.readers.ascend.prof.device.records import NEWEST, NO_CONTEXT, Device, numbers
from stepscope.readers.ascend.prof.files import DEVICE_MAGIC, Clock, Notes, Side, records, report_lost_records

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
_FREQUENCY, CORE_VOLTAGE, BUS_VOLTAGE = 0, 1, 2
_READINGS = np.dtype([("count", "<u4"), ("kind", "<u4"), ("points", np.dtype([("at", "<u8"), ("value", "<u4"), ("pad", "<u4")]), 55)])
_OF_KERNEL, _OF_BLOCK, _OF_NEWEST = 0b101000, 0b101001, 0b101010
_MASTER, _OVERFLOW = 1, 4  # flags of the newest chips' records
_ONE_KIND = ("7", "8", "11")  # chips for inference: the log of STARS, and one kind of core
_EXACT = "Exct"
CORE_TIMES = ("aicore_time(us)", "aiv_time(us)")


def read(side: Side, device: Device, executions: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """A row per execution that has counters: `execution`, and op_summary's columns in its order."""
    frequency = frequencies(side, device.clock, notes)
    counters = pl.DataFrame()
    if files := side.slices(r"ffts_profile\.data\.\d+"):
        counters = (_newest if side.chip in NEWEST else _stars)(side, files, device, executions, frequency, notes)
    elif files := side.slices(r"aicore\.data\.\d+"):
        counters = _hwts(side, files, executions, frequency, notes)
    # The times of cores are not rounded: msprof rounds them to two digits before it derives other columns.
    return counters.with_columns(cs.float().fill_nan(None)).with_columns((cs.float() - cs.by_name(CORE_TIMES, require_all=False)).round(9))


def frequencies(side: Side, clock: Clock, notes: Notes) -> tuple[Ints, Ints]:
    """Times at which the frequency of the cores changed, and the new values in Hz."""
    at_ns, mhz = power_readings(side, clock, _FREQUENCY, notes)
    return at_ns, mhz * 1_000_000


def power_readings(side: Side, clock: Clock, kind: int, notes: Notes) -> tuple[Ints, Ints]:
    """Times at which a frequency (MHz) or a voltage (mV) of the chip changed, and the new values.

    The file also contains changes long before the recording; the last one of them is valid at its start.
    """
    readings = records(side.slices(r"lpmInfoConv\.data\.\d+"), _READINGS, notes)
    parts = [readings[readings["kind"] == kind]]
    if kind == _FREQUENCY:  # earlier CANN records only frequencies, without a kind
        parts.append(records(side.slices(r"lpmFreqConv\.data\.\d+"), _READINGS, notes))
    points = [block["points"][: min(int(block["count"]), 55)] for part in parts for block in part]
    steps = np.concatenate(points) if points else np.empty(0, _READINGS["points"].base)
    steps = steps[np.argsort(steps["at"], kind="stable")]
    early = int(np.searchsorted(steps["at"], clock.base))
    steps = steps[max(early - 1, 0) :]
    return clock.ns(np.maximum(steps["at"], np.uint64(clock.base))), steps["value"].astype(np.int64)


def _hertz_at(frequency: tuple[Ints, Ints], nominal: int, at: Ints) -> Any:
    times, hertz = frequency
    if not len(times):
        return np.full(len(at), nominal, np.float64)
    change = np.searchsorted(times, at, "right") - 1
    return np.where(change < 0, nominal, hertz[np.maximum(change, 0)]).astype(np.float64)


def _events(side: Side, key: str) -> list[int]:
    events = []
    for word in str(side.sample.get(key, "")).split(","):
        try:
            events.append(int(word.strip(), 0))
        except ValueError:
            continue
    return events


def _group(side: Side, key: str) -> str:
    return str(side.sample.get(key, "")).removesuffix(_EXACT)


class Counted(NamedTuple):
    """Records of counters, and the executions that they describe."""

    side: Side
    file: Path
    rows: pl.DataFrame  # record, start_ns (time of the record: the end), cycles, of_block, vector, and the columns of `by`
    values: Any  # the counters of each record
    by: list[str]  # key columns of rows and executions
    executions: pl.DataFrame
    frequency: tuple[Ints, Ints]
    notes: Notes


# STARS: counters of each kernel, and of each block of kernels on both kinds of core.


def _stars(
    side: Side, files: list[Path], device: Device, executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes
) -> pl.DataFrame:
    raw = records(files, _PROFILE, notes, DEVICE_MAGIC)
    if not len(raw):
        return pl.DataFrame()
    report_lost_records((raw["head"] >> 6) & 15, files[0], notes)
    function = raw["head"] & 63
    stream, task = numbers(raw["stream"], raw["task"], None, side)
    sub = raw["sub"] & 0xFF
    ffts = raw["ffts"] >> 5
    vector_first = np.where(ffts == 4, (sub == 1) | (sub == 7), ffts == 1)  # the leading kind of core is the vector core
    mix = (ffts == 4) & (sub >= 6)
    block_vector = raw["core"] & 1 == 1
    rows = pl.DataFrame(
        {
            "record": np.arange(len(raw)),
            "stream": stream,
            "task": task,
            "start_ns": device.clock.ns(raw["end"]),
            "context": np.where(mix | ((ffts == 4) & (raw["context"] != 0xFFFF)), raw["context"].astype(np.int64), NO_CONTEXT),
            "of_block": function == _OF_BLOCK,
            "vector": np.where(function == _OF_BLOCK, block_vector, vector_first),
            "leads": (function == _OF_KERNEL) | (block_vector == vector_first),
            "known": (function == _OF_KERNEL) | (function == _OF_BLOCK),
            "cycles": raw["cycles"].astype(np.int64),
        }
    )
    rows = rows.filter(pl.col("known") & ~(pl.col("of_block") & pl.col("leads")))
    values = raw["values"].astype(np.float64)
    del raw  # large: millions of kernels
    counted = Counted(side, files[0], rows, values, ["stream", "task"], executions, frequency, notes)
    return _of_one(counted) if side.chip in _ONE_KIND else _of_both(counted)


def _newest(
    side: Side, files: list[Path], device: Device, executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes
) -> pl.DataFrame:
    """Chips 15 and 16: one record per kernel and kind of core; a flag marks the leading kind."""
    raw = records(files, _NEWEST_PROFILE, notes, DEVICE_MAGIC)
    function = raw["head"] & 63
    raw = raw[function == _OF_NEWEST]  # they contain those of single blocks
    if not len(raw):
        return pl.DataFrame()
    if overflown := int((raw["flags"] & _OVERFLOW != 0).sum()):
        notes.add(files[0], "kernels with overflown counters: their cycles are too low", overflown)
    rows = pl.DataFrame(
        {
            "record": np.arange(len(raw)),
            "task": numbers(raw["stream"], raw["task"], None, side)[1],
            "start_ns": device.clock.ns(raw["end"]),
            "of_block": raw["flags"] & _MASTER == 0,
            "vector": raw["core"] & 1 == 1,
            "cycles": raw["cycles"].astype(np.int64),
        }
    )
    return _of_both(Counted(side, files[0], rows, raw["values"].astype(np.float64), ["task"], executions, frequency, notes))


def _of_both(counted: Counted) -> pl.DataFrame:
    """One row per kernel, with the counters of the cube cores and of the vector cores."""
    rows = _with_executions(counted)
    both = rows.select("execution").unique(maintain_order=True)
    for vector in (False, True):
        core = _core(counted, rows.filter(pl.col("vector") == vector), vector)
        both = both.join(core, on="execution", how="left", maintain_order="left")
    # An unused kind of core has no record, and its counters are 0.
    both = both.with_columns(pl.exclude("execution").fill_null(0))
    side = counted.side
    return _with_cube(both, counted.executions, side, "aic_") if _group(side, "ai_core_metrics") == "PipeUtilization" else both


def _with_executions(counted: Counted) -> pl.DataFrame:
    """The records with `execution`: the last one that started before the record was written."""
    runs = counted.executions.select("execution", "stream", "task", "start_ns", run_end="end_ns").sort("start_ns")
    rows = counted.rows.sort("start_ns", maintain_order=True)
    rows = rows.join_asof(runs, on="start_ns", by=counted.by, check_sortedness=False, suffix="_ran")
    stray = rows.filter(pl.col("execution").is_null()).height
    if stray:
        counted.notes.add(counted.file, "counters of kernels whose start or end is lost", stray)
    return rows.filter(pl.col("execution").is_not_null())


def _core(counted: Counted, part: pl.DataFrame, vector: bool) -> pl.DataFrame:
    """Counters of one kind of core: those of the kernel, or the sum over its blocks."""
    side, executions = counted.side, counted.executions
    kernel = part.select("execution").unique(maintain_order=True).with_row_index("kernel").with_columns(pl.col("kernel").cast(pl.Int64))
    part = part.join(kernel, on="execution", how="left", maintain_order="left")
    at = part["kernel"].to_numpy()
    summed = np.zeros((kernel.height, counted.values.shape[1]))
    cycles = np.zeros(kernel.height, np.int64)
    np.add.at(summed, at, counted.values[part["record"].to_numpy()])
    np.add.at(cycles, at, part["cycles"].to_numpy())
    about = kernel.join(
        part.group_by("kernel").agg(pl.col("start_ns").max().alias("ended"), pl.col("of_block").any()),
        on="kernel",
        how="left",
        maintain_order="left",
    )
    about = about.join(executions.select("execution", "blocks", "mix_blocks"), on="execution", how="left", maintain_order="left")
    hertz = _hertz_at(counted.frequency, side.core_hertz, about["ended"].to_numpy())
    blocks = about.select(pl.when("of_block").then("mix_blocks").otherwise("blocks").fill_null(0)).to_series().to_numpy()
    time = _time_us(cycles, hertz, blocks, side.cores("aiv_num" if vector else "ai_core_num"))
    prefix, sample = ("aiv_", "aiv") if vector else ("aic_", "ai_core")
    columns = {f"{'aiv_time' if vector else 'aicore_time'}(us)": time, f"{prefix}total_cycles": cycles}
    core = 3 if side.chip in NEWEST else 1 if vector else 0
    values = metrics(_group(side, f"{sample}_metrics"), core, _events(side, f"{sample}_profiling_events"), summed, cycles, hertz, time)
    columns |= {prefix + name: column for name, column in values.items()}
    return kernel.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())


def _time_us(cycles: Any, hertz: Any, blocks: Any, cores: int) -> Any:
    """Time of a kernel on one kind of core, with the rounds that more blocks than cores need.

    NaN if the frequency, the number of cores or the number of blocks (level 0) is unknown.
    """
    if cores <= 0:
        return np.full(len(cycles), np.nan)
    # This order of operations gives the same rounding of printed digits as msprof.
    return np.where((hertz > 0) & (blocks > 0), quotient(quotient(cycles * 1e6, hertz), blocks) * np.ceil(blocks / cores), np.nan)


def _with_cube(rows: pl.DataFrame, executions: pl.DataFrame, side: Side, prefix: str) -> pl.DataFrame:
    """With the utilization of the cube cores: used cycles by the cycles of all cube cores at nominal frequency during the kernel.

    As in msprof of earlier CANN, it is 0 if the ratio of matrix products rounds to 0.000; current CANN has no such rule.
    """
    multiplied = f"{prefix}mac_ratio"
    if multiplied not in rows.columns:
        return rows
    about = rows.join(executions.select("execution", "start_ns", "end_ns"), on="execution", how="left", maintain_order="left")
    hertz = np.full(about.height, side.core_hertz, np.float64)
    cores = side.cores("ai_core_num")
    lasted = (about["end_ns"] - about["start_ns"]).to_numpy() / 1e9
    used = quotient(about[f"{prefix}total_cycles"].to_numpy() * 100.0, hertz * cores * lasted)
    if not side.current:
        used[(about[multiplied].round(3) == 0).to_numpy()] = 0
    return rows.with_columns(pl.Series("cube_utilization(%)", np.where(hertz * cores > 0, used, np.nan)))


# One kind of core


def _of_one(counted: Counted) -> pl.DataFrame:
    """STARS chips for inference: kernels only, and the columns of one kind of core."""
    rows = _with_executions(counted._replace(rows=counted.rows.filter(~pl.col("of_block"))))
    rows = rows.unique("execution", keep="first", maintain_order=True).with_columns(ended="start_ns")
    # Sets with this suffix contain events of cube cores.
    core = 0 if str(counted.side.sample.get("ai_core_metrics", "")).endswith(_EXACT) else 2
    return _columns_of_one(counted, rows, core)


def _hwts(side: Side, files: list[Path], executions: pl.DataFrame, frequency: tuple[Ints, Ints], notes: Notes) -> pl.DataFrame:
    """HWTS: records are matched with executions by their order."""
    raw = records(files, _AICORE, notes, DEVICE_MAGIC)
    if not len(raw):
        return pl.DataFrame()
    report_lost_records(raw["head"] >> 4, files[0], notes)
    nth = pl.int_range(pl.len()).over("stream", "task")
    rows = pl.DataFrame(
        {
            "record": np.arange(len(raw)),
            "stream": raw["stream"].astype(np.int64) % 2048,
            "task": raw["task"].astype(np.int64),
            "cycles": raw["cycles"].astype(np.int64),
        }
    )
    runs = executions.filter(pl.col("type") != "AI_CPU").select("execution", "stream", "task", ended="end_ns").with_columns(nth=nth)
    rows = rows.with_columns(nth=nth).join(runs, on=["stream", "task", "nth"], how="left", maintain_order="left")
    stray = rows["execution"].null_count()
    if stray:
        notes.add(files[0], "counters of kernels whose start or end is lost", stray)
        rows = rows.filter(pl.col("execution").is_not_null())
    values = raw["values"].astype(np.float64)
    return _columns_of_one(Counted(side, files[0], rows, values, ["stream", "task"], executions, frequency, notes), rows, 2)


def _columns_of_one(counted: Counted, rows: pl.DataFrame, core: int) -> pl.DataFrame:
    """The columns of one kind of core for rows of execution, record, cycles and ended."""
    side = counted.side
    blocks = rows.select("execution").join(
        counted.executions.select("execution", "blocks"), on="execution", how="left", maintain_order="left"
    )
    cycles = rows["cycles"].to_numpy()
    hertz = _hertz_at(counted.frequency, side.core_hertz, rows["ended"].to_numpy())
    time = _time_us(cycles, hertz, blocks["blocks"].fill_null(0).to_numpy(), side.cores("ai_core_num"))
    group = _group(side, "ai_core_metrics")
    columns = {"aicore_time(us)": time, "total_cycles": cycles}
    values = counted.values[rows["record"].to_numpy()]
    columns |= metrics(group, core, _events(side, "ai_core_profiling_events"), values, cycles, hertz, time)
    if {"vec_ratio", "mac_ratio", "mte2_ratio"} <= set(columns):  # computed from the rounded ratios, as in msprof
        mte2, mac, vec = (np.round(columns[f"{pipe}_ratio"], 3) for pipe in ("mte2", "mac", "vec"))
        columns["memory_bound"] = quotient(mte2, np.maximum(mac, vec))
    result = rows.select("execution").with_columns(pl.Series(name, column) for name, column in columns.items())
    return _with_cube(result, counted.executions, side, "") if group == "PipeUtilization" else result
