"""How many cases of a law `make test` runs; `make test-deep` runs the others."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_deep(cases: Iterable[Any], keep: Collection[Any]) -> list[Any]:
    """All cases, as parameters of a test. Those not kept have the marker `deep`."""
    return [case if case in keep else _deep(case) for case in cases]


def every(cases: Iterable[Any], step: int) -> list[Any]:
    """All cases, as parameters of a test. The first of each `step` cases stays, the others have the marker `deep`."""
    return [case if number % step == 0 else _deep(case) for number, case in enumerate(cases)]


def seeds(few: int, many: int) -> list[Any]:
    """Ranges of seeds, as parameters of a test: the first few, and the others up to `many` with the marker `deep`."""
    return [pytest.param(range(few), id=f"{few} seeds"), pytest.param(range(few, many), id=f"{many - few} more", marks=pytest.mark.deep)]


def _deep(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.deep)
