"""Allocations of operators, as the graph engine (GE) records them on the host."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model.columns.counters import device_columns
from stepscope.readers.ascend.common.memory_tables import record_counters
from stepscope.readers.ascend.prof.files import HOST_MAGIC, Notes, Side, records
from stepscope.readers.ascend.prof.host.records import Host, record

_LAYOUT = record(
    256,
    *[("address", "<u8"), ("bytes", "<i8"), ("op", "<u8"), ("allocated", "<u8"), ("reserved", "<u8"), ("device", "<u4"), ("kind", "<u4")],
)


class Memory(NamedTuple):
    blocks: pl.DataFrame  # the columns of `allocations`
    counters: pl.DataFrame


NONE = Memory(pl.DataFrame(), pl.DataFrame())


def read(side: Side, host: Host, notes: Notes) -> Memory:
    raw = np.concatenate(
        [records(side.slices(rf"{age}\.additional\.task_memory_info"), _LAYOUT, notes, HOST_MAGIC) for age in ("aging", "unaging")]
    )
    if not len(raw):
        return NONE
    rows = pl.DataFrame(
        {
            "at_ns": host.clock.ns(raw["at"]),
            "npu": raw["device"].astype(np.int64),
            "op": host.words.names_of(raw["op"]).cast(pl.String),
            "address": raw["address"],
            "bytes": raw["bytes"],
            "allocated": raw["allocated"].astype(np.float64),
            "reserved": raw["reserved"].astype(np.float64),
        }
    )
    rows = host.clock.drop_implausible(rows, side, notes, "blocks of memory", "task_memory_info").sort("at_ns", maintain_order=True)
    samples = rows.select("at_ns", "npu", "allocated", "reserved", component=pl.lit("GE"), active=pl.lit(None, pl.Float64))
    return Memory(_blocks(rows, side, notes), record_counters(samples))


def _blocks(rows: pl.DataFrame, side: Side, notes: Notes) -> pl.DataFrame:
    """Allocations with their release: the next record of the address, which has a negative size."""
    block = ("npu", "address")
    taken = pl.col("bytes") > 0
    rows = rows.with_columns(
        free_ns=pl.when(pl.col("bytes").shift(-1).over(block) < 0).then(pl.col("at_ns").shift(-1).over(block)),
        before=taken.shift(1).over(block),
    )
    strays = rows.filter(~taken & ~pl.col("before").fill_null(False)).height
    if strays:
        notes.add(side.path / "data", "released blocks of memory without an allocation", strays, "task_memory_info")
    return rows.filter(taken).select("address", "bytes", "free_ns", "op", alloc_ns="at_ns", **device_columns("npu", pl.col("npu")))
