"""Which operators take the time, on the host and on the devices?"""

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls, has_flops
from stepscope.analyses.shared.operator_calls import (
    calls_of_work,
    host_operators,
    in_recorded_steps,
    launcher,
    on_devices,
    with_device_steps,
    with_shapes,
)
from stepscope.model.memo import memoized
from stepscope.model.parameters import check_word
from stepscope.model.schema import DEVICES, Text
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "name": pl.String,
    "type": pl.String,
    "scope": pl.String,
    "calls": pl.Int64,
    "calls_of": pl.String,  # operator, or kernel if the work is not named after the operator that launched it
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
    "share": pl.Float64,
    "device_ns": pl.Int64,
    "flops": pl.Int64,
    "shapes": pl.String,
    "dtypes": pl.String,
    "shape_count": pl.Int64,
    "device_steps": pl.Int64,  # steps that rows of a device cover: their device work is completely recorded
}
_KEYS = ["rank", "device", "name", "type", "scope", "calls_of"]


@memoized
def operators(trace: Trace, *, by_shape: bool = False, device: str | None = None) -> pl.DataFrame:
    """Per rank and device: operators by name, type and scope, the longest self time first, devices before the host.

    `cpu` rows are host operators: total time is the sum of their durations, self time excludes the operators inside them, device_ns is the
    duration of the device work launched under them. Rows of a device are its work (kernels, copies, fills, communication) by the operator
    that launched it, or by its own name if the operator is unknown. A call is a call of the operator, with all work that it launched on the
    device; if the work has another name than the operator, each span is a call, and `calls_of` is kernel. Average, minimum and maximum are
    per call. `share` is of the self time of the device and adds up to 1. `shapes` and `dtypes` are the most frequent of `shape_count`; with
    `by_shape` each has a row. `device` selects one device. `flops` are those of `flops`. Incompletely recorded steps are left out if the
    rank has complete steps; if it has none, `share` is null.
    """
    if device is not None:
        check_word("device", device, DEVICES)
    rows = pl.concat([_host(trace), _device(trace)]).group_by(*_KEYS, "shapes", "dtypes").agg(
        calls=pl.len(),
        total_ns=pl.col("dur_ns").sum(),
        self_ns=pl.col("self_ns").sum(),
        min_ns=pl.col("dur_ns").min(),
        max_ns=pl.col("dur_ns").max(),
        device_ns=_sum("device_ns"),
        flops=_sum("flops"),
    ).with_columns(pl.col(_TEXTS).cast(pl.String))  # fmt: skip
    known = pl.col("shapes").is_not_null()
    if by_shape:
        rows = rows.with_columns(shape_count=known.cast(pl.Int64))
    else:
        rows = rows.sort("calls", "shapes", "dtypes", descending=[True, False, False]).group_by(*_KEYS, maintain_order=True).agg(
            pl.col("calls", "total_ns", "self_ns").sum(),
            pl.col("min_ns").min(),
            pl.col("max_ns").max(),
            _sum("device_ns"),
            _sum("flops"),
            pl.col("shapes", "dtypes").filter(known).first(),
            shape_count=known.sum(),
        )  # fmt: skip
    rows = rows.with_columns(
        avg_ns=pl.col("total_ns") / pl.col("calls"),
        share=(pl.col("self_ns") / pl.col("self_ns").sum().over("rank", "device")).fill_nan(0.0),
    )
    if device is not None:
        rows = rows.filter(pl.col("device") == device)
    order = [pl.col("rank"), pl.col("device") == "cpu", pl.col("device"), -pl.col("self_ns"), pl.col("name", "scope", "shapes", "dtypes")]
    result = with_device_steps(trace, rows.sort(order).collect(), pl.col("device") != "cpu", "share")
    return result.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _host(trace: Trace) -> pl.LazyFrame:
    ops = host_operators(trace, "name", "op_type", "scope", "shapes", "dtypes")
    if has_flops(trace):
        flops = flop_calls(trace).filter(pl.col("flops").is_not_null()).select("rank", "flops", span="operator")
        ops = ops.join(flops, on=["rank", "span"], how="left")
    else:
        ops = ops.with_columns(flops=pl.lit(None, pl.Int64))
    texts = _texts(device=pl.lit("cpu"), name="name")
    return ops.lazy().select("rank", *texts, "dur_ns", "self_ns", "device_ns", "flops", calls_of=pl.lit("operator"))


def _device(trace: Trace) -> pl.LazyFrame:
    """Device work, one row for each call of an operator."""
    work = with_shapes(trace, in_recorded_steps(trace, on_devices(trace))).select(
        "rank", *_texts(device="device", name=launcher()), "dur_ns", "self_ns", "flops", pl.lit(None, pl.Int64).alias("device_ns"), "call"
    )
    calls = calls_of_work(work, pl.col("dur_ns", "self_ns").sum(), _sum("flops"), pl.col("device_ns").first())
    kind = pl.when(pl.col("call").is_not_null()).then(pl.lit("operator")).otherwise(pl.lit("kernel"))
    return calls.select("rank", *_TEXTS, "dur_ns", "self_ns", "device_ns", "flops", calls_of=kind)


_TEXTS = ["device", "name", "type", "scope", "shapes", "dtypes"]


def _texts(**sources: pl.Expr | str) -> list[pl.Expr]:
    # Categories become text after grouping: once per category, not once per span.
    columns: dict[str, pl.Expr | str] = {"type": pl.coalesce("op_type", "name"), **sources}
    selected = {key: columns.get(key, key) for key in _TEXTS}
    return [(pl.col(column) if isinstance(column, str) else column).cast(Text).alias(key) for key, column in selected.items()]


def _sum(column: str) -> pl.Expr:
    """The sum of the known values; null if there is none."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column)
