"""Durations of the steps that are not recorded."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.recording.collectors.options import Options
from stepscope.recording.process.runtime import runtime
from stepscope.recording.steps.step_clock import StepClock
from stepscope.recording.windows.window import Window


@pytest.fixture
def open_window(tmp_path: Path) -> Iterator[Callable[[], Window]]:
    """Opens a window without collectors."""
    assert runtime.window is None
    yield lambda: Window(Options(output_path=tmp_path), [], step=0)
    if runtime.window is not None:
        runtime.window.discard()


def clock_of(*times: int, size: int = 8) -> tuple[StepClock, Callable[[int], None]]:
    """A clock that shows these times, one for each end of a step."""
    shown = iter(times)
    clock = StepClock(lambda: next(shown), size)
    return clock, clock.end_step


def kept(clock: StepClock, since: int = 0) -> list[tuple[int, int, int]]:
    columns = clock.columns(since)
    return list(zip(*(columns[name].tolist() for name in ("order", "step", "dur_ns")), strict=True))


def test_a_duration_is_from_border_to_border_and_the_first_step_has_none() -> None:
    clock, end_step = clock_of(100, 107, 120)
    for step in (5, 6, 7):
        end_step(step)
    assert kept(clock) == [(1, 6, 7), (2, 7, 13)]


def test_steps_in_which_a_window_was_open_opened_or_closed_do_not_count(open_window: Callable[[], Window]) -> None:
    clock, end_step = clock_of(0, 10, 30, 60, 100, 150, 210)
    end_step(0)
    end_step(1)  # 10
    window = open_window()
    end_step(2)
    end_step(3)
    window.stop()  # its cost is in step 4
    end_step(4)
    end_step(5)  # 50
    end_step(6)  # 60
    assert kept(clock) == [(1, 1, 10), (5, 5, 50), (6, 6, 60)]
    assert kept(clock, since=1) == [(5, 5, 50), (6, 6, 60)]


def test_a_window_that_opens_and_closes_within_a_step_spoils_that_step(open_window: Callable[[], Window]) -> None:
    clock, end_step = clock_of(0, 10, 30, 60)
    end_step(0)
    end_step(1)
    open_window().stop()
    end_step(2)
    end_step(3)
    assert kept(clock) == [(1, 1, 10), (3, 3, 30)]


def test_the_latest_durations_are_kept_in_memory_of_a_fixed_size() -> None:
    clock, end_step = clock_of(*(number * number for number in range(10)), size=3)
    for step in range(10):
        end_step(step)
    assert clock.count == 9
    assert kept(clock) == [(7, 7, 13), (8, 8, 15), (9, 9, 17)]
    assert kept(clock, since=8) == [(9, 9, 17)]
    assert kept(clock, since=9) == []


def test_a_step_whose_beginning_was_not_reported_does_not_count() -> None:
    clock, end_step = clock_of(0, 10, 30, 60)
    end_step(0)
    end_step(1)
    clock.skip()
    end_step(2)
    end_step(3)
    assert kept(clock) == [(1, 1, 10), (3, 3, 30)]


def test_nothing_counts_any_more_after_stop() -> None:
    clock, end_step = clock_of(0, 10, 30)
    end_step(0)
    end_step(1)
    clock.stop()
    end_step(2)
    assert kept(clock) == [(1, 1, 10)]
