"""One SQLite file with the tables of msprof's `msprof_TIME.db`, as MindStudio Insight and SQL tools read them.

What those tables have no place for (steps with forward and backward, marks of the graph, some counters, what could not be read) is in
tables that begin with STEPSCOPE_. One rank to a file.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import __version__, intervals, schema
from stepscope.errors import UsageError
from stepscope.exporters import whole
from stepscope.exporters._msprof_work import COUNTER, task_word, told_keys
from stepscope.readers._ascend_pmu_names import ONLY_IN_TEXT, in_database, nanoseconds
from stepscope.readers._prof_counters import ASCEND_MODULES
from stepscope.trace import Trace

_NONE = 2**32 - 1  # how Ascend writes that there is no model, no context
_LEVELS = {
    "acl": 20000,
    "model": 15000,
    "node": 10000,
    "communication": 5500,
    "runtime": 5000,
    "pytorch": 30000,
    "pta": 25000,
    "aicpu": 6000,
}
_HCCL_TYPES = ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64", "BFP16", "INT128")
_ODD = {255: "RESERVED", 65534: "N/A", 65535: "INVALID_TYPE"}
_DATA_TYPES = {**dict(enumerate(_HCCL_TYPES)), 14: "HIF8", 15: "FP8E4M3", 16: "FP8E5M2", 17: "FP8E8M0", **_ODD}
_LINKS = {**dict(enumerate(("ON_CHIP", "HCCS", "PCIE", "ROCE", "SIO", "HCCS_SW", "STANDARD_ROCE", "UB", "UBoE"))), **_ODD}
_TRANSPORTS = {**dict(enumerate(("SDMA", "RDMA", "LOCAL", "UB", "ROCE"))), **_ODD}
_RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", **_ODD}
_COPIES = (
    *("host to host", "host to device", "device to host", "device to device", "managed memory"),
    *("addr device to device", "host to device ex", "device to host ex"),
)
_ENUMS = {
    "ENUM_API_TYPE": {number: word for word, number in _LEVELS.items()} | {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"},
    "ENUM_MODULE": ASCEND_MODULES,
    "ENUM_HCCL_DATA_TYPE": _DATA_TYPES,
    "ENUM_HCCL_LINK_TYPE": _LINKS,
    "ENUM_HCCL_TRANSPORT_TYPE": _TRANSPORTS,
    "ENUM_HCCL_RDMA_TYPE": _RDMA,
    "ENUM_MSTX_EVENT_TYPE": dict(enumerate(("marker", "push/pop", "start/end", "marker_ex"))),
    "ENUM_MEMCPY_OPERATION": {**dict(enumerate(_COPIES)), 65535: "other"},
    "ENUM_OVERLAP_ANALYSIS_TYPE": {0: "COMPUTE", 1: "COMMUNICATION", 2: "COMM_NOT_OVERLAP_COMP", 3: "FREE", 65535: "RESERVE"},
}
_SHAPES = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats")
_OF_TASK: dict[str, Any] = {
    **dict.fromkeys(("Model Id", "Model ID", "Task Id", "Task ID", "Physic Stream Id", "Stream ID", "Subtask Id", "Context ID"), pl.Int64),
    **dict.fromkeys(("Batch Id", "connection_id", "size(B)", "Block Num", "Mix Block Num", "task start_ns", "task dur_ns"), pl.Int64),
    **dict.fromkeys(("runtime type", "Task Type", "kernel_name", "operation"), pl.String),
    **dict.fromkeys(("Op Name", "OP Type", "OP State", "HF32 Eligible", *_SHAPES, "attributes"), pl.String),
}
_OF_PLANE: dict[str, Any] = {
    **dict.fromkeys(("stream id", "task id", "context id", "src rank", "dst rank", "size(Byte)"), pl.Int64),
    **dict.fromkeys(("operator", "notify_id", "transport type", "data type", "link type", "rdma type"), pl.String),
    "master": pl.Boolean,
    "bandwidth(GB/s)": pl.Float64,
}
_OF_OPERATOR: dict[str, Any] = {
    **dict.fromkeys(("Process Group Name", "data_type", "alg_type"), pl.String),
    "count": pl.Int64,
    "rank_size": pl.Int64,
    "relay": pl.Boolean,
    "retry": pl.Boolean,
}
_PORTION = 100_000  # tasks at a time
_STEPS = {"step": "INTEGER"}


# What our own table of spans keeps.
_OF_SPAN = (
    *("start_ns", "dur_ns", "kind", "name", "step", "scope", "op_type", "correlation", "shapes", "dtypes", "flops", "bytes"),
    *("category", "args"),
)


def export(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    if len(trace.meta.ranks) > 1:
        raise UsageError(f"{len(trace.meta.ranks)} ranks do not go into one database; choose one of them with --rank")
    if out.is_dir():
        raise UsageError(f"{out} is a folder, so it is not replaced; choose another name")
    with whole(out, overwrite=overwrite) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as database:
        try:
            # Nobody sees the draft: no journal is needed to undo half of it.
            database.execute("pragma journal_mode = off")
            database.execute("pragma synchronous = off")
            database.execute("begin")
            _Writing(database, trace).everything()
            database.execute("commit")
        except sqlite3.OperationalError as error:  # what SQLite says of a full disk
            raise OSError(None, str(error)) from error


class _Writing:
    """A database while it is being written."""

    def __init__(self, database: sqlite3.Connection, trace: Trace) -> None:
        self.database, self.trace = database, trace
        self.words: dict[str, int] = {}
        self.wholes = 0  # tasks that are there beside their parts
        lanes = trace.tracks.select("track", "device", "pid", "tid", "label", "group", track_kind="kind").collect()
        # Without `args`, which are large: what is needed of them is asked for where it is.
        columns = pl.col("span", "track", "kind", *(column for column in _OF_SPAN if column not in ("kind", "args")))
        spans = trace.spans.select(columns, end_ns=pl.col("start_ns") + pl.col("dur_ns")).sort("start_ns", maintain_order=True).collect()
        self.spans = spans.join(lanes, on="track", how="left", maintain_order="left").with_columns(pl.col("kind").cast(pl.String))

    def everything(self) -> None:
        on_device = pl.col("device").is_not_null()
        lane, kind = pl.col("track_kind").cast(pl.String), pl.col("kind")
        is_task = on_device & (lane == "stream") & kind.is_in(["kernel", "copy", "set", "sync", "other"])
        is_operator = on_device & (kind == "communication") & (pl.col("category").cast(pl.String) != "Reduce").fill_null(True)
        is_call = ~on_device & kind.is_in(["api", "sync"])
        is_mark = ~on_device & kind.is_in(["annotation", "instant"])
        on_plane = on_device & (lane == "communication") & ~is_operator
        tasks = self._tasks(self.spans.filter(is_task))
        operators = self._operators(self.spans.filter(is_operator))
        unplaced = self._planes(self.spans.filter(on_plane), tasks, operators)
        self._calls(self.spans.filter(is_call))
        self._marks(self.spans.filter(is_mark))
        self._overlap(tasks, operators)
        counters = self._counters()
        self._about()
        rest = self.spans.filter(~(is_task | is_operator | is_call | is_mark | on_plane))
        self._own(pl.concat([rest, unplaced]), counters)
        self.put("STRING_IDS", {"id": "INTEGER PRIMARY KEY", "value": "TEXT"}, [(number, word) for word, number in self.words.items()])

    # The file

    def put(self, table: str, columns: dict[str, str], rows: Sequence[tuple[Any, ...]] | pl.DataFrame) -> None:
        self.database.execute(f'create table if not exists "{table}" ({", ".join(f"{name} {kind}" for name, kind in columns.items())})')
        values = rows.select(list(columns)).iter_rows() if isinstance(rows, pl.DataFrame) else rows
        self.database.executemany(f'insert into "{table}" values ({", ".join("?" * len(columns))})', values)

    def said(self, spans: pl.DataFrame, fields: dict[str, Any]) -> pl.DataFrame:
        """The spans, with what their source said of them under these names."""
        return pl.concat([spans, self.trace.said(spans["span"], fields)], how="horizontal")

    def ids(self, words: pl.Expr, rows: pl.DataFrame) -> pl.Series:
        """The numbers of these words in STRING_IDS."""
        found = rows.select(words.cast(pl.String).alias("word"))["word"]
        distinct = found.drop_nulls().unique(maintain_order=True)
        for word in distinct:
            self.words.setdefault(word, len(self.words))
        return found.replace_strict(
            distinct, pl.Series([self.words[word] for word in distinct], dtype=pl.Int64), default=None, return_dtype=pl.Int64
        )

    # What ran

    def _tasks(self, spans: pl.DataFrame) -> pl.DataFrame:
        """TASK and what describes its rows. Returns the tasks with what finds them again."""
        measured = self._measures(spans)
        spans = spans.with_columns(globalTaskId=pl.int_range(pl.len(), dtype=pl.Int64))
        found = [self._portion(spans.slice(at, _PORTION), measured) for at in range(0, max(1, spans.height), _PORTION)]
        self.database.execute("create index TaskIndex on TASK (startNs, globalTaskId)")
        return pl.concat(found)

    def _portion(self, spans: pl.DataFrame, measured: list[str]) -> pl.DataFrame:
        rows = self.said(spans, _OF_TASK | dict.fromkeys(measured, pl.Float64)).with_columns(
            streamId=pl.coalesce("Physic Stream Id", "Stream ID", _number(pl.col("tid"))),
            taskId=pl.coalesce("Task Id", "Task ID"),
            contextId=pl.coalesce("Subtask Id", "Context ID").fill_null(_NONE),
            modelId=pl.coalesce("Model Id", "Model ID").fill_null(_NONE),
            globalPid=_number(pl.lit(str(self.trace.meta.extra.get("pid", "")))),
        )
        # An operator that serves communication computes nothing, and is described as one.
        is_kernel = (pl.col("kind") == "kernel") | ((pl.col("kind") == "other") & pl.col("Op Name").is_not_null())
        word = task_word()
        kind = pl.coalesce(pl.when(is_kernel).then("runtime type"), word, pl.col("name").cast(pl.String))
        columns = (
            *("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", "taskType", "contextId", "streamId"),
            *("taskId", "modelId"),
        )
        tasks = rows.select(
            "globalTaskId", "globalPid", "contextId", "streamId", "taskId", "modelId", "task start_ns", "task dur_ns",
            startNs="start_ns", endNs="end_ns", deviceId="device", connectionId="correlation", taskType=self.ids(kind, rows),
        )  # fmt: skip
        self.put("TASK", dict.fromkeys(columns, "INTEGER"), tasks)
        self.put("TASK", dict.fromkeys(columns, "INTEGER"), self._around(tasks))
        self.put("STEPSCOPE_TASKS", _STEPS | {"globalTaskId": "INTEGER PRIMARY KEY"}, rows.select("step", "globalTaskId").drop_nulls())
        self._kernels(rows.filter(is_kernel))
        self._measured(rows.filter(is_kernel), measured)
        copies = rows.filter((pl.col("kind") == "copy") & pl.col("bytes").is_not_null())
        way = (
            pl.col("operation").str.replace("^address ", "addr ").replace_strict({word: n for n, word in enumerate(_COPIES)}, default=65535)
        )
        self.put(
            "MEMCPY_INFO",
            {"globalTaskId": "INTEGER PRIMARY KEY", "size": "NUMERIC", "memcpyOperation": "NUMERIC"},
            copies.select("globalTaskId", size="bytes", memcpyOperation=way),
        )
        return rows.select("globalTaskId", "start_ns", "end_ns", "device", "streamId", "taskId", "contextId", "kind")

    def _around(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The tasks whose parts are kernels on both kinds of core (MIX): msprof lists both."""
        rows = tasks.filter(pl.col("task start_ns").is_not_null(), pl.col("contextId") != _NONE)
        self.wholes += rows.height
        return rows.with_columns(
            globalTaskId=pl.int_range(self.wholes - rows.height, self.wholes, dtype=pl.Int64) + self.spans.height,
            contextId=pl.lit(_NONE, pl.Int64),
            startNs="task start_ns",
            endNs=pl.col("task start_ns") + pl.col("task dur_ns"),
        )

    def _measures(self, spans: pl.DataFrame) -> list[str]:
        """The names under which kernels say what their cores counted."""
        kernels = spans.filter(pl.col("kind") == "kernel").unique(["device", "category"], keep="first", maintain_order=True)
        texts = self.trace.spans.filter(pl.col("span").is_in(kernels["span"].implode())).select("args").collect().to_series().drop_nulls()
        return [key for key in dict.fromkeys(key for text in texts for key in told_keys(text)) if COUNTER.fullmatch(key)]

    def _kernels(self, rows: pl.DataFrame) -> None:
        text = {
            "name": pl.col("name"),
            "taskType": pl.col("category"),
            "opType": pl.coalesce("OP Type", "op_type").fill_null("N/A"),
            **{_in_camels(name): pl.col(name).fill_null("N/A") for name in _SHAPES},
            "attrInfo": pl.col("attributes").fill_null(""),
            "opState": pl.col("OP State").fill_null("N/A"),
            "hf32Eligible": pl.col("HF32 Eligible").fill_null("N/A"),
        }
        # What runs inside of a collective has the type of the collective, which is not its own.
        text["opType"] = pl.when(pl.col("op_type").is_null()).then(pl.lit("N/A")).otherwise(text["opType"])
        numbers = {"blockNum": pl.col("Block Num"), "mixBlockNum": pl.col("Mix Block Num")}
        frame = rows.select("globalTaskId", **numbers).with_columns(self.ids(words, rows).alias(name) for name, words in text.items())
        order = ("name", "globalTaskId", "blockNum", "mixBlockNum", "taskType", "opType", "inputFormats", "inputDataTypes", "inputShapes")
        more = ("outputFormats", "outputDataTypes", "outputShapes", "attrInfo", "opState", "hf32Eligible")
        self.put("COMPUTE_TASK_INFO", dict.fromkeys((*order, *more), "INTEGER") | {"globalTaskId": "INTEGER PRIMARY KEY"}, frame)

    def _measured(self, rows: pl.DataFrame, names: list[str]) -> None:
        long = (
            rows.select("globalTaskId", *names).unpivot(index="globalTaskId", variable_name="word").drop_nulls("value") if names else None
        )
        if long is None:
            long = pl.DataFrame(schema={"globalTaskId": pl.Int64, "word": pl.String, "value": pl.Float64})
        only_text = pl.col("word").is_in(ONLY_IN_TEXT)
        words = {name: in_database(name, names) for name in names}
        frame = long.filter(~only_text).with_columns(word=pl.col("word").replace(words), value=nanoseconds(pl.col("word"), pl.col("value")))
        columns = {"globalTaskId": "INTEGER", "name": "INTEGER", "value": "NUMERIC"}
        self.put("TASK_PMU_INFO", columns, frame.with_columns(name=self.ids(pl.col("word"), frame)))
        self.put("STEPSCOPE_PMU", columns | {"name": "TEXT"}, long.filter(only_text).rename({"word": "name"}))

    def _operators(self, spans: pl.DataFrame) -> pl.DataFrame:
        """COMMUNICATION_OP. Returns the operators with their ids."""
        said = self.said(spans, _OF_OPERATOR).with_columns(opId=pl.int_range(pl.len(), dtype=pl.Int64))
        text = {
            "opName": pl.col("name"),
            "groupName": pl.coalesce("Process Group Name", "tid").fill_null("N/A"),
            "algType": pl.col("alg_type").fill_null("N/A"),
            "opType": pl.col("op_type").cast(pl.String).fill_null("N/A"),
        }
        kinds = {word: number for number, word in _DATA_TYPES.items()}
        frame = said.select(
            "opId", "step",
            startNs="start_ns", endNs="end_ns", connectionId="correlation", deviceId="device", count="count", rankSize="rank_size",
            relay=pl.col("relay").cast(pl.Int64), retry=pl.col("retry").cast(pl.Int64),
            dataType=pl.col("data_type").fill_null("N/A").replace_strict(kinds, default=65535, return_dtype=pl.Int64),
        ).with_columns(self.ids(words, said).alias(name) for name, words in text.items())  # fmt: skip
        columns = (
            "opName",
            "startNs",
            "endNs",
            "connectionId",
            "groupName",
            "opId",
            "relay",
            "retry",
            "dataType",
            "algType",
            "count",
            "opType",
        )
        more = {"opId": "INTEGER PRIMARY KEY", "count": "NUMERIC"}
        self.put("COMMUNICATION_OP", dict.fromkeys((*columns, "deviceId", "rankSize"), "INTEGER") | more, frame)
        self.put("STEPSCOPE_OPERATORS", _STEPS | {"opId": "INTEGER PRIMARY KEY"}, frame.select("step", "opId").drop_nulls())
        return said.select("opId", "device", "start_ns", "end_ns", operator=pl.col("name").cast(pl.String))

    def _planes(self, spans: pl.DataFrame, tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
        """COMMUNICATION_TASK_INFO. Returns what is no task of a stream."""
        said = self.said(spans, _OF_PLANE).with_columns(
            streamId="stream id", taskId="task id", contextId=pl.col("context id").fill_null(_NONE)
        )
        key = ["device", "streamId", "taskId", "contextId", "start_ns"]
        found = tasks.select("globalTaskId", *key).unique(key, keep="first", maintain_order=True)
        named = operators.select("opId", "device", "operator").unique(["device", "operator"], keep="first", maintain_order=True)
        rows = said.join(found, on=key, how="left", maintain_order="left").join(
            named, on=["device", "operator"], how="left", maintain_order="left"
        )
        placed = rows.filter(pl.col("globalTaskId").is_not_null())

        def numbered(column: str, words: dict[int, str]) -> pl.Expr:
            return pl.col(column).fill_null("N/A").replace_strict({w: n for n, w in words.items()}, default=65535, return_dtype=pl.Int64)

        group = pl.col("tid").str.replace(r" plane \d+$", "")
        frame = placed.select(
            "globalTaskId", "opId",
            planeId=_number(pl.col("tid").str.extract(r"(\d+)$")),
            # SQLite knows no unsigned numbers: the highest stands for none.
            notifyId=pl.col("notify_id").cast(pl.UInt64, strict=False).clip(0, 2**63 - 1).cast(pl.Int64),
            rdmaType=numbered("rdma type", _RDMA), transportType=numbered("transport type", _TRANSPORTS),
            dataType=numbered("data type", _DATA_TYPES), linkType=numbered("link type", _LINKS),
            srcRank="src rank", dstRank="dst rank", size="size(Byte)",
            isMaster=pl.col("master").cast(pl.Int64),
            bandwidth=pl.col("bandwidth(GB/s)") * 1e9,
        ).with_columns(
            name=self.ids(pl.col("operator"), placed),
            taskType=self.ids(pl.col("name"), placed),
            groupName=self.ids(group, placed),
        )  # fmt: skip
        columns = (
            "name",
            "globalTaskId",
            "taskType",
            "planeId",
            "groupName",
            "notifyId",
            "rdmaType",
            "srcRank",
            "dstRank",
            "transportType",
        )
        more = ("size", "dataType", "linkType", "opId", "isMaster")
        self.put("COMMUNICATION_TASK_INFO", dict.fromkeys((*columns, *more), "INTEGER") | {"bandwidth": "NUMERIC"}, frame)
        self.database.execute("create index CommunicationTaskIndex on COMMUNICATION_TASK_INFO (globalTaskId)")
        return rows.filter(pl.col("globalTaskId").is_null()).select(spans.columns)

    def _calls(self, spans: pl.DataFrame) -> None:
        level = pl.col("category").cast(pl.String).replace_strict(_LEVELS, default=_LEVELS["runtime"], return_dtype=pl.Int64)
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

    def _overlap(self, tasks: pl.DataFrame, operators: pl.DataFrame) -> None:
        """When each device computes, communicates, does only that, or nothing, between its first and its last task."""
        rows: list[tuple[int, int, int, int]] = []
        for device in sorted(set(tasks["device"]) | set(operators["device"])):
            of_device = pl.col("device") == device
            computing = _covered(tasks.filter(of_device, pl.col("kind") == "kernel"))
            communication = _covered(operators.filter(of_device))
            busy, anything = intervals.join(computing, communication), intervals.join(_covered(tasks.filter(of_device)), communication)
            free = intervals.gaps(busy, int(anything.starts[0]), int(anything.ends[-1])) if len(anything.starts) else intervals.NONE
            for number, part in enumerate((computing, communication, intervals.subtract(communication, computing), free)):
                rows += [(device, start, end, number) for start, end in zip(part.starts.tolist(), part.ends.tolist(), strict=True)]
        columns = {"id": "INTEGER PRIMARY KEY", "deviceId": "INTEGER", "startNs": "NUMERIC", "endNs": "NUMERIC", "type": "INTEGER"}
        self.put("OVERLAP_ANALYSIS", columns, [(number, *row) for number, row in enumerate(rows)])

    # Beside what ran

    def _counters(self) -> pl.DataFrame:
        """The counters that have tables of their own. Returns the others."""
        rows = self.trace.counters.with_columns(pl.col("name", "unit").cast(pl.String)).collect()
        clock = rows.with_columns(of=pl.col("name").str.extract(r"^aicore clock npu (\d+)$")).drop_nulls("of")
        self.put(
            "AICORE_FREQ",
            {"deviceId": "INTEGER", "timestampNs": "NUMERIC", "freq": "INTEGER"},
            clock.select(deviceId=_number(pl.col("of")), timestampNs="at_ns", freq=_whole(pl.col("value") / 1e6)),
        )
        pattern = r"^HBM (?<unit_>\d+) (?<way>Read|Write) npu (?<of>\d+)$"
        hbm = rows.with_columns(pl.col("name").str.extract_groups(pattern).struct.unnest()).drop_nulls("of")
        self.put(
            "HBM",
            {"deviceId": "INTEGER", "timestampNs": "INTEGER", "bandwidth": "NUMERIC", "hbmId": "INTEGER", "type": "INTEGER"},
            hbm.select(deviceId=_number(pl.col("of")), timestampNs="at_ns", bandwidth="value", hbmId=_number(pl.col("unit_"))).with_columns(
                type=self.ids(pl.col("way").str.to_lowercase(), hbm)
            ),
        )
        pattern = r"^(?<what>memory used|process memory) npu (?<of>\d+)$"
        memory = rows.with_columns(pl.col("name").str.extract_groups(pattern).struct.unnest()).drop_nulls("of")
        self.put(
            "NPU_MEM",
            {"type": "INTEGER", "ddr": "NUMERIC", "hbm": "NUMERIC", "timestampNs": "INTEGER", "deviceId": "INTEGER"},
            memory.select(deviceId=_number(pl.col("of")), ddr=pl.lit(0), hbm="value", timestampNs="at_ns").with_columns(
                type=self.ids(pl.when(pl.col("what") == "memory used").then(pl.lit("device")).otherwise(pl.lit("app")), memory)
            ),
        )
        stored = pl.concat([clock["name"], hbm["name"], memory["name"]]).unique()
        return rows.filter(~pl.col("name").is_in(stored.implode()))

    def _about(self) -> None:
        meta = self.trace.meta
        devices = self.trace.devices.collect()
        rank = meta.ranks[0] if meta.ranks else 0
        first, last = self.trace.ends()
        for name, words in _ENUMS.items():
            self.put(name, {"id": "INTEGER PRIMARY KEY", "name": "TEXT"}, list(words.items()))
        self.put("NPU_INFO", {"id": "INTEGER", "name": "TEXT"}, devices.select(id="device", name="name"))
        self.put("RANK_DEVICE_MAP", {"rankId": "INTEGER", "deviceId": "INTEGER"}, [(rank, number) for number in devices["device"].unique()])
        self.put("SESSION_TIME_INFO", {"startTimeNs": "INTEGER", "endTimeNs": "INTEGER"}, [(first, last)])
        self.put("HOST_INFO", {"hostUid": "TEXT", "hostName": "TEXT"}, [("", str(meta.extra.get("hostname", "")))])
        versions = {"SCHEMA_VERSION": "1.2.0", "SCHEMA_VERSION_MAJOR": "1", "SCHEMA_VERSION_MINOR": "2", "SCHEMA_VERSION_MICRO": "0"}
        said = versions | {f"{key}_version": word for key, word in meta.versions.items()}
        self.put("META_DATA", {"name": "TEXT", "value": "TEXT"}, list(said.items()))

    def _own(self, spans: pl.DataFrame, counters: pl.DataFrame) -> None:
        """What the tables above have no columns for."""
        steps = self.trace.steps.collect()
        marked = steps.filter(pl.col("how").cast(pl.String) != "whole").select(id="step", startNs="start_ns", endNs="end_ns")
        self.put("STEP_TIME", dict.fromkeys(("id", "startNs", "endNs"), "INTEGER"), marked)
        tables = {"steps": steps, "devices": self.trace.devices.collect(), "problems": self.trace.problems.collect(), "counters": counters}
        for name, rows in tables.items():
            self._put_own(name, rows, [column for column in schema.TABLES[name] if column != "rank"])
        texts = self.trace.spans.filter(pl.col("span").is_in(spans["span"].implode())).select("span", "args").collect()
        told = spans.join(texts, on="span", how="left", maintain_order="left")
        self._put_own("spans", told, [*_OF_SPAN, "label", "group", "device", "pid", "tid", "track_kind"])
        about = [("meta", msgspec.json.encode(self.trace.meta).decode()), ("written by", f"stepscope {__version__}")]
        self.put("STEPSCOPE_META", {"name": "TEXT", "value": "TEXT"}, about)

    def _put_own(self, name: str, rows: pl.DataFrame, columns: list[str]) -> None:
        words = [
            name for name, kind in rows.schema.items() if kind in (pl.Categorical, pl.Enum) or isinstance(kind, pl.Enum | pl.Categorical)
        ]
        frame = rows.with_columns(pl.col(words).cast(pl.String)) if words else rows
        kinds = {column: "TEXT" if frame.schema[column] == pl.String else "NUMERIC" for column in columns}
        self.put(f"STEPSCOPE_{name.upper()}", {f'"{column}"': kind for column, kind in kinds.items()}, frame.select(columns).rows())


def _number(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Int64, strict=False)


def _whole(value: pl.Expr) -> pl.Expr:
    """Without a fraction where there is none."""
    return pl.when(value == value.round()).then(value.round())


def _thread() -> pl.Expr:
    """The process in the upper half, the thread in the lower."""
    return _number(pl.col("pid")).fill_null(0) * 2**32 + _number(pl.col("tid")).fill_null(0)


def _in_camels(name: str) -> str:
    """`Input Data Types` as `inputDataTypes`."""
    return name[0].lower() + name[1:].replace(" ", "")


def _covered(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
