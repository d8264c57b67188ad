"""When a session of torch.profiler is full, and when it may be written, by hand."""

import os
import subprocess
import sys
import textwrap

import pytest

from programs import SOURCE
from stepscope.recording.collectors.options import Options
from stepscope.recording.collectors.torch.sessions.budget import Budget


class World:
    """A clock and a heap that move only when they are told to."""

    def __init__(self) -> None:
        self.seconds, self.heap = 100.0, 50_000_000

    def budget(self, **choices: int) -> Budget:
        budget = Budget(Options(**choices), clock=lambda: self.seconds, in_use=lambda: self.heap)  # type: ignore[arg-type]
        budget.begin()
        return budget

    def go_on(self, seconds: float, grown: int = 0) -> None:
        self.seconds += seconds
        self.heap += grown


def test_a_first_session_is_full_when_the_heap_has_grown_by_what_its_events_take() -> None:
    world = World()
    budget = world.budget(max_held_events=1_000_000)
    world.go_on(0.9, grown=500_000_000)
    assert not budget.is_full(1)  # no program makes so many events in so little time
    world.go_on(1.0, grown=-500_000_000 + 199_000_000)
    assert not budget.is_full(2)  # 199 MB are fewer than a million events of 200 bytes
    world.go_on(1.0, grown=-300_000_000)
    assert not budget.is_full(3)
    world.go_on(1.0, grown=2_000_000)
    assert budget.is_full(4)  # what was freed in between has hidden none of them


def test_with_stacks_events_take_24_bytes_as_most_are_calls_of_python() -> None:
    world = World()
    budget = world.budget(max_held_events=500_000, with_stack=True)
    for _ in range(9):
        world.go_on(1.0, grown=1_200_000)  # 50,000 calls
        assert not budget.is_full()
    for _ in range(3):
        world.go_on(1.0, grown=1_200_000)
        full = budget.is_full()
    assert full  # 600,000 calls; 14.4 MB would be 72,000 events of 200 bytes


def test_a_program_that_makes_events_fast_does_not_outrun_the_readings_of_the_heap() -> None:
    world = World()
    budget = world.budget(max_held_events=500_000)
    seconds = 0.0
    while not budget.is_full():
        world.go_on(0.25, grown=31_000_000)  # 620,000 events of 200 bytes a second, as a loop over x.add(1) makes
        seconds += 0.25
    assert seconds <= 1.25  # 775,000 events; before, 2.5 s and 1,550,000


def test_with_flops_half_as_many_events_are_held_as_each_takes_twice_the_memory() -> None:
    assert World().budget(max_held_events=500_000).held == 500_000
    assert World().budget(max_held_events=500_000, with_flops=True).held == 250_000
    assert World().budget(max_held_events=1, with_flops=True).held == 1


def test_what_a_program_allocates_for_a_step_and_frees_is_no_event() -> None:
    world = World()
    budget = world.budget(max_held_events=1_000_000)
    for _ in range(100):
        world.go_on(0.5, grown=500_000_000)
        assert not budget.is_full()
        world.go_on(0.5, grown=-500_000_000 + 1_900_000)
        assert not budget.is_full()  # 100 x 1.9 MB are 950,000 events
    for _ in range(10):
        world.go_on(1.0, grown=1_900_000)
        full = budget.is_full()
    assert full


def test_a_session_in_which_no_step_ended_says_nothing_about_the_next() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000)
    budget.written(events=1, steps=0, recorded_s=8.0, pause_s=0.001)  # it has waited for something
    budget.begin()
    world.go_on(1.0, grown=1_900_000)
    assert not budget.is_full()
    world.go_on(1.0, grown=200_000)
    assert budget.is_full()  # 2.1 MB, 10,500 events


def test_where_steps_come_to_have_more_events_than_before_the_heap_tells() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000)
    budget.written(events=100, steps=10, recorded_s=10.0, pause_s=0.01)  # the program has compiled
    budget.begin()
    world.go_on(1.0, grown=5_900_000)
    assert not budget.is_full(5)
    world.go_on(1.0, grown=200_000)
    assert budget.is_full(6)  # 6.1 MB, 10,167 events of 600 bytes


