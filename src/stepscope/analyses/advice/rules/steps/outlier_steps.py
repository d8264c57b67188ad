"""Some steps take much longer than the others.

Fires for steps of more than 1.2 times the median and beyond the usual variation (median plus four times the distance of the quartiles).
The gain per step is their additional time, over all steps. The culprit is what takes the most additional time in them.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.host_phases import host_spans

NEEDS = ("steps",)
APPLIES = ()
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": ""}
_LONGER, _BEYOND, _LEAST_STEPS = 1.2, 4, 5
_KINDS = ["op", "data", "sync", "python", "communication", "annotation", "kernel", "copy", "api"]


def outlier_steps(run: Run) -> Iterator[Finding]:
    steps = run.all_steps
    if steps.height < _LEAST_STEPS:
        return
    time = pl.col("total_ns")
    usual, low, high = steps.select(time.median(), low=time.quantile(0.25), high=time.quantile(0.75)).row(0)
    limit = max(_LONGER * usual, usual + _BEYOND * (high - low))
    outliers = steps.filter(time > limit)
    if outliers.is_empty() or 2 * outliers.height > steps.height:
        return
    gain = round((int(outliers["total_ns"].sum()) - outliers.height * usual) / steps.height)
    culprit, more = _difference(run, steps, outliers)
    numbers = ", ".join(str(step) for step in outliers["step"].head(5))
    parameters: dict[str, Any] = {"outliers": outliers.height, "steps": steps.height, "longest": int(outliers["total_ns"].to_numpy().max())}
    parameters |= {"usual": round(usual), "numbers": numbers}
    yield Finding(
        parameters=parameters | ({"more": round(more), "name": culprit} if culprit else {}),
        evidence=Evidence("step_times", {}, {}, {"gain_ns": gain, "outliers": outliers.height}),
        culprit=culprit,
        gain_ns=gain,
        spans=outliers.sort("total_ns", descending=True).select("rank", "step", "start_ns", "end_ns"),
        confidence="medium",
    )


def _difference(run: Run, steps: pl.DataFrame, outliers: pl.DataFrame) -> tuple[str | None, float]:
    """What takes the most additional time per outlier, of the spans by name, and how much; None if nothing explains a third of it."""
    spans = host_spans(run.trace).filter(pl.col("kind").cast(pl.String).is_in(_KINDS), pl.col("name").is_not_null())
    rows = run.in_all_steps(spans.select("rank", "start_ns", "self_ns", pl.col("name").cast(pl.String)).collect(), "start_ns")
    totals = rows.group_by("step", "name").agg(pl.col("self_ns").sum())
    is_outlier = pl.col("step").is_in(outliers["step"].implode())
    others = steps.height - outliers.height
    means = totals.group_by("name").agg(
        inside=pl.col("self_ns").filter(is_outlier).sum() / outliers.height, outside=pl.col("self_ns").filter(~is_outlier).sum() / others
    )
    means = means.with_columns(more=pl.col("inside") - pl.col("outside")).sort("more", "name", descending=[True, False])
    usual = steps.filter(~is_outlier).select(pl.col("total_ns").mean()).item()
    excess = outliers.select(pl.col("total_ns").mean()).item() - usual
    if means.is_empty() or means["more"][0] < excess / 3:
        return None, 0.0
    return means["name"][0], float(means["more"][0])
