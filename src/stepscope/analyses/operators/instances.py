"""When did each call of an operator or kernel run, and how long did it take?"""

import polars as pl

from stepscope.analyses.shared.operator_calls import host_operators, in_recorded_steps, launcher, on_devices, with_shapes
from stepscope.model.parameters import check_word
from stepscope.model.schema import DEVICES
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "number": pl.Int32,  # of the device; null on the host
    "track": pl.Int32,
    "step": pl.Int32,
    "span": pl.Int64,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "self_ns": pl.Int64,
    "name": pl.String,
    "type": pl.String,
    "scope": pl.String,
    "kernel": pl.String,  # the name of the device work itself; null on the host
    "kind": pl.String,
    "op": pl.Int64,  # the span of the operator on the host
    "call": pl.Int64,  # the same if `operators` counts this work as part of one call of it; null if it is a call by itself
    "delay_ns": pl.Int64,  # from the start of the launch call to the start of the work
    "shapes": pl.String,
    "dtypes": pl.String,
    "bytes": pl.Int64,
}


def instances(
    trace: Trace, *, device: str | None = None, operator: str | None = None, type: str | None = None, kernel: str | None = None
) -> pl.DataFrame:
    """Per rank, by start: every call of an operator on the host, and every span of device work, as in `kernels`.

    Device work of one call has the same `call`. As in `operators`, incompletely recorded steps are left out if the rank has complete steps.
    `device`, `operator` (its name) and `type` select calls by columns of `operators`, `kernel` by the name in `kernels`.
    """
    if device is not None:
        check_word("device", device, DEVICES)
    parts = [] if device == "cpu" else [_on_devices(trace)]
    if device in (None, "cpu") and kernel is None:
        parts.append(_on_host(trace))
    rows = pl.concat(parts) if parts else pl.LazyFrame(schema=COLUMNS)
    wanted = {"device": device, "name": operator, "type": type, "kernel": kernel}
    selected = rows.filter(*(pl.col(column) == value for column, value in wanted.items() if value is not None))
    result: pl.DataFrame = (
        selected.select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items()).sort("rank", "start_ns", "span").collect()
    )
    return result


def _on_host(trace: Trace) -> pl.LazyFrame:
    ops = host_operators(trace, "track", "step", "name", "op_type", "scope", "shapes", "dtypes", "bytes").lazy()
    return _rows(ops, device=pl.lit("cpu"), name="name", kernel=None, kind=pl.lit("op"), number=None, op="span", call="span", delay_ns=None)


def _on_devices(trace: Trace) -> pl.LazyFrame:
    calls = trace.spans.filter(pl.col("kind").is_in(["api", "sync", "op"])).select("rank", flow_in="span", launch_ns="start_ns")
    work = (
        with_shapes(trace, in_recorded_steps(trace, on_devices(trace)))
        .join(calls, on=["rank", "flow_in"], how="left")
        .with_columns(delay_ns=pl.col("start_ns") - pl.col("launch_ns"))
    )
    return _rows(work, device="device", name=launcher(), kernel="name", kind="kind", number="number", op="op", delay_ns="delay_ns")


def _rows(frame: pl.LazyFrame, **columns: pl.Expr | str | None) -> pl.LazyFrame:
    """The columns of the result, texts as String, so that host and device rows can be concatenated."""
    named = {"type": pl.coalesce("op_type", "name"), **columns}
    sources = {column: named.get(column, column) for column in COLUMNS}
    return frame.select(
        (pl.lit(None) if source is None else pl.col(source) if isinstance(source, str) else source).cast(COLUMNS[column]).alias(column)
        for column, source in sources.items()
    )
