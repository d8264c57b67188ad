"""Lines of msprof's timelines: Chrome trace events as columns of JSON text.

Layers are processes. Their number contains the process, the position of the layer (5 bits) and the device (5 bits).
"""

from typing import Any

import polars as pl

from stepscope.exporters.common.json_lines import encode_distinct, fill_template, json_text
from stepscope.exporters.msprof.summaries import microseconds, us
from stepscope.exporters.msprof.tasks import Work

_HOST = 31
HARDWARE = 14  # the layer of tasks and iterations


def process_number(work: Work, place: int, device: int = _HOST) -> int:
    return work.pid << 10 | place << 5 | device


def metadata_lines(pid: int, place: int, name: str, label: str, threads: dict[int, str], order: dict[int, int] | None = None) -> pl.Series:
    """The names of a process and its threads, and their order."""
    rows: list[dict[str, Any]] = [_meta("process_name", pid, 0, {"name": name})]
    for tid, thread in threads.items():
        rows.append(_meta("thread_name", pid, tid, {"name": thread}))
        if order is None or tid in order:
            rows.append(_meta("thread_sort_index", pid, tid, {"sort_index": order[tid] if order else tid}))
    rows += [_meta("process_labels", pid, 0, {"labels": label}), _meta("process_sort_index", pid, 0, {"sort_index": place})]
    return pl.Series([json_text(row) for row in rows], dtype=pl.String)


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "pid": pid, "tid": tid, "args": args, "ph": "M"}


def with_json_texts(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Rows with these texts as JSON; nulls stay null."""
    return rows.with_columns(encode_distinct(rows[name], json_text).alias(name) for name in columns)


def timestamp(column: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit('"'), microseconds(column), pl.lit('"'))


def number_text(column: str | pl.Expr) -> pl.Expr:
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.String)


def span_line(pid: int, name: pl.Expr | str, tid: pl.Expr | str, args: pl.Expr | None, more: str = "") -> pl.Expr:
    parts = [
        fill_template(
            '{"name":{},"pid":' + str(pid) + ',"tid":{},"ts":{},"dur":{}', name, tid, timestamp("start_ns"), number_text(us("dur_ns"))
        ),
        *([fill_template(',"args":{}', args)] if args is not None else []),
        pl.lit(more + ',"ph":"X"}'),
    ]
    return pl.concat_str(parts)
