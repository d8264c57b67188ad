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
import urllib.parse
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import schema
from stepscope.errors import DataError
from stepscope.readers import Options, _ascend_counters, _ascend_tables, _kineto
from stepscope.readers._ascend_layers import TASK_KINDS, json_list
from stepscope.readers._documents import exact
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace

_HEAD = b"SQLite format 3\x00"
_TELLING = {"TASK", "CANN_API", "PYTORCH_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO"}
_ROWS = 50_000  # at a time


def claims(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_HEAD)) != _HEAD:
            return False
    try:
        with closing(_connect(path)) as database:
            return "STRING_IDS" in (names := _table_names(database)) and bool(names & _TELLING)
    except sqlite3.Error:
        return False


def read(paths: list[Path], options: Options, *, rank: int | None, problems: list[Problem]) -> Trace:
    """The first of the databases; others of the same folder are of other ranks or the same again."""
    path = paths[0]
    if len(paths) > 1:
        problems.append(Problem("", f"{len(paths)} databases: {path.name} is read, the others can be opened by themselves", 0))
    try:
        with closing(_connect(path)) as database:
            trace = _Reading(database, path, problems).trace(options, rank)
        return _ascend_tables.with_waits(trace, _waits(path.parent))
    except sqlite3.Error as error:
        raise DataError(path, f"not a database that can be read ({error})") from error


def _waits(folder: Path) -> pl.DataFrame:
    """What torch_npu's own analysis says of transfers, in a database beside."""
    for name in ("analysis.db", "communication_analyzer.db"):
        try:
            with closing(_connect(folder / name)) as database:
                times = database.execute(
                    "select hccl_op_name, start_timestamp, wait_time, synchronization_time, transit_time, idle_time from CommAnalyzerTime"
                ).fetchall()
                moved = database.execute(
                    "select distinct hccl_op_name, transport_type, transit_size, transit_time from CommAnalyzerBandwidth"
                    " where transit_size > 0"
                ).fetchall()
        except sqlite3.Error:  # not every version has it
            continue
        links: dict[str, dict[str, dict[str, int]]] = {}
        rows = []
        try:
            for operator, kind, size, time in moved:
                links.setdefault(operator, {})[kind] = {"bytes": exact(size, 1e6), "dur_ns": exact(time, 1e6)}
            for operator, start, *lengths in times:
                rows.append((str(operator), exact(start, 1000), *(exact(one, 1e6) for one in lengths), json.dumps(links.get(operator, {}))))
        except (TypeError, ValueError):  # SQLite's columns hold what was put into them
            continue
        return pl.DataFrame(rows, _ascend_tables.WAITS, orient="row")
    return pl.DataFrame(schema=_ascend_tables.WAITS)


def _connect(path: Path) -> sqlite3.Connection:
    """Without taking locks and without writing beside it: the file may lie on a disk that is read-only."""
    return sqlite3.connect(f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)


def _table_names(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("select name from sqlite_master where type in ('table', 'view')")}


