"""Host records of CANN 5 and 6, whose calls have no levels: a file for each library, in records of fixed size.

    Framework.task_desc_info.N      an operator and its task                     Framework.tensor_data_info.N    its tensors
    Framework.fusion_op_info_M.N    fused operators                              Framework.model_load_info_M.N   names of models
    runtime.task_track.N            tasks that the runtime created               runtime.api.N                   its calls
    AclModule.acl_*.N               calls into AscendCL                          *.hash_dic.N                    names

N is the device. A name is a hash or text.
"""

import re
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.model.intervals import Ints
from stepscope.readers.ascend.prof.files import HOST_MAGIC, Clock, Notes, Records, Side, lines, records
from stepscope.readers.ascend.prof.host.records import (
    CORES,
    FUSION_MEMORY,
    STREAMS,
    Around,
    Host,
    Words,
)
from stepscope.readers.ascend.prof.host.tensors import TENSOR, TENSOR_TEXTS, tensor_texts

_HEAD = [("magic", "<u2"), ("tag", "<u2")]
_NAME = np.dtype([("form", "u1"), ("pad", "V7"), ("text", "S120")])
_TYPE = np.dtype([("form", "u1"), ("pad", "V7"), ("text", "S56")])
_OPERATOR = np.dtype(
    [
        *[*_HEAD, ("core", "<u4"), ("op", _NAME), ("op_type", _TYPE), ("iteration", "<u8"), ("at", "<u8"), ("shape", "<u4")],
        *[("blocks", "<u4"), ("model", "<u4"), ("stream", "<u4"), ("task", "<u4"), ("thread", "<u4"), ("rest", "V16")],
    ]
)
_TENSORS = np.dtype(
    [
        *[*_HEAD, ("model", "<u4"), ("iteration", "<u8"), ("stream", "<u4"), ("task", "<u4"), ("count", "<u4")],
        *[("tensors", TENSOR, 5), ("at", "<u8")],
    ]
)
_FUSION = np.dtype(
    [*_HEAD, ("model", "<u4"), ("op", _NAME), ("bytes", "<u8", 5), ("count", "<u8"), ("originals", "<u8", 8), ("rest", "V8")]
)
_MODEL = np.dtype([*_HEAD, ("model", "<u4"), ("name", _NAME), ("start", "<u8"), ("end", "<u8"), ("rest", "V104")])
_TRACK = np.dtype([*_HEAD, ("thread", "<u4"), ("at", "<u8"), ("kind", "S32"), ("task", "<u4"), ("stream", "<u2"), ("rest", "V10")])
_API = np.dtype([*_HEAD, ("thread", "<u4"), ("begin", "<u8"), ("end", "<u8"), ("bytes", "<u8"), ("name", "S64"), ("rest", "V160")])
_ACL = np.dtype(
    [*_HEAD, ("kind", "<u4"), ("begin", "<u8"), ("end", "<u8"), ("pid", "<u4"), ("thread", "<u4"), ("name", "S64"), ("rest", "V32")]
)
_IS_TEXT = 1
_DYNAMIC = 1
_NO_MODEL = 2**32 - 1


def claims(side: Side) -> bool:
    return any(re.match(r"Framework\.task_desc_info\.\d|[rR]untime\.task_track\.\d", name) for name in side.raw)


