"""The change of the step that a verdict is about."""

import polars as pl

from stepscope.comparison import statistics
from stepscope.comparison.figures import step_change
from stepscope.comparison.operators import operators
from stepscope.comparison.pace import Pace, pace_of
from stepscope.comparison.side import Side
from stepscope.comparison.statistics import Change

_STATES = ("changed", "new", "gone")
_LEAST = 0.005  # of the step: less is no difference, whichever operators changed


def verdict_change(a: Side, b: Side, run_noise: float = statistics.RUN_NOISE) -> Change | None:
    """That of the median step, if several runs show that it is more than noise; else that at equal pace, where it is known.

    At equal pace the step changes if it does as a whole, or if single operators do, which is the narrower statement: then the change is
    the sum of theirs.
    """
    total, pace = step_change(a, b, run_noise), pace_of(a, b)
    if total is None or pace is None or (total.certain and max(len(side.with_steps) for side in (a, b)) > 1):
        return total
    if pace.change.certain:
        return pace.change
    return _of_operators(a, b, pace, run_noise) or pace.change


def _of_operators(a: Side, b: Side, pace: Pace, run_noise: float) -> Change | None:
    """The sum of the certain changes of operators, with its interval; None if it is none."""
    step = a.step()
    rows = operators(a, b, run_noise=run_noise).filter(pl.col("state").is_in(_STATES), pl.col("error_ns").is_not_null())
    if step is None or rows.is_empty():
        return None
    share = float((rows["b_ns"] / pace.factor - rows["a_ns"]).sum()) / step.value
    half = pace.limit(1, 1 - statistics.CONFIDENCE) * float((rows["error_ns"].cast(pl.Float64) ** 2).sum()) ** 0.5 / step.value
    change = Change(share, share - half, share + half)
    return change if abs(share) >= _LEAST and change.certain else None
