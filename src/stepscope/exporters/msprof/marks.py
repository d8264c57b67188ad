"""msprof_tx of msprof's folder: ranges and instants marked by the program (mstx), on the host and on devices."""

from collections.abc import Iterator

import polars as pl

from stepscope.exporters.common.json_lines import encode_distinct, fill_template, json_text
from stepscope.exporters.msprof.summaries import microseconds, time, us
from stepscope.exporters.msprof.tasks import Work

_ON_HOST = pl.col("device").is_null()


def table(work: Work) -> pl.DataFrame:
    """Marks of the host by start, each with the time at which the first device reached it."""
    marks = work.marks.filter(_ON_HOST).drop("device")
    if marks.is_empty():
        return pl.DataFrame()
    device_marks = work.marks.filter(~_ON_HOST).select(
        "mark", "device", began_ns="start_ns", ended_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    rows = marks.join(device_marks.unique("mark", keep="first", maintain_order=True), on="mark", how="left", maintain_order="left")
    plain = pl.col("mark").is_null()
    return rows.sort("start_ns", maintain_order=True).select(
        **{
            "Device_id": pl.coalesce(pl.col("device").cast(pl.String), pl.lit("host")),
            "pid": pl.lit(work.pid),
            "tid": pl.col("thread"),
            "category": pl.when(plain).then("category"),
            "event_type": pl.col("event_type"),
            "payload_type": pl.when(plain).then("payload_type"),
            "payload_value": pl.when(plain).then("payload_value"),
            "Start_time(us)": time("start_ns"),
            "End_time(us)": time(pl.col("start_ns") + pl.col("dur_ns")),
            "message_type": pl.when(plain).then("message_type"),
            "message": pl.col("name"),
            "domain": pl.when(~plain).then("domain"),
            "Device Start_time(us)": time("began_ns"),
            "Device End_time(us)": time("ended_ns"),
        }
    )


def on_host(work: Work, pid: int) -> Iterator[pl.Series]:
    """Marks of the host, and the starts of arrows to the marks on devices."""
    rows = work.marks.filter(_ON_HOST)
    if rows.is_empty():
        return
    plain = pl.col("mark").is_null()
    full = fill_template(
        '{"Category":"{}","Payload_type":{},"Payload_value":{},"Message_type":{},"event_type":{}}',
        *("category", "payload_type", "payload_value", "message_type", "event_type"),
    )
    with_mark = fill_template('{"event_type":{},"domain":{}}', "event_type", "domain")
    brief = fill_template('{"event_type":{}}', "event_type")  # sources other than Ascend's have no more columns
    args = pl.coalesce(pl.when(plain).then(full), pl.when(~plain).then(with_mark), brief, pl.lit("{}"))
    yield _spans(rows, pid, pl.col("thread"), args)
    device_marks = work.marks.filter(~_ON_HOST).select("mark").unique()
    yield _arrows(rows.join(device_marks, on="mark", how="semi", maintain_order="left"), pid, pl.col("thread"), "s")


def on_device(work: Work, pid: int, device: int) -> Iterator[pl.Series]:
    rows = work.marks.filter(pl.col("device") == device)
    if rows.is_empty():
        return
    stream = pl.coalesce("stream", pl.lit(0))
    yield _spans(rows, pid, stream, fill_template('{"Physic Stream Id":{},"Task Id":{}}', stream, pl.coalesce("task", pl.lit(0))))
    on_host_marks = work.marks.filter(_ON_HOST).select("mark").unique()
    yield _arrows(rows.join(on_host_marks, on="mark", how="semi", maintain_order="left"), pid, stream, "f")


def _spans(rows: pl.DataFrame, pid: int, tid: pl.Expr, args: pl.Expr) -> pl.Series:
    rows = rows.with_columns(encode_distinct(rows[name], json_text).alias(name) for name in ("name", "event_type", "domain"))
    line = fill_template(
        '{"name":{},"pid":' + str(pid) + ',"tid":{},"ts":"{}","dur":{},"args":{},"ph":"X"}',
        pl.col("name").fill_null('""'),
        tid,
        microseconds("start_ns"),
        us("dur_ns").cast(pl.String),
        args,
    )
    return rows.select(line).to_series()


def _arrows(rows: pl.DataFrame, pid: int, tid: pl.Expr, phase: str) -> pl.Series:
    line = fill_template(
        '{"name":"MsTx_{}","ph":"' + phase + '","id":"{}","ts":"{}","cat":"MsTx","pid":' + str(pid) + ',"tid":{},"bp":"e"}',
        "mark",
        "mark",
        microseconds("start_ns"),
        tid,
    )
    return rows.unique("mark", keep="first", maintain_order=True).select(line).to_series()
