"""The clock of a recording: nanoseconds since 1970 that never jump.

The wall clock of a machine can be set while a job runs, by NTP or by hand. So the monotonic clock counts, from the wall-clock time at the
start of the recording. All processes of a machine share the monotonic clock: their times agree, unless the wall clock was set between the
starts of their recordings.
"""

import time

TOLERANCE_NS = 1_000_000  # two readings of an undisturbed pair of clocks differ by microseconds
_PAIRS = 5

Reading = tuple[int, int]  # the clock of the recording, and how far the wall clock is ahead of it


def now_ns() -> int:
    """The current time on the clock of the recording."""
    return time.monotonic_ns() + _Anchor.offset_ns


def offset_ns() -> int:
    """Nanoseconds from the monotonic clock to the clock of the recording."""
    return _Anchor.offset_ns


def anchor() -> None:
    """Start from the current wall-clock time. Called where a recording begins, never within one."""
    _Anchor.offset_ns += reading()[1]


def reading() -> Reading:
    """Both clocks at the same time."""
    _, now, wall = min(_pair() for _ in range(_PAIRS))
    return now, wall - now


def _pair() -> tuple[int, int, int]:
    """The time between the two readings, the clock of the recording, the wall clock."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, (before + after) // 2 + _Anchor.offset_ns, wall


class _Anchor:
    offset_ns = 0


anchor()


class Readings:
    """Readings during a recording: the first, the last, and the two around each change of the wall clock."""

    def __init__(self) -> None:
        self._last = reading()
        self.kept: list[Reading] = [self._last]

    def look(self) -> bool:
        """Whether the wall clock was set since the last look."""
        now, ahead = now_ns(), self.kept[-1][1]
        if abs(time.time_ns() - now - ahead) <= TOLERANCE_NS:
            self._last = now, ahead
            return False
        return self._take()  # unless this thread had to wait between the two clocks

    def close(self) -> list[Reading]:
        """All of them, the last one taken now."""
        if not self._take():
            self.kept.append(self._last)
        return self.kept

    def _take(self) -> bool:
        before, self._last = self._last, reading()
        moved = abs(self._last[1] - self.kept[-1][1]) > TOLERANCE_NS
        if moved:
            self.kept += [before, self._last]
        return moved
