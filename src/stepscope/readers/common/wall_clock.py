"""Times of the wall clock, which may be set during a recording, on the clock of the recording."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.model.intervals import Ints
from stepscope.process.clock import TOLERANCE_NS

_EVER = 1 << 62


class _Period(NamedTuple):
    """From the last reading before the clock was set to the first one after it was set again: `ahead` is constant."""

    since: int
    until: int
    ahead: int


class WallClock:
    """The wall clock in one session of a profiler."""

    def __init__(self, readings: list[tuple[int, int]], since: int, until: int) -> None:
        edges = [number for number in range(1, len(readings)) if abs(readings[number][1] - readings[number - 1][1]) > TOLERANCE_NS]
        starts = [since, *(max(readings[number - 1][0], since) for number in edges)]
        ends = [*(min(readings[number][0], until) for number in edges), until]
        aheads = [readings[number][1] for number in (0, *edges)]
        self.periods = [_Period(*edges) for edges in zip(starts, ends, aheads, strict=True) if edges[0] < edges[1]]

    def place(self, wall: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Each time on the clock of the recording, and whether it is certain: a clock that is set back shows the same times twice."""
        times, matches = wall.copy(), np.zeros(len(wall), np.int64)
        for since, until, ahead in self.periods:
            corrected = wall - ahead
            inside = (corrected >= since) & (corrected <= until)
            times = np.where(inside & (matches == 0), corrected, times)
            matches += inside
        return times, matches == 1

    def shows_before(self, wall: int) -> bool:
        """Whether it was set back to before this time."""
        return any(since + ahead < wall - TOLERANCE_NS for since, _, ahead in self.periods[1:])


AMBIGUOUS_TIMES = "from around the time when the machine's clock was set are left out: their timestamps fit two times"


def clock_was_set(header: dict[str, Any]) -> bool:
    """Whether the wall clock was set while this capture was recorded."""
    return session_clock(header | {"sessions": [0]}, 0) is not None


def session_clock(header: dict[str, Any], session: int, *, whole: bool = False) -> WallClock | None:
    """The clock of a session of a capture, or with `whole` of all sessions from it on; None where it was not set."""
    try:
        readings = [(int(now), int(ahead)) for now, ahead in header["clock"]["readings"]]
        starts = [int(start) for start in header["sessions"]]
        end = int(header.get("end_ns") or _EVER)
        clock = WallClock(readings, starts[session], end if whole else [*starts, end][session + 1])
    except (KeyError, TypeError, ValueError, IndexError):  # of an earlier release, or damaged: the clock is unknown
        return None
    return clock if any(abs(period.ahead) > TOLERANCE_NS for period in clock.periods) else None
