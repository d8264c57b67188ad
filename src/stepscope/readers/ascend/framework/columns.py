"""Columns of the framework's records, and the steps that the readers of torch_npu's and MindSpore's files share."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model.intervals import Bools, Ints
from stepscope.readers.ascend.prof.files import Clock
from stepscope.readers.common.problems import Problem

SPANS: dict[str, Any] = {
    "kind": pl.String,
    "category": pl.String,
    "name": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "pid": pl.Int64,
    "thread": pl.Int64,
    "op_type": pl.String,
    "shapes": pl.String,
    "dtypes": pl.String,
    "flops": pl.Int64,
    "module": pl.String,
    "args": pl.String,
    "forward": pl.Int64,  # row of the forward operator, or of the call that handed this one over
}
MEMORY: dict[str, Any] = {
    "component": pl.String,
    "at_ns": pl.Int64,
    "event": pl.Int64,  # 0 allocated, 1 freed, 2 no longer in use by the device
    "address": pl.UInt64,
    "bytes": pl.Int64,
    "allocated": pl.Float64,
    "reserved": pl.Float64,
    "active": pl.Float64,
    "npu": pl.Int64,  # null: memory of the host
    "pid": pl.Int64,
    "thread": pl.Int64,
    "op": pl.String,
    "is_block": pl.Boolean,  # a block of an operator; other records are of memory that other libraries request
}


def find_file(folder: Path, name: str) -> Path | None:
    """The file of this name, or of this name with a suffix."""
    return next((path for path in sorted(folder.glob(f"{name}*")) if path.is_file()), None)


def conform(rows: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    return rows.select(
        (pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name)) for name, dtype in columns.items()
    )


def int64(heads: NDArray[Any], *names: str) -> dict[str, Ints]:
    """Fields of the records as columns of 64-bit integers."""
    return {name: heads[name].astype(np.int64) for name in names}


def float64(heads: NDArray[Any], *names: str) -> dict[str, NDArray[np.float64]]:
    return {name: heads[name].astype(np.float64) for name in names}


def convert_times(file: Path, clock: Clock, start: NDArray[Any], end: NDArray[Any], problems: list[Problem]) -> tuple[Ints, Ints, Bools]:
    """Starts and ends in nanoseconds of the time of day; and which of them are valid."""
    starts, ends = clock.ns(start.astype(np.uint64)), clock.ns(end.astype(np.uint64))
    valid: Bools = clock.plausible(starts, ends) & (ends >= starts) & (start > 0)
    if not valid.all():
        problems.append(Problem(file.name, "records with invalid timestamps", int((~valid).sum())))
    return starts, ends, valid


def scatter(height: int, rows: pl.Series, values: pl.Series) -> pl.Series:
    """A column of integers with values in some rows, null in the others."""
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, height).scatter(rows, values)


def sort_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls in the order that `Around` expects."""
    return calls.sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
