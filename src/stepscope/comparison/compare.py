"""What changed between two runs, or two sets of runs, and is it more than noise?"""

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from stepscope.comparison import figures, operators, sentences, waterfall
from stepscope.comparison.figures import step_change
from stepscope.comparison.judgement import verdict_change
from stepscope.comparison.pace import Pace, pace_of
from stepscope.comparison.profile import profile
from stepscope.comparison.side import Side, naming
from stepscope.comparison.statistics import RUN_NOISE, Change, slower_share
from stepscope.errors import UsageError
from stepscope.io.open_run import open
from stepscope.model import parameters
from stepscope.model.trace import Trace

Source: TypeAlias = "Trace | str | os.PathLike[str]"
MOST_RUNS = 64  # on a side

STEPS = {
    "side": pl.String,  # A, B
    "run": pl.Int32,  # from 0 on each side
    "name": pl.String,
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "total_ns": pl.Int64,
    "counted": pl.Boolean,  # warm-up steps are not
    "typical": pl.Boolean,  # the middle half: the parts are means over these steps
}
SUMMARY = {
    "a_ns": pl.Int64,  # the median step: the mean over the runs
    "b_ns": pl.Int64,
    "change_ns": pl.Int64,
    "change_share": pl.Float64,
    "low_share": pl.Float64,  # 95 % interval of change_share; null if the noise is unknown
    "high_share": pl.Float64,
    "visible_share": pl.Float64,  # changes below are hidden by noise
    "pace_share": pl.Float64,  # change of all operators alike, as from clocks or other programs; null: not comparable, or above 20 %
    "paced_share": pl.Float64,  # change of the step at equal pace
    "paced_low_share": pl.Float64,  # its 95 % interval
    "paced_high_share": pl.Float64,
    "slower_share": pl.Float64,  # effect size: of all pairs of a step of A and one of B, that of B is longer; 0.5: equal
    "a_mean_ns": pl.Int64,
    "b_mean_ns": pl.Int64,
    "a_runs": pl.Int64,
    "b_runs": pl.Int64,
    "a_steps": pl.Int64,
    "b_steps": pl.Int64,
    "matched_share": pl.Float64,  # of the time of both sides, of operators that both have
    "naming": pl.String,  # operator, kernel (one side has no operators), framework (names that frameworks share)
}
TABLES: dict[str, dict[str, Any]] = {
    "summary": SUMMARY,
    "verdict": sentences.COLUMNS,
    "waterfall": waterfall.COLUMNS,
    "operators": operators.COLUMNS,
    "figures": figures.COLUMNS,
    "steps": STEPS,
}


