"""The first recorded step takes much longer than the others: it includes warm-up.

A statement without a gain: the figures of the run leave this step out.
"""

from collections.abc import Iterator

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps",)
APPLIES = ()
NOTICE = True
LINK = "https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule"
FIX = {"": "stepscope run --steps 10:19 train.py  # record after compilation, allocation and the start of the input pipeline"}


def warmup(run: Run) -> Iterator[Finding]:
    row = run.table("overview").to_dicts()
    if not row or not row[0]["left_out"] or not row[0]["step_ns"]:
        return
    first, usual = row[0]["first_step_ns"], row[0]["step_ns"]
    yield Finding(
        parameters={"first": first, "usual": usual, "factor": round(first / usual, 1)},
        evidence=Evidence("step_trace", {}, {}, {"first_step_ns": first, "step_ns": usual}),
        statement=True,
    )
