"""The clock of a recording, with a machine whose clocks are set by hand."""

from pathlib import Path

import numpy as np
import pytest

from stepscope.model import captures
from stepscope.process import clock
from stepscope.readers.common.wall_clock import WallClock, session_clock

S = 1_000_000_000


class Machine:
    """A monotonic clock that started 50 s ago, and a wall clock that shows 1,000 s."""

    def __init__(self) -> None:
        self.passed, self.wall = 50 * S, 1000 * S

    def monotonic_ns(self) -> int:
        return self.passed

    def time_ns(self) -> int:
        return self.wall

    def wait(self, seconds: float) -> None:
        self.passed, self.wall = self.passed + round(seconds * S), self.wall + round(seconds * S)

    def set_wall(self, seconds: float) -> None:
        self.wall += round(seconds * S)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    here = Machine()
    monkeypatch.setattr(clock, "time", here)
    monkeypatch.setattr(clock._Anchor, "offset_ns", 0)
    clock.anchor()
    return here


def test_the_clock_shows_the_wall_clock_and_does_not_follow_when_that_is_set(machine: Machine) -> None:
    assert clock.now_ns() == 1000 * S
    machine.wait(3)
    machine.set_wall(-7200)
    machine.wait(1)
    assert clock.now_ns() == 1004 * S


def test_a_recording_that_begins_later_counts_from_the_wall_clock_as_it_is_then(machine: Machine) -> None:
    machine.set_wall(-7200)
    clock.anchor()
    assert clock.now_ns() == -6200 * S


def test_readings_are_kept_at_both_ends_and_around_each_setting(machine: Machine) -> None:
    readings = clock.Readings()
    for seconds, ahead in ((1, 0), (1, 0), (1, -7200), (1, 0), (1, 100), (1, 0)):
        machine.wait(seconds)
        machine.set_wall(ahead)
        assert readings.look() == (ahead != 0)
    machine.wait(1)
    assert [(now // S, ahead // S) for now, ahead in readings.close()] == [
        (1000, 0),
        (1002, 0),
        (1003, -7200),
        (1004, -7200),
        (1005, -7100),
        (1007, -7100),
    ]


def test_a_thread_that_waits_between_two_clocks_does_not_take_it_for_a_setting(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = clock.Readings()
    waits = iter([0.5])

    def interrupted() -> int:
        machine.wait(next(waits, 0))
        return machine.wall

    monkeypatch.setattr(machine, "time_ns", interrupted)
    assert not readings.look()
    assert len(readings.kept) == 1


def test_a_capture_keeps_and_says_when_the_wall_clock_was_set(machine: Machine, tmp_path: Path) -> None:
    capture = captures.Capture(tmp_path / "one.capture", {})
    machine.wait(1)
    capture.check_clock()
    assert captures.clock_ahead_ns(captures.header(capture.folder)) == 0
    machine.set_wall(-7200)
    capture.check_clock()
    on_the_way = captures.header(capture.folder)  # also of a job that is killed now
    assert captures.clock_ahead_ns(on_the_way) == -7200 * S
    machine.wait(4)
    capture.finish()
    header = captures.header(capture.folder)
    assert [one["what"] for one in header["notices"]] == [
        "the machine's clock was set back by 7,200.000 s while recording: timestamps follow the monotonic clock"
    ]
    assert header["end_ns"] - header["start_ns"] == 5 * S


def test_a_capture_says_nothing_of_a_clock_that_was_left_alone(machine: Machine, tmp_path: Path) -> None:
    capture = captures.Capture(tmp_path / "one.capture", {})
    for _ in range(3):
        machine.wait(1)
        capture.check_clock()
    capture.finish()
    header = captures.header(capture.folder)
    assert header["notices"] == []
    assert header["clock"]["readings"] == [[1000 * S, 0], [1003 * S, 0]]


READINGS = [(0, 0), (10 * S, 0), (11 * S, -3 * S), (20 * S, -3 * S)]  # set back by three seconds, between 10 s and 11 s


def test_times_of_a_clock_that_was_set_back_are_certain_where_they_were_shown_once() -> None:
    wall = np.array([1, 6, 7.5, 9, 12, 17]) * S
    times, certain = WallClock(READINGS, 0, 20 * S).place(wall.astype(np.int64))
    # 7.5 was shown at 7.5 s and, set back, at 10.5 s; 9 at 9 s and at 12 s; 12 only after, at 15 s.
    assert certain.tolist() == [True, True, False, False, True, True]
    assert times[certain].tolist() == [1 * S, 6 * S, 15 * S, 20 * S]


def test_a_session_that_began_after_the_setting_has_certain_times_only() -> None:
    header = {"clock": {"readings": READINGS}, "sessions": [0, 11 * S], "end_ns": 20 * S}
    clock_of_second = session_clock(header, 1)
    assert clock_of_second
    times, certain = clock_of_second.place(np.array([8 * S, 9 * S, 17 * S]))
    assert certain.all()
    assert times.tolist() == [11 * S, 12 * S, 20 * S]


@pytest.mark.parametrize("header", [{}, {"clock": 5}, {"clock": {"readings": [[1, 2], [3]]}}, {"clock": {"readings": []}, "sessions": [0]}])
def test_a_capture_that_says_nothing_of_its_clock_is_read_as_it_is(header: dict[str, object]) -> None:
    assert session_clock(header, 0) is None
