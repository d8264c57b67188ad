"""The figures of `overview` on both sides."""

import math

import polars as pl

from stepscope.analyses.steps.overview import COLUMNS as OVERVIEW
from stepscope.comparison import statistics
from stepscope.comparison.pace import pace_of
from stepscope.comparison.side import Side
from stepscope.comparison.statistics import Change, Estimate

COLUMNS = {
    "figure": pl.String,  # a column of `overview`
    "a": pl.Float64,  # the mean over the runs; null if a run lacks it
    "b": pl.Float64,
    "change": pl.Float64,
    "change_share": pl.Float64,  # of A; null for a share, whose change is in points
    "low": pl.Float64,  # 95 % interval of the change, with several runs on a side
    "high": pl.Float64,
    "better": pl.String,  # lower, higher; null if neither
}
# What is better; other figures of `overview` are neither.
BETTER = {
    **dict.fromkeys(["step_ns", "p90_ns", "min_ns", "max_ns", "first_step_ns", "unprofiled_step_ns", "peak_memory_bytes"], "lower"),
    **dict.fromkeys(["communication_share", "copy_share", "idle_share", "input_wait_ns", "input_wait_share"], "lower"),
    **dict.fromkeys(["exposed_communication_share", "idle_unprofiled_share"], "lower"),
    **dict.fromkeys(["compute_share", "busy_share", "flops_per_s", "utilization"], "higher"),
}
_COUNTS = ("left_out", "device_steps")


def figures(a: Side, b: Side) -> pl.DataFrame:
    """One row per figure that a run has."""
    rows = []
    for name in names(a, b):
        first, second = a.figure(name), b.figure(name)
        low, high = interval(first, second)
        change = None if first is None or second is None else second.value - first.value
        relative = change is not None and first is not None and first.value != 0 and not is_share(name)
        share = change / first.value if relative and change is not None and first is not None else None
        values = (first and first.value, second and second.value, change, share, low, high, BETTER.get(name))
        rows.append((name, *values))
    return pl.DataFrame(rows, COLUMNS, orient="row")


def names(*sides: Side) -> list[str]:
    """The figures of the runs, in the order of `overview`."""
    known = {name for side in sides for run in side.runs for name, value in run.figures.items() if value is not None}
    return [name for name in OVERVIEW if name in known and name not in _COUNTS]


def is_share(name: str) -> bool:
    return name.endswith(("share", "utilization"))


def interval(a: Estimate | None, b: Estimate | None) -> tuple[float | None, float | None]:
    """The 95 % interval of the change, where several runs show how much the figure varies."""
    if a is None or b is None:
        return None, None
    several = [side for side in (a, b) if side.error is not None]
    if not several:
        return None, None
    terms = []
    for side in (a, b):
        source = side if side.error is not None else several[0]
        error = source.error or 0.0
        terms.append((error**2 * source.runs / side.runs, source.freedom))
    variance = sum(term for term, _ in terms)
    freedom = variance**2 / sum(term**2 / count for term, count in terms) if variance else 1.0
    half = statistics.t_quantile((1 + statistics.CONFIDENCE) / 2, max(freedom, 1.0)) * variance**0.5
    return b.value - a.value - half, b.value - a.value + half


def half_width(of: Estimate) -> float:
    """Half of the 95 % interval of a value."""
    return statistics.t_quantile((1 + statistics.CONFIDENCE) / 2, max(of.freedom, 1.0)) * (of.error or 0.0)


def step_change(a: Side, b: Side, run_noise: float = statistics.RUN_NOISE) -> Change | None:
    """The change of the median step; None if a side has no steps. Of single runs, a change of all operators alike may be noise."""
    first, second = a.step(), b.step()
    if first is None or second is None or first.value <= 0 or second.value <= 0:
        return None
    if run_noise and max(first.runs, second.runs) == 1 and (pace := pace_of(a, b)) is not None:
        run_noise = max(run_noise, abs(math.log(pace.factor)) / math.sqrt(2))
    return statistics.change(first, second, run_noise=run_noise)
