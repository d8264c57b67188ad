"""Records of CANN on the host: calls by level, the tasks they launched, and details of these tasks."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model import intervals, schema
from stepscope.model.intervals import Ints
from stepscope.readers.ascend.prof.device.records import NEWEST, STREAM_DESTROYED, batches
from stepscope.readers.ascend.prof.files import HOST_MAGIC, Clock, Notes, Records, Side, lines, records
from stepscope.readers.ascend.prof.host.tensors import TENSOR, tensors_of_launches

LEVELS = {
    30000: "pytorch", 25000: "pta", 20500: "msproftx", 20000: "acl", 15000: "model", 10000: "node", 6000: "aicpu", 5500: "communication",
    5000: "runtime",
}  # fmt: skip
_CODES = {word: code for code, word in LEVELS.items()}
HEAD = [("magic", "<u2"), ("level", "<u2"), ("type", "<u4"), ("thread", "<u4"), ("length", "<u4"), ("at", "<u8")]
_API = np.dtype([*HEAD[:4], ("request", "<u4"), ("begin", "<u8"), ("end", "<u8"), ("item", "<u8")])
_EVENT = 2**64 - 1  # instead of an end: the record is one of a pair of events


def record(size: int, *fields: Any) -> np.dtype[Any]:
    body = np.dtype([*HEAD, *fields])
    return np.dtype([*HEAD, *fields, ("rest", f"V{size - body.itemsize}")])


# Streams of the host, the newest format: name, layout.
STREAMS: dict[str, np.dtype[Any]] = {
    "compact.task_track": record(
        64, ("device", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("batch", "<u2"), ("kind", "<u8"), ("kernel", "<u8")
    ),
    "compact.node_basic_info": record(
        64, ("op", "<u8"), ("core", "<u4"), ("op_type", "<u8"), ("blocks", "<u4"), ("flag", "<u4"), ("state", "u1")
    ),
    "compact.node_attr_info": record(64, ("op", "<u8"), ("kind", "<u4"), ("attributes", "<u8")),
    "compact.memcpy_info": record(64, ("bytes", "<u8"), ("direction", "<u2")),
    "compact.hccl_op_info": record(64, ("flags", "u1"), ("dtype", "u1"), ("algorithm", "<u8"), ("count", "<u8"), ("group", "<u8")),
    "additional.tensor_info": record(256, ("op", "<u8"), ("count", "<u4"), ("tensors", TENSOR, 5)),
    "additional.graph_id_map": record(256, ("name", "<u8"), ("graph", "<u4"), ("model", "<u4")),
    "additional.fusion_op_info": record(256, ("op", "<u8"), ("count", "<u4"), ("bytes", "<u8", 5), ("originals", "<u8", 8)),
    "additional.context_id_info": record(256, ("op", "<u8"), ("count", "<u4"), ("ids", "<u4", 55)),
    "additional.hccl_info": record(
        256,
        *[("item", "<u8"), ("tag", "<u8"), ("group", "<u8"), ("local", "<u4"), ("remote", "<u4"), ("ranks", "<u4"), ("workflow", "<u4")],
        *[("plane", "<u4"), ("context", "<u4"), ("notify", "<u8"), ("stage", "<u4"), ("role", "<u4"), ("estimated", "<f8")],
        *[("source", "<u8"), ("target", "<u8"), ("bytes", "<u8"), ("operation", "<u4"), ("dtype", "<u4"), ("link", "<u4")],
        *[("transport", "<u4"), ("rdma", "<u4")],
    ),
}
# Names of the cores in node_basic_info.
CORES = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AI_VECTOR_CORE", 3: "WRITE_BACK", 4: "MIX_AIC", 5: "MIX_AIV", 6: "FFTS_PLUS", 7: "DSA_SQE", 8: "DVPP",
    9: "COMMUNICATION", 10: "FUSION", 11: "INVALID",
}  # fmt: skip


class Words(NamedTuple):
    """The dictionaries: names by hash, and names of types by level. Names are categorical, because millions of rows have them."""

    hashes: pl.DataFrame  # key, word
    types: pl.DataFrame  # level, type, word

    def names_of(self, hashes: Records) -> pl.Series:
        """The names of these hashes: null for 0, the number itself for an unknown hash."""
        keys = pl.DataFrame({"key": np.ascontiguousarray(hashes).astype(np.uint64)})
        named = keys.join(self.hashes, on="key", how="left", maintain_order="left")
        number = pl.when(pl.col("key") > 0, pl.col("word").is_null()).then("key").cast(pl.String).cast(schema.Text)
        return named.select(pl.coalesce("word", number)).to_series()

    def type_names(self, level: Records | int, kinds: Records) -> pl.Series:
        levels = np.full(len(kinds), level, np.int64) if isinstance(level, int) else level.astype(np.int64)
        keys = pl.DataFrame({"level": levels, "type": kinds.astype(np.uint64)})
        named = keys.join(self.types, on=["level", "type"], how="left", maintain_order="left")
        number = pl.when(pl.col("word").is_null()).then("type").cast(pl.String).cast(schema.Text)
        return named.select(pl.coalesce("word", number)).to_series()


class Host(NamedTuple):
    """The host's records, with times in nanoseconds and names instead of hashes."""

    words: Words
    calls: pl.DataFrame  # row, level, name, item, item_number, thread, start_ns, end_ns, request, connection
    tasks: pl.DataFrame  # one row per launched task, see `_tasks`
    fusions: pl.DataFrame
    models: dict[int, str]
    streams: dict[str, Records]  # records of communication operators and tasks
    clock: Clock
    around: "Around"


