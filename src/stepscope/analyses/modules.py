"""Which modules of the model take the time, on the host and on the devices?"""

import polars as pl

from stepscope.analyses._flop_counts import counted
from stepscope.analyses._operators import WORK, nearest, on_devices, rows_of
from stepscope.trace import Trace

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

# A backward operator: its flow comes from the forward one.
_UNDOES = (pl.col("kind") == "op") & pl.col("flow_in").is_not_null()


def modules(trace: Trace, *, depth: int | None = None) -> pl.DataFrame:
    """Per rank and module path, in the order of their names: its forward calls, and the time in it with all modules inside it.

    Forward time is that of the calls on the host, self time that without the modules inside it; both null where the source records no
    calls of modules. Backward time is that of the operators on the host which undo the module's. Device time is of the work launched
    by either; device self time is that of no module inside it; null on a rank without device work. `flops` are as the analysis `flops`
    counts them. `depth` is how many levels of modules to show; all of them where it is not given.
    """
    amounts = _amounts(trace)
    parts = [(scope, scope.split("/")) for scope in amounts["scope"].unique().drop_nulls()]
    around = [("/".join(names[:level]), level, inner, len(names)) for inner, names in parts for level in range(1, len(names) + 1)]
    nested = pl.DataFrame(around, {"scope": pl.String, "depth": pl.Int32, "inner": pl.String, "inner_depth": pl.Int32}, orient="row")
    own = pl.col("inner_depth") == pl.col("depth")
    forward, on_device = _sum(own, "forward"), ("device forward", "device backward")
    rows = (
        amounts.rename({"scope": "inner"})
        .join(nested if depth is None else nested.filter(pl.col("depth") <= depth), on="inner")
        .group_by("rank", "scope", "depth")
        .agg(
            calls=_sum(own, "calls"),
            forward_ns=forward,
            self_ns=forward - _sum(own, "inside").fill_null(0),
            backward_ns=_sum(True, "backward"),
            device_ns=_sum(True, *on_device),
            device_self_ns=_sum(own, *on_device),
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


def _sum(which: pl.Expr | bool, *what: str) -> pl.Expr:
    """The sum of such amounts, null where there is none."""
    some = pl.col("what").is_in(what) & which
    return pl.when(some.any()).then(pl.col("amount").filter(some).sum())


def _amounts(trace: Trace) -> pl.DataFrame:
    """What is known of each scope itself: rank, scope, what, amount."""
    key = ["rank", "scope", "what"]
    scoped = pl.col("scope").is_not_null()
    host = (
        trace.table("spans")
        .filter(~pl.col("kind").is_in([*WORK, "instant"]))
        .select("rank", "span", "parent", "scope", "dur_ns", is_module=pl.col("kind") == "scope", undoes=_UNDOES)
        .collect()
    )
    undoes = host["undoes"].to_numpy()
    parent = rows_of(host, host["rank"], host["parent"])
    inside = nearest(parent, undoes) >= 0
    # A module may call those of another that is never called itself, such as a list of modules.
    caller = nearest(parent, host["is_module"].to_numpy())
    called = host["is_module"].to_numpy() & (caller >= 0)
    work = on_devices(trace).filter(scoped).select("rank", "scope", "op", "dur_ns").collect()
    launcher = rows_of(host, work["rank"], work["op"])
    backward = (
        pl.Series((launcher >= 0) & (undoes | inside)[launcher]) if host.height else pl.Series([False]).new_from_index(0, work.height)
    )
    module, undoing = host.filter(scoped & pl.col("is_module")), host.filter(scoped & pl.Series(undoes & ~inside))
    flops = counted(trace).filter(scoped & pl.col("flops").is_not_null())
    found = [
        module.select("rank", "scope", what=pl.lit("calls"), amount=pl.lit(1, pl.Int64)),
        module.select("rank", "scope", what=pl.lit("forward"), amount="dur_ns"),
        host[caller[called]].select("rank", "scope", what=pl.lit("inside"), amount=host["dur_ns"].filter(pl.Series(called))),
        undoing.select("rank", "scope", what=pl.lit("backward"), amount="dur_ns"),
        work.select(
            "rank", "scope", what=pl.when(backward).then(pl.lit("device backward")).otherwise(pl.lit("device forward")), amount="dur_ns"
        ),
        flops.select("rank", "scope", what=pl.lit("flops"), amount="flops"),
    ]
    return pl.concat(frame.cast({"scope": pl.String, "amount": pl.Int64}) for frame in found).group_by(key).agg(pl.col("amount").sum())
