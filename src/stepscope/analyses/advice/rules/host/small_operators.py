"""The program calls many small operators one by one, in a loop of Python.

Fires for at least 32 calls per step of the same short operator outside other operators, in the same module (a loop over rows, samples or
tensors, not over layers), for steps of JAX that call many compiled functions one by one, and for steps of MindSpore in PyNative mode whose
operators take less time than their calls. The fix computes all iterations with one call
(a batched operator, a `_foreach_` operator, `jax.jit` of the step): the loop then takes the time of two iterations, so the gain is an upper
bound.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.calls import BACKWARD
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run
from stepscope.model import intervals

NEEDS = ("steps", "loops")
APPLIES = ()
HOST_BOUND = True
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.vmap.html"
FIX = {
    "pytorch": "torch.vmap(f)(batch)  # or one operator for the whole batch; for lists of tensors: torch._foreach_mul_(tensors, 0.9)",
    "jax": "step = jax.jit(train_step)  # one call per step; jax.vmap(f)(batch) for a loop over samples",
    "mindspore": "@mindspore.jit  # compile the step; mindspore.vmap(f)(batch) for a loop over samples",
    "tensorflow": "@tf.function  # compile the step; tf.vectorized_map(f, batch) for a loop over samples",
}
_LEAST, _SHORT_NS, _PAUSE_NS = 32, 200_000, 2_000_000  # calls per step; median call; between two calls of a loop
_AS_USUAL = 4  # a pause of up to as many usual ones belongs to the loop
_PART = 4  # calls of a part of a loop
_SMALL = 0.5  # of the time of a loop at most in long operators
_LEAST_FUNCTIONS = 16  # of JAX, per step
_KEPT = 2  # iterations
_FUNCTION = "PjitFunction("


def small_operators(run: Run) -> Iterator[Finding]:
    if run.framework == "jax":
        yield from _functions(run)
        return
    if run.framework == "mindspore" and run.trace.meta.extra.get("mode") == "pynative":
        yield from _eager(run)
    chains = _chains(run)
    if chains.is_empty():
        return
    bounds = intervals.merge(chains["first_ns"].to_numpy(), chains["last_ns"].to_numpy())
    loop = intervals.enclosing(bounds.starts, bounds.ends, chains["first_ns"].to_numpy())
    # A loop is named after the operator in it that takes the most time in the whole run: so it has one name in all steps.
    ranked = chains.with_columns(pl.Series("loop", loop), whole=pl.col("total_ns").sum().over("name"))
    ranked = ranked.sort("whole", "name", descending=[True, False])
    named = ranked.group_by("loop", maintain_order=True).agg(
        pl.col("name").first(), own=pl.col("calls").first(), iterations=pl.col("iterations").max()
    )
    for (name,), part in named.group_by("name", maintain_order=True):
        rows = part["loop"].to_numpy()
        factor = np.minimum(_KEPT / part["iterations"].to_numpy(), 1)
        ranges = pl.DataFrame({"start_ns": bounds.starts[rows], "end_ns": bounds.ends[rows], "factor": factor})
        yield _finding(run, str(name), int(part["own"].sum()), pl.concat([ranges, _backward(run, ranges)]))


def _backward(run: Run, loops: pl.DataFrame) -> pl.DataFrame:
    """Calls of the backward pass that belong to operators in loops, with the factor of their loop."""
    forward = loops.sort("start_ns")
    ops = run.operators.filter(~pl.col("name").str.contains(BACKWARD)).select("rank", "start_ns", flow_in="span").sort("start_ns")
    inside = ops.join_asof(forward, on="start_ns", check_sortedness=False, coalesce=False, suffix="_loop")
    inside = inside.filter(pl.col("start_ns") < pl.col("end_ns")).select("rank", "flow_in", "factor")
    spans = run.trace.spans.filter((pl.col("kind") == "op") & pl.col("flow_in").is_not_null())
    calls = spans.select("rank", "flow_in", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    return calls.join(inside, on=["rank", "flow_in"]).select(forward.columns)


def _finding(run: Run, name: str, calls: int, ranges: pl.DataFrame, kind: str = "") -> Finding:
    ranges = ranges.with_columns(rank=pl.lit(run.rank, pl.Int32), dur=pl.col("end_ns") - pl.col("start_ns"))
    loops = run.in_steps(ranges, "start_ns").sort("dur", descending=True)
    total, count = run.per_step(loops["dur"]), round(calls / max(run.steps.height, 1))
    spans = run.host.filter(pl.col("name").is_in([name, f"PjitFunction({name})"])).select("rank", "span").head(1_000)
    return Finding(
        parameters={"operator": name, "count": count, "time": total},
        evidence=Evidence("operators", {}, {"name": name}, {"loop_ns": total, "calls": count}),
        changes=(scale_host(loops, pl.col("factor")),),
        culprit=name,
        source=run.source_of(spans),
        spans=loops.select("rank", "step", "start_ns", "end_ns"),
        confidence="medium",
        code=f"advice-small_operators-{kind}" if kind else None,
    )


def _chains(run: Run) -> pl.DataFrame:
    """Chains of calls, the parts of a loop that long pauses interrupt: name, first_ns, last_ns, calls, total_ns, iterations of the loop."""
    main = run.host.filter("main").select("rank", "thread").unique()
    ops = run.operators.filter("outermost").join(main, on=["rank", "thread"], how="semi", maintain_order="left")
    ops = run.outside_input(ops).filter(~pl.col("name").str.contains(BACKWARD)).sort("start_ns")
    optimizer = run.host.filter((pl.col("kind") == "annotation") & pl.col("name").str.starts_with("Optimizer."))
    ranges = intervals.merge(optimizer["start_ns"].to_numpy(), optimizer["end_ns"].to_numpy())
    ops = ops.filter(pl.Series(intervals.enclosing(ranges.starts, ranges.ends, ops["start_ns"].to_numpy()) < 0))
    key = ["rank", "step", "name", "scope"]
    ops = ops.with_columns(pause=(pl.col("start_ns") - pl.col("end_ns").shift(1)).over(key))
    new = pl.col("pause") > pl.max_horizontal(pl.lit(_PAUSE_NS), _AS_USUAL * pl.col("pause").median().over(key))
    chains = ops.with_columns(chain=new.fill_null(False).cum_sum().over(key)).group_by(*key, "chain", maintain_order=True)
    rows = chains.agg(
        first_ns=pl.col("start_ns").min(),
        last_ns=pl.col("end_ns").max(),
        calls=pl.len(),
        total_ns=pl.col("dur_ns").sum(),
        middle=pl.col("dur_ns").median(),
    )
    rows = rows.with_columns(iterations=pl.col("calls").sum().over(key)).filter(
        pl.col("iterations") >= _LEAST, pl.col("calls") >= _PART, pl.col("middle") <= _SHORT_NS
    )
    every = run.operators.filter("outermost").join(main, on=["rank", "thread"], how="semi")
    # Names, not single calls: another program may interrupt a short one.
    long = every.filter(pl.col("dur_ns").median().over("name", "scope") > _SHORT_NS)
    taken = intervals.covered(
        intervals.merge(long["start_ns"].to_numpy(), long["end_ns"].to_numpy()), rows["first_ns"].to_numpy(), rows["last_ns"].to_numpy()
    )
    return rows.filter(pl.Series(taken) <= _SMALL * (pl.col("last_ns") - pl.col("first_ns")))


def _functions(run: Run) -> Iterator[Finding]:
    """Steps that call many functions of JAX: all their time in which no operator runs."""
    calls = run.host.filter("main", pl.col("name").str.starts_with(_FUNCTION)).sort("start_ns", "end_ns", descending=[False, True])
    reach = pl.col("end_ns").cum_max().shift(1).over("rank", "track")
    outer = calls.filter(reach.is_null() | (pl.col("start_ns") >= reach))
    many = outer.filter(pl.len().over("rank", "step") >= _LEAST_FUNCTIONS)
    if many.is_empty():
        return
    totals = many.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    name = totals["name"][0].removeprefix(_FUNCTION).removesuffix(")")
    yield _finding(run, name, many.height, _without_operators(run, many), "functions")


def _eager(run: Run) -> Iterator[Finding]:
    """Steps in PyNative mode whose operators take less time than Python takes to call them: all their time in which no operator runs."""
    ops = run.operators.filter("outermost")
    if ops.height < _LEAST_FUNCTIONS * run.steps.height:
        return
    ranges = _without_operators(run, ops)
    usual = ops.select(pl.col("dur_ns").median().over("name").sum()).item()  # another program may interrupt single operators
    if int((ranges["end_ns"] - ranges["start_ns"]).sum()) < usual:
        return
    totals = ops.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    yield _finding(run, str(totals["name"][0]), ops.height, ranges, "eager")


def _without_operators(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """Time from the first to the last of these calls of a step in which no operator runs: start_ns, end_ns, factor."""
    whole = calls.group_by("rank", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    ops = run.host.filter(pl.col("kind") == "op")
    busy = intervals.merge(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    free = intervals.subtract(intervals.merge(whole["start_ns"].to_numpy(), whole["end_ns"].to_numpy()), busy)
    return pl.DataFrame({"start_ns": free.starts, "end_ns": free.ends, "factor": np.zeros(len(free.starts))})