def read(side: Side, clock: Clock, notes: Notes) -> Host:
    words = _words(side, notes)
    streams = {name: _records_of_both_ages(side, name, layout, notes) for name, layout in STREAMS.items()}
    calls = _calls(side, words, clock, notes)
    around = Around(calls)
    names = words.names_of(streams["additional.graph_id_map"]["name"])
    models = dict(zip(streams["additional.graph_id_map"]["model"].tolist(), names.to_list(), strict=True))
    tasks = _tasks(streams, words, clock, calls, around, side.chip in NEWEST)
    fusions = _fusions(streams, words, clock, calls, around)
    kept = {name: streams[name] for name in ("compact.hccl_op_info", "additional.hccl_info")}
    return Host(words, calls, tasks, fusions, models, kept, clock, around)


def _words(side: Side, notes: Notes) -> Words:
    hashes, types = {}, {}
    files = side.slices(r"(un)?aging\.additional\.hash_dic")
    if not files:
        notes.add(side.path / "data", "no hash_dic: names are shown as numbers")
    for line in lines(files):
        key, _, word = line.partition(":")
        if key.isdecimal() and len(key) <= 20 and int(key) < 2**64:
            hashes[int(key)] = word
    files = side.slices(r"(un)?aging\.additional\.type_info_dic")
    if not files:
        notes.add(side.path / "data", "no type_info_dic: types of calls and tasks are shown as numbers")
    for line in lines(files):
        key, _, word = line.partition(":")
        level, _, number = key.partition("_")
        if level.isdecimal() and number.isdecimal() and len(level) < 10 and len(number) <= 20 and int(number) < 2**64:
            types[int(level), int(number)] = word
    return Words(
        pl.DataFrame({"key": list(hashes), "word": list(hashes.values())}, schema={"key": pl.UInt64, "word": schema.Text}),
        pl.DataFrame(
            {"level": [level for level, _ in types], "type": [number for _, number in types], "word": list(types.values())},
            schema={"level": pl.Int64, "type": pl.UInt64, "word": schema.Text},
        ),
    )


def _records_of_both_ages(side: Side, name: str, layout: np.dtype[Any], notes: Notes) -> Records:
    """The records of a stream, written during the run (`aging` is true) and before it."""
    parts = []
    for aging in (True, False):
        pattern = ("" if aging else "un") + "aging." + name
        part = records(side.slices(pattern.replace(".", r"\.")), layout, notes, HOST_MAGIC)
        parts.append((part, aging))
    if name.startswith("additional") and not all(len(part) for part, _ in parts):
        return next((part for part, _ in parts if len(part)), parts[0][0])  # large and unused
    fields = [(field, layout[field]) for field in layout.names or () if field != "rest"]
    whole = np.empty(sum(len(part) for part, _ in parts), [*fields, ("aging", "?")])
    first = 0
    for part, aging in parts:
        rows = whole[first : first + len(part)]
        for field, _ in fields:
            rows[field] = part[field]
        rows["aging"] = aging
        first += len(part)
    return whole


# Calls


def _calls(side: Side, words: Words, clock: Clock, notes: Notes) -> pl.DataFrame:
    raw = _records_of_both_ages(side, "api_event.data", _API, notes)
    raw = raw[(raw["begin"] > 0) | (raw["end"] == _EVENT)]
    connection = np.arange(len(raw))
    event = raw["end"] == _EVENT
    rows = pl.DataFrame(
        {
            "level": raw["level"].astype(np.int64),
            "type": raw["type"].astype(np.uint64),
            "thread": raw["thread"].astype(np.int64),
            "request": raw["request"].astype(np.int64),
            "item_number": raw["item"],
            "aging": raw["aging"],
            "connection": connection,
            "begin": raw["begin"],
            "end": raw["end"],
        }
    )
    rows = pl.concat([rows.filter(~event), _from_events(rows.filter(event), side, notes)]).with_columns(
        event=pl.col("connection").is_in(connection[event])
    )
    rows = rows.with_columns(
        pl.Series("start_ns", clock.ns(rows["begin"].to_numpy())), pl.Series("end_ns", clock.ns(rows["end"].to_numpy()))
    )
    rows = clock.drop_implausible(rows, side, notes, "calls", "api_event")
    rows = rows.sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
    item = words.names_of(rows["item_number"].to_numpy())
    name = words.type_names(rows["level"].to_numpy(), rows["type"].to_numpy())
    levels = {number: str(number) for number in rows["level"].unique()} | LEVELS
    named = pl.col("level").replace_strict(levels, return_dtype=schema.Text)
    return rows.with_columns(pl.Series("name", name), pl.Series("item", item), named).with_row_index("row")


