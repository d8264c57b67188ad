"""The short part of the soak: real trainings under glibc's checks of the heap. `make test-deep` has the long one (soak.py)."""

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from soak.harness import Case, Outcome, play, play_ranges

pytest.importorskip("torch")
STEPS = {"eager": 160, "hooks": 160, "ddp": 60}
LIMIT_S = 900
MADE: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    for folder in MADE:
        shutil.rmtree(folder)


def played(case: Case, folder: Path, reference: Outcome | None) -> Outcome:
    return play(case, folder, steps=STEPS[case.form], seconds=LIMIT_S, limit_s=LIMIT_S, reference=reference)


@functools.cache
def left_alone(form: str) -> Outcome:
    MADE.append(Path(tempfile.mkdtemp(prefix="stepscope-test-")))
    outcome = played(Case(form, "bare"), MADE[-1] / "bare", None)
    assert not outcome.failures
    return outcome


@pytest.mark.parametrize(
    "case",
    [
        Case("eager", "run", "rolls"),
        Case("eager", "run", "rolls", python_malloc=True),
        Case("eager", "run", "memory", steps="5:40"),
        Case("hooks", "run", "rolls"),
        Case("eager", "profiler", "rolls"),
        Case("eager", "schedule"),
        Case("eager", "monitor"),
        Case("ddp", "run", "rolls"),
    ],
    ids=str,
)
def test_a_recorded_training_neither_crashes_nor_trains_anything_else_and_its_recording_is_whole(tmp_path: Path, case: Case) -> None:
    outcome = played(case, tmp_path / "job", left_alone(case.form))
    assert not outcome.failures


# The other places take minutes: soak.py has them all, 300 windows each.
PLACES = [
    "one_range",
    "ranges_across",
    "forward_hook",
    "gradient_hook",
    "function_backward",
    "operator",
    "optimizer_hook",
    "window_by_a_thread",
]


@pytest.mark.parametrize("place", PLACES)
def test_windows_may_end_at_any_place_of_a_training_and_each_has_its_operators_or_says_why_not(tmp_path: Path, place: str) -> None:
    outcome = play_ranges(place, tmp_path / "job", windows=30, limit_s=LIMIT_S)
    assert not outcome.failures
