"""Databases of Ascend's tools: `ascend_pytorch_profiler_R.db`, `ascend_mindspore_profiler_R.db`, `msprof_*.db`, all of the same tables.

Times are nanoseconds. Text is a number that STRING_IDS explains; other numbers are explained by tables named ENUM_*.

    TASK                       what ran on streams; COMPUTE_TASK_INFO describes kernels, COMMUNICATION_TASK_INFO the tasks of planes
    COMMUNICATION_OP           collectives and transfers; COMMUNICATION_TASK_INFO.opId leads here
    CANN_API                   calls into Ascend's libraries; connectionId leads to the tasks they launched
    PYTORCH_API, MSTX_EVENTS   the framework's side; CONNECTION_IDS lists the connections of a call
    STEP_TIME                  steps
    MEMORY_RECORD, OP_MEMORY, NPU_MEM, NPU_MODULE_MEM, AICORE_FREQ, HBM, LLC, DDR, ...     memory and counters
    STEPSCOPE_*, step          what stepscope's own exporter adds, where the tables above have no place for it
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.readers import (
    Options,
    _ascend_counters,
    _ascend_database_communication,
    _ascend_database_spans,
    _ascend_groups,
    _ascend_steps,
    _ascend_tables,
    _kineto,
)
from stepscope.readers._ascend_kinds import SERVING
from stepscope.readers._ascend_sqlite import Connection, Database
from stepscope.readers._documents import LEADS_OUT, exact, lies_beside
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace

_HEAD = b"SQLite format 3\x00"
_TELLING = {"TASK", "CANN_API", "PYTORCH_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO"}


def claims(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_HEAD)) != _HEAD:
            return False
    try:
        with closing(Connection(path)) as database:
            return "STRING_IDS" in (names := database.tables | database.others) and bool(names & _TELLING)
    except sqlite3.Error:
        return False


def read(paths: list[Path], options: Options, *, rank: int | None, problems: list[Problem]) -> Trace:
    """The first of the databases; others of the same folder are of other ranks or the same again."""
    path = paths[0]
    if len(paths) > 1:
        problems.append(Problem("", f"{len(paths)} databases: {path.name} is read, the others can be opened by themselves", 0))
    try:
        with closing(Connection(path)) as connection:
            database = Database(connection, problems)
            parallel = _ascend_groups.read(path.parent, problems, _metadata(database))
            said = waits(path.parent, problems)
            trace = _trace(database, options, rank)
        return _ascend_groups.with_groups(_ascend_tables.with_waits(trace, said), parallel)
    except sqlite3.Error as error:
        raise DataError(path, f"not a database that can be read ({error})") from error


def waits(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """What torch_npu's own analysis says of transfers, in a database beside."""
    for name in _ANALYSED:
        if not lies_beside(folder / name):
            problems += [Problem(name, LEADS_OUT, 1)] if (folder / name).is_symlink() else []
            continue
        try:
            with closing(Connection(folder / name)) as database:
                times = database.rows("CommAnalyzerTime", _TIMES, problems)
                moved = database.rows("CommAnalyzerBandwidth", _MOVED, problems)
        except sqlite3.Error as error:
            problems.append(Problem(name, f"not a database that can be read ({error})", 1))
            continue
        if times is None or moved is None:  # not every version has it
            continue
        links: dict[str, dict[str, dict[str, int]]] = {}
        rows = []
        try:
            for operator, kind, size, time in dict.fromkeys(moved):
                if size is not None and exact(size, 1e6) > 0:
                    links.setdefault(operator, {})[kind] = {"bytes": exact(size, 1e6), "dur_ns": exact(time, 1e6)}
            for operator, group, start, *lengths in times:
                moments = exact(start, 1000), *(exact(one, 1e6) for one in lengths)
                rows.append((str(operator), None if group is None else str(group), *moments, json.dumps(links.get(operator, {}))))
        except (TypeError, ValueError):  # SQLite's columns hold what was put into them
            continue
        return pl.DataFrame(rows, _ascend_tables.WAITS, orient="row")
    return pl.DataFrame(schema=_ascend_tables.WAITS)