def test_a_session_that_only_waited_says_nothing_of_the_next() -> None:
    world = World()
    budget = Budget(Options(max_held_events=1_000_000), clock=lambda: world.seconds, in_use=lambda: None)
    budget.begin()
    world.go_on(1.0)
    assert budget.is_full()
    budget.written(events=1, steps=0, recorded_s=30.0, pause_s=0.01)  # for another rank
    budget.begin()
    world.go_on(39.9)
    assert not budget.is_full()
    world.go_on(0.2)
    assert budget.is_full()  # 25,000 events a second


def test_where_another_allocator_hides_the_heap_the_memory_of_the_process_tells() -> None:
    code = """
        from stepscope.process import heap
        assert not heap.counts_all()
        before = heap.resident()
        block = bytearray(b"x") * 50_000_000
        print(heap.resident() - before)
    """
    checks = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=os.environ | checks, capture_output=True, text=True, check=False
    )
    if "cannot be preloaded" in done.stderr:
        pytest.skip("there is no libc_malloc_debug.so.0")
    assert 50_000_000 <= int(done.stdout) < 60_000_000, done.stderr


def test_where_the_heap_is_not_known_time_alone_decides() -> None:
    world = World()
    budget = Budget(Options(max_held_events=1_000_000), clock=lambda: world.seconds, in_use=lambda: None)
    budget.begin()
    world.go_on(0.99)
    assert not budget.is_full()
    world.go_on(0.01)
    assert budget.is_full()


def test_later_sessions_are_judged_by_the_one_before() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000)
    budget.written(events=8_000, steps=8, recorded_s=8.0, pause_s=0.08)  # 1,000 a step and a second
    budget.begin()
    world.go_on(6.9, grown=5_900_000)  # 9,833 events of 600 bytes
    assert not budget.is_full(6)  # (6 + 1) x 1,000 x 1.25 = 8,750
    assert budget.is_full(7)  # 10,000
    world.go_on(1.2)
    assert budget.is_full(1)  # 8.1 s x 1,000 x 1.25 = 10,125


def test_a_pause_takes_at_most_its_share_of_the_time_since_the_last_one() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000, max_pause_percent=1)
    world.go_on(5.0, grown=2_000_000)  # 10,000 events, at 10 us each: 0.1 s, which is 1 % of 10 s
    assert budget.is_full(1)
    assert not budget.may_write()
    world.go_on(5.1)
    assert budget.may_write()
    budget.written(events=10_000, steps=10, recorded_s=5.0, pause_s=0.2)  # 20 us an event, and a quarter more to be safe
    budget.begin()
    world.go_on(4.0)
    assert budget.is_full(9)  # (9 + 1) x 1,000 x 1.25 = 12,500 events, 0.3125 s
    world.go_on(27.2)
    assert not budget.may_write()
    world.go_on(0.1)
    assert budget.may_write()


def test_a_session_that_is_written_at_once_begins_so_late_that_the_share_holds() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000, max_pause_percent=1)
    budget.written(events=10_000, steps=10, recorded_s=5.0, pause_s=0.2)  # 2,000 a second, so the next one takes 5 s
    world.go_on(19.9)
    assert not budget.may_begin()  # 10,000 x 25 us = 0.25 s, 1 % of 25 s
    world.go_on(0.2)
    assert budget.may_begin()


def test_the_bound_on_everything_holds_for_what_is_left() -> None:
    world = World()
    budget = world.budget(max_held_events=10_000, max_events=12_000)
    budget.written(events=10_000, steps=10, recorded_s=10.0, pause_s=0.1)
    assert budget.room == 2_000
    budget.begin()
    world.go_on(0.5)
    assert budget.is_full(1)  # (1 + 1) x 1,000 x 1.25 = 2,500
    budget.written(events=2_500, steps=2, recorded_s=1.0, pause_s=0.1)
    assert budget.room == 0
