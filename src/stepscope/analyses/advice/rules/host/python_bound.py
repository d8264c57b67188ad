"""The program runs Python code, not operators, and nothing else works at that time.

Fires for stretches of at least 0.5 ms (shorter ones are the cost of launching: `launch_bound`) inside idle gaps of the device (without one:
of the operators) in which the thread of the program runs no operator, no call of the runtime and no input. With Python stacks the culprit
is the line of the program; stacks slow Python itself, so the gain is an upper bound. Without a device it needs stacks: in such a time
another process may have the core.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.lines import lines_at
from stepscope.analyses.advice.engine.run import CHAIN_NS, Run
from stepscope.model import intervals

NEEDS = ("steps", "work", "operators", "program")
APPLIES = ()
HOST_BOUND = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {
    "pytorch": "model = torch.compile(model)  # or move the work to a DataLoader worker, or vectorize it",
    "mindspore": "@mindspore.jit  # compile the function, or move the work to the dataset",
    "jax": "step = jax.jit(train_step)  # or move the work to the input pipeline",
    "": "",
}
_CALLS = ["op", "api", "sync", "data", "communication", "other"]  # other: the runtimes of JAX and TensorFlow


def python_bound(run: Run) -> Iterator[Finding]:
    idle = run.gaps.filter(pl.col("cause") == "host-bound")
    program = run.host.filter(pl.col("kind").is_in(_CALLS), pl.col("main") | pl.col("thread").is_in(run.launching_threads))
    if idle.is_empty() or program.is_empty():
        return
    gaps = intervals.merge(idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy())
    calls = intervals.merge(program["start_ns"].to_numpy(), program["end_ns"].to_numpy())
    steps = run.steps
    silent = intervals.gaps(calls, int(steps["start_ns"].to_numpy().min()), int(steps["end_ns"].to_numpy().max()))
    waited = intervals.covered(gaps, silent.starts, silent.ends)
    long = (silent.ends - silent.starts >= CHAIN_NS) & (2 * waited >= silent.ends - silent.starts)
    rows = pl.DataFrame({"start_ns": silent.starts[long], "end_ns": silent.ends[long], "idle_ns": waited[long]})
    rows = run.in_steps(rows.with_columns(rank=pl.lit(run.rank, pl.Int32)), "start_ns")
    if rows.is_empty():
        return
    middle = np.asarray((rows["start_ns"] + (rows["end_ns"] - rows["start_ns"]) // 2).to_numpy())
    rows = rows.with_columns(lines_at(run.trace, run.host.filter(pl.col("kind") == "python", "main"), middle))
    idle_share = run.share_of_steps(idle["dur_ns"])
    for (line,), part in rows.group_by("line", maintain_order=True):
        known = None if line is None else str(line)
        total = run.per_step(part["idle_ns"])
        yield Finding(
            parameters={"idle": idle_share, "time": total},
            evidence=Evidence("hot_functions" if known else "gaps", {}, {} if known else {"cause": "host-bound"}, {"total_ns": total}),
            changes=(scale_host(part),),
            culprit=known,
            source=known,
            spans=part.sort("idle_ns", descending=True).select("rank", "step", "start_ns", "end_ns"),
            confidence="medium",
            code=None if known else "advice-python_bound-unknown",
            fix=None if known else "advice-python_bound-unknown-fix",
        )
