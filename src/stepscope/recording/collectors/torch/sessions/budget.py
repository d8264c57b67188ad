"""How much one session of torch.profiler may hold in memory, and when it may be written: PyTorch reports neither.

Measured with PyTorch 2.13: an event takes 0.2 to 0.3 KB while it is recorded. When the session ends and is written it takes 1.3 KB and 5 to
8 µs, with shapes and memory 2.5 KB and up to 20 µs, with FLOPs 4.2 KB. PyTorch 2.11 takes 1.9, 3.3 and 3.7 KB.
"""

import time
from collections.abc import Callable

from stepscope.process import heap
from stepscope.recording.collectors.options import Options

_BYTES = 200  # of an event while it is recorded; one with shapes takes more, and counts as several
_CALL_BYTES = 24  # of a call of Python while it is recorded, with stacks; when the session ends, it takes 1.9 KB like other events
_OFTEN_S = 0.1  # between two readings of the heap
_WINDOW_S = 1.0  # most programs free the allocations of a step in this time; events stay
_LOOSE = 3  # an event takes up to this many times _BYTES: with more, the rates of the session before are no longer valid
_SLOWEST = 25_000  # events in a second, where neither steps nor memory show more: a session may have been spent waiting
_SAFETY = 1.25  # the next events may cost more than the last


class Budget:
    """Budget of one recording. `clock` is in seconds, `in_use` the bytes of the heap, None where they are unknown.

    `older` is a PyTorch whose events take a third more memory when they are written.
    """

    def __init__(
        self,
        options: Options,
        clock: Callable[[], float] = time.monotonic,
        in_use: Callable[[], int | None] | None = None,
        *,
        older: bool = False,
    ) -> None:
        detailed = options.profile_memory or options.record_shapes or options.with_flops or options.with_stack
        self._fastest = 2_500_000 if detailed else 1_000_000  # events in a second: no program makes more
        self._cost_s = 20e-6 if detailed else 10e-6  # to write an event, until that has been measured
        # With FLOPs PyTorch returns each event twice: half as many take as much memory.
        self.held = max(options.max_held_events // (2 if options.with_flops else 1) * (3 if older else 4) // 4, 1)
        # With stacks all events may be calls. Most are: with the rates of the session before, operators count as what they take.
        self._bytes, self._loose = (_CALL_BYTES, _BYTES // _CALL_BYTES) if options.with_stack else (_BYTES, _LOOSE)
        self._room = options.max_events
        self._share = options.max_pause_percent / 100
        self._clock = clock
        # Another allocator keeps freed memory: then the memory of the process shows only the peak.
        self._in_use = in_use or (heap.in_use if heap.counts_all() else heap.resident)
        self._per_step = self._rate = 0.0  # events in a step and in a second, of the session before
        self._last_pause = clock()  # or the beginning of the recording

    def begin(self) -> None:
        """A session starts."""
        self._began = self._clock()
        self._read_at = self._began - _OFTEN_S
        self._heap_known = (heap := self._in_use()) is not None
        self._window, self._low = self._began, float("inf")  # when it began, and the least bytes of the heap in it
        self._base, self._grown = float(heap or 0), 0.0  # the same of the window before, and by how much it has risen in all
        self._low_at = self._base_at = self._began  # when these were read
        self._growth = 0.0  # bytes per second between the two
        self._events = 0.0  # that it may hold

    def is_full(self, steps: int = 0) -> bool:
        """Whether the session, with this many complete steps, may reach its limit before another step is over."""
        now = self._clock()
        most, seconds = min(self.held, self._room), now - self._began
        self._events = seconds * self._fastest
        if self._events < most:
            return False
        self._read_heap(now)
        # The least of a window is that of its beginning: what was added since then is as much as before.
        grown = self._grown + self._growth * (now - self._base_at)
        by_heap = grown / self._bytes if self._heap_known else None
        expected = max((steps + 1) * self._per_step if steps else 0, seconds * self._rate) * _SAFETY
        if self._per_step:
            if steps and by_heap is not None:
                expected = max(expected, by_heap / self._loose)
            self._events = min(self._events, expected)
        elif by_heap is not None:
            self._events = min(self._events, max(by_heap, expected))
        elif self._rate:
            self._events = min(self._events, max(seconds * _SLOWEST, expected))
        return self._events >= most

    def _read_heap(self, now: float) -> None:
        """Memory that the program keeps counts as events; memory that it frees hides none."""
        if now - self._read_at >= _OFTEN_S:
            self._read_at, in_use = now, self._in_use() or 0
            if in_use < self._low:
                self._low, self._low_at = in_use, now
            if now - self._window >= _WINDOW_S:
                grown = max(self._low - self._base, 0)
                self._grown += grown
                self._growth = grown / max(self._low_at - self._base_at, _OFTEN_S)
                self._window, self._base, self._base_at, self._low = now, self._low, self._low_at, float("inf")

    def may_write(self) -> bool:
        """Whether writing a session that is full takes at most its share of the time since the last pause."""
        return self._events * self._cost_s <= (self._clock() - self._last_pause) * self._share

    def may_begin(self) -> bool:
        """Whether a session that is written as soon as it is full would be written late enough."""
        expected = min(self.held, self._room)
        until = self._clock() - self._last_pause + (expected / self._rate if self._rate else 0)
        return expected * self._cost_s <= until * self._share

    def written(self, events: int, steps: int, recorded_s: float, pause_s: float) -> None:
        """A session that recorded for this time was written."""
        self._last_pause = self._clock()
        self._room -= events
        if events:
            self._cost_s = pause_s / events * _SAFETY
            self._rate = events / max(recorded_s, 1e-3)
            self._per_step = events / steps if steps else 0.0  # unknown where no step has ended

    @property
    def room(self) -> int:
        """Events that may still be written."""
        return max(self._room, 0)
