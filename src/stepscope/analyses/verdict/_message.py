"""A row of `verdict` before it is rendered, and the rules that all topics share."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


def value_range(values: Iterable[float | None], least: float = 0) -> float | list[float] | None:
    """The value, or the lowest and the highest of several; None where none is known, or none reaches `least`."""
    numbers = sorted({value for value in values if value is not None})
    if not numbers or numbers[-1] < least:
        return None
    return numbers[0] if len(numbers) == 1 else [numbers[0], numbers[-1]]


def column(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """The known values of a column."""
    return [row[name] for row in rows if row[name] is not None]
