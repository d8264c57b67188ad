"""Some steps take much longer than the others.

Fires for steps of more than 1.2 times the median and beyond the usual variation (median plus eight times the median distance from it).
The gain per step is their additional time, over all steps. The culprit is what takes the most additional time in them, or no operator.
Where the same calls, as often, take longer, something outside of the program slowed them: a statement without a gain, and so is additional
time without an operator while other programs use the CPU, unless the steps are at equal distances.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.machine import is_disturbed
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.steps.host_phases import host_spans

NEEDS = ("steps",)
APPLIES = ()
NOTICE = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": ""}
_LONGER, _BEYOND, _LEAST_STEPS = 1.2, 8, 5
_AS_OFTEN = 1.1
_NO_OPERATOR = "no operator"
_KINDS = ["op", "data", "sync", "python", "communication", "annotation", "kernel", "copy", "api"]


def outlier_steps(run: Run) -> Iterator[Finding]:
    steps = run.all_steps
    if steps.height < _LEAST_STEPS:
        return
    time = pl.col("total_ns")
    usual = steps.select(time.median()).item()
    limit = max(_LONGER * usual, usual + _BEYOND * steps.select((time - usual).abs().median()).item())
    outliers = steps.filter(time > limit)
    if outliers.is_empty() or 2 * outliers.height > steps.height:
        return
    gain = round((int(outliers["total_ns"].sum()) - outliers.height * usual) / steps.height)
    culprit, more, same_work = _difference(run, steps, outliers)
    distances = outliers["step"].sort().diff().drop_nulls()
    is_regular = len(distances) > 1 and distances.n_unique() == 1 and distances[0] > 1  # such as a checkpoint every 100 steps
    by_others = culprit == _NO_OPERATOR and not is_regular and is_disturbed(run.trace)
    numbers = ", ".join(str(step) for step in outliers["step"].head(5))
    parameters: dict[str, Any] = {"outliers": outliers.height, "steps": steps.height, "longest": int(outliers["total_ns"].to_numpy().max())}
    parameters |= {"usual": round(usual), "numbers": numbers, "more": round(more), "name": culprit}
    yield Finding(
        parameters=parameters,
        evidence=Evidence("step_times", {}, {}, {"gain_ns": gain, "outliers": outliers.height}),
        culprit=culprit,
        gain_ns=None if same_work or by_others else gain,
        spans=outliers.sort("total_ns", descending=True).select("rank", "step", "start_ns", "end_ns"),
        confidence="medium" if outliers.height > 1 else "low",
        code="advice-outlier_steps-same" if same_work else "advice-outlier_steps-others" if by_others else None,
        statement=same_work or by_others,
    )


def _difference(run: Run, steps: pl.DataFrame, outliers: pl.DataFrame) -> tuple[str, float, bool]:
    """What takes the most additional time per outlier and how much, and whether it is the same work, as often, that took longer."""
    spans = host_spans(run.trace).filter(pl.col("kind").cast(pl.String).is_in(_KINDS), pl.col("name").is_not_null())
    rows = run.in_all_steps(spans.select("rank", "start_ns", "self_ns", pl.col("name").cast(pl.String)).collect(), "start_ns")
    totals = rows.group_by("step", "name").agg(pl.col("self_ns").sum(), calls=pl.len())
    is_outlier = pl.col("step").is_in(outliers["step"].implode())
    counts = (outliers.height, steps.height - outliers.height)
    sides = [(column, is_outlier if side == 0 else ~is_outlier, side) for column in ("self_ns", "calls") for side in (0, 1)]
    means = totals.group_by("name").agg(
        (pl.col(column).filter(chosen).sum() / counts[side]).alias(f"{column}_{side}") for column, chosen, side in sides
    )
    means = means.with_columns(more=pl.col("self_ns_0") - pl.col("self_ns_1"))
    usual, longer = (steps.filter(chosen).select(pl.col("total_ns").mean()).item() for chosen in (~is_outlier, is_outlier))
    excess = longer - usual
    longest = means.sort("more", "name", descending=[True, False]).head(1).to_dicts()
    spread = sum(max(more, 0) for more in means["more"])
    if longest and longest[0]["more"] >= excess / 3:
        return longest[0]["name"], longest[0]["more"], longest[0]["calls_0"] <= _AS_OFTEN * longest[0]["calls_1"]
    if spread >= excess / 2 and longest:  # many a little
        return longest[0]["name"], longest[0]["more"], True
    return _NO_OPERATOR, excess - spread, False
