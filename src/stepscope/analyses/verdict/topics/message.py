"""A row of `verdict` before it is rendered, and the rules that all topics share."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.model.trace import Trace

MATTERS = 0.05  # of a step: less is not worth a conclusion
_HIGH = 0.2  # of a step


class Message(NamedTuple):
    topic: str
    code: str
    parameters: dict[str, Any]
    rank: int | None = None
    severity: str | None = None
    coverage: str | None = None
    step: int | None = None
    device: str | None = None


class Options(NamedTuple):
    """The parameters of `verdict`."""

    per_step: bool
    warmup: int | None
    stages: dict[str, Any]  # of step_trace: fp_start, bp_end, clock
    samples: dict[str, Any]  # of cpu_use: start_ns, end_ns


def severity(share: float) -> str:
    """How much a lost share of the step matters."""
    return "high" if share >= _HIGH else "medium"


def known(**parameters: Any) -> dict[str, Any]:
    """The parameters with a known value."""
    return {name: value for name, value in parameters.items() if value is not None}


def value_range(values: Iterable[float | None], least: float = -math.inf) -> float | list[float] | None:
    """The value, or the lowest and the highest of several; None where none is known, or none reaches `least`."""
    numbers = sorted({value for value in values if value is not None})
    if not numbers or numbers[-1] < least:
        return None
    return numbers[0] if len(numbers) == 1 else [numbers[0], numbers[-1]]


def operator_name(name: str) -> dict[str, str]:
    """The name of an operator as parameters: in graphs the last part of its scope, with the whole name."""
    last = name.rsplit("/", 1)[-1]
    return {"operator": last} | ({"operator_full": name} if last != name else {})


def covered_steps(trace: Trace, ranks: list[int]) -> tuple[int, int] | None:
    """Of how many steps all launched work is recorded, and the number of all; None if it is of all, or nothing is known."""
    covered = coverage(trace)
    partial = [rank for rank in ranks if covered.launched.get(rank) in ("partial", "none")]
    steps = covered.steps.filter(pl.col("rank").is_in([rank for rank in ranks if rank in covered.launched]))
    return (int(steps["launched"].sum()), steps.height) if partial else None


def steps_left_out(topic: str, covered: tuple[int, int] | None, rank: int | None, device: str | None = None) -> Iterator[Message]:
    """The steps that figures of device work leave out."""
    if covered and covered[0]:
        yield Message(topic, "coverage-device-steps", {"known": covered[0], "steps": covered[1]}, rank, device=device)


def known_shares(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Any] | None]:
    """The rows of ranks with known shares, and how many other ranks are left out. If no share is known, all rows.

    `rows` has rank and share. Without complete steps, a rank has some of its kernels: their times do not compare with those of others.
    """
    shares = rows.filter(pl.col("share").is_not_null().any().over("rank"))
    every, used = rows["rank"].n_unique(), shares["rank"].n_unique()
    if not used:
        return rows, None
    return shares, {"missing": every - used, "ranks": every} if used < every else None


def steps_text(covered: tuple[int, int] | None) -> str | None:
    """`14 of 322 steps`"""
    return f"{covered[0]:,} of {covered[1]:,} steps" if covered else None


def column(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """The known values of a column."""
    return [row[name] for row in rows if row[name] is not None]
