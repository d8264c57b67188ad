"""The inventory of a trace: its time range, and the number of spans per kind and of samples per counter.

It takes a pass over every row, so the inventory of a large trace is cached.
"""

from pathlib import Path

import msgspec
import polars as pl

from stepscope.io import cache
from stepscope.model.trace import Trace

HEADER = "inventory.json"
CACHED_SPANS = 1 << 22  # with fewer spans, counting is faster than looking up a file


class Inventory(msgspec.Struct, frozen=True):
    source: str
    first_ns: int
    last_ns: int
    kinds: dict[str, int]
    counters: dict[str, int]


def inventory(trace: Trace, key: str | None = None) -> Inventory:
    """The inventory; with a key, that of a large trace comes from the cache."""
    if key is None or trace.spans.select(pl.len()).collect().item() < CACHED_SPANS:
        return _count(trace)

    def build(room: Path) -> Path:
        (room / "inventory").mkdir()
        (room / "inventory" / HEADER).write_bytes(msgspec.json.encode(_count(trace)))
        return room / "inventory"

    try:
        return cache.get_or_build(key, build, _load, on_built=lambda entry: None)
    except cache.UnusableError:
        return _count(trace)


def _load(entry: Path) -> Inventory:
    try:
        return msgspec.json.decode((entry / HEADER).read_bytes(), type=Inventory)
    except msgspec.MsgspecError as error:
        raise ValueError("damaged inventory") from error


def _count(trace: Trace) -> Inventory:
    first, last = trace.ends()
    kinds = _stored_kinds(trace) if trace.meta.summary else _counts(trace.spans, "kind")
    return Inventory(trace.meta.source, first, last, kinds, _counts(trace.counters, "name"))


def _stored_kinds(trace: Trace) -> dict[str, int]:
    """The kinds of spans in the recordings of a summary."""
    rows = trace.table("rank_kinds").group_by("kind").agg(pl.col("spans").sum()).sort("spans", "kind", descending=[True, False])
    return dict(rows.collect().iter_rows())


def _counts(frame: pl.LazyFrame, column: str) -> dict[str, int]:
    # Categories become text after grouping: once per category, not once per row.
    rows = frame.group_by(column).len().with_columns(pl.col(column).cast(pl.String)).sort("len", column, descending=[True, False])
    return {key: count for key, count in rows.collect(engine="streaming").iter_rows() if key is not None}
