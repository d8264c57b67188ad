"""Times that a framework's profiler took from the wall clock while that was being set, on the clock of the recording."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.clock import TOLERANCE_NS
from stepscope.intervals import Ints

_EVER = 1 << 62


class _Stretch(NamedTuple):
    """From the last reading before the clock was set to the first one after it was set again: the same amount ahead."""

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
        self.stretches = [_Stretch(*one) for one in zip(starts, ends, aheads, strict=True) if one[0] < one[1]]

    def place(self, wall: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Each time on the clock of the recording, and whether it is certain: a clock that is set back shows the same times twice."""
        found, places = wall.copy(), np.zeros(len(wall), np.int64)
        for since, until, ahead in self.stretches:
            ours = wall - ahead
            inside = (ours >= since) & (ours <= until)
            found = np.where(inside & (places == 0), ours, found)
            places += inside
        return found, places == 1

    def shows_before(self, wall: int) -> bool:
        """Whether it was set back to before this time."""
        return any(since + ahead < wall - TOLERANCE_NS for since, _, ahead in self.stretches[1:])


BETWEEN_TWO = "from around the time when the machine's clock was set are left out: their timestamps fit two times"


def was_set(header: dict[str, Any]) -> bool:
    """While this capture was recorded."""
    return of_session(header | {"sessions": [0]}, 0) is not None


def of_session(header: dict[str, Any], session: int, *, whole: bool = False) -> WallClock | None:
    """That of a session of a capture, or of all from it on, where it was set before the end."""
    try:
        readings = [(int(now), int(ahead)) for now, ahead in header["clock"]["readings"]]
        starts = [int(start) for start in header["sessions"]]
        end = int(header.get("end_ns") or _EVER)
        clock = WallClock(readings, starts[session], end if whole else [*starts, end][session + 1])
    except (KeyError, TypeError, ValueError, IndexError):  # of an earlier release, or damaged: nothing is known of the clock
        return None
    return clock if any(abs(stretch.ahead) > TOLERANCE_NS for stretch in clock.stretches) else None
