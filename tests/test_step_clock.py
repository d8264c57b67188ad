"""Durations of the steps that are not recorded."""

from collections.abc import Callable, Iterator

import pytest

from stepscope.step_clock import StepClock, Windows


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    assert not Windows.open
    yield
    Windows.open = False


def clock_of(*times: int, size: int = 8) -> tuple[StepClock, Callable[[int], None]]:
    """A clock that shows these times, one for each border."""
    shown = iter(times)
    clock = StepClock(lambda: next(shown), size)
    return clock, clock.border


def kept(clock: StepClock, since: int = 0) -> list[tuple[int, int, int]]:
    columns = clock.columns(since)
    return list(zip(*(columns[name].tolist() for name in ("order", "step", "dur_ns")), strict=True))


def test_a_duration_is_from_border_to_border_and_the_first_step_has_none() -> None:
    clock, border = clock_of(100, 107, 120)
    for step in (5, 6, 7):
        border(step)
    assert kept(clock) == [(1, 6, 7), (2, 7, 13)]


def test_steps_in_which_a_window_was_open_opened_or_closed_do_not_count() -> None:
    clock, border = clock_of(0, 10, 30, 60, 100, 150, 210)
    border(0)
    border(1)  # 10
    Windows.opened()
    border(2)
    border(3)
    Windows.closed()  # its cost is in step 4
    border(4)
    border(5)  # 50
    border(6)  # 60
    assert kept(clock) == [(1, 1, 10), (5, 5, 50), (6, 6, 60)]
    assert kept(clock, since=1) == [(5, 5, 50), (6, 6, 60)]


def test_a_window_that_opens_and_closes_within_a_step_spoils_that_step() -> None:
    clock, border = clock_of(0, 10, 30, 60)
    border(0)
    border(1)
    Windows.opened()
    Windows.closed()
    border(2)
    border(3)
    assert kept(clock) == [(1, 1, 10), (3, 3, 30)]


def test_the_latest_durations_are_kept_in_memory_of_a_fixed_size() -> None:
    clock, border = clock_of(*(number * number for number in range(10)), size=3)
    for step in range(10):
        border(step)
    assert clock.count == 9
    assert kept(clock) == [(7, 7, 13), (8, 8, 15), (9, 9, 17)]
    assert kept(clock, since=8) == [(9, 9, 17)]
    assert kept(clock, since=9) == []


def test_a_step_whose_beginning_was_not_reported_does_not_count() -> None:
    clock, border = clock_of(0, 10, 30, 60)
    border(0)
    border(1)
    clock.skip()
    border(2)
    border(3)
    assert kept(clock) == [(1, 1, 10), (3, 3, 30)]


def test_nothing_counts_any_more_after_stop() -> None:
    clock, border = clock_of(0, 10, 30)
    border(0)
    border(1)
    clock.stop()
    border(2)
    assert kept(clock) == [(1, 1, 10)]
