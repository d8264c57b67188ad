"""What repeats in the recording, and could mark its steps?"""

import polars as pl

from stepscope import step_choice
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "choice": pl.String,  # for --step-name and Trace.with_steps
    "kind": pl.String,  # annotation, function, operator, kernel
    "name": pl.String,
    "count": pl.Int64,  # steps that it would make
    "median_interval_ns": pl.Int64,  # from one start to the next
    "regularity": pl.Float64,  # share of the intervals, in count or in time, within half of the median
    "covered": pl.Float64,  # share of the recorded time that would be in steps
}


def step_markers(trace: Trace, *, top: int = 20) -> pl.DataFrame:
    """Per rank, the `top` annotations, functions, operators and kernels that are most likely to mark a step, the likeliest first.

    An annotation or a function encloses a step; an operator, a kernel, or a call of a function that JAX compiled begins one, up to the
    next. What occurs fewer than three times, or would cover less than a hundredth of the recording, is left out. The order is by
    regularity times covered share, and prefers annotations and functions to operators and kernels.
    """
    rows = [
        (one.rank, one.choice, one.kind, one.name, one.count, one.median_interval_ns, one.regularity, one.covered)
        for one in step_choice.markers(trace)
    ]
    found = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return found.group_by("rank", maintain_order=True).head(top).select(*COLUMNS)
