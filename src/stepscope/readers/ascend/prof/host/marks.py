"""Ranges and instants that a program marks (msproftx, mstx): on the host, and where the device reached them."""

import numpy as np
import polars as pl

from stepscope.readers.ascend.prof.device.records import MARK, Device
from stepscope.readers.ascend.prof.files import HOST_MAGIC, Clock, Notes, Side, records
from stepscope.readers.ascend.prof.host.records import Words

_LAYOUT = np.dtype(
    [
        *[("magic", "<u2"), ("level", "<u2"), ("type", "<u4"), ("writer", "<u4"), ("length", "<u4"), ("written", "<u8")],
        *[("form", "<u2"), ("segment", "<u2"), ("pad", "<u4"), ("pad2", "<u2"), ("tag", "<u2"), ("pid", "<u4"), ("thread", "<u4")],
        *[("category", "<u4"), ("event", "<u4"), ("payload_type", "<i4"), ("payload", "<u8"), ("start", "<u8"), ("end", "<u8")],
        *[("mark", "<u8"), ("domain", "<u8"), ("message_type", "<i4"), ("message", "S156")],
    ]
)
_EVENTS = {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"}
_INSTANTS = ("marker", "marker_ex")
_WITH_MARK = 1  # form: long messages are split into segments, and the device may have reached the mark


def read(side: Side, clock: Clock, words: Words, notes: Notes) -> pl.DataFrame:
    """All marks on the host: name, start_ns, end_ns, thread, mark, and the columns of `marks`."""
    parts = [records(side.slices(rf"{age}\.additional\.msproftx"), _LAYOUT, notes, HOST_MAGIC) for age in ("aging", "unaging")]
    raw = np.concatenate(parts)
    if not len(raw):
        return pl.DataFrame()
    # numpy strips only trailing zeros, and other bytes may follow the terminating zero
    text = pl.Series([message.partition(b"\0")[0].decode("utf-8", "replace") for message in raw["message"].tolist()])
    rows = pl.DataFrame(
        {
            "name": text,
            "start_ns": clock.ns(raw["start"]),
            "end_ns": clock.ns(np.maximum(raw["end"], raw["start"])),
            "thread": raw["thread"].astype(np.int64),
            "event": pl.Series(raw["event"].astype(np.int64)).replace_strict(_EVENTS, default="?", return_dtype=pl.String),
            "mark": np.where(raw["form"] == _WITH_MARK, raw["mark"].astype(np.int64), -1),
            "segment": raw["segment"].astype(np.int64),
            "domain": words.names_of(raw["domain"]).cast(pl.String),
            "category": raw["category"].astype(np.int64),
            "payload_type": raw["payload_type"].astype(np.int64),
            "payload": raw["payload"].astype(np.uint64),
            "message_type": raw["message_type"].astype(np.int64),
        }
    )
    rows = clock.drop_implausible(rows, side, notes, "marks", "msproftx")
    return pl.concat(
        [rows.filter(pl.col("mark") < 0).select("name", "mark", *_OF_MARK), _join_segments(rows.filter(pl.col("mark") >= 0), side, notes)]
    )


def _join_segments(segments: pl.DataFrame, side: Side, notes: Notes) -> pl.DataFrame:
    """Marks with their whole message: a long message is in several records, numbered by segment."""
    rows = segments.sort("mark", "segment", maintain_order=True).group_by("mark", maintain_order=True).agg(
        pl.col("name").str.join(""),
        pl.col(_OF_MARK).first(),
        missing=pl.col("segment").max() + 1 - pl.col("segment").n_unique(),
    )  # fmt: skip
    if lost := int(rows["missing"].sum()):
        notes.add(side.path / "data", "missing segments of mark texts", lost, "msproftx")
    return rows.select("name", "mark", *_OF_MARK)


_OF_MARK = ("start_ns", "end_ns", "thread", "event", "domain", "category", "payload_type", "payload", "message_type")


def on_host(marks: pl.DataFrame, group: str, pid: str) -> pl.DataFrame:
    instant = pl.col("event").is_in(_INSTANTS)
    return marks.select(
        "name",
        "start_ns",
        kind=pl.when(instant).then(pl.lit("instant")).otherwise(pl.lit("annotation")),
        category=pl.lit("mstx"),
        dur_ns=pl.when(instant).then(0).otherwise(pl.col("end_ns") - pl.col("start_ns")),
        args=pl.struct(
            "domain",
            event_type="event",
            mark_id=pl.when(pl.col("mark") >= 0).then("mark"),
            Category="category",
            Payload_type="payload_type",
            Payload_value="payload",
            Message_type="message_type",
        ),
        group=pl.lit(group),
        label=pl.format("Thread {} marks", "thread"),
        track_kind=pl.lit("annotation"),
        pid=pl.lit(pid),
        tid=pl.col("thread").cast(pl.String),
    )


def on_device(marks: pl.DataFrame, device: Device) -> pl.DataFrame:
    """From the first to the last time that the device reached a mark; an instant if it reached it once."""
    tags = device.steps.filter(pl.col("tag") == MARK)
    if tags.is_empty():
        return pl.DataFrame()
    names = (
        marks.select(index="mark", text="name").unique("index", keep="first")
        if marks.height
        else pl.DataFrame(schema={"index": pl.Int64, "text": pl.String})
    )
    rows = tags.group_by("index", "stream", maintain_order=True).agg(
        start_ns=pl.col("at_ns").min(), end_ns=pl.col("at_ns").max(), times=pl.len(), task=pl.col("task").first()
    )
    return rows.join(names, on="index", how="left", maintain_order="left").select(
        "start_ns",
        name=pl.coalesce("text", pl.format("mark {}", "index")),
        kind=pl.when(pl.col("times") > 1).then(pl.lit("annotation")).otherwise(pl.lit("instant")),
        category=pl.lit("mstx"),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        label=pl.format("Marks on stream {}", "stream"),
        track_kind=pl.lit("annotation"),
        tid=pl.format("marks {}", "stream"),
        args=pl.struct(pl.col("index").alias("mark_id"), pl.col("stream").alias("Physic Stream Id"), pl.col("task").alias("Task Id")),
    )