class _Reading:
    """One database while it is open."""

    def __init__(self, database: sqlite3.Connection, path: Path, problems: list[Problem]) -> None:
        self.database, self.path, self.problems = database, path, problems
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        self.names = _table_names(database)
        self.own_lanes: dict[int, dict[str, Any]] = {}
        self.groups: list[str] = []
        strings = self.table("STRING_IDS", id=pl.Int64, value=pl.String).unique("id", keep="first")
        self.strings = strings.select(id="id", word=pl.col("value").cast(pl.Categorical))

    def table(self, name: str, /, **columns: Any) -> pl.DataFrame:
        """These columns of a table, typed; null where the table has no such column. A table that is not there has no rows."""
        if name not in self.names:
            return pl.DataFrame(schema=columns)
        have = {str(row[1]).lower(): str(row[1]) for row in self.database.execute(f'pragma table_info("{name}")')}
        chosen = ", ".join(f'"{have[column.lower()]}"' if column.lower() in have else "null" for column in columns)
        parts, count = [pl.DataFrame(schema=columns)], 0
        cursor = self.database.execute(f'select {chosen} from "{name}"')
        try:
            while rows := cursor.fetchmany(_ROWS):
                count += len(rows)
                series = [
                    _column(values, column, dtype) for (column, dtype), values in zip(columns.items(), zip(*rows, strict=True), strict=True)
                ]
                parts.append(pl.DataFrame(series))
        except sqlite3.Error as error:
            self.problems.append(Problem(name, f"the table breaks off after {count:,} rows ({error})", 1))
        return pl.concat(parts)

    def words(self, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """The rows with the text behind these numbers in place of them."""
        for column in columns:
            rows = (
                rows.join(self.strings, left_on=column, right_on="id", how="left", maintain_order="left")
                .drop(column)
                .rename({"word": column})
            )
        return rows

    def named(self, table: str) -> dict[int, str]:
        return dict(self.table(table, id=pl.Int64, name=pl.String).drop_nulls().iter_rows())

    def trace(self, options: Options, rank: int | None) -> Trace:
        spans, lanes = self._spans()
        if spans.is_empty():
            raise DataError(self.path, "nothing that ran is in it")
        spans, _ = _kineto.nested(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
        spans = _kineto.scoped(self._linked(spans))
        steps, spans = self._steps(spans, options)
        mapped = self.table("RANK_DEVICE_MAP", rankId=pl.Int64, deviceId=pl.Int64)
        own = int(mapped["rankId"][0]) if mapped.height == 1 and (mapped["rankId"][0] or -1) >= 0 else None
        rank = next((number for number in (rank, own, options.rank) if number is not None and number >= 0), 0)
        tables = {
            "spans": spans,
            "tracks": lanes,
            "steps": steps,
            "counters": pl.concat([*_ascend_counters.counters(self), self._own("counters")], how="diagonal_relaxed"),
            "allocations": self._allocations(),
            "links": self._links(spans),
            "devices": self._devices(lanes),
            "problems": pl.concat([self._own("problems"), pl.DataFrame(
                self.problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row"
            ).with_columns(file=pl.lit(str(self.path)))], how="diagonal_relaxed"),
        }  # fmt: skip
        meta = self._meta()
        meta.ranks = [rank]
        return Trace({name: rows.lazy().with_columns(rank=pl.lit(rank, pl.Int32)) for name, rows in tables.items()}, meta)

    def _own(self, table: str) -> pl.DataFrame:
        """A table of ours that the exporter added."""
        return self.table(
            f"STEPSCOPE_{table.upper()}",
            **{
                name: pl.String if dtype in (pl.Categorical, pl.Enum) else dtype
                for name, dtype in schema.TABLES[table].items()
                if name != "rank"
            },
        )

    def _steps(self, spans: pl.DataFrame, options: Options) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The steps, and the spans with the step of each."""
        own = self._own("steps")
        if own.height and options.step_name is None:
            return own, spans
        marked = self.table("STEP_TIME", id=pl.Int32, startNs=pl.Int64, endNs=pl.Int64).drop_nulls()
        if marked.height and options.step_name is None:
            steps = marked.select(step="id", start_ns="startNs", end_ns="endNs", how=pl.lit("marker")).sort("start_ns")
        else:
            steps, remark = _kineto.steps_of(spans, options)
            self.problems += [remark] if remark else []
        return steps, _kineto.stepped(spans, steps)

    def _meta(self) -> Meta:
        for (text,) in self.table("STEPSCOPE_META", value=pl.String).iter_rows():
            try:
                return msgspec.structs.replace(msgspec.json.decode(text, type=Meta), format="ascend_db")
            except (msgspec.MsgspecError, TypeError) as error:
                self.problems.append(Problem("STEPSCOPE_META", f"cannot be read ({error})", 0))
        framework = "pytorch" if "PYTORCH_API" in self.names else "mindspore" if "mindspore" in self.path.name else ""
        return Meta(format="ascend_db", framework=framework, versions=self._versions())

    def _versions(self) -> dict[str, str]:
        said = dict(self.table("META_DATA", name=pl.String, value=pl.String).drop_nulls().iter_rows())
        return {key: str(said[key]) for key in said if key.lower().endswith("version") and key != "SCHEMA_VERSION"}

    # What ran, on which track

    def _spans(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        found = (self._framework(), self._cann(), self._tasks(), self._communication(), self._marks(), self._others())
        spans = pl.concat(found, how="diagonal_relaxed")  # with all columns, though a part may have no rows
        if spans.is_empty():
            return pl.DataFrame(), pl.DataFrame()
        place = ["layer", "pid", "lane", "device"]
        lanes = spans.select(place).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
        spans = spans.join(lanes, on=place, how="left", nulls_equal=True, maintain_order="left").drop(place)
        whole = spans.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0))
        if lost := spans.height - whole.height:
            self.problems.append(Problem("", f"{lost:,} rows without a start, or that end before they start", lost))
        return whole.with_columns(pl.col("module").cast(pl.Categorical)), _tracks(lanes, self.own_lanes, self.groups)

    def _framework(self) -> pl.DataFrame:
        rows = self.table(
            "PYTORCH_API", startNs=pl.Int64, endNs=pl.Int64, globalTid=pl.Int64, connectionId=pl.Int64, name=pl.Int64,
            inputDtypes=pl.Int64, inputShapes=pl.Int64, type=pl.Int64, callchainId=pl.Int64,
        )  # fmt: skip
        rows = self.words(rows, "name", "inputDtypes", "inputShapes")
        types = self.named("ENUM_API_TYPE")
        category = {"op": "cpu_op", "queue": "queue", "trace": "python_function", "mstx": "user_annotation"}
        word = pl.col("type").replace_strict(
            types or {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"}, default="op", return_dtype=pl.String
        )
        name = pl.col("name").cast(pl.String)
        # Some versions write each of the two in the other's column: only types have letters.
        letters = pl.col("inputShapes", "inputDtypes").cast(pl.String).str.contains("[a-zA-Z]").any()
        shapes, dtypes = ("inputDtypes", "inputShapes") if rows.select(letters).row(0) == (True, False) else ("inputShapes", "inputDtypes")
        rows = rows.with_columns(category=word.replace(category), dtypes=_json(dtypes), shapes=_json(shapes))
        # The shape of a scalar is empty text, which is not written.
        rows = rows.with_columns(
            shapes=pl.when(pl.col("dtypes").is_not_null()).then(pl.col("shapes").fill_null("[[]]")).otherwise("shapes")
        )
        kind = (
            pl.when(name.str.contains(r"^ProfilerStep#\d+"))
            .then(pl.lit("step"))
            .when(name.str.starts_with("enumerate(DataLoader)#"))
            .then(pl.lit("data"))
            .when(name.str.starts_with("Optimizer."))
            .then(pl.lit("annotation"))
            .when(pl.col("category") == "queue")
            .then(pl.lit("api"))
            .when(name.str.starts_with("nn.Module: "))
            .then(pl.lit("scope"))
            .otherwise(
                pl.col("category").replace_strict(
                    {"cpu_op": "op", "python_function": "python", "user_annotation": "annotation"}, default="other"
                )
            )
        )
        said = _number(name, "Dequeue") | _number(name, "Enqueue")
        return rows.select(
            layer=pl.lit("host"),
            pid=_pid(),
            lane=_tid(),
            device=pl.lit(None, pl.Int32),
            kind=kind.cast(schema.Kind),
            name=pl.coalesce("name", pl.lit("?", pl.Categorical)),
            start_ns="startNs",
            dur_ns=pl.col("endNs") - pl.col("startNs"),
            category=pl.when(said)
            .then(name.str.extract("^(Dequeue|Enqueue)").str.to_lowercase())
            .otherwise("category")
            .cast(pl.Categorical),
            shapes=pl.col("shapes").cast(pl.Categorical),
            dtypes=pl.col("dtypes").cast(pl.Categorical),
            module=pl.lit(None, pl.String),
            connections="connectionId",
        )

    def _cann(self) -> pl.DataFrame:
        rows = self.words(
            self.table(
                "CANN_API",
                startNs=pl.Int64,
                endNs=pl.Int64,
                type=pl.Int64,
                globalTid=pl.Int64,
                connectionId=pl.Int64,
                name=pl.Int64,
                step=pl.Int32,
            ),
            "name",
        )
        levels = {
            "acl": "AscendCL",
            "model": "Model",
            "node": "Node",
            "hccl": "Communication",
            "communication": "Communication",
            "runtime": "Runtime",
        }
        level = pl.col("type").replace_strict(self.named("ENUM_API_TYPE"), default=None, return_dtype=pl.String)
        word = level.replace_strict(levels, default="", return_dtype=pl.String)
        name = pl.col("name").cast(pl.String).fill_null("?")
        return rows.select(
            layer=pl.lit("cann"),
            pid=_pid(),
            lane=_tid(),
            device=pl.lit(None, pl.Int32),
            kind=pl.when(name.str.contains("(?i)synchronize")).then(pl.lit("sync")).otherwise(pl.lit("api")).cast(schema.Kind),
            name=pl.when(word != "").then(pl.format("{}@{}", word, name)).otherwise(name).cast(pl.Categorical),
            start_ns="startNs",
            dur_ns=pl.col("endNs") - pl.col("startNs"),
            category=level.cast(pl.Categorical),
            correlation="connectionId",
            step="step",
            module=pl.lit(None, pl.String),
        )

    def _tasks(self) -> pl.DataFrame:
        tasks = self.table(
            "TASK", startNs=pl.Int64, endNs=pl.Int64, deviceId=pl.Int32, connectionId=pl.Int64, globalTaskId=pl.Int64, taskType=pl.Int64,
            streamId=pl.Int64, taskId=pl.Int64, contextId=pl.Int64, modelId=pl.Int64, step=pl.Int32,
        )  # fmt: skip
        text = ("inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes", "outputFormats")
        kernels = self.words(
            self.table("COMPUTE_TASK_INFO", globalTaskId=pl.Int64, name=pl.Int64, taskType=pl.Int64, opType=pl.Int64, blockDim=pl.Int64,
                       mixBlockDim=pl.Int64, blockNum=pl.Int64, mixBlockNum=pl.Int64, **dict.fromkeys(text, pl.Int64)),
            "name", "taskType", "opType", *text,
        ).rename({"taskType": "core"}).unique("globalTaskId", keep="first")  # fmt: skip
        # Newer versions say Num, and mean something else by Dim.
        kernels = kernels.with_columns(blockDim=pl.coalesce("blockNum", "blockDim"), mixBlockDim=pl.coalesce("mixBlockNum", "mixBlockDim"))
        copies = self.table("MEMCPY_INFO", globalTaskId=pl.Int64, size=pl.Int64).drop_nulls().unique("globalTaskId", keep="first")
        counters = self.words(self.table("TASK_PMU_INFO", globalTaskId=pl.Int64, name=pl.Int64, value=pl.Float64), "name")
        tasks = self.words(tasks, "taskType").join(kernels, on="globalTaskId", how="left", maintain_order="left")
        tasks = tasks.join(_joined(counters), on="globalTaskId", how="left", maintain_order="left")
        tasks = tasks.join(copies, on="globalTaskId", how="left", maintain_order="left")
        type_ = pl.col("taskType").cast(pl.String).fill_null("?")
        task = pl.lit("other")
        for pattern, kind in reversed(TASK_KINDS):
            if kind != "kernel":  # a kernel is what COMPUTE_TASK_INFO describes
                task = pl.when(type_.str.contains(pattern)).then(pl.lit(kind)).otherwise(task)
        # A transfer's own copies and waits are part of the transfer.
        carried = self.table("COMMUNICATION_TASK_INFO", globalTaskId=pl.Int64)["globalTaskId"].unique()
        of_transfer = pl.col("globalTaskId").is_in(carried.implode()) & task.is_in(["copy", "set", "sync"])
        task = pl.when(of_transfer).then(pl.lit("other")).otherwise(task)
        told = pl.col("core").is_not_null() | pl.col("name").is_not_null()
        known = pl.when(told)
        own = {
            "blockDim": "Block Dim",
            "mixBlockDim": "Mix Block Dim",
            "streamId": "Stream ID",
            "taskId": "Task ID",
            "modelId": "Model ID",
            "contextId": "Context ID",
        }
        arguments = [pl.col(key).alias(word) for key, word in own.items()]
        arguments += [pl.col(key).cast(pl.String) for key in text[1:]]
        args = pl.struct(arguments).struct.json_encode()
        measured = pl.col("measured")
        name = pl.col("name").cast(pl.String)
        return tasks.select(
            layer=pl.lit("stream"),
            pid=pl.lit(None, pl.Int64),
            lane=pl.col("streamId"),
            device=pl.col("deviceId"),
            kind=known.then(pl.lit("kernel")).otherwise(task).cast(schema.Kind),
            name=pl.coalesce(name, type_).cast(pl.Categorical),
            start_ns="startNs",
            dur_ns=pl.col("endNs") - pl.col("startNs"),
            category=pl.coalesce("core", "taskType"),
            correlation="connectionId",
            op_type=_known(pl.col("opType").cast(pl.String)),
            shapes=_json("inputShapes").cast(pl.Categorical),
            dtypes=_json("inputDataTypes").cast(pl.Categorical),
            module=pl.when(told & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$")),
            args=pl.when(measured.is_null())
            .then(args)
            .otherwise(pl.concat_str(args.str.strip_suffix("}"), pl.lit(","), measured, pl.lit("}"))),
            task="globalTaskId",
            bytes="size",
            step="step",
        )

    def _communication(self) -> pl.DataFrame:
        operators = self.words(
            self.table("COMMUNICATION_OP", opName=pl.Int64, startNs=pl.Int64, endNs=pl.Int64, connectionId=pl.Int64, groupName=pl.Int64,
                       opId=pl.Int64, dataType=pl.Int64, algType=pl.Int64, count=pl.Int64, opType=pl.Int64, deviceId=pl.Int32,
                       step=pl.Int32),
            "opName", "groupName", "algType", "opType",
        )  # fmt: skip
        devices = self.table("TASK", deviceId=pl.Int32)["deviceId"].drop_nulls().unique()
        device = int(devices[0]) if len(devices) == 1 else 0
        groups = {name: number for number, name in enumerate(operators["groupName"].cast(pl.String).unique(maintain_order=True))}
        self.groups = [name or "" for name in groups] if "STEPSCOPE_META" in self.names else []  # others number them
        group = pl.col("groupName").cast(pl.String).replace_strict(groups, default=0, return_dtype=pl.Int64)
        data_type = pl.col("dataType").replace_strict(self.named("ENUM_HCCL_DATA_TYPE"), default=None, return_dtype=pl.String)
        args = pl.struct(
            data_type.alias("data_type"), pl.col("algType").cast(pl.String).alias("alg_type"), pl.col("count"),
            pl.col("groupName").cast(pl.String).alias("Process Group Name"),
        ).struct.json_encode()  # fmt: skip
        whole = operators.select(
            layer=pl.lit("group"),
            pid=pl.lit(None, pl.Int64),
            lane=group,
            device=pl.col("deviceId").fill_null(device),
            kind=pl.lit("communication").cast(schema.Kind),
            name="opName",
            start_ns="startNs",
            dur_ns=pl.col("endNs") - pl.col("startNs"),
            category=pl.lit("COMMUNICATION", pl.Categorical),
            correlation="connectionId",
            op_type=_known(pl.col("opType").cast(pl.String)),
            module=pl.lit(None, pl.String),
            args=args,
            step="step",
        )
        # At level 0 the planes are not known; the tasks stand on their streams then.
        tasks = self._planes().filter((pl.col("planeId") < 2**32 - 1).fill_null(True))
        name = pl.col("taskType").cast(pl.String).fill_null("?")
        planes = tasks.select(
            layer=pl.lit("plane"),
            pid=pl.lit(None, pl.Int64),
            lane=pl.col("planeId").fill_null(0)
            + 1000 * pl.col("groupName").cast(pl.String).replace_strict(groups, default=0, return_dtype=pl.Int64),
            device=pl.col("deviceId").fill_null(device),
            kind=pl.when(name.str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")).cast(schema.Kind),
            name=name.cast(pl.Categorical),
            start_ns="startNs",
            dur_ns=pl.col("endNs") - pl.col("startNs"),
            category=pl.lit("communication task", pl.Categorical) if self.groups else pl.col("taskType"),
            bytes=pl.when(pl.col("size") > 0).then("size"),
            step="step",
            module=pl.lit(None, pl.String),
            args=self._told_of_plane(tasks),
        )
        return pl.concat([whole, planes], how="diagonal_relaxed")

    def _told_of_plane(self, tasks: pl.DataFrame) -> pl.Series:
        """In the words of the raw data, which know most of it."""
        operators = self.words(self.table("COMMUNICATION_OP", opName=pl.Int64, opId=pl.Int64), "opName").unique("opId", keep="first")
        rdma = pl.col("rdmaType").replace_strict(self.named("ENUM_HCCL_RDMA_TYPE"), default=None, return_dtype=pl.String)
        told = {
            "operator": pl.col("opName").cast(pl.String),
            "master": pl.col("isMaster") == 1,
            "notify_id": pl.col("notifyId").cast(pl.String),
            "stream id": pl.col("streamId"),
            "task id": pl.col("taskId"),
            "context id": pl.col("contextId"),
            "task type": pl.col("taskType").cast(pl.String),
            "src rank": pl.col("srcRank"),
            "dst rank": pl.col("dstRank"),
            "transport type": pl.col("transport"),
            "size(Byte)": pl.col("size"),
            "link type": pl.col("link"),
            "bandwidth(GB/s)": pl.col("bandwidth") / 1e9,
            "rdma type": rdma,
            "model id": pl.col("modelId"),
        }
        rows = tasks.join(operators, on="opId", how="left", maintain_order="left")
        return rows.select(pl.struct(words.alias(name) for name, words in told.items()).struct.json_encode()).to_series()

    def _planes(self) -> pl.DataFrame:
        """The tasks that carry out communication, with their times."""
        tasks = self.words(
            self.table("COMMUNICATION_TASK_INFO", name=pl.Int64, globalTaskId=pl.Int64, taskType=pl.Int64, planeId=pl.Int64,
                       groupName=pl.Int64,
                       notifyId=pl.Int64, srcRank=pl.Int64, dstRank=pl.Int64, transportType=pl.Int64, size=pl.Int64, linkType=pl.Int64,
                       opId=pl.Int64, rdmaType=pl.Int64, isMaster=pl.Int64, bandwidth=pl.Float64),
            "name", "taskType", "groupName",
        )  # fmt: skip
        times = self.table(
            "TASK", globalTaskId=pl.Int64, startNs=pl.Int64, endNs=pl.Int64, deviceId=pl.Int32, step=pl.Int32, streamId=pl.Int64,
            taskId=pl.Int64, contextId=pl.Int64, modelId=pl.Int64,
        )  # fmt: skip
        return tasks.join(times, on="globalTaskId", how="inner", maintain_order="left").with_columns(
            transport=pl.col("transportType").replace_strict(self.named("ENUM_HCCL_TRANSPORT_TYPE"), default=None, return_dtype=pl.String),
            link=pl.col("linkType").replace_strict(self.named("ENUM_HCCL_LINK_TYPE"), default=None, return_dtype=pl.String),
        )

    def _marks(self) -> pl.DataFrame:
        rows = self.words(
            self.table(
                "MSTX_EVENTS",
                startNs=pl.Int64,
                endNs=pl.Int64,
                eventType=pl.Int64,
                message=pl.Int64,
                globalTid=pl.Int64,
                connectionId=pl.Int64,
            ),
            "message",
        )
        return rows.select(
            layer=pl.lit("mark"),
            pid=_pid(),
            lane=_tid(),
            device=pl.lit(None, pl.Int32),
            kind=pl.when(pl.col("endNs") > pl.col("startNs")).then(pl.lit("annotation")).otherwise(pl.lit("instant")).cast(schema.Kind),
            name=pl.coalesce("message", pl.lit("?", pl.Categorical)),
            start_ns="startNs",
            dur_ns=pl.max_horizontal(pl.col("endNs") - pl.col("startNs"), 0),
            category=pl.lit("mstx", pl.Categorical),
            correlation="connectionId",
            module=pl.lit(None, pl.String),
        )

    def _others(self) -> pl.DataFrame:
        """Spans that the exporter could not put into Ascend's tables, on tracks of their own."""
        lane = {"label": pl.String, "group": pl.String, "device": pl.Int32, "pid": pl.String, "tid": pl.String, "track_kind": pl.String}
        names = (
            *("start_ns", "dur_ns", "name", "step", "op_type", "correlation"),
            *("shapes", "dtypes", "flops", "bytes", "category", "args"),
        )
        rows = self.table("STEPSCOPE_SPANS", kind=pl.String, **{name: schema.TABLES["spans"][name] for name in names}, **lane)
        lanes = rows.select(list(lane)).unique(maintain_order=True).with_row_index("lane").with_columns(pl.col("lane").cast(pl.Int64))
        self.own_lanes = {row["lane"]: row for row in lanes.iter_rows(named=True)}
        kind = pl.when(pl.col("kind").is_in(schema.KINDS)).then("kind").otherwise(pl.lit("other")).cast(schema.Kind)
        return rows.join(lanes, on=list(lane), how="left", nulls_equal=True, maintain_order="left").select(
            *names,
            kind=kind,
            layer=pl.lit("own"),
            pid=pl.lit(None, pl.Int64),
            lane="lane",
            device="device",
            module=pl.lit(None, pl.String),
        )

    # What caused what

    def _linked(self, spans: pl.DataFrame) -> pl.DataFrame:
        device = ["kernel", "copy", "set", "sync", "communication", "other"]
        kind = pl.col("kind").cast(pl.String)
        calls = spans.filter(kind.is_in(["api", "sync"]) & pl.col("correlation").is_not_null() & pl.col("task").is_null())
        launch = calls.select("correlation", cause="span").unique("correlation", keep="first")
        links = self.table("CONNECTION_IDS", id=pl.Int64, connectionId=pl.Int64).drop_nulls()
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
        described = kind.is_in(["kernel", "communication"])
        return spans.with_columns(
            flow_in=pl.when(work).then(pl.coalesce("cause", "op")).otherwise(pl.col("first")),
            op=pl.when(work).then("op"),
            op_type=pl.when(kind == "op")
            .then(name)
            .when(described)
            .then(pl.coalesce(told, path, pl.when(pl.col("op").is_not_null()).then(of_op)))
            .when(work & pl.col("op").is_not_null())
            .then(name)
            .cast(pl.Categorical),
        ).drop("cause", "first", "connections", "task")

    # Beside what ran

    def _links(self, spans: pl.DataFrame) -> pl.DataFrame:
        tasks = self._planes()
        operators = self.words(self.table("COMMUNICATION_OP", opName=pl.Int64, opId=pl.Int64), "opName").unique("opId", keep="first")
        known = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED"]).not_()
        of_step = spans.filter(pl.col("kind") == "communication").select("step", opName=pl.col("name").cast(pl.String)).unique("opName")
        # A payload is on its way for longer than the task that sends it; newer versions say how fast it was.
        taken = pl.when(pl.col("bandwidth") > 0).then((pl.col("size") / pl.col("bandwidth") * 1e9).round().cast(pl.Int64, strict=False))
        moved = tasks.filter((pl.col("size") > 0) & (pl.col("dstRank") < 2**31) & (pl.col("srcRank") < 2**31))
        return (
            moved.join(operators, on="opId", how="left")
            .with_columns(pl.col("opName").cast(pl.String))
            .join(of_step, on="opName", how="left")
            .select(
                "step",
                op="opName",
                src="srcRank",
                dst="dstRank",
                transport=pl.when(pl.col("transport") == "RDMA")
                .then("transport")
                .otherwise(pl.coalesce(pl.when(known).then("link"), "transport")),
                bytes="size",
                dur_ns=pl.coalesce(taken, pl.col("endNs") - pl.col("startNs")),
            )
        )

    def _allocations(self) -> pl.DataFrame:
        rows = self.words(
            self.table("OP_MEMORY", name=pl.Int64, size=pl.Int64, allocationTime=pl.Int64, releaseTime=pl.Int64, deviceId=pl.Int64), "name"
        )
        return rows.filter(pl.any_horizontal(pl.col("allocationTime", "releaseTime").is_not_null())).select(
            device=pl.format("npu {}", pl.col("deviceId").fill_null(0)),
            bytes=pl.col("size").abs(),
            alloc_ns="allocationTime",
            free_ns="releaseTime",
            op=pl.col("name").cast(pl.String),
        )

    def _devices(self, lanes: pl.DataFrame) -> pl.DataFrame:
        if (own := self._own("devices")).height:
            return own
        chips = dict(self.table("NPU_INFO", id=pl.Int32, name=pl.String).drop_nulls().iter_rows())
        numbers = lanes.filter(pl.col("device").is_not_null())["device"].unique().sort().to_list()
        return pl.DataFrame(
            {"device": numbers, "name": [chips.get(number) for number in numbers], "kind": ["aicore"] * len(numbers)},
            schema={"device": pl.Int32, "name": pl.String, "kind": pl.String},
        )


def _column(values: tuple[Any, ...], name: str, dtype: Any) -> pl.Series:
    """SQLite's columns hold what was put into them: numbers may be text, and text may be numbers."""
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, pl.exceptions.PolarsError, OverflowError):
        text = pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
        return text if dtype == pl.String else text.cast(dtype, strict=False)


def _pid() -> pl.Expr:
    return pl.col("globalTid").fill_null(0) // 2**32


def _tid() -> pl.Expr:
    return pl.col("globalTid").fill_null(0) % 2**32


def _number(name: pl.Expr, word: str) -> pl.Expr:
    return name.str.starts_with(word)


def _known(text: pl.Expr) -> pl.Expr:
    return pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text)


