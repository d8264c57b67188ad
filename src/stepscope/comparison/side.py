"""One side of a comparison: one run, or several runs of the same program."""

import math
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.comparison import names, statistics
from stepscope.comparison.parts import LABELS
from stepscope.comparison.profile import Profile
from stepscope.comparison.statistics import Estimate, Floats

FIGURES = ["step_ns", "total_ns", "calls"]


class Side(NamedTuple):
    label: str  # A or B
    runs: list[Profile]

    @property
    def with_steps(self) -> list[Profile]:
        return [run for run in self.runs if run.step is not None]

    @property
    def has_parts(self) -> bool:
        return bool(self.with_steps) and all(run.parts.height for run in self.with_steps)

    def step(self) -> Estimate | None:
        """The median step: the mean over the runs."""
        series = [run.step for run in self.runs if run.step is not None]
        return statistics.of_side(series) if series else None

    def mean(self) -> float | None:
        means = [run.mean_ns for run in self.runs if run.mean_ns is not None]
        return float(np.mean(means)) if means else None

    def step_times(self) -> Floats:
        """All counted steps of all runs."""
        values = [run.steps.filter("counted")["total_ns"].to_numpy() for run in self.runs]
        return np.concatenate(values).astype(np.float64) if values else np.empty(0)

    def fact(self, name: str) -> list[Any]:
        """The different values of a fact."""
        values: list[Any] = []
        for run in self.runs:
            if run.facts[name] not in values:
                values.append(run.facts[name])
        return values

    def parts(self, rule: str) -> pl.DataFrame:
        """The parts of the typical step: the mean over the runs. `rule` says how operators are named (`naming`)."""
        runs = self.with_steps
        tables = [renamed(run.parts, rule) for run in runs]
        every = pl.concat(tables).group_by("part", *LABELS, maintain_order=True)
        return every.agg(pl.col(name).sum() / len(runs) for name in FIGURES)

    def errors(self, rule: str, run_noise: float) -> pl.DataFrame:
        """The standard error of the time of each operator per step: of several runs by their spread, of one run by its steps."""
        runs = self.with_steps
        columns = ["part", "operator"]
        times, within = [], []
        for number, run in enumerate(runs):
            parts = renamed(run.parts, rule).group_by(columns, maintain_order=True).agg(pl.col("step_ns").sum())
            times.append(parts.with_columns(run=pl.lit(number)))
            errors = (
                renamed(run.errors.with_columns(kernel=pl.lit(None, pl.String)), rule) if rule != "kernel" else _kernel_errors(run, parts)
            )
            within.append(errors.group_by(columns, maintain_order=True).agg(_known_sum(pl.col("error_ns") ** 2)))
        count = len(runs)
        value = (
            pl.concat(times)
            .group_by(columns, maintain_order=True)
            .agg(mean=pl.col("step_ns").sum() / count, squares=(pl.col("step_ns") ** 2).sum())
        )
        inside = pl.concat(within).group_by(columns, maintain_order=True).agg(inside=_known_sum(pl.col("error_ns")).sqrt() / count)
        between = ((pl.col("squares") - count * pl.col("mean") ** 2).clip(0) / max(count - 1, 1) / count).sqrt()
        known = value.join(inside, on=columns, how="left", nulls_equal=True, maintain_order="left")
        step = self.step()
        noise = 0.0 if step is None else step.run_noise(run_noise)
        assumed = (pl.col("inside") ** 2 + (noise * pl.col("mean")) ** 2).sqrt()
        return known.select(*columns, error_ns=assumed if count == 1 else pl.max_horizontal(between, "inside"))

    def figure(self, name: str) -> Estimate | None:
        """A figure of `overview`; None if a run lacks it."""
        values = [run.figures.get(name) for run in self.runs]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        error = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else None
        return Estimate(float(np.mean(known)), error, len(known) - 1.0, len(known))


def naming(a: Side, b: Side) -> str:
    """How operators of two sides are named: as the framework names them, across frameworks, or by kernel if one side has only these."""
    if a.fact("framework") != b.fact("framework"):
        return "framework"
    shares = [[run.facts["launchers"] for run in side.with_steps if run.facts["launchers"] is not None] for side in (a, b)]
    if all(shares) and (min(min(part) for part in shares) < 0.5 <= max(max(part) for part in shares)):
        return "kernel"
    return "operator"


def renamed(parts: pl.DataFrame, rule: str) -> pl.DataFrame:
    """The parts with operators named by the rule."""
    if rule == "kernel":
        return parts.with_columns(operator=pl.coalesce("kernel", "operator"))
    mapping = names.operator if rule == "framework" else names.same_vendor
    is_work = ~pl.col("part").str.starts_with("idle") & pl.col("operator").is_not_null()
    mapped = names.mapped(parts["operator"], mapping)
    return parts.with_columns(operator=pl.when(is_work).then(mapped).otherwise("operator"))


def _known_sum(values: pl.Expr) -> pl.Expr:
    """The sum; null if a value is unknown."""
    return pl.when(values.is_not_null().all()).then(values.sum())


def _kernel_errors(run: Profile, parts: pl.DataFrame) -> pl.DataFrame:
    """Errors within a run are known by operator, not by kernel."""
    return parts.select("part", "operator", error_ns=pl.lit(None, pl.Float64))