def read(side: Side, clock: Clock, notes: Notes) -> Host:
    words = _words(side)
    calls = _calls(side, clock, notes)
    around = Around(calls)
    named = (re.match(r"(?:Framework\.task_desc_info|[rR]untime\.task_track)\.(\d{1,4})", name) for name in side.raw)
    devices = sorted({int(match[1]) for match in named if match})
    tasks = pl.concat([_tasks(side, device, words, clock, around, notes) for device in devices])
    loaded = records(side.slices(r"Framework\.model_load_info_\d+\.\d+"), _MODEL, notes, HOST_MAGIC)
    models = dict(zip(loaded["model"].tolist(), _names(loaded["name"], words).fill_null("?").to_list(), strict=True))
    fused = records(side.slices(r"Framework\.fusion_op_info_\d+\.\d+"), _FUSION, notes, HOST_MAGIC)
    empty = {name: np.empty(0, [*[(field, STREAMS[name][field]) for field in STREAMS[name].names or () if field != "rest"], ("aging", "?")])
             for name in ("compact.hccl_op_info", "additional.hccl_info")}  # fmt: skip
    return Host(words, calls, tasks, _fusions(fused, words), models, empty, clock, around)


def _words(side: Side) -> Words:
    hashes = {}
    for line in lines(side.slices(r"(Framework|AclModule)\.hash_dic\.\d+")):
        key, _, word = line.partition(":")
        if key.isdecimal() and len(key) <= 20 and int(key) < 2**64:
            hashes[int(key)] = word
    return Words(
        pl.DataFrame({"key": list(hashes), "word": list(hashes.values())}, schema={"key": pl.UInt64, "word": schema.Text}),
        pl.DataFrame(schema={"level": pl.Int64, "type": pl.UInt64, "word": schema.Text}),
    )


def _names(mixed: Records, words: Words) -> pl.Series:
    """Names: a hash in the first eight bytes, or text."""
    data = np.ascontiguousarray(mixed["text"])
    if not len(data):
        return pl.Series([], dtype=pl.String)
    first = data.view(np.uint8).reshape(len(data), data.dtype.itemsize)[:, :8].copy().view("<u8").reshape(-1)
    return words.names_of(first).cast(pl.String).zip_with(pl.Series(mixed["form"] != _IS_TEXT), _text(data))


def _text(data: Records) -> pl.Series:
    return pl.Series([text.partition(b"\0")[0].decode("utf-8", "replace") for text in data.tolist()], dtype=pl.String)


def _calls(side: Side, clock: Clock, notes: Notes) -> pl.DataFrame:
    parts = [
        ("acl", records(side.slices(r"AclModule\.acl_(model|op|rts|others)\.\d+"), _ACL, notes, HOST_MAGIC)),
        ("runtime", records(side.slices(r"[rR]untime\.api\.\d+"), _API, notes, HOST_MAGIC)),
    ]
    rows = pl.concat(
        pl.DataFrame(
            {
                "level": [level] * len(raw),
                "name": _text(raw["name"]),
                "thread": raw["thread"].astype(np.int64),
                "start_ns": clock.ns(raw["begin"]),
                "end_ns": clock.ns(raw["end"]),
            },
            schema={"level": pl.String, "name": pl.String, "thread": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
        )
        for level, raw in parts
    ).with_row_index("connection")
    rows = clock.drop_implausible(rows, side, notes, "calls")
    rows = rows.sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True).with_row_index("row")
    nothing = {"item": pl.String, "item_number": pl.UInt64, "request": pl.Int64, "type": pl.UInt64}
    return rows.with_columns(
        pl.col("connection").cast(pl.Int64), *(pl.lit(None, dtype).alias(name) for name, dtype in nothing.items()), event=pl.lit(False)
    )


_KEY = ["stream", "task", "batch"]