class Comparison:
    """Two sides, compared when a table is first used. A is the baseline."""

    def __init__(self, a: Side, b: Side, run_noise: float = RUN_NOISE) -> None:
        self.a, self.b, self._run_noise = a, b, run_noise

    @cached_property
    def change(self) -> Change | None:
        """The relative change of the step that the verdict is about, with its interval; None if a side has no steps."""
        return verdict_change(self.a, self.b, self._run_noise)

    @cached_property
    def pace(self) -> Pace | None:
        """The change of all operators alike; None where operators are not comparable."""
        return pace_of(self.a, self.b)

    @cached_property
    def verdict(self) -> pl.DataFrame:
        """Sentences, the headline first, and notices: code, parameters and text."""
        return sentences.sentences(self.a, self.b, self.waterfall, run_noise=self._run_noise)

    @cached_property
    def waterfall(self) -> pl.DataFrame:
        """From the step of A to that of B: rows that add up to the difference."""
        return waterfall.waterfall(self.a, self.b, naming(self.a, self.b)) if self._has_steps else pl.DataFrame(schema=waterfall.COLUMNS)

    @cached_property
    def figures(self) -> pl.DataFrame:
        """The figures of `overview` on both sides."""
        return figures.figures(self.a, self.b)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The time of every step."""
        tables = [
            run.steps.with_columns(side=pl.lit(side.label), run=pl.lit(number), name=pl.lit(run.name))
            for side in (self.a, self.b)
            for number, run in enumerate(side.runs)
        ]
        return pl.concat(tables).select(pl.col(name).cast(dtype) for name, dtype in STEPS.items())

    def operators(self, by: str = "operator") -> pl.DataFrame:
        """Operators, new, gone, changed or within noise, by operator, family, kernel, shape, phase or module."""
        return operators.operators(self.a, self.b, by=by, run_noise=self._run_noise)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row: the change of the step, its interval and effect size."""
        change, first, second = step_change(self.a, self.b, self._run_noise), self.a.step(), self.b.step()
        paced = None if self.pace is None else self.pace.change
        times = [side.step_times() for side in (self.a, self.b)]
        row: dict[str, Any] = {
            "a_ns": first and round(first.value),
            "b_ns": second and round(second.value),
            "change_share": change and change.share,
            "low_share": change and change.low,
            "high_share": change and change.high,
            "visible_share": change and change.visible,
            "pace_share": self.pace and self.pace.factor - 1,
            "paced_share": paced and paced.share,
            "paced_low_share": paced and paced.low,
            "paced_high_share": paced and paced.high,
            "slower_share": slower_share(*times) if all(map(len, times)) else None,
            "a_mean_ns": _rounded(self.a.mean()),
            "b_mean_ns": _rounded(self.b.mean()),
            "a_runs": len(self.a.runs),
            "b_runs": len(self.b.runs),
            "a_steps": len(times[0]),
            "b_steps": len(times[1]),
            "matched_share": operators.matched_share(self.a, self.b),
            "naming": naming(self.a, self.b),
        }
        row["change_ns"] = row["b_ns"] - row["a_ns"] if change else None
        return pl.DataFrame([row], SUMMARY)

    def table(self, name: str, by: str | None = None) -> pl.DataFrame:
        """One of TABLES."""
        parameters.check_word("table of a comparison", name, TABLES)
        if by is not None and name != "operators":
            raise UsageError("by is for the table operators")
        if name == "operators":
            return self.operators(by or "operator")
        result: pl.DataFrame = getattr(self, name)
        return result

    @property
    def _has_steps(self) -> bool:
        return self.a.step() is not None and self.b.step() is not None

    def __repr__(self) -> str:
        return "\n".join(self.verdict["text"])


def compare(
    a: "Source | Iterable[Source]",
    b: "Source | Iterable[Source]",
    *,
    rank: int | None = None,
    steps: tuple[int, int] | None = None,
    warmup: int | None = None,
    run_noise: float = RUN_NOISE,
) -> Comparison:
    """The comparison of B with the baseline A. Each is a run (a path or a trace), or several runs of the same program.

    `rank`, `steps` and `warmup` select as in `Trace.analyse` and `overview`, on both sides. `run_noise` is the share by which two runs of
    one program are assumed to differ where each side has one run.
    """
    run_noise = parameters.checked(float, "run_noise", run_noise)
    warmup = None if warmup is None else parameters.checked(int, "warmup", warmup)
    return Comparison(_side("A", a, rank, steps, warmup), _side("B", b, rank, steps, warmup), run_noise)


def side_of(label: str, traces: Sequence[Trace], warmup: int | None = None) -> Side:
    """A side of these runs."""
    if not traces:
        raise UsageError(f"{label} has no runs")
    if len(traces) > MOST_RUNS:
        raise UsageError(f"{label} has {len(traces)} runs; at most {MOST_RUNS} are compared")
    return Side(label, [profile(trace, warmup) for trace in traces])


def expand_paths(words: Iterable[str], exists: Callable[[str], bool] = os.path.exists) -> list[Path]:
    """Paths, and patterns with * and ? as the files that match."""
    paths: list[Path] = []
    for word in words:
        if exists(word) or not glob.has_magic(word):
            paths.append(Path(word))
            continue
        matches = sorted(glob.glob(word))  # noqa: PTH207  the pattern may be absolute
        if not matches:
            raise UsageError(f"no file matches {word}")
        paths += map(Path, matches)
    return paths


def _side(label: str, runs: "Source | Iterable[Source]", rank: int | None, steps: tuple[int, int] | None, warmup: int | None) -> Side:
    several = [runs] if isinstance(runs, Trace | str | os.PathLike) else list(runs)
    traces = [run if isinstance(run, Trace) else open(run) for run in several]
    traces = [trace if rank is None else trace.of_rank(rank) for trace in traces]
    return side_of(label, [trace if steps is None else trace.of_steps(*steps) for trace in traces], warmup)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
