"""How much faster or slower do all operators run alike, and what changes beside that?

Clocks, temperature, memory placement and other programs make all of a run slower or faster. Two recordings of one program on a quiet
machine differ by 5 %, some by 16 %, and nearly all of that is the same factor in each operator. So the factor that the operators have in
common counts as the pace of the machine, and a change of the program is what differs from it.
"""

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.comparison import statistics
from stepscope.comparison.profile import OFFSET, SPREAD, UNRECORDED
from stepscope.comparison.side import Side, naming
from stepscope.comparison.statistics import Change, Floats
from stepscope.comparison.waterfall import both_sides

MOST = 0.2  # a larger change of all operators alike is one of the program
_LEAST = 8  # operators on both sides
_LARGE = 0.002  # of the step: shorter operators scatter more
_SCATTER = 0.01  # of an operator, at least
_STEP_NOISE = 0.005  # of the step of a run at equal pace, at least; runs of one program differ by 0.7 % (docs/compare.md)
_FREEDOM = 6.0  # of Student's distribution: the tails of the scatter of operators are heavier than those of a normal distribution
_NORMAL = 1.4826  # standard deviation of normal values per median distance from their median


class Pace(NamedTuple):
    """The change of all operators alike, and that of the step beside it."""

    factor: float  # times of B relative to A
    scatter: float  # of the operators around it, relative to their time
    change: Change  # of the step at equal pace

    def limit(self, tests: int, chance: float) -> float:
        """The change of an operator, in standard errors, that one of this many tests exceeds by chance only."""
        return statistics.t_quantile(1 - chance / 2 / max(tests, 1), _FREEDOM)


def pace_of(a: Side, b: Side) -> Pace | None:
    """None where the sides are not comparable operator by operator: other devices or frameworks, few operators, no parts of the step."""
    if not (a.has_parts and b.has_parts) or any(a.fact(name) != b.fact(name) for name in ("framework", "devices")):
        return None
    rows = both_sides(a, b, naming(a, b), ["part", "operator"]).filter(~pl.col("part").is_in([OFFSET, SPREAD, UNRECORDED]))
    first, second = rows["a_ns"].to_numpy(), rows["b_ns"].to_numpy()
    both = (first > 0) & (second > 0)
    whole = float(first.sum())
    large = both & (first > _LARGE * whole)
    if int((large & (rows["operator"].is_not_null()).to_numpy()).sum()) < _LEAST:
        return None
    ratios = np.log(second[both] / first[both])
    weights = first[both] + second[both]
    middle = _weighted_median(ratios, weights)
    if abs(math.expm1(middle)) > MOST:
        return None
    factor = math.exp(middle)
    operators = max(_NORMAL * float(np.median(np.abs(np.log(second[large] / first[large]) - middle))), _SCATTER)
    parts = _NORMAL * _weighted_median(np.abs(ratios - middle), weights)
    share = float(second.sum()) / factor / whole - 1
    runs = sum(_STEP_NOISE**2 / len(side.with_steps) for side in (a, b))
    error = math.sqrt((parts * float(np.sqrt(((first / whole) ** 2).sum()))) ** 2 + runs)
    half = statistics.t_quantile((1 + statistics.CONFIDENCE) / 2, _FREEDOM) * error
    return Pace(factor, operators, Change(share, (1 + share) * math.exp(-half) - 1, (1 + share) * math.exp(half) - 1))


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])
