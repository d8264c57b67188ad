"""One SQLite file with the tables of msprof's `msprof_TIME.db`, for MindStudio Insight and SQL tools.

Data for which those tables have no columns (steps with forward and backward, marks of the graph, some counters, problems) are in tables
with the prefix STEPSCOPE_. A file contains one rank.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import __version__
from stepscope.errors import UsageError
from stepscope.exporters import draft_output
from stepscope.exporters.msprof.tasks import CACHE_COUNTERS, TENSORS, task_type, with_texts
from stepscope.exporters.msprof_db import codes
from stepscope.model import intervals, schema
from stepscope.model.columns.span_details import counter_rows, details
from stepscope.model.trace import Trace
from stepscope.readers.ascend.common.pmu_names import ONLY_IN_TEXT, database_name, nanoseconds

_NONE = 2**32 - 1  # Ascend's number for no model and no context
# Keys of msprof's tables, for sources that have only these.
_TABLE_KEYS = {"model": "Model ID", "task": "Task ID", "stream": "Stream ID", "context": "Context ID"}
_PORTION = 100_000  # tasks at a time
_STEPS = {"step": "INTEGER"}
_TRACK_COLUMNS = ("device", "pid", "tid", "label", "group", "communication_group", "plane")
# Columns of STEPSCOPE_SPANS.
_SPAN_COLUMNS = (
    *("start_ns", "dur_ns", "kind", "name", "step", "scope", "op_type", "correlation", "shapes", "dtypes", "flops", "bytes"),
    *("category", "args"),
)

FILE = "msprof_%Y%m%d%H%M%S.db"
ENDINGS = (".db", ".sqlite")


def export(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    if len(trace.meta.ranks) > 1:
        raise UsageError(f"{len(trace.meta.ranks)} ranks, but a database contains one: choose it with --rank")
    if out.is_dir():
        raise UsageError(f"{out} is a folder, so it is not replaced; choose another name")
    with draft_output(out, overwrite=overwrite) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as database:
        try:
            # A draft that fails is removed: no journal is needed.
            database.execute("pragma journal_mode = off")
            database.execute("pragma synchronous = off")
            database.execute("begin")
            _Database(database, trace).write()
            database.execute("commit")
        except sqlite3.OperationalError as error:  # SQLite's error for a full disk
            raise OSError(None, str(error)) from error


class _Database:
    """A database that is being written."""

    def __init__(self, database: sqlite3.Connection, trace: Trace) -> None:
        self.database, self.trace = database, trace
        self.string_ids: dict[str, int] = {}
        self.whole_tasks = 0  # tasks that are listed in addition to their parts
        tracks = trace.tracks.select("track", *_TRACK_COLUMNS, track_kind="kind").collect()
        # Without `args`, which are large.
        columns = pl.col("span", "track", "kind", *(column for column in _SPAN_COLUMNS if column not in ("kind", "args")))
        spans = trace.spans.select(columns, end_ns=pl.col("start_ns") + pl.col("dur_ns")).sort("start_ns", maintain_order=True).collect()
        self.spans = spans.join(tracks, on="track", how="left", maintain_order="left").with_columns(pl.col("kind").cast(pl.String))

    def write(self) -> None:
        on_device = pl.col("device").is_not_null()
        track_kind, kind = pl.col("track_kind").cast(pl.String), pl.col("kind")
        is_task = on_device & (track_kind == "stream") & kind.is_in(["kernel", "copy", "set", "sync", "other"])
        is_operator = on_device & (kind == "communication") & (pl.col("category").cast(pl.String) != "Reduce").fill_null(True)
        is_call = ~on_device & kind.is_in(["api", "sync"])
        is_mark = ~on_device & kind.is_in(["annotation", "instant"])
        on_plane = on_device & (track_kind == "communication") & ~is_operator
        tasks = self._tasks(self.spans.filter(is_task))
        operators = self._operators(self.spans.filter(is_operator))
        unmatched = self._planes(self.spans.filter(on_plane), tasks, operators)
        self._calls(self.spans.filter(is_call))
        self._marks(self.spans.filter(is_mark))
        self._overlap(tasks, operators)
        counters = self._counters()
        self._about()
        rest = self.spans.filter(~(is_task | is_operator | is_call | is_mark | on_plane))
        self._stepscope_tables(pl.concat([rest, unmatched]), counters)
        self.put("STRING_IDS", {"id": "INTEGER PRIMARY KEY", "value": "TEXT"}, [(number, text) for text, number in self.string_ids.items()])

    # The file

    def put(self, table: str, columns: dict[str, str], rows: Sequence[tuple[Any, ...]] | pl.DataFrame) -> None:
        """Append rows to a table, which is created if it does not exist."""
        self.database.execute(f'create table if not exists "{table}" ({", ".join(f"{name} {kind}" for name, kind in columns.items())})')
        values = rows.select(list(columns)).iter_rows() if isinstance(rows, pl.DataFrame) else rows
        self.database.executemany(f'insert into "{table}" values ({", ".join("?" * len(columns))})', values)

    def ids(self, texts: pl.Expr, rows: pl.DataFrame) -> pl.Series:
        """The numbers of texts in STRING_IDS."""
        column = rows.select(texts.cast(pl.String).alias("text"))["text"]
        distinct = column.drop_nulls().unique(maintain_order=True)
        for text in distinct:
            self.string_ids.setdefault(text, len(self.string_ids))
        numbers = pl.Series([self.string_ids[text] for text in distinct], dtype=pl.Int64)
        return column.replace_strict(distinct, numbers, default=None, return_dtype=pl.Int64)

    def _details(self, table: str, spans: pl.DataFrame) -> pl.DataFrame:
        return with_texts(details(self.trace, table, spans["span"])).with_columns(spans["span"])

    # Tasks

    def _tasks(self, spans: pl.DataFrame) -> pl.DataFrame:
        """TASK and the tables of its rows. Returns the tasks with the columns that identify them."""
        spans = spans.with_columns(globalTaskId=pl.int_range(pl.len(), dtype=pl.Int64))
        tasks = pl.concat([self._task_portion(spans.slice(at, _PORTION)) for at in range(0, max(1, spans.height), _PORTION)])
        self._core_counters(spans, tasks.filter("is_kernel"))
        self.database.execute("create index TaskIndex on TASK (startNs, globalTaskId)")
        return tasks

    def _task_portion(self, spans: pl.DataFrame) -> pl.DataFrame:
        rows = self._with_task_numbers(spans.rename({"op_type": "span_type"}).join(self._details("tasks", spans), on="span"))
        # An operator that serves communication is no kernel, but has the same details.
        is_kernel = (pl.col("kind") == "kernel") | ((pl.col("kind") == "other") & pl.col("op_name").is_not_null())
        rows = rows.with_columns(is_kernel=is_kernel)
        kind = pl.coalesce(pl.when("is_kernel").then("runtime_type"), task_type(), pl.col("name").cast(pl.String))
        columns = (
            *("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", "taskType", "contextId", "streamId"),
            *("taskId", "modelId"),
        )
        tasks = rows.select(
            "globalTaskId", "globalPid", "contextId", "streamId", "taskId", "modelId", "whole_start_ns", "whole_dur_ns",
            startNs="start_ns", endNs="end_ns", deviceId="device", connectionId="correlation", taskType=self.ids(kind, rows),
        )  # fmt: skip
        self.put("TASK", dict.fromkeys(columns, "INTEGER"), tasks)
        self.put("TASK", dict.fromkeys(columns, "INTEGER"), self._whole_tasks(tasks))
        self.put("STEPSCOPE_TASKS", _STEPS | {"globalTaskId": "INTEGER PRIMARY KEY"}, rows.select("step", "globalTaskId").drop_nulls())
        self._kernels(rows.filter("is_kernel"))
        self._copies(rows.filter((pl.col("kind") == "copy") & pl.col("bytes").is_not_null()))
        return rows.select("span", "globalTaskId", "start_ns", "end_ns", "device", "streamId", "taskId", "contextId", "kind", "is_kernel")

    def _with_task_numbers(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.trace.table("tasks").select(pl.len()).collect().item() == 0:
            numbers = self.trace.span_args(rows["span"], dict.fromkeys(_TABLE_KEYS.values(), pl.Int64))
            rows = rows.hstack(numbers).with_columns(pl.coalesce(column, key) for column, key in _TABLE_KEYS.items())
        return rows.with_columns(
            streamId=pl.coalesce("stream", _number(pl.col("tid"))),
            taskId="task",
            contextId=pl.col("context").fill_null(_NONE),
            modelId=pl.col("model").fill_null(_NONE),
            globalPid=_number(pl.lit(str(self.trace.meta.extra.get("pid", "")))),
        )

    def _whole_tasks(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The tasks whose parts are kernels on both kinds of core (MIX): msprof lists both."""
        rows = tasks.filter(pl.col("whole_start_ns").is_not_null(), pl.col("contextId") != _NONE)
        self.whole_tasks += rows.height
        return rows.with_columns(
            globalTaskId=pl.int_range(self.whole_tasks - rows.height, self.whole_tasks, dtype=pl.Int64) + self.spans.height,
            contextId=pl.lit(_NONE, pl.Int64),
            startNs="whole_start_ns",
            endNs=pl.col("whole_start_ns") + pl.col("whole_dur_ns"),
        )

    def _kernels(self, rows: pl.DataFrame) -> None:
        # A kernel inside a collective has the type of the collective instead of its own.
        op_type = pl.when(pl.col("span_type").is_null()).then(pl.lit("N/A")).otherwise(pl.coalesce("op_type", "span_type").fill_null("N/A"))
        texts = {
            "name": pl.col("name"),
            "taskType": pl.col("category"),
            "opType": op_type,
            **{name[0].lower() + name[1:].replace(" ", ""): pl.col(column).fill_null("N/A") for name, column in TENSORS.items()},
            "attrInfo": pl.col("attributes").fill_null(""),
            "opState": pl.col("op_state").fill_null("N/A"),
            "hf32Eligible": pl.col("hf32").fill_null("N/A"),
        }
        frame = rows.select("globalTaskId", blockNum="blocks", mixBlockNum="mix_blocks")
        frame = frame.with_columns(self.ids(text, rows).alias(name) for name, text in texts.items())
        columns = (
            *("name", "globalTaskId", "blockNum", "mixBlockNum", "taskType", "opType", "inputFormats", "inputDataTypes", "inputShapes"),
            *("outputFormats", "outputDataTypes", "outputShapes", "attrInfo", "opState", "hf32Eligible"),
        )
        self.put("COMPUTE_TASK_INFO", dict.fromkeys(columns, "INTEGER") | {"globalTaskId": "INTEGER PRIMARY KEY"}, frame)

    def _copies(self, rows: pl.DataFrame) -> None:
        directions = {direction: number for number, direction in enumerate(codes.COPIES)}
        direction = pl.col("copy_direction").str.replace("^address ", "addr ").replace_strict(directions, default=65535)
        self.put(
            "MEMCPY_INFO",
            {"globalTaskId": "INTEGER PRIMARY KEY", "size": "NUMERIC", "memcpyOperation": "NUMERIC"},
            rows.select("globalTaskId", size="bytes", memcpyOperation=direction),
        )

    def _core_counters(self, spans: pl.DataFrame, kernels: pl.DataFrame) -> None:
        samples = spans.filter(pl.col("kind") == "kernel").unique(["device", "category"], keep="first", maintain_order=True)["span"]
        rows = with_texts(counter_rows(self.trace, spans["span"], samples)).filter(~pl.col("name").is_in(CACHE_COUNTERS))
        names = rows["name"].unique(maintain_order=True).to_list()
        place = pl.col("name").replace_strict(names, range(len(names)), default=None, return_dtype=pl.Int64)
        rows = rows.drop_nulls("value").join(kernels.select("span", "globalTaskId"), on="span").sort(place, "globalTaskId")
        only_text = pl.col("name").is_in(ONLY_IN_TEXT)
        in_tables = rows.filter(~only_text).with_columns(
            text=pl.col("name").replace({name: database_name(name, names) for name in names}),
            value=nanoseconds(pl.col("name"), pl.col("value")),
        )
        columns = {"globalTaskId": "INTEGER", "name": "INTEGER", "value": "NUMERIC"}
        self.put("TASK_PMU_INFO", columns, in_tables.with_columns(name=self.ids(pl.col("text"), in_tables)))
        self.put("STEPSCOPE_PMU", columns | {"name": "TEXT"}, rows.filter(only_text))

    # Communication

    def _operators(self, spans: pl.DataFrame) -> pl.DataFrame:
        """COMMUNICATION_OP. Returns the operators with their ids."""
        rows = spans.drop("group").hstack(self._details("collectives", spans).drop("span"))
        rows = rows.with_columns(opId=pl.int_range(pl.len(), dtype=pl.Int64))
        texts = {
            "opName": pl.col("name"),
            "groupName": pl.coalesce("group", "tid").fill_null("N/A"),
            "algType": pl.col("algorithm").fill_null("N/A"),
            "opType": pl.col("op_type").cast(pl.String).fill_null("N/A"),
        }
        frame = rows.select(
            "opId", "step", "count",
            startNs="start_ns", endNs="end_ns", connectionId="correlation", deviceId="device", rankSize="rank_size",
            relay=pl.col("relay").cast(pl.Int64), retry=pl.col("retry").cast(pl.Int64), dataType=_code("data_type", codes.DATA_TYPES),
        ).with_columns(self.ids(text, rows).alias(name) for name, text in texts.items())  # fmt: skip
        columns = (
            *("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "relay", "retry", "dataType", "algType", "count"),
            *("opType", "deviceId", "rankSize"),
        )
        kinds = dict.fromkeys(columns, "INTEGER") | {"opId": "INTEGER PRIMARY KEY", "count": "NUMERIC"}
        self.put("COMMUNICATION_OP", kinds, frame)
        self.put("STEPSCOPE_OPERATORS", _STEPS | {"opId": "INTEGER PRIMARY KEY"}, frame.select("step", "opId").drop_nulls())
        return rows.select("opId", "device", "start_ns", "end_ns", operator=pl.col("name").cast(pl.String))

    def _planes(self, spans: pl.DataFrame, tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
        """COMMUNICATION_TASK_INFO. Returns the spans without a task on a stream."""
        rows = spans.drop("bytes").hstack(self._details("communication_tasks", spans).drop("span"))
        rows = rows.with_columns(streamId="stream", taskId="task", contextId=pl.col("context").fill_null(_NONE))
        key = ["device", "streamId", "taskId", "contextId", "start_ns"]
        numbers = tasks.select("globalTaskId", *key).unique(key, keep="first", maintain_order=True)
        names = operators.select("opId", "device", "operator").unique(["device", "operator"], keep="first", maintain_order=True)
        rows = rows.join(numbers, on=key, how="left", maintain_order="left")
        rows = rows.join(names, on=["device", "operator"], how="left", maintain_order="left")
        matched = rows.filter(pl.col("globalTaskId").is_not_null())
        frame = matched.select(
            "globalTaskId", "opId",
            planeId="plane",
            # SQLite has no unsigned numbers: the highest one means none.
            notifyId=pl.col("notify_id").cast(pl.UInt64, strict=False).clip(0, 2**63 - 1).cast(pl.Int64),
            rdmaType=_code("rdma", codes.RDMA), transportType=_code("transport", codes.TRANSPORTS),
            dataType=_code("data_type", codes.DATA_TYPES), linkType=_code("link", codes.LINKS),
            srcRank="src", dstRank="dst", size="bytes",
            isMaster=pl.col("master").cast(pl.Int64),
            bandwidth=pl.col("bandwidth") * 1e9,
        ).with_columns(
            name=self.ids(pl.col("operator"), matched),
            taskType=self.ids(pl.col("name"), matched),
            groupName=self.ids(pl.col("communication_group"), matched),
        )  # fmt: skip
        columns = (
            *("name", "globalTaskId", "taskType", "planeId", "groupName", "notifyId", "rdmaType", "srcRank", "dstRank", "transportType"),
            *("size", "dataType", "linkType", "opId", "isMaster"),
        )
        self.put("COMMUNICATION_TASK_INFO", dict.fromkeys(columns, "INTEGER") | {"bandwidth": "NUMERIC"}, frame)
        self.database.execute("create index CommunicationTaskIndex on COMMUNICATION_TASK_INFO (globalTaskId)")
        return spans.filter(rows["globalTaskId"].is_null())

    # The host

    def _calls(self, spans: pl.DataFrame) -> None:
        level = pl.col("category").cast(pl.String).replace_strict(codes.LEVELS, default=codes.LEVELS["runtime"], return_dtype=pl.Int64)
        frame = spans.select("step", startNs="start_ns", endNs="end_ns", type=level, globalTid=_thread(), connectionId="correlation")
        columns = dict.fromkeys(("startNs", "endNs", "type", "globalTid", "connectionId", "name"), "INTEGER")
        self.put("CANN_API", columns, frame.with_columns(name=self.ids(pl.col("name"), spans)))
        steps = frame.select("step").with_row_index("call").drop_nulls()  # in the order of CANN_API
        self.put("STEPSCOPE_CALLS", _STEPS | {"call": "INTEGER PRIMARY KEY"}, steps)
        self.database.execute("create index CannApiIndex on CANN_API (connectionId)")

    def _marks(self, spans: pl.DataFrame) -> None:
        frame = spans.select(
            startNs="start_ns",
            endNs="end_ns",
            eventType=pl.when(pl.col("kind") == "instant").then(0).otherwise(1),
            rangeId=pl.int_range(pl.len(), dtype=pl.Int64),
            category=pl.lit(None, pl.Int64),
            globalTid=_thread(),
            endGlobalTid=_thread(),
            domainId=pl.lit(None, pl.Int64),
            connectionId="correlation",
        ).with_columns(message=self.ids(pl.col("name"), spans))
        order = ("startNs", "endNs", "eventType", "rangeId", "category", "message", "globalTid", "endGlobalTid", "domainId", "connectionId")
        self.put("MSTX_EVENTS", dict.fromkeys(order, "INTEGER"), frame)

    # Summaries

    def _overlap(self, tasks: pl.DataFrame, operators: pl.DataFrame) -> None:
        """When each device computes, communicates, only communicates, or is idle, between its first and its last task."""
        rows: list[tuple[int, int, int, int]] = []
        for device in sorted(set(tasks["device"]) | set(operators["device"])):
            on_device = pl.col("device") == device
            computing = _union(tasks.filter(on_device, pl.col("kind") == "kernel"))
            communication = _union(operators.filter(on_device))
            busy, spans = intervals.join(computing, communication), intervals.join(_union(tasks.filter(on_device)), communication)
            idle = intervals.gaps(busy, int(spans.starts[0]), int(spans.ends[-1])) if len(spans.starts) else intervals.NONE
            for number, part in enumerate((computing, communication, intervals.subtract(communication, computing), idle)):
                rows += [(device, start, end, number) for start, end in zip(part.starts.tolist(), part.ends.tolist(), strict=True)]
        columns = {"id": "INTEGER PRIMARY KEY", "deviceId": "INTEGER", "startNs": "NUMERIC", "endNs": "NUMERIC", "type": "INTEGER"}
        self.put("OVERLAP_ANALYSIS", columns, [(number, *row) for number, row in enumerate(rows)])

    def _counters(self) -> pl.DataFrame:
        """Write the counters that have tables. Returns the others."""
        rows = self.trace.counters.with_columns(pl.col("name", "unit", "series", "owner").cast(pl.String)).collect().with_row_index("row")
        npu = rows.filter(pl.col("owner") == "npu", pl.col("number").is_not_null()).with_columns(deviceId="number", timestampNs="at_ns")
        clock = npu.filter(pl.col("series") == "aicore clock")
        self.put(
            "AICORE_FREQ",
            {"deviceId": "INTEGER", "timestampNs": "NUMERIC", "freq": "INTEGER"},
            clock.with_columns(freq=_whole_numbers(pl.col("value") / 1e6)),
        )
        words = pl.col("series").str.split(" ")
        hbm = npu.filter(words.list.len() == 3, words.list.first() == "HBM", words.list.last().is_in(["Read", "Write"]))
        hbm = hbm.with_columns(hbmId=_number(words.list.get(1, null_on_oob=True)), bandwidth="value").drop_nulls("hbmId")
        self.put(
            "HBM",
            {"deviceId": "INTEGER", "timestampNs": "INTEGER", "bandwidth": "NUMERIC", "hbmId": "INTEGER", "type": "INTEGER"},
            hbm.with_columns(type=self.ids(words.list.last().str.to_lowercase(), hbm)),
        )
        memory = npu.filter(pl.col("series").is_in(["memory used", "process memory"])).with_columns(ddr=pl.lit(0), hbm="value")
        owner = pl.when(pl.col("series") == "memory used").then(pl.lit("device")).otherwise(pl.lit("app"))
        self.put(
            "NPU_MEM",
            {"type": "INTEGER", "ddr": "NUMERIC", "hbm": "NUMERIC", "timestampNs": "INTEGER", "deviceId": "INTEGER"},
            memory.with_columns(type=self.ids(owner, memory)),
        )
        stored = pl.concat([clock["row"], hbm["row"], memory["row"]])
        return rows.filter(~pl.col("row").is_in(stored.implode())).drop("row")

    def _about(self) -> None:
        meta = self.trace.meta
        devices = self.trace.devices.collect()
        rank = meta.ranks[0] if meta.ranks else 0
        first, last = self.trace.ends()
        for name, numbers in codes.ENUMS.items():
            self.put(name, {"id": "INTEGER PRIMARY KEY", "name": "TEXT"}, list(numbers.items()))
        self.put("NPU_INFO", {"id": "INTEGER", "name": "TEXT"}, devices.select(id="device", name="name"))
        self.put("RANK_DEVICE_MAP", {"rankId": "INTEGER", "deviceId": "INTEGER"}, [(rank, number) for number in devices["device"].unique()])
        self.put("SESSION_TIME_INFO", {"startTimeNs": "INTEGER", "endTimeNs": "INTEGER"}, [(first, last)])
        hosts = self.trace.table("hosts").select(pl.col("host").cast(pl.String)).collect()["host"]
        self.put("HOST_INFO", {"hostUid": "TEXT", "hostName": "TEXT"}, [("", hosts[0] if len(hosts) else "")])
        versions = {"SCHEMA_VERSION": "1.2.0", "SCHEMA_VERSION_MAJOR": "1", "SCHEMA_VERSION_MINOR": "2", "SCHEMA_VERSION_MICRO": "0"}
        versions |= {f"{key}_version": version for key, version in meta.versions.items()}
        self.put("META_DATA", {"name": "TEXT", "value": "TEXT"}, list(versions.items()))

    def _stepscope_tables(self, spans: pl.DataFrame, counters: pl.DataFrame) -> None:
        """Data for which the tables above have no columns."""
        steps = self.trace.steps.collect()
        marked = steps.filter(pl.col("how").cast(pl.String) != "whole").select(id="step", startNs="start_ns", endNs="end_ns")
        self.put("STEP_TIME", dict.fromkeys(("id", "startNs", "endNs"), "INTEGER"), marked)
        tables = {"steps": steps, "devices": self.trace.devices.collect(), "problems": self.trace.problems.collect(), "counters": counters}
        for name, rows in tables.items():
            self._put_stepscope_table(name, rows, [column for column in schema.TABLES[name] if column != "rank"])
        args = self.trace.spans.filter(pl.col("span").is_in(spans["span"].implode())).select("span", "args").collect()
        spans = spans.join(args, on="span", how="left", maintain_order="left")
        self._put_stepscope_table("spans", spans, [*_SPAN_COLUMNS, "label", "group", "device", "pid", "tid", "track_kind"])
        about = [("meta", msgspec.json.encode(self.trace.meta).decode()), ("written by", f"stepscope {__version__}")]
        self.put("STEPSCOPE_META", {"name": "TEXT", "value": "TEXT"}, about)

    def _put_stepscope_table(self, name: str, rows: pl.DataFrame, columns: list[str]) -> None:
        frame = with_texts(rows).select(columns)
        kinds = {f'"{column}"': "TEXT" if dtype == pl.String else "NUMERIC" for column, dtype in frame.schema.items()}
        self.put(f"STEPSCOPE_{name.upper()}", kinds, frame.rows())


def _number(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Int64, strict=False)


def _code(column: str, words: dict[int, str]) -> pl.Expr:
    """The number of a word; 65535 for a word without one."""
    numbers = {word: number for number, word in words.items()}
    return pl.col(column).fill_null("N/A").replace_strict(numbers, default=65535, return_dtype=pl.Int64)


def _whole_numbers(value: pl.Expr) -> pl.Expr:
    """The value if it is a whole number, else null."""
    return pl.when(value == value.round()).then(value.round())


def _thread() -> pl.Expr:
    """The process in the upper half, the thread in the lower."""
    return _number(pl.col("pid")).fill_null(0) * 2**32 + _number(pl.col("tid")).fill_null(0)


def _union(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
