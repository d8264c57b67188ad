"""Allocations and memory counters of Kineto's `[memory]` events."""

import numpy as np
import polars as pl

from stepscope.model.columns.counters import OWNER
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import nearest_around
from stepscope.readers.common.allocations import memory_samples, pair_releases
from stepscope.readers.common.name_parts import device_parts

# Every operator that makes a tensor calls one of these: the operator that needs the memory is further out.
ALLOCATORS = r"^aten::((new_)?empty(_strided|_like|_permuted|_quantized|_affine_quantized)?|_?resize(_as)?_|set_)$"

_DEVICE_NAMES = {0: "cpu", 1: "gpu", 6: "gpu", 12: "xpu", 13: "mps", 19: "mtia", 20: "npu"}


def memory_counters(memory: pl.DataFrame) -> pl.DataFrame:
    """The allocator's totals on each device."""
    rows = _with_device(memory)
    return pl.concat(memory_samples(rows, total) for total in ("allocated", "reserved"))


def allocation_table(memory: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Each allocation with its operator, its scope and its release."""
    op, scope = _operators_and_scopes(memory, spans)
    rows = _with_device(memory).with_columns(op, scope, freed=pl.col("bytes") < 0)
    blocks = pair_releases(rows.sort("device", "address", "at_ns", maintain_order=True), ["device", "address"])
    allocated = pl.col("alloc_ns").is_not_null()
    return blocks.select(
        *("device", "owner", "number"),
        "address",
        pl.col("bytes").abs(),
        "alloc_ns",
        "free_ns",
        op=pl.when(allocated).then("op"),
        scope=pl.when(allocated).then("scope"),
    )


def _operators_and_scopes(memory: pl.DataFrame, spans: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The operator that each memory event belongs to, by name, and its scope."""
    if not (memory.height and spans.height):
        return pl.Series("op", [None] * memory.height, pl.Categorical), pl.Series("scope", [None] * memory.height, pl.Categorical)
    names = spans["name"].unique().drop_nulls()
    allocators = names.filter(names.cast(pl.String).str.contains(ALLOCATORS)).to_physical()
    is_op, parent = (spans["kind"] == "op").to_numpy(), spans["parent"].fill_null(-1).to_numpy()
    is_allocator = np.isin(spans["name"].to_physical().fill_null(2**32 - 1).to_numpy(), allocators.to_numpy())
    inner = memory["parent"].fill_null(-1).to_numpy()
    op = nearest_around(is_op & ~is_allocator, parent, inner)
    op = np.where(op >= 0, op, nearest_around(is_op, parent, inner))
    return _values_at(spans["name"], op).alias("op"), _values_at(spans["scope"], np.where(op >= 0, op, inner))


def _values_at(column: pl.Series, rows: Ints) -> pl.Series:
    """The column's values at these rows, null for -1."""
    return column.gather(np.maximum(rows, 0)).set(pl.Series(rows < 0), None)


def _with_device(memory: pl.DataFrame) -> pl.DataFrame:
    """Memory events with the device, as text and as owner and number. Files of stepscope's exporter have the text: `npu 0`, `cpu`."""
    kind = pl.col("device_type").replace_strict(_DEVICE_NAMES, default="device", return_dtype=pl.String)
    exported = device_parts(pl.col("device"))
    number = pl.when((pl.col("device_id") >= 0) & (kind != "cpu")).then("device_id").cast(pl.Int64)
    is_exported = pl.col("device").is_not_null()
    rows = memory.with_columns(
        owner=pl.when(is_exported).then(exported["owner"]).otherwise(kind),
        number=pl.when(is_exported).then(exported["number"]).otherwise(number),
    )
    return rows.with_columns(device=OWNER)
