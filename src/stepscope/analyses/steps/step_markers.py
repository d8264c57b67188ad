"""What repeats in the recording, and could mark its steps?"""

import polars as pl

from stepscope.model.steps import step_choice
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "choice": pl.String,  # for --step-name and Trace.with_steps
    "kind": pl.String,  # annotation, function, operator, kernel
    "name": pl.String,
    "count": pl.Int64,  # number of steps with this marker
    "median_interval_ns": pl.Int64,  # from one start to the next
    "regularity": pl.Float64,  # share of the intervals, in count or in time, within half of the median
    "covered": pl.Float64,  # share of the recorded time that would be in steps
}


def step_markers(trace: Trace, *, top: int = 20) -> pl.DataFrame:
    """Per rank, the `top` annotations, functions, operators and kernels that are most likely to mark a step, the most likely first.

    An annotation or a function encloses a step; an operator, a kernel, or a call of a function compiled by JAX begins one, up to the next.
    Names with fewer than three occurrences, or that would cover less than 1 % of the recording, are left out. The order is by regularity
    times covered share, and prefers annotations and functions to operators and kernels.
    """
    rows = [tuple(getattr(marker, name) for name in COLUMNS) for marker in step_choice.markers(trace)]
    markers = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return markers.group_by("rank", maintain_order=True).head(top).select(*COLUMNS)