def _tasks(side: Side, device: int, words: Words, clock: Clock, around: Around, notes: Notes) -> pl.DataFrame:
    """Tasks with and without operators. The upper half of a task's number is its batch."""
    raw = records(side.slices(rf"Framework\.task_desc_info\.{device}"), _OPERATOR, notes, HOST_MAGIC)
    operators = pl.DataFrame(
        {
            **_place(raw),
            "op": _names(raw["op"], words),
            "op_type": _names(raw["op_type"], words),
            "core": pl.Series(raw["core"].astype(np.int64)).replace_strict(CORES, default=None, return_dtype=pl.String),
            "blocks": (raw["blocks"] & 0xFFFF).astype(np.int64),
            "mix_blocks": ((raw["blocks"] & 0xFFFF) * (raw["blocks"] >> 16)).astype(np.int64),
            "static_op": raw["shape"] != _DYNAMIC,
            "static": raw["shape"] != _DYNAMIC,
            "model_id": pl.Series(raw["model"].astype(np.uint64)),
            "at_ns": clock.ns(raw["at"]),
            "thread": raw["thread"].astype(np.int64),
        }
    )
    tensors = records(side.slices(rf"Framework\.tensor_data_info\.{device}"), _TENSORS, notes, HOST_MAGIC)
    operators = operators.join(_tensor_texts(tensors), on=[*_KEY, "model_id"], how="left", maintain_order="left")
    track = records(side.slices(rf"[rR]untime\.task_track\.{device}"), _TRACK, notes, HOST_MAGIC)
    made = pl.DataFrame(
        {**_place(track), "type": _text(track["kind"]), "made_ns": clock.ns(track["at"]), "by": track["thread"].astype(np.int64)}
    )
    kinds = made.unique(_KEY, keep="first", maintain_order=True)
    operators = operators.join(kinds, on=_KEY, how="left", maintain_order="left")
    others = made.join(operators, on=_KEY, how="anti", maintain_order="left").with_columns(at_ns="made_ns", thread="by")
    tasks = pl.concat([operators, others], how="diagonal").with_columns(
        model_id=pl.when(pl.col("model_id") != _NO_MODEL).then("model_id"),
        launched_ns=pl.coalesce("made_ns", "at_ns"),
        launcher=pl.coalesce("by", "thread"),
    )
    outer = {level: around.find(level, tasks["launcher"].to_numpy(), tasks["launched_ns"].to_numpy()) for level in ("acl", "runtime")}
    return tasks.drop("made_ns", "by", "launched_ns", "launcher").with_columns(
        *(pl.when(pl.Series(rows) >= 0).then(pl.Series(rows)).alias(level) for level, rows in outer.items()),
        *(pl.lit(None, dtype).alias(name) for name, dtype in _NOTHING.items()),
        device=pl.lit(device, pl.Int64),
    )


_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("node", "model", "communication", "request", "bytes", "direction", "connection"), pl.Int64),
    **dict.fromkeys(("kernel", "node_item", "part", "attributes"), pl.String),
    "hf32": pl.Boolean,
}


def _place(raw: Records) -> dict[str, Ints]:
    number = raw["task"].astype(np.int64)
    return {"stream": raw["stream"].astype(np.int64) % 2048, "task": number & 0xFFFF, "batch": number >> 16}


def _tensor_texts(raw: Records) -> pl.DataFrame:
    """Shapes, types and formats of each task's tensors; more than five tensors take several records."""
    rows = pl.DataFrame({**_place(raw), "model_id": pl.Series(raw["model"].astype(np.uint64))}).with_row_index("record")
    grouped = rows.group_by(*_KEY, "model_id", maintain_order=True).agg("record")
    count = np.minimum(raw["count"], 5)
    texts = [tensor_texts([raw["tensors"][row][: count[row]] for row in members]) for members in grouped["record"].to_list()]
    return grouped.drop("record").with_columns(pl.DataFrame(texts, schema=dict.fromkeys(TENSOR_TEXTS, pl.String), orient="row"))


def _fusions(raw: Records, words: Words) -> pl.DataFrame:
    originals = [";".join(filter(None, words.names_of(row["originals"][: min(int(row["count"]), 8)]).to_list())) for row in raw]
    return pl.DataFrame(
        {
            "model": raw["model"].astype(np.int64),
            "name": _names(raw["op"], words),
            "originals": pl.Series(originals, dtype=pl.String),
            **{f"{kind}_bytes": raw["bytes"][:, column].astype(np.int64) for column, kind in enumerate(FUSION_MEMORY)},
        }
    )