def _json(column: str) -> pl.Expr:
    """`2,3;4` as JSON, once for each distinct text."""

    def listed(values: pl.Series) -> pl.Series:
        distinct = values.unique().drop_nulls()
        words = [None if one == "N/A" else json_list(one) for one in distinct]
        return values.replace_strict(distinct, pl.Series(words, dtype=pl.String), default=None, return_dtype=pl.String)

    return pl.col(column).cast(pl.String).map_batches(listed, return_dtype=pl.String)


def _joined(counters: pl.DataFrame) -> pl.DataFrame:
    """The counters of each task as the inside of a JSON object."""
    one = pl.format('"{}":{}', pl.col("name").cast(pl.String).fill_null("?"), pl.col("value").cast(pl.String).fill_null("null"))
    finite = counters.filter(pl.col("value").is_finite())
    return finite.with_columns(measured=one).group_by("globalTaskId").agg(pl.col("measured").str.join(","))


_ORDER = {"host": 0, "mark": 1, "cann": 2, "stream": 3, "group": 4, "plane": 5, "own": 6}


def _tracks(lanes: pl.DataFrame, own: dict[int, dict[str, Any]], groups: list[str]) -> pl.DataFrame:
    rows = []
    for track, layer, pid, lane, device in lanes.select("track", "layer", "pid", "lane", "device").iter_rows():
        if layer == "own":
            said = own[lane]
            kind = said["track_kind"] if said["track_kind"] in schema.TRACK_KINDS else "other"
            rows.append((track, said["group"], said["label"], kind, device, (_ORDER[layer], lane), said["pid"], said["tid"]))
            continue
        number = lane or 0
        label = {
            "host": f"Thread {lane}", "cann": f"Thread {lane} CANN", "mark": f"Thread {lane} marks", "stream": f"Stream {lane}",
            "group": f"Group {lane} Communication", "plane": f"Plane {(lane or 0) % 1000}",
        }[layer]  # fmt: skip
        if groups and layer in ("group", "plane"):
            name = groups[(lane or 0) // (1000 if layer == "plane" else 1)]
            label = f"Group {name} {label.split(' ', 2)[-1] if layer == 'group' else label}"
        kind = {"stream": "stream", "group": "stream", "plane": "communication", "mark": "annotation"}.get(layer, "thread")
        group = f"Python {pid}" if layer in ("host", "cann", "mark") else f"NPU {device or 0}"
        place = pid if layer in ("host", "mark") else {"cann": "CANN", "stream": "Ascend Hardware"}.get(layer, "Communication")
        thread = groups[number] if groups and layer == "group" else lane
        rows.append((track, group, label, kind, device, (_ORDER[layer], number), str(place), str(thread)))
    rows.sort(key=lambda row: row[5])
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    types = {name: schema.TABLES["tracks"][name] for name in columns}
    return pl.DataFrame([(*row[:5], place, *row[6:]) for place, row in enumerate(rows)], schema=types, orient="row")
