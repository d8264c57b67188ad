"""Databases of Ascend's tools: `ascend_pytorch_profiler_R.db`, `ascend_mindspore_profiler_R.db`, `msprof_*.db`, all with the same tables.

Times are nanoseconds. Texts are ids of STRING_IDS; tables ENUM_* explain other numbers.

    TASK                       tasks on streams; COMPUTE_TASK_INFO describes kernels, COMMUNICATION_TASK_INFO tasks on planes
    COMMUNICATION_OP           collectives and transfers, by COMMUNICATION_TASK_INFO.opId
    CANN_API                   calls into Ascend's libraries; connectionId leads to the tasks that they launched
    PYTORCH_API, MSTX_EVENTS   calls of the framework; CONNECTION_IDS lists the connections of a call
    STEP_TIME                  steps
    MEMORY_RECORD, OP_MEMORY, NPU_MEM, NPU_MODULE_MEM, AICORE_FREQ, HBM, LLC, DDR, ...     memory and counters
    STEPSCOPE_*, step          added by our exporter, for columns that the tables above lack
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.model import intervals, units
from stepscope.model.columns.counters import device_columns
from stepscope.model.trace import Meta, Trace
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_db import communication
from stepscope.readers.ascend.ascend_db.counters import counters
from stepscope.readers.ascend.ascend_db.spans import load_spans
from stepscope.readers.ascend.ascend_db.sqlite import ANALYSIS_FILES, Connection, Database, read_rows
from stepscope.readers.ascend.ascend_result import groups
from stepscope.readers.ascend.common.communication_tables import WAIT_COLUMNS, add_wait_times
from stepscope.readers.ascend.common.kinds import SERVING
from stepscope.readers.ascend.common.step_sums import SUMS, database_sums, with_step_sums
from stepscope.readers.ascend.common.steps import is_single_step, single_step
from stepscope.readers.chrome.kineto.scopes import assign_scopes
from stepscope.readers.chrome.kineto.spans import nest_spans
from stepscope.readers.chrome.kineto.steps import assign_steps, find_steps
from stepscope.readers.common.documents import OUTSIDE_LINK, is_inside_folder, to_int
from stepscope.readers.common.name_parts import add_counter_columns
from stepscope.readers.common.problems import Problem, problem_frame

FORMAT = "Ascend database (.db)"
_HEAD = b"SQLite format 3\x00"
_ONLY_IN_ASCEND = {"TASK", "CANN_API", "PYTORCH_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO"}
_TIMES = ("hccl_op_name", "group_name", "start_timestamp", "wait_time", "synchronization_time", "transit_time", "idle_time")
_TRANSFERS = ("hccl_op_name", "transport_type", "transit_size", "transit_time")


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_HEAD)) != _HEAD:
            return False
    try:
        with closing(Connection(path)) as connection:
            return "STRING_IDS" in (names := connection.tables | connection.others) and bool(names & _ONLY_IN_ASCEND)
    except sqlite3.Error:
        return False


def read(path: Path, options: Options) -> Trace:
    return read_database(path, options, rank(path), [])


def rank(path: Path) -> int | None:
    number = re.search(r"profiler_(\d{1,9})\.db$", path.name)
    return int(number[1]) if number else None


def read_database(path: Path, options: Options, rank: int | None, problems: list[Problem]) -> Trace:
    try:
        with closing(Connection(path)) as connection:
            database = Database(connection, problems)
            parallel = groups.read(path.parent, problems, _metadata(database))
            times = wait_times(path.parent, problems)
            trace = _trace(database, options, rank, _step_sums(path.parent, problems))
        return groups.add_groups(add_wait_times(trace, times), parallel)
    except sqlite3.Error as error:
        raise DataError(path, f"not a readable database ({error})") from error


def wait_times(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Wait times of communication calls, from the database that torch_npu's analysis writes next to the others."""
    for name in ANALYSIS_FILES:
        if not is_inside_folder(folder / name):
            problems += [Problem(name, OUTSIDE_LINK, 1)] if (folder / name).is_symlink() else []
            continue
        times = read_rows(folder / name, "CommAnalyzerTime", _TIMES, problems)
        transfers = read_rows(folder / name, "CommAnalyzerBandwidth", _TRANSFERS, problems) if times is not None else None
        if times is None or transfers is None:  # not every version has it
            continue
        links: dict[str, dict[str, dict[str, int]]] = {}
        rows = []
        try:
            for operator, kind, size, time in dict.fromkeys(transfers):
                if size is not None and to_int(size, 1e6) > 0:
                    links.setdefault(operator, {})[kind] = {"bytes": to_int(size, 1e6), "dur_ns": to_int(time, 1e6)}
            for operator, group, start, *durations in times:
                numbers = to_int(start, 1000), *(to_int(duration, 1e6) for duration in durations)
                rows.append((str(operator), None if group is None else str(group), *numbers, json.dumps(links.get(operator, {}))))
        except (TypeError, ValueError):  # SQLite does not enforce the types of columns
            continue
        return pl.DataFrame(rows, WAIT_COLUMNS, orient="row")
    return pl.DataFrame(schema=WAIT_COLUMNS)