def beside(path: Path) -> list[Path]:
    """The files around a database that are read with it."""
    return [*_ascend_groups.described(path.parent), *(file for name in _ANALYSED if lies_beside(file := path.parent / name))]


_ANALYSED = ("analysis.db", "communication_analyzer.db")
_TIMES = ("hccl_op_name", "group_name", "start_timestamp", "wait_time", "synchronization_time", "transit_time", "idle_time")
_MOVED = ("hccl_op_name", "transport_type", "transit_size", "transit_time")


def _trace(database: Database, options: Options, rank: int | None) -> Trace:
    spans, lanes = _ascend_database_spans.spans(database)
    if spans.is_empty():
        views = sorted(database.database.others & _TELLING)
        raise DataError(database.path, "nothing that ran is in it" + (f"; {', '.join(views)}: views, which are not read" if views else ""))
    spans, _ = _kineto.nested(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
    spans = _kineto.scoped(_linked(database, spans))
    steps, spans = _steps(database, spans)
    mapped = database.table("RANK_DEVICE_MAP", rankId=pl.Int64, deviceId=pl.Int64)
    own = int(mapped["rankId"][0]) if mapped.height == 1 and (mapped["rankId"][0] or -1) >= 0 else None
    rank = next((number for number in (rank, own, options.rank) if number is not None and 0 <= number < 2**31), 0)
    tables = {
        "spans": spans,
        "tracks": lanes,
        "steps": steps,
        "counters": pl.concat([*_ascend_counters.counters(database), database.own("counters")], how="diagonal_relaxed"),
        "allocations": _allocations(database),
        "links": _ascend_database_communication.links(database, spans),
        "devices": _devices(database, lanes),
        "problems": pl.concat([database.own("problems"), pl.DataFrame(
            database.problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row"
        ).with_columns(file=pl.lit(str(database.path)))], how="diagonal_relaxed"),
    }  # fmt: skip
    meta = _meta(database)
    meta.ranks = [rank]
    return Trace({name: rows.lazy().with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in tables.items()}, meta)


def _steps(database: Database, spans: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the spans with the step of each."""
    own = database.own("steps")
    if own.height:
        return own, spans
    marked = database.table("STEP_TIME", id=pl.Int32, startNs=pl.Int64, endNs=pl.Int64).drop_nulls()
    if marked.height:
        steps = marked.select(step="id", start_ns="startNs", end_ns="endNs", how=pl.lit("marker")).sort("start_ns")
    else:
        steps, remark = _kineto.steps_of(spans)
        database.problems += [remark] if remark else []
        if _ascend_steps.is_of_cann(spans, steps):
            return _ascend_steps.whole(spans), spans.with_columns(step=pl.lit(1, pl.Int32))
    return steps, _kineto.stepped(spans, steps)


def _meta(database: Database) -> Meta:
    for (text,) in database.table("STEPSCOPE_META", value=pl.String).iter_rows():
        try:
            return msgspec.structs.replace(msgspec.json.decode(text, type=Meta), format="ascend_db")
        except (msgspec.MsgspecError, TypeError) as error:
            database.problems.append(Problem("STEPSCOPE_META", f"cannot be read ({error})", 0))
    framework = "pytorch" if "PYTORCH_API" in database.names else "mindspore" if "mindspore" in database.path.name else ""
    return Meta(format="ascend_db", framework=framework, versions=_versions(database))


def _versions(database: Database) -> dict[str, str]:
    said = _metadata(database)
    return {key: str(said[key]) for key in said if key.lower().endswith("version") and key != "SCHEMA_VERSION"}


def _metadata(database: Database) -> dict[str, str]:
    return dict(database.table("META_DATA", name=pl.String, value=pl.String).drop_nulls().iter_rows())


def _linked(database: Database, spans: pl.DataFrame) -> pl.DataFrame:
    device = ["kernel", "copy", "set", "sync", "communication", "other"]
    kind = pl.col("kind").cast(pl.String)
    calls = spans.filter(kind.is_in(["api", "sync"]) & pl.col("correlation").is_not_null() & pl.col("task").is_null())
    launch = calls.select("correlation", cause="span").unique("correlation", keep="first")
    links = database.table("CONNECTION_IDS", id=pl.Int64, connectionId=pl.Int64).drop_nulls()
    framework = spans.filter(pl.col("connections").is_not_null()).select("span", "category", "kind", "start_ns", id="connections")
    connected = framework.join(links, on="id")
    operators = connected.filter(kind == "op").select(correlation="connectionId", op="span").unique("correlation", keep="first")
    work = kind.is_in(device) & (pl.col("task").is_not_null() | (kind == "communication"))
    spans = spans.join(launch, on="correlation", how="left", maintain_order="left").join(
        operators, on="correlation", how="left", maintain_order="left"
    )
    # Calls of the framework that share a connection: a queue's two ends, a forward operator and its backward one.
    shared = connected.sort("start_ns").select(
        "connectionId", "span", queue=pl.col("category").cast(pl.String).is_in(["enqueue", "dequeue"])
    )
    first = shared.unique(["connectionId", "queue"], keep="first", maintain_order=True).rename({"span": "first"})
    later = shared.join(first, on=["connectionId", "queue"]).filter(pl.col("span") != pl.col("first")).unique("span", keep="first")
    spans = spans.join(later.select("span", "first"), on="span", how="left", maintain_order="left")
    name, of_op = pl.col("name").cast(pl.String), spans["name"].cast(pl.String).gather(spans["op"].fill_null(0))
    path = pl.when(name.str.contains("/")).then(name.str.extract(r"([^/]*?)(?:-op\d+)?(?:_\d+)?$"))
    told = pl.col("op_type").cast(pl.String) if "op_type" in spans.columns else pl.lit(None, pl.String)
    alone = pl.when((kind == "kernel") & (pl.col("category").cast(pl.String) != "COMMUNICATION")).then(name)  # nothing else is known
    described = kind.is_in(["kernel", "communication"]) | ((kind == "other") & name.str.contains(SERVING))
    return spans.with_columns(
        flow_in=pl.when(work).then(pl.coalesce("cause", "op")).otherwise(pl.col("first")),
        op=pl.when(work).then("op"),
        op_type=pl.when(kind == "op")
        .then(name)
        .when(described)
        .then(pl.coalesce(told, path, pl.when(pl.col("op").is_not_null()).then(of_op), alone))
        .when(work & pl.col("op").is_not_null())
        .then(name)
        .cast(pl.Categorical),
    ).drop("cause", "first", "connections", "task")


def _allocations(database: Database) -> pl.DataFrame:
    rows = database.words(
        database.table("OP_MEMORY", name=pl.Int64, size=pl.Int64, allocationTime=pl.Int64, releaseTime=pl.Int64, deviceId=pl.Int64), "name"
    )
    return rows.filter(pl.any_horizontal(pl.col("allocationTime", "releaseTime").is_not_null())).select(
        device=pl.format("npu {}", pl.col("deviceId").fill_null(0)),
        bytes=pl.col("size").abs(),
        alloc_ns="allocationTime",
        free_ns="releaseTime",
        op=pl.col("name").cast(pl.String),
    )


def _devices(database: Database, lanes: pl.DataFrame) -> pl.DataFrame:
    if (own := database.own("devices")).height:
        return own
    chips = dict(database.table("NPU_INFO", id=pl.Int32, name=pl.String).drop_nulls().iter_rows())
    numbers = lanes.filter(pl.col("device").is_not_null())["device"].unique().sort().to_list()
    return pl.DataFrame(
        {"device": numbers, "name": [chips.get(number) for number in numbers], "kind": ["aicore"] * len(numbers)},
        schema={"device": pl.Int32, "name": pl.String, "kind": pl.String},
    )