def _from_events(events: pl.DataFrame, side: Side, notes: Notes) -> pl.DataFrame:
    """Calls from pairs of events with the same key: begin and end. The call has the connection number of its end event."""
    key = ["level", "thread", "type", "request", "item_number"]
    nth = pl.int_range(pl.len()).over(key)
    rows = events.sort("begin", maintain_order=True).with_columns(
        nth=nth, end=pl.col("begin").shift(-1).over(key), connection=pl.col("connection").shift(-1).over(key)
    )
    rows = rows.filter(pl.col("nth") % 2 == 0).drop("nth")
    open_ends = rows["end"].null_count()
    if open_ends:
        notes.add(side.path / "data", "events with a begin and no end", open_ends, "api_event")
    return rows.filter(pl.col("end").is_not_null()).select(events.columns)


class Around:
    """Finds the call of a level that was open on a thread at a given time."""

    def __init__(self, calls: pl.DataFrame) -> None:
        self._levels: dict[str, tuple[Ints, ...]] = {}
        self._calls = calls

    def find(self, level: str, thread: Ints, at: Ints) -> Ints:
        """The row of the innermost open call; -1 for none."""
        row, threads, start, end, parent = self._calls_of_level(level)
        innermost = np.full(len(at), -1, np.int64)
        for number in np.unique(threads):
            low, high = np.searchsorted(threads, [number, number + 1])
            queries = np.flatnonzero(thread == number)
            call = np.searchsorted(start[low:high], at[queries], "right") - 1 + low
            call[call < low] = -1
            while len(ended := np.flatnonzero((call >= 0) & (end[call] < at[queries]))):
                call[ended] = parent[call[ended]]
            innermost[queries] = np.where(call < 0, -1, row[call])
        return innermost

    def _calls_of_level(self, level: str) -> tuple[Ints, ...]:
        if level not in self._levels:
            calls = self._calls.filter(pl.col("level") == level)
            thread, start, end = (calls[name].to_numpy() for name in ("thread", "start_ns", "end_ns"))
            nesting = intervals.nest(thread, start, end)
            self._levels[level] = calls["row"].to_numpy().astype(np.int64), thread, start, end, nesting.parent
        return self._levels[level]


# Tasks


def _tasks(streams: dict[str, Records], words: Words, clock: Clock, calls: pl.DataFrame, around: Around, newest: bool) -> pl.DataFrame:
    """Every launched task: its device and stream, the calls around its launch, and the details of their operator.

    device, stream, task, batch, type, kernel, at_ns, thread; node, communication, acl, runtime (rows of calls); model, request,
    op, op_type, core, blocks, mix_blocks, hf32, static, attributes, tensors (row of `tensors`), contexts (row), bytes, direction.
    """
    track = streams["compact.task_track"]
    thread, at = track["thread"].astype(np.int64), clock.ns(track["at"])
    kind = words.type_names(_CODES["runtime"], track["kind"])
    flip = (kind == "FLIP_TASK").to_numpy()
    device, stream, task = track["device"].astype(np.int64) & 0xFFF, track["stream"].astype(np.int64), track["task"].astype(np.int64)
    batch = np.zeros(len(track), np.int64)
    if newest:  # 32-bit numbers, which do not wrap around
        task |= track["batch"].astype(np.int64) << 16
    for owner in np.unique(device) if not newest else ():
        mine, flips = (device == owner) & ~flip, (device == owner) & flip
        number = track["batch"][flips].astype(np.int64)
        batch[mine] = batches(
            stream[mine], task[mine], at[mine], stream[flips], task[flips], at[flips], np.where(number == 0, STREAM_DESTROYED, number)
        )
    outer = {level: around.find(level, thread, at) for level in ("node", "model", "communication", "acl", "runtime")}
    tasks = pl.DataFrame(
        {
            "device": device,
            "stream": stream,
            "task": task,
            "batch": batch,
            "type": kind,
            "kernel": words.names_of(track["kernel"]),
            "at_ns": at,
            "thread": thread,
            "static": ~track["aging"],
            **outer,
        }
    ).filter(~pl.Series(flip))
    tasks = tasks.with_columns(pl.when(pl.col(level) >= 0).then(level).alias(level) for level in outer)
    models = calls.select(pl.col("row").cast(pl.Int64).alias("model"), pl.col("item_number").alias("model_id"), "request")
    nodes = calls.select(pl.col("row").cast(pl.Int64).alias("node"), node_item="item", connection="connection")
    acls = calls.select(pl.col("row").cast(pl.Int64).alias("acl"), connection_of_acl="connection")
    parts = calls.select(pl.col("row").cast(pl.Int64).alias("communication"), part="item")
    for frame, level in ((models, "model"), (nodes, "node"), (parts, "communication"), (acls, "acl")):
        tasks = tasks.join(frame, on=level, how="left", maintain_order="left")
    tasks = tasks.with_columns(connection=pl.coalesce("connection", "connection_of_acl")).drop("connection_of_acl")
    for name, frame in _of_nodes(streams, words, clock, around).items():
        tasks = tasks.join(frame, on="node", how="left", maintain_order="left", suffix=f"_{name}")
    return _with_copies(tasks, streams, clock, around)


