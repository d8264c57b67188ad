"""Matrix products with their dimensions and the share of the peak that they reach."""

import msgspec
import polars as pl

from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.flop_counts import flop_calls

_FIRST = {"aten::mm": 0, "aten::bmm": 0, "aten::matmul": 0, "aten::linear": 0, "aten::addmm": 1, "aten::baddbmm": 1}


def flop_work(run: Run) -> pl.DataFrame:
    """The calls of `steps` with FLOPs on a device with a known peak, as `flop_calls` has them, and their `span`."""
    calls = flop_calls(run.trace).filter(pl.col("operator").is_not_null(), pl.col("flops") > 0, pl.col("time_ns") > 0, pl.col("peak") > 0)
    calls = calls.with_columns(span="operator").drop("step")
    return calls.join(run.operators.select("rank", "span", "step"), on=["rank", "span"], maintain_order="left")


def products(run: Run) -> pl.DataFrame:
    """The calls of `flop_work` for matrix products, with `dims`, the dimensions m, k and n."""
    calls = flop_work(run).filter(pl.col("name").is_in(list(_FIRST)))
    distinct = calls.select("name", "shapes").unique()
    dims = [_dims(name, shapes) for name, shapes in distinct.iter_rows()]
    distinct = distinct.with_columns(pl.Series("dims", dims, dtype=pl.List(pl.Int64)))
    return calls.join(distinct, on=["name", "shapes"], how="left", maintain_order="left").filter(pl.col("dims").is_not_null())


def _dims(name: str, shapes: str | None) -> list[int] | None:
    try:
        first, second = msgspec.json.decode(shapes or "")[_FIRST[name] : _FIRST[name] + 2]
        return [int(first[-2]), int(first[-1]), int(second[-1])]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return None
