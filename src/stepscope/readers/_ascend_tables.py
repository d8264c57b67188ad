"""Tables that Ascend's tools write beside a timeline: kernels, memory, communication, steps. Text, microseconds with three decimals.

Times carry a tab behind them, for spreadsheets; what is missing is `N/A`; names of columns differ from version to version.
"""

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import schema, units
from stepscope.readers._ascend_details import DETAILS, Details
from stepscope.readers._ascend_texts import json_list
from stepscope.readers._documents import decoded, exact, files, in_text, index, listed
from stepscope.readers._kineto import Problem
from stepscope.trace import Trace

_MIB = 1 << 20


def read_table(file: Path, problems: list[Problem]) -> pl.DataFrame:
    """All columns as text, without the blanks around it; `N/A` and nothing are null. What cannot be read is a problem."""
    rows = _json_rows(file, problems) if file.suffix == ".json" else _csv_rows(file, problems)
    names = [name.strip().lstrip("\ufeff") for name in rows.columns]
    rows = rows.rename(dict(zip(rows.columns, names, strict=True))) if len(set(names)) == len(names) else rows
    text = pl.all().str.strip_chars()
    return rows.select(pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text).name.keep())


def _csv_rows(file: Path, problems: list[Problem]) -> pl.DataFrame:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = pl.read_csv(file, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy", ignore_errors=True)
        problems += [Problem(file.name, str(warning.message).splitlines()[0], 1) for warning in caught]
    except (pl.exceptions.PolarsError, OSError) as error:
        problems.append(Problem(file.name, f"not a table ({str(error).splitlines()[0]})", 1))
        return pl.DataFrame()
    return rows


def _json_rows(file: Path, problems: list[Problem]) -> pl.DataFrame:
    """A list of objects, as `msprof --summary-format=json` writes a table."""
    said = listed(read_json(file, problems))
    rows = [row for row in said if isinstance(row, dict)]
    if len(rows) < len(said):
        problems.append(Problem(file.name, "entries that are no rows", len(said) - len(rows)))
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame({name: [None if (one := row.get(name)) is None else str(one) for row in rows] for name in names}, strict=False)


def read_json(file: Path, problems: list[Problem]) -> Any:
    try:
        return decoded(file.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        problems.append(Problem(file.name, f"not JSON ({error})", 1))
        return None


def slices(files: Iterable[Path], problems: list[Problem]) -> pl.DataFrame:
    """The pieces that a long table was cut into, as one."""
    parts = [rows for file in sorted(files) if (rows := read_table(file, problems)).width]
    return pl.concat(parts, how="diagonal") if parts else pl.DataFrame()


def column(rows: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of these columns that the table has; null where it has none."""
    return next((pl.col(name) for name in names if name in rows.columns), pl.lit(None, pl.String))


def nanoseconds(text: pl.Expr) -> pl.Expr:
    """Microseconds as text, exactly."""
    parts = text.str.extract_groups(r"^(-?)(\d+)(?:\.(\d*))?$").struct
    whole, fraction = parts.field("2").cast(pl.Int64, strict=False), parts.field("3").fill_null("").str.slice(0, 4).str.pad_end(4, "0")
    exact = whole * 1000 + (fraction.cast(pl.Int64, strict=False) + 5) // 10
    exact = pl.when(parts.field("1") == "-").then(-exact).otherwise(exact)
    odd = (text.cast(pl.Float64, strict=False) * 1000).round().cast(pl.Int64, strict=False)
    return pl.coalesce(exact, odd)


def number(text: pl.Expr, factor: float = 1.0) -> pl.Expr:
    """What is too large for an integer, or no number, is damage."""
    value = text.cast(pl.Float64, strict=False) * factor
    return pl.when(value.abs() < 2**62).then(value)


# kernel_details.csv and op_summary_*.csv

_PLACED = {
    *("Step Id", "Device_id", "Stream ID", "Name", "Op Name", "Type", "OP Type", "Accelerator Core", "Task Type"),
    *("Start Time(us)", "Task Start Time(us)", "Duration(us)", "Task Duration(us)", "Input Shapes", "Input Data Types"),
}


def details(rows: pl.DataFrame, file: str, problems: list[Problem]) -> Details:
    """Kernels, as `_ascend_details` wants them."""
    if rows.is_empty():
        return Details(pl.DataFrame(schema=DETAILS), file)
    rest = [name for name in rows.columns if name not in _PLACED]
    found = rows.select(
        name=column(rows, "Name", "Op Name"),
        start_ns=nanoseconds(column(rows, "Start Time(us)", "Task Start Time(us)")),
        dur_ns=nanoseconds(column(rows, "Duration(us)", "Task Duration(us)")),
        device=column(rows, "Device_id").cast(pl.Int32, strict=False),
        stream=column(rows, "Stream ID"),
        op_type=column(rows, "Type", "OP Type"),
        core=column(rows, "Accelerator Core", "Task Type"),
        shapes=lists(rows, "Input Shapes"),
        dtypes=lists(rows, "Input Data Types"),
        step=column(rows, "Step Id"),
        details=pl.struct(rest).struct.json_encode() if rest else pl.lit(None, pl.String),
    )
    whole = found.filter(pl.col("name").is_not_null() & pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0))
    if lost := found.height - whole.height:
        problems.append(Problem(file, f"{units.count(lost, 'row')} without a name, a start or a duration", lost))
    return Details(whole.select(pl.col(name).cast(dtype) for name, dtype in DETAILS.items()), file)


def lists(rows: pl.DataFrame, name: str) -> pl.Expr:
    """`"2,3;4"` as JSON, once for each distinct one."""
    if name not in rows.columns:
        return pl.lit(None, pl.String)

    def listed(values: pl.Series) -> pl.Series:
        distinct = values.unique().drop_nulls()
        return values.replace_strict(
            distinct, pl.Series([json_list(one) for one in distinct], dtype=pl.String), default=None, return_dtype=pl.String
        )

    return pl.col(name).map_batches(listed, return_dtype=pl.String)


# memory_record.csv, operator_memory.csv, npu_module_mem.csv

_COUNTERS = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}


def memory_counters(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """What is allocated and reserved on the device, by the framework and by Ascend's own modules."""
    parts = []
    for file in files(folder, "memory_record*.csv"):
        rows = read_table(file, problems)
        if rows.width:
            parts.append(
                record_counters(
                    rows.select(
                        component=column(rows, "Component").fill_null(""),
                        at_ns=nanoseconds(column(rows, "Timestamp(us)", "Timestamp")),
                        allocated=number(column(rows, "Total Allocated(MB)", "Total Allocated(KB)"), _unit(rows, "Total Allocated")),
                        reserved=number(column(rows, "Total Reserved(MB)", "Total Reserved(KB)"), _unit(rows, "Total Reserved")),
                        active=number(column(rows, "Total Active(MB)", "Total Active(KB)"), _unit(rows, "Total Active")),
                        device=_npu(column(rows, "Device Type", "Device")),
                    )
                )
            )
    for file in files(folder, "npu_module_mem*.csv"):
        rows = read_table(file, problems)
        if rows.width:
            reserved = number(column(rows, "Total Reserved(MB)", "Total Reserved(KB)"), _unit(rows, "Total Reserved"))
            parts.append(
                rows.select(
                    name=pl.format("{} reserved {}", column(rows, "Component").fill_null("?"), _npu(column(rows, "Device", "Device Type"))),
                    at_ns=nanoseconds(column(rows, "Timestamp(us)", "Timestamp")),
                    value=reserved,
                    unit=pl.lit("bytes"),
                )
            )
    found = pl.concat([pl.DataFrame(schema=_COUNTERS), *parts])
    return found.filter(pl.col("at_ns").is_not_null() & pl.col("value").is_not_null())


def record_counters(rows: pl.DataFrame) -> pl.DataFrame:
    """Samples of component, at_ns, allocated, reserved, active (bytes) and device as counters.

    `allocated npu 0` is the framework's whole: where its allocator (PTA, MindSpore) and the graph engine's (GE) are summed, that sum.
    """
    components = set(rows["component"])
    whole = next((word for word in components if "+" in word), None) or next(
        (word for word in ("PTA", "MindSpore", "MS", "GE") if word in components), None
    )
    whole = whole or next(iter(sorted(components - {"APP"})), None)
    parts = []
    for what in ("allocated", "reserved", "active"):
        known = rows.filter(pl.col(what).is_not_null())
        name = (
            pl.when(pl.col("component") == "APP")
            .then(pl.format("process memory {}", "device"))
            .when(pl.lit(what != "active") & (pl.col("component") == pl.lit(whole)))
            .then(pl.format("{} {}", pl.lit(what), "device"))
            .otherwise(pl.format("{} {} {}", "component", pl.lit(what), "device"))
        )
        parts.append(known.select(name=name, at_ns="at_ns", value=pl.col(what), unit=pl.lit("bytes")))
    return pl.concat(parts).sort("at_ns", maintain_order=True)


def allocations(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Blocks with the operator that took them."""
    parts = []
    for file in files(folder, "operator_memory*.csv"):
        rows = read_table(file, problems)
        if rows.width:
            size = number(column(rows, "Size(KB)", "Size(MB)"), 1024.0 if "Size(KB)" in rows.columns else float(_MIB))
            parts.append(
                rows.select(
                    device=_npu(column(rows, "Device Type", "Device")),
                    bytes=size.abs().round().cast(pl.Int64),
                    alloc_ns=nanoseconds(column(rows, "Allocation Time(us)")),
                    free_ns=nanoseconds(column(rows, "Release Time(us)")),
                    op=column(rows, "Name").str.strip_prefix("cann::"),
                )
            )
    found = (
        pl.concat(parts)
        if parts
        else pl.DataFrame(schema={"device": pl.String, "bytes": pl.Int64, "alloc_ns": pl.Int64, "free_ns": pl.Int64, "op": pl.String})
    )
    whole = found.filter(pl.any_horizontal(pl.col("alloc_ns", "free_ns").is_not_null()), pl.col("bytes").is_not_null())
    if lost := found.height - whole.height:
        problems.append(Problem("operator_memory", f"{units.count(lost, 'block')} without a size or a time", lost))
    return whole


def _unit(rows: pl.DataFrame, name: str) -> float:
    return 1024.0 if f"{name}(KB)" in rows.columns else float(_MIB)


def _npu(device: pl.Expr) -> pl.Expr:
    """`NPU:0` as `npu 0`."""
    return pl.format("npu {}", pl.coalesce(device.str.extract(r"(\d+)\s*$"), pl.lit("0")))


# communication_matrix.json


def matrix_links(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Transfers between ranks, added up per step, operator, pair and transport: for results without the tasks of planes.

    Ranks are counted within the `group`, which is a column more than those of `links`.
    """
    rows = []
    for file in files(folder, "communication_matrix*.json"):
        found = read_json(file, problems)
        rows += matrix_rows(found, file.name, problems) if isinstance(found, dict) else []
    groups = pl.Series("group", [row[-1] for row in rows], pl.String)
    return links_of([row[:-1] for row in rows]).with_columns(groups)


def links_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows of the columns of `links`, of one rank."""
    return pl.DataFrame(rows, {name: dtype for name, dtype in schema.TABLES["links"].items() if name != "rank"}, orient="row")


def matrix_rows(found: dict[str, Any], file: str, problems: list[Problem]) -> list[tuple[Any, ...]]:
    rows, odd = [], 0
    for step, kinds in found.items():
        number = in_text(str(step))
        for operators in kinds.values() if isinstance(kinds, dict) else []:
            names = operators if isinstance(operators, dict) else {}
            # top1, middle, bottom are single operators out of the total.
            totals = {name: pairs for name, pairs in names.items() if "-total" in name} or names
            for name, pairs in totals.items():
                for pair, said in pairs.items() if isinstance(pairs, dict) else []:
                    try:
                        src, dst = (index(one) for one in pair.split("-"))
                        size, time = exact(said["Transit Size(MB)"], 1e6), exact(said["Transit Time(ms)"], 1e6)
                        rows.append(
                            (
                                number,
                                name.partition("@")[0].replace("-total", ""),
                                src,
                                dst,
                                str(said.get("Transport Type") or ""),
                                size,
                                time,
                                name.partition("@")[2] or None,
                            )
                        )
                    except (ValueError, TypeError, KeyError):
                        odd += 1
    if odd:
        problems.append(Problem(file, f"{units.count(odd, 'pair')} of ranks without size and time", odd))
    return rows


# communication.json

WAITS: dict[str, Any] = {
    "name": pl.String,
    "group": pl.String,  # the communicator's name, or its number
    "start_ns": pl.Int64,
    "wait_ns": pl.Int64,
    "synchronization_ns": pl.Int64,
    "transit_ns": pl.Int64,
    "idle_ns": pl.Int64,
    "links": pl.String,  # JSON text: kind of link -> bytes, dur_ns
}
_TIMES = ("Wait Time(ms)", "Synchronization Time(ms)", "Transit Time(ms)", "Idle Time(ms)")


def waits(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """What torch_npu and MindSpore say of each transfer: how long it waited for others, how long bytes were on their way, and how many."""
    rows, odd = list[tuple[Any, ...]](), 0
    for file in files(folder, "communication.json"):
        found = read_json(file, problems)
        for kinds in found.values() if isinstance(found, dict) else []:
            for operators in kinds.values() if isinstance(kinds, dict) else []:
                for name, said in operators.items() if isinstance(operators, dict) else []:
                    if name.startswith("Total Op Info"):
                        continue
                    try:
                        times = said["Communication Time Info"]
                        start = exact(times["Start Timestamp(us)"], 1000)
                        moved = said.get("Communication Bandwidth Info") or {}
                        call, _, group = name.partition("@")
                        rows.append((call, group or None, start, *(exact(times[key], 1e6) for key in _TIMES), _moved(moved)))
                    except (ValueError, TypeError, KeyError, AttributeError):
                        odd += 1
    if odd:
        problems.append(Problem("communication.json", f"{units.count(odd, 'transfer')} without their times", odd))
    return pl.DataFrame(rows, WAITS, orient="row")


def _moved(said: dict[str, Any]) -> str:
    """Only the kinds of link that carried something."""
    links = {
        kind: {"bytes": exact(one["Transit Size(MB)"], 1e6), "dur_ns": exact(one["Transit Time(ms)"], 1e6)} for kind, one in said.items()
    }
    return json.dumps({kind: one for kind, one in links.items() if one["bytes"]})


def with_waits(trace: Trace, said: pl.DataFrame) -> Trace:
    """The trace with what is said of its transfers among their arguments."""
    calls = (
        trace.spans.filter(pl.col("kind") == "communication").select("span", "start_ns", "args", pl.col("name").cast(pl.String)).collect()
    )
    if calls.is_empty() or said.is_empty():
        return trace
    # The nearest of its name: starts are floats of microseconds since 1970, and those of a database some microseconds off.
    told = said.sort("start_ns").with_row_index("told").with_columns(told_ns=pl.col("start_ns"))
    found = calls.sort("start_ns").join_asof(told, on="start_ns", by="name", strategy="nearest", check_sortedness=False)
    found = found.drop_nulls("told").sort((pl.col("start_ns") - pl.col("told_ns")).abs(), maintain_order=True)
    found = found.unique("told", keep="first", maintain_order=True)  # said of one call only
    numbers = pl.struct("wait_ns", "synchronization_ns", "transit_ns", "idle_ns").struct.json_encode().str.strip_suffix("}")
    group = pl.struct(pl.col("group").alias("Process Group Name")).struct.json_encode().str.strip_prefix("{").str.strip_suffix("}")
    unnamed = pl.col("group").is_not_null() & pl.col("args").str.json_path_match("$['Process Group Name']").is_null()
    more = found.select(
        "span",
        more=pl.concat_str(
            numbers,
            pl.when(unnamed).then(pl.concat_str(pl.lit(","), group)).otherwise(pl.lit("")),
            pl.lit(',"links":'),
            pl.col("links").fill_null("{}"),
            pl.lit("}"),
        ),
    )
    return with_args(trace, more)


def with_args(trace: Trace, more: pl.DataFrame) -> Trace:
    """The trace with `more`, JSON text of an object, added to the arguments of some spans."""
    if more.is_empty():
        return trace
    args, told = pl.col("args"), pl.col("more")
    joined = pl.concat_str(args.str.strip_suffix("}"), pl.lit(","), told.str.strip_prefix("{"))
    bare = args.is_null() | (args.str.len_bytes() <= 2)
    tables = trace.tables
    tables["spans"] = (
        tables["spans"]
        .join(more.lazy(), on="span", how="left", maintain_order="left")
        .with_columns(args=pl.when(told.is_null()).then(args).when(bare).then(told).otherwise(joined))
        .drop("more")
    )
    return Trace(tables, trace.meta)


def with_rows(trace: Trace, more: dict[str, pl.DataFrame]) -> Trace:
    """The trace with more rows in some tables."""
    tables = trace.tables
    for name, rows in more.items():
        if rows.height:
            tables[name] = pl.concat([tables[name], schema.conform(rows.lazy(), name)])
    return Trace(tables, trace.meta)
