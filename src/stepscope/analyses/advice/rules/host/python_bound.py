"""The program runs Python code, not operators, and nothing else works at that time.

Fires for stretches of at least 0.5 ms (shorter ones are the cost of launching: `launch_bound`) inside idle gaps of the device (without one:
of the operators) in which the thread of the program runs no operator, no call of the runtime and no input. With Python stacks the culprit
is the line of the program; stacks slow Python itself, so the gain is an upper bound. Without stacks it is the call before or after it.
Without a device and stacks, only stretches beside the same call in most steps count, with low confidence: another process may have the
core.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.lines import lines_at
from stepscope.analyses.advice.engine.run import CHAIN_NS, Run
from stepscope.model import intervals

NEEDS = ("steps", "work", "operators")
APPLIES = ()
HOST_BOUND = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {
    "pytorch": "model = torch.compile(model)  # or move the work to a DataLoader worker, or vectorize it",
    "mindspore": "@mindspore.jit  # compile the function, or move the work to the dataset",
    "jax": "step = jax.jit(train_step)  # or move the work to the input pipeline",
    "": "",
}
_MOST_STEPS = 0.75
_MARKER_NS = 5_000  # shorter calls of a runtime are marks rather than work
_CALLS = ["op", "api", "sync", "data", "communication", "other"]  # other: the runtimes of JAX and TensorFlow


def python_bound(run: Run) -> Iterator[Finding]:
    idle = run.gaps.filter(pl.col("cause") == "host-bound")
    program = run.host.filter(pl.col("kind").is_in(_CALLS), pl.col("main") | pl.col("thread").is_in(run.launching_threads))
    if idle.is_empty() or program.is_empty():
        return
    gaps = intervals.merge(idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy())
    calls = intervals.merge(program["start_ns"].to_numpy(), program["end_ns"].to_numpy())
    steps = intervals.merge(run.steps["start_ns"].to_numpy(), run.steps["end_ns"].to_numpy())
    silent = intervals.subtract(steps, calls)
    waited = intervals.covered(gaps, silent.starts, silent.ends)
    long = (silent.ends - silent.starts >= CHAIN_NS) & (2 * waited >= silent.ends - silent.starts)
    rows = pl.DataFrame({"start_ns": silent.starts[long], "end_ns": silent.ends[long], "idle_ns": waited[long]})
    rows = run.in_steps(rows.with_columns(rank=pl.lit(run.rank, pl.Int32)), "start_ns")
    if rows.is_empty():
        return
    frames = run.host.filter(pl.col("kind") == "python", "main")
    idle_share = run.share_of_steps(idle["dur_ns"])
    yield from _lines(run, rows, frames, idle_share) if frames.height else _neighbors(run, rows, program, idle_share)


def _lines(run: Run, rows: pl.DataFrame, frames: pl.DataFrame, idle_share: float) -> Iterator[Finding]:
    """The lines of the program that run in these stretches."""
    middle = np.asarray((rows["start_ns"] + (rows["end_ns"] - rows["start_ns"]) // 2).to_numpy())
    for (line,), part in rows.with_columns(lines_at(run.trace, frames, middle)).group_by("line", maintain_order=True):
        known = None if line is None else str(line)
        total = run.per_step(part["idle_ns"])
        yield Finding(
            parameters={"idle": idle_share, "time": total},
            evidence=Evidence("hot_functions" if known else "gaps", {}, {} if known else {"cause": "host-bound"}, {"total_ns": total}),
            changes=(scale_host(part),),
            culprit=known,
            source=known,
            spans=_longest(part),
            confidence="medium",
            generic=known is None,
            code=None if known else "advice-python_bound-unknown",
            fix=None if known else "advice-python_bound-unknown-fix",
        )


def _neighbors(run: Run, rows: pl.DataFrame, program: pl.DataFrame, idle_share: float) -> Iterator[Finding]:
    """One finding for all stretches, named after the call that most of their time follows; at the start of a step, that it precedes."""
    calls = program.filter("main", pl.col("dur_ns") >= _MARKER_NS).sort("start_ns", "end_ns", descending=[False, True])
    reach = pl.col("end_ns").cum_max().shift(1).over("rank", "track")
    outer = calls.filter(reach.is_null() | (pl.col("start_ns") >= reach)).select("rank", "start_ns", "end_ns", "name")
    before, after = outer.select("rank", end="end_ns", before="name"), outer.select("rank", next="start_ns", after="name")
    rows = rows.sort("start_ns").join_asof(before.sort("end"), left_on="start_ns", right_on="end", by="rank", check_sortedness=False)
    rows = rows.join_asof(after, left_on="end_ns", right_on="next", by="rank", strategy="forward", check_sortedness=False)
    is_first = pl.col("start_ns").is_in(run.steps["start_ns"].implode())
    rows = rows.with_columns(first=is_first, call=pl.when(is_first).then("after").otherwise("before"))
    if run.gaps["device"].null_count() == run.gaps.height:  # a run of the CPU alone
        rows = rows.filter(pl.col("step").n_unique().over("first", "call") >= _MOST_STEPS * run.steps.height)
    if rows.is_empty():
        return
    total = run.per_step(rows["idle_ns"])
    by_call = rows.group_by("first", "call").agg(pl.col("idle_ns").sum()).sort("idle_ns", "call", descending=[True, False])
    is_first_call, call, _ = by_call.row(0)
    yield Finding(
        parameters={"idle": idle_share, "time": total} | ({"next" if is_first_call else "call": call} if call else {}),
        evidence=Evidence("gaps", {}, {"cause": "host-bound"}, {"total_ns": total}),
        changes=(scale_host(rows),),
        culprit=call,
        spans=_longest(rows),
        confidence="low",
        generic=True,
        code="advice-python_bound-unknown",
        fix="advice-python_bound-unknown-fix",
    )


def _longest(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("idle_ns", descending=True).select("rank", "step", "start_ns", "end_ns")
