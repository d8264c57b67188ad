"""Which modules of the model take the time, on the host and on the devices?"""

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls
from stepscope.analyses.shared.operator_calls import enclosing_rows, nearest, on_devices, rows_of
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "scope": pl.String,
    "depth": pl.Int32,
    "calls": pl.Int64,
    "forward_ns": pl.Int64,
    "self_ns": pl.Int64,
    "backward_ns": pl.Int64,
    "device_ns": pl.Int64,
    "device_self_ns": pl.Int64,
    "device_forward_ns": pl.Int64,
    "device_backward_ns": pl.Int64,
    "flops": pl.Int64,
}

# A backward operator: its flow comes from the forward operator.
_IS_BACKWARD = (pl.col("kind") == "op") & pl.col("flow_in").is_not_null()


def modules(trace: Trace, *, depth: int | None = None) -> pl.DataFrame:
    """Per rank and module path, sorted by name: its forward calls, and its time, with all modules inside it.

    Forward time is the time of the calls on the host, self time excludes the modules inside it; both are null if the source has no calls of
    modules. Backward time is the time of its backward operators on the host. Device time is the time of the work launched by both; device
    self time excludes the modules inside it; null on a rank without device work. `flops` are those of `flops`. `depth` is the number of
    levels; all by default.
    """
    amounts = _amounts(trace)
    parts = [(scope, scope.split("/")) for scope in amounts["scope"].unique().drop_nulls()]
    around = [("/".join(names[:level]), level, inner, len(names)) for inner, names in parts for level in range(1, len(names) + 1)]
    nested = pl.DataFrame(around, {"scope": pl.String, "depth": pl.Int32, "inner": pl.String, "inner_depth": pl.Int32}, orient="row")
    itself = pl.col("inner_depth") == pl.col("depth")
    forward, on_device = _sum(itself, "forward"), ("device forward", "device backward")
    rows = (
        amounts.rename({"scope": "inner"})
        .join(nested if depth is None else nested.filter(pl.col("depth") <= depth), on="inner")
        .group_by("rank", "scope", "depth")
        .agg(
            calls=_sum(itself, "calls"),
            forward_ns=forward,
            self_ns=forward - _sum(itself, "inside").fill_null(0),
            backward_ns=_sum(True, "backward"),
            device_ns=_sum(True, *on_device),
            device_self_ns=_sum(itself, *on_device),
            device_forward_ns=_sum(True, "device forward"),
            device_backward_ns=_sum(True, "device backward"),
            flops=_sum(True, "flops"),
        )
    )
    with_device = on_devices(trace).select(pl.col("rank").unique(), with_device=True).collect()
    device = pl.col("device_ns", "device_self_ns", "device_forward_ns", "device_backward_ns")
    return (
        rows.join(with_device, on="rank", how="left")
        .with_columns(pl.when("with_device").then(device.fill_null(0)))
        .sort("rank", "scope")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _sum(selected: pl.Expr | bool, *figures: str) -> pl.Expr:
    """The sum of these figures; null if there is none."""
    rows = pl.col("figure").is_in(figures) & selected
    return pl.when(rows.any()).then(pl.col("amount").filter(rows).sum())


def _amounts(trace: Trace) -> pl.DataFrame:
    """The figures of each scope itself: rank, scope, figure, amount."""
    key = ["rank", "scope", "figure"]
    scoped = pl.col("scope").is_not_null()
    host = (
        trace.table("spans")
        .filter(~pl.col("kind").is_in([*DEVICE_WORK, "instant"]))
        .select("rank", "span", "parent", "depth", "scope", "dur_ns", is_module=pl.col("kind") == "scope", is_backward=_IS_BACKWARD)
        .collect()
    )
    is_backward = host["is_backward"].to_numpy()
    parent = enclosing_rows(host)
    inside = nearest(parent, is_backward) >= 0
    # A module may call modules of a container that is never called itself, such as a list of modules.
    caller = nearest(parent, host["is_module"].to_numpy())
    called = host["is_module"].to_numpy() & (caller >= 0)
    work = on_devices(trace).filter(scoped).select("rank", "scope", "op", "dur_ns").collect()
    launcher = rows_of(host, work["rank"], work["op"])
    backward = (
        pl.Series((launcher >= 0) & (is_backward | inside)[launcher]) if host.height else pl.Series([False]).new_from_index(0, work.height)
    )
    module, outermost = host.filter(scoped & pl.col("is_module")), host.filter(scoped & pl.Series(is_backward & ~inside))
    flops = flop_calls(trace).filter(scoped & pl.col("flops").is_not_null())
    figures = [
        module.select("rank", "scope", figure=pl.lit("calls"), amount=pl.lit(1, pl.Int64)),
        module.select("rank", "scope", figure=pl.lit("forward"), amount="dur_ns"),
        host[caller[called]].select("rank", "scope", figure=pl.lit("inside"), amount=host["dur_ns"].filter(pl.Series(called))),
        outermost.select("rank", "scope", figure=pl.lit("backward"), amount="dur_ns"),
        work.select(
            "rank", "scope", figure=pl.when(backward).then(pl.lit("device backward")).otherwise(pl.lit("device forward")), amount="dur_ns"
        ),
        flops.select("rank", "scope", figure=pl.lit("flops"), amount="flops"),
    ]
    return pl.concat(frame.cast({"scope": pl.String, "amount": pl.Int64}) for frame in figures).group_by(key).agg(pl.col("amount").sum())
