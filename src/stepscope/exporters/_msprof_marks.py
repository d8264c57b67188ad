"""msprof_tx of msprof's folder: ranges and moments that a program marked (mstx), on the host and where the device came by them."""

from collections.abc import Iterator

import polars as pl

from stepscope.exporters._lines import filled, json_of, json_text
from stepscope.exporters._msprof_summaries import microseconds, time, us
from stepscope.exporters._msprof_work import Work

_ON_HOST = pl.col("device").is_null()


def table(work: Work) -> pl.DataFrame:
    """Marks of the host by start, each with when the first device came by it."""
    marks = work.marks.filter(_ON_HOST).drop("device")
    if marks.is_empty():
        return pl.DataFrame()
    seen = work.marks.filter(~_ON_HOST).select("mark_id", "device", began_ns="start_ns", ended_ns=pl.col("start_ns") + pl.col("dur_ns"))
    rows = marks.join(seen.unique("mark_id", keep="first", maintain_order=True), on="mark_id", how="left", maintain_order="left")
    plain = pl.col("mark_id").is_null()
    return rows.sort("start_ns", maintain_order=True).select(
        **{
            "Device_id": pl.coalesce(pl.col("device").cast(pl.String), pl.lit("host")),
            "pid": pl.lit(work.pid),
            "tid": pl.col("thread"),
            "category": pl.when(plain).then("Category"),
            "event_type": pl.col("event_type"),
            "payload_type": pl.when(plain).then("Payload_type"),
            "payload_value": pl.when(plain).then("Payload_value"),
            "Start_time(us)": time("start_ns"),
            "End_time(us)": time(pl.col("start_ns") + pl.col("dur_ns")),
            "message_type": pl.when(plain).then("Message_type"),
            "message": pl.col("name"),
            "domain": pl.when(~plain).then("domain"),
            "Device Start_time(us)": time("began_ns"),
            "Device End_time(us)": time("ended_ns"),
        }
    )


def on_host(work: Work, pid: int) -> Iterator[pl.Series]:
    """Marks of the host, and the beginnings of arrows to where a device came by them."""
    rows = work.marks.filter(_ON_HOST)
    if rows.is_empty():
        return
    plain = pl.col("mark_id").is_null()
    told = filled(
        '{"Category":"{}","Payload_type":{},"Payload_value":{},"Message_type":{},"event_type":{}}',
        *("Category", "Payload_type", "Payload_value", "Message_type", "event_type"),
    )
    with_mark = filled('{"event_type":{},"domain":{}}', "event_type", "domain")
    brief = filled('{"event_type":{}}', "event_type")  # of other tools no more is known
    args = pl.coalesce(pl.when(plain).then(told), pl.when(~plain).then(with_mark), brief, pl.lit("{}"))
    yield _spans(rows, pid, pl.col("thread"), args)
    seen = work.marks.filter(~_ON_HOST).select("mark_id").unique()
    yield _arrows(rows.join(seen, on="mark_id", how="semi", maintain_order="left"), pid, pl.col("thread"), "s")


def on_device(work: Work, pid: int, device: int) -> Iterator[pl.Series]:
    rows = work.marks.filter(pl.col("device") == device)
    if rows.is_empty():
        return
    stream = pl.coalesce("Physic Stream Id", pl.lit(0))
    yield _spans(rows, pid, stream, filled('{"Physic Stream Id":{},"Task Id":{}}', stream, pl.coalesce("Task Id", pl.lit(0))))
    known = work.marks.filter(_ON_HOST).select("mark_id").unique()
    yield _arrows(rows.join(known, on="mark_id", how="semi", maintain_order="left"), pid, stream, "f")


def _spans(rows: pl.DataFrame, pid: int, tid: pl.Expr, args: pl.Expr) -> pl.Series:
    rows = rows.with_columns(json_of(rows[name], json_text).alias(name) for name in ("name", "event_type", "domain"))
    line = filled(
        '{"name":{},"pid":' + str(pid) + ',"tid":{},"ts":"{}","dur":{},"args":{},"ph":"X"}',
        pl.col("name").fill_null('""'),
        tid,
        microseconds("start_ns"),
        us("dur_ns").cast(pl.String),
        args,
    )
    return rows.select(line).to_series()


def _arrows(rows: pl.DataFrame, pid: int, tid: pl.Expr, phase: str) -> pl.Series:
    line = filled(
        '{"name":"MsTx_{}","ph":"' + phase + '","id":"{}","ts":"{}","cat":"MsTx","pid":' + str(pid) + ',"tid":{},"bp":"e"}',
        "mark_id",
        "mark_id",
        microseconds("start_ns"),
        tid,
    )
    return rows.unique("mark_id", keep="first", maintain_order=True).select(line).to_series()