def _step_sums(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    present = [folder / name for name in ANALYSIS_FILES if (folder / name).is_file()]
    inside = bool(present) and all(is_inside_folder(file) for file in present)
    return database_sums(folder, problems) if inside else pl.DataFrame(schema=SUMS)


def beside(path: Path) -> list[Path]:
    """The files next to a database that are read with it."""
    return [*groups.metadata_files(path.parent), *(file for name in ANALYSIS_FILES if is_inside_folder(file := path.parent / name))]


def _trace(database: Database, options: Options, rank: int | None, sums: pl.DataFrame) -> Trace:
    spans, tracks = load_spans(database)
    if spans.is_empty():
        views = sorted(database.connection.others & _ONLY_IN_ASCEND)
        raise DataError(database.path, "no spans in it" + (f"; {', '.join(views)}: views, which are not read" if views else ""))
    spans, _ = nest_spans(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
    spans = assign_scopes(_link_causes(database, spans))
    steps, spans = _assign_steps(database, spans)
    steps = with_step_sums(steps, sums, database.problems)
    ranks = database.table("RANK_DEVICE_MAP", rankId=pl.Int64)["rankId"].to_list()
    rank = next(
        number for number in (rank, *(ranks if len(ranks) == 1 else []), options.rank, 0) if number is not None and 0 <= number < 2**31
    )
    steps = _with_overlap_sums(steps, database)
    orphans, lost = _orphans(database), _lost_device_work(database, spans)
    if orphans:
        unknown = pl.col("device_computing_ns").is_null() | pl.col("device_communication_ns").is_null()
        steps = steps.with_columns(device_work_lost=pl.when(unknown).then(True))
    database.problems += [*orphans, *lost]
    exported_counters = database.exported("counters")
    if exported_counters["series"].null_count():  # exported by an earlier release
        exported_counters = add_counter_columns(exported_counters.lazy()).collect()
    tables = {
        "spans": spans,
        "tracks": tracks,
        "steps": steps,
        "counters": pl.concat([*counters(database), exported_counters], how="diagonal_relaxed"),
        "allocations": _allocations(database),
        "links": communication.links(database, spans),
        "devices": _devices(database, tracks),
        "problems": pl.concat([database.exported("problems"), problem_frame(database.problems, database.path)], how="diagonal_relaxed"),
    }
    meta = _meta(database)
    extra = meta.extra | ({"incomplete_device_work": True} if lost else {})
    meta = msgspec.structs.replace(meta, ranks=[rank], extra=extra)
    return Trace({name: rows.lazy().with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in tables.items()}, meta)


def _lost_device_work(database: Database, spans: pl.DataFrame) -> list[Problem]:
    """Tables without which the device seems to be idle, though others show that it worked."""
    if "STEPSCOPE_SPANS" in database.names:
        return []
    kinds = set(spans["kind"].cast(pl.String).unique())
    lost = []
    if "communication" in kinds and database.select("TASK", "globalTaskId").is_empty():
        lost.append(Problem("", "TASK has no rows, though the device communicated: its kernels and copies are missing", 1))
    if "communication" not in kinds and database.select("COMMUNICATION_TASK_INFO", "globalTaskId").height:
        lost.append(Problem("", "COMMUNICATION_OP has no rows, though COMMUNICATION_TASK_INFO has: the communication is missing", 1))
    return lost


def _orphans(database: Database) -> list[Problem]:
    """Rows that describe work whose own row is missing."""
    if "STEPSCOPE_SPANS" in database.names:
        return []
    rows = []
    for details, key, table, noun in (
        ("COMPUTE_TASK_INFO", "globalTaskId", "TASK", "kernel"),
        ("COMMUNICATION_TASK_INFO", "opId", "COMMUNICATION_OP", "communication call"),
    ):
        detailed, present = (database.select(name, key)[key].drop_nulls().unique() for name in (details, table))
        missing = int((~detailed.is_in(present.implode())).sum())
        if present.len() and missing:
            rows.append(Problem(table, f"{units.count(missing, noun)} of {details} without a row", missing))
    return rows


def _with_overlap_sums(steps: pl.DataFrame, database: Database) -> pl.DataFrame:
    """The steps with the sums of OVERLAP_ANALYSIS, which its tool computed from all device work, where nothing else has them."""
    sums = ("device_computing_ns", "device_communication_ns")
    steps = steps.with_columns(pl.lit(None, pl.Int64).alias(name) for name in sums if name not in steps.columns)
    rows = database.select("OVERLAP_ANALYSIS", "startNs endNs deviceId type").drop_nulls()
    if rows.is_empty() or rows["deviceId"].n_unique() > 1 or (steps["how"].cast(pl.String) == "whole").all():
        return steps
    for kind, name in enumerate(sums):
        times = rows.filter(pl.col("type") == kind, pl.col("endNs") > pl.col("startNs"))
        busy = intervals.merge(times["startNs"].to_numpy(), times["endNs"].to_numpy())
        covered = intervals.covered(busy, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
        steps = steps.with_columns(pl.coalesce(name, pl.Series(covered)).alias(name))
    return steps


def _assign_steps(database: Database, spans: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the spans with theirs."""
    exported = database.exported("steps")
    if exported.height:
        return exported, spans
    marked = database.table("STEP_TIME", id=pl.Int32, startNs=pl.Int64, endNs=pl.Int64).drop_nulls()
    if marked.height:
        steps = marked.select(step="id", start_ns="startNs", end_ns="endNs", how=pl.lit("marker")).sort("start_ns")
    else:
        steps, remark = find_steps(spans)
        database.problems += [remark] if remark else []
        if is_single_step(spans, steps):
            return single_step(spans), spans.with_columns(step=pl.lit(1, pl.Int32))
    return steps, assign_steps(spans, steps)


def _meta(database: Database) -> Meta:
    for (text,) in database.table("STEPSCOPE_META", value=pl.String).iter_rows():
        try:
            return msgspec.structs.replace(msgspec.json.decode(text, type=Meta), format="ascend_db")
        except (msgspec.MsgspecError, TypeError, RecursionError) as error:
            database.problems.append(Problem("STEPSCOPE_META", f"cannot be read ({error})", 0))
    framework = "pytorch" if "PYTORCH_API" in database.names else "mindspore" if "mindspore" in database.path.name else ""
    metadata = _metadata(database)
    versions = {key: str(metadata[key]) for key in metadata if key.lower().endswith("version") and key != "SCHEMA_VERSION"}
    return Meta(format="ascend_db", framework=framework, versions=versions)


def _metadata(database: Database) -> dict[str, str]:
    return dict(database.table("META_DATA", name=pl.String, value=pl.String).drop_nulls().iter_rows())


def _link_causes(database: Database, spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with the call that launched them, the framework's operator, and the type of operators and device work."""
    kind = pl.col("kind").cast(pl.String)
    calls = spans.filter(kind.is_in(["api", "sync"]) & pl.col("correlation").is_not_null() & pl.col("task").is_null())
    launches = calls.select("correlation", cause="span").unique("correlation", keep="first")
    connections = database.select("CONNECTION_IDS", "id connectionId").drop_nulls()
    framework = spans.filter(pl.col("connections").is_not_null()).select("span", "category", "kind", "start_ns", id="connections")
    connected = framework.join(connections, on="id")
    operators = connected.filter(kind == "op").select(correlation="connectionId", op="span").unique("correlation", keep="first")
    # Calls of the framework that share a connection: the two ends of a queue, a forward operator and its backward operator.
    in_queue = pl.col("category").cast(pl.String).is_in(["enqueue", "dequeue"])
    shared = connected.sort("start_ns").select("connectionId", "span", queue=in_queue)
    first = shared.unique(["connectionId", "queue"], keep="first", maintain_order=True).rename({"span": "first"})
    later = shared.join(first, on=["connectionId", "queue"]).filter(pl.col("span") != pl.col("first")).unique("span", keep="first")
    for rows, key in ((launches, "correlation"), (operators, "correlation"), (later.select("span", "first"), "span")):
        spans = spans.join(rows, on=key, how="left", maintain_order="left")
    on_device = ["kernel", "copy", "set", "sync", "communication", "other"]
    work = kind.is_in(on_device) & (pl.col("task").is_not_null() | (kind == "communication"))
    op_type = _op_type(kind, spans["name"].cast(pl.String).gather(spans["op"].fill_null(0)))
    return spans.with_columns(
        flow_in=pl.when(work).then(pl.coalesce("cause", "op")).otherwise(pl.col("first")),
        op=pl.when(work).then("op"),
        op_type=op_type.when(work & pl.col("op").is_not_null()).then(pl.col("name").cast(pl.String)).cast(pl.Categorical),
    ).drop("cause", "first", "connections", "task")


def _op_type(kind: pl.Expr, name_of_op: pl.Series) -> pl.expr.whenthen.ChainedThen:
    name = pl.col("name").cast(pl.String)
    type_in_path = pl.when(name.str.contains("/")).then(name.str.extract(r"([^/]*?)(?:-op[0-9]+)?(?:_[0-9]+)?$"))
    kernel_name = pl.when((kind == "kernel") & (pl.col("category").cast(pl.String) != "COMMUNICATION")).then(name)
    type_of_op = pl.when(pl.col("op").is_not_null()).then(name_of_op)
    device_work = kind.is_in(["kernel", "communication"]) | ((kind == "other") & name.str.contains(SERVING))
    types = pl.coalesce(pl.col("op_type").cast(pl.String), type_in_path, type_of_op, kernel_name)
    return pl.when(kind == "op").then(name).when(device_work).then(types)


def _allocations(database: Database) -> pl.DataFrame:
    rows = database.select("OP_MEMORY", "size allocationTime releaseTime deviceId", texts="name")
    return rows.filter(pl.any_horizontal(pl.col("allocationTime", "releaseTime").is_not_null())).select(
        **device_columns("npu", pl.col("deviceId").fill_null(0)),
        bytes=pl.col("size").abs(),
        alloc_ns="allocationTime",
        free_ns="releaseTime",
        op=pl.col("name").cast(pl.String),
    )


def _devices(database: Database, tracks: pl.DataFrame) -> pl.DataFrame:
    if (exported := database.exported("devices")).height:
        return exported
    chips = database.table("NPU_INFO", id=pl.Int32, name=pl.String).drop_nulls().unique("id", keep="last")
    numbers = tracks.select(device=pl.col("device").drop_nulls().unique().sort())
    return numbers.join(chips, left_on="device", right_on="id", how="left", maintain_order="left").with_columns(kind=pl.lit("aicore"))
