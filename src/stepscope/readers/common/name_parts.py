"""Typed columns of counters, tracks, allocations and collectives, from their names: for data that contains only the names.

These are captures, counters of Chrome and XPlane files, tracks of Ascend's timelines, and files of earlier releases: run folders
(`io/store`), exported Chrome files and databases. Other readers fill the columns themselves.
"""

import functools
import re
from collections.abc import Callable

import polars as pl

from stepscope.model.trace import Trace

# Names of counters as docs/data_model.md lists them. Groups: series, owner, number. The first match counts.
_COUNTERS: tuple[tuple[str, dict[str, str]], ...] = (
    (r"(?P<series>allocated|reserved) ?(?P<owner>.*?)(?: (?P<number>0|[1-9][0-9]{0,17}))?", {}),
    (r"(?P<series>.+) (?P<owner>npu|gpu|tpu|xpu|cpu|cuda|rocm) (?P<number>0|[1-9][0-9]{0,17})", {}),
    (r"queue (?P<number>[0-9]{1,9}) (?P<series>depth|wait)", {"owner": "loader"}),
    (r"queue (?P<owner>iterator|device queue|device)", {"series": "depth"}),
    (r"(?P<series>pipeline time|push time|batch time) (?P<owner>iterator|device queue)", {}),
    (r"queue (?P<number>[0-9]{1,9})(?: .*)?", {"series": "depth", "owner": "operator"}),
    (r"(?P<series>cpu user|cpu system) (?P<number>[0-9]{1,9})(?: .*)?", {"owner": "operator"}),
    (r"(?P<owner>process|data worker|child) (?P<number>[1-9][0-9]{0,17}) (?P<series>.+)", {}),
    (r"(?P<owner>process) (?P<series>cpu user|cpu system|memory|threads|(?:in)?voluntary switches)", {}),
)
_PARTS = pl.Struct({"series": pl.String, "owner": pl.String, "number": pl.Int64})
_GROUP = pl.col("label").cast(pl.String).str.extract(r"^Group (.*) (?:Communication|Plane [0-9]+)$")


def add_counter_columns(counters: pl.LazyFrame) -> pl.LazyFrame:
    """Counters with series, owner and number, from their names."""
    parts = pl.col("name").cast(pl.String).map_batches(_counter_parts, return_dtype=_PARTS, is_elementwise=True).struct
    return counters.with_columns(**{part: parts.field(part) for part in ("series", "owner", "number")})


def _counter_parts(names: pl.Series) -> pl.Series:
    distinct = names.unique().drop_nulls()
    parts = pl.DataFrame({"name": distinct, "parts": pl.Series([counter_parts(name) for name in distinct], dtype=_PARTS)})
    return pl.DataFrame({"name": names}).join(parts, on="name", how="left", maintain_order="left")["parts"]


@functools.lru_cache(4096)
def counter_parts(name: str) -> dict[str, str | int | None]:
    """`HBM 0 Read npu 1`: the series `HBM 0 Read` of the owner `npu` with the number 1. A counter of the machine has no owner."""
    for pattern, values in _COUNTERS:
        if match := re.fullmatch(pattern, name, re.DOTALL):
            parts = values | match.groupdict()
            number = parts.get("number")
            return {"series": parts["series"], "owner": parts["owner"], "number": None if number is None else int(number)}
    return {"series": name, "owner": None, "number": None}


def add_track_columns(tracks: pl.LazyFrame) -> pl.LazyFrame:
    """Tracks with stream, communication_group and plane, from their labels and thread ids."""
    label, tid = pl.col("label").cast(pl.String), pl.col("tid").cast(pl.String)
    is_stream = (pl.col("kind").cast(pl.String) == "stream") & pl.col("device").is_not_null() & _GROUP.is_null()
    is_stream &= ~label.str.starts_with("Reduce on stream").fill_null(False)
    return tracks.with_columns(
        stream=pl.when(is_stream).then(stream_number(tid)).cast(pl.Int64),
        communication_group=_GROUP,
        plane=label.str.extract(r"^(?:Group .* )?Plane ([0-9]{1,9})$").cast(pl.Int64, strict=False),
    )


def stream_number(tid: pl.Expr) -> pl.Expr:
    """The number of a stream at the end of its id in a file; null for an id without a number."""
    return tid.str.extract(r"([0-9]{1,9})\s*$").cast(pl.Int64)


def add_device_columns(allocations: pl.LazyFrame) -> pl.LazyFrame:
    """Allocations with owner and number, from the text of their device."""
    return allocations.with_columns(**device_parts(pl.col("device").cast(pl.String)))


def device_parts(device: pl.Expr) -> dict[str, pl.Expr]:
    """Owner and number of a device in text: `npu 0`, `cpu`."""
    parts = device.str.extract_groups(r"(?s)^(?<owner>.*?)(?: (?<number>0|[1-9][0-9]{0,17}))?$").struct
    return {"owner": parts.field("owner"), "number": parts.field("number").cast(pl.Int64)}


def with_group_suffixes(trace: Trace) -> Trace:
    """The trace with `group_suffix` of its collectives, from names such as `hcom_allReduce__868_0_1`."""
    calls = trace.spans.filter(pl.col("kind") == "communication")
    suffix = pl.col("name").cast(pl.String).str.extract(r"^hcom_\w+?__([0-9]+)_[0-9]+_[0-9]+$")
    names = calls.select(pl.col("name").unique()).select("name", group_suffix=suffix).drop_nulls().collect()
    if names.is_empty():
        return trace
    suffixes = calls.join(names.lazy(), on="name").select("rank", "span", "group_suffix")
    collectives = trace.table("collectives").drop("group_suffix").join(suffixes, on=["rank", "span"], how="full", coalesce=True)
    return trace.with_tables(collectives=collectives.sort("rank", "span"))


# Of each table: a column that earlier releases lack, the columns that its derivation needs, and the derivation.
_ADDED: dict[str, tuple[str, set[str], Callable[[pl.LazyFrame], pl.LazyFrame]]] = {
    "counters": ("series", {"name"}, add_counter_columns),
    "allocations": ("owner", {"device"}, add_device_columns),
    "tracks": ("stream", {"label", "tid", "kind", "device"}, add_track_columns),
}


def complete_table(frame: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """A table of an earlier release with the typed columns that it lacks."""
    if table not in _ADDED:
        return frame
    columns = set(frame.collect_schema())
    missing, needed, add_columns = _ADDED[table]
    return add_columns(frame) if missing not in columns and needed <= columns else frame