def _of_nodes(streams: dict[str, Records], words: Words, clock: Clock, around: Around) -> dict[str, pl.DataFrame]:
    """Details of the operator of each launch: one row per launch."""
    basic, attributes = streams["compact.node_basic_info"], streams["compact.node_attr_info"]
    tensors = streams["additional.tensor_info"]
    details = {
        "basic": pl.DataFrame(
            {
                "node": _launch(basic, "node", clock, around),
                "op": words.names_of(basic["op"]),
                "op_type": words.names_of(basic["op_type"]),
                "core": pl.Series(basic["core"].astype(np.int64)).replace_strict(CORES, default=None, return_dtype=schema.Text),
                "blocks": (basic["blocks"] & 0xFFFF).astype(np.int64),
                "mix_blocks": ((basic["blocks"] & 0xFFFF) * (basic["blocks"] >> 16)).astype(np.int64),
                "hf32": basic["flag"] & 1 == 1,
                "static_op": ~basic["aging"],
            }
        ),
        "attributes": pl.DataFrame(
            {"node": _launch(attributes, "node", clock, around), "attributes": words.names_of(attributes["attributes"])}
        ),
        "tensors": tensors_of_launches(tensors, _launch(tensors, "node", clock, around)),
    }
    return {name: frame.filter(pl.col("node") >= 0).unique("node", keep="first", maintain_order=True) for name, frame in details.items()}


def _launch(rows: Records, level: str, clock: Clock, around: Around) -> Ints:
    return around.find(level, rows["thread"].astype(np.int64), clock.ns(rows["at"]))


def _with_copies(tasks: pl.DataFrame, streams: dict[str, Records], clock: Clock, around: Around) -> pl.DataFrame:
    """Tasks with the size of copies, which is a separate record within the same runtime call."""
    copies = streams["compact.memcpy_info"]
    rows = pl.DataFrame(
        {
            "runtime": _launch(copies, "runtime", clock, around),
            "bytes": copies["bytes"].astype(np.int64),
            "direction": copies["direction"].astype(np.int64),
        }
    )
    rows = rows.filter(pl.col("runtime") >= 0).unique("runtime", keep="first", maintain_order=True)
    return tasks.join(rows, on="runtime", how="left", maintain_order="left")


# Fusions


def _fusions(streams: dict[str, Records], words: Words, clock: Clock, calls: pl.DataFrame, around: Around) -> pl.DataFrame:
    """Fused operators: model, name, names of the original operators, and sizes of their memory in bytes."""
    raw = streams["additional.fusion_op_info"]
    rows = around.find("model", raw["thread"].astype(np.int64), clock.ns(raw["at"]))
    model = calls["item_number"].to_numpy()[rows] if len(rows) and calls.height else np.zeros(len(rows), np.uint64)
    originals = [words.names_of(raw["originals"][row][: min(int(raw["count"][row]), 8)]).to_list() for row in range(len(raw))]
    return pl.DataFrame(
        {
            "model": [int(number) if row >= 0 else None for number, row in zip(model, rows, strict=True)],
            "name": words.names_of(raw["op"]),
            "originals": [";".join(filter(None, names)) for names in originals],
            **{f"{kind}_bytes": raw["bytes"][:, column].astype(np.int64) for column, kind in enumerate(FUSION_MEMORY)},
        },
        schema={"model": pl.Int64, "name": pl.String, "originals": pl.String, **{f"{kind}_bytes": pl.Int64 for kind in FUSION_MEMORY}},
    )


FUSION_MEMORY = ("input", "output", "weight", "workspace", "total")
