"""keep_slow: everything is recorded, in short windows, and only the windows with a slow step are kept."""

import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepscope.model import units

if TYPE_CHECKING:
    from stepscope.recording.collectors.options import Options
    from stepscope.recording.windows.window import Window

_HISTORY = 100  # durations that a step is compared with: the latest
_FEWEST = 10  # before which no step is judged
_STARTING = 3  # the first steps compile, tune and allocate: they are not judged, and no other is compared with them
_STEPS = 10  # of a window, at least
_MOST_KEPT = 20  # windows


class SlowSteps:
    """Durations of the steps of one recording, and the windows that were kept for them.

    A duration is the host time from the beginning of a step to its end, without the time for closing and opening windows.
    """

    def __init__(self, options: "Options", clock: Callable[[], int] = time.monotonic_ns) -> None:
        assert options.keep_slow is not None
        self._factor, self._most_bytes = options.keep_slow, options.max_bytes
        self._share = max(options.max_pause_percent, 1) / 100
        self._clock = clock
        self._history: deque[int] = deque(maxlen=_HISTORY)
        self._steps = 0  # that ended, of all windows
        self._start: int | None = None  # of the step that runs
        self._discard_ns = 0  # closing the last window that was not kept, and opening the next
        self._closed_at: int | None = None
        self._kept: list[tuple[float, Window]] = []  # how slow its slowest step was, in medians
        self._windows = self._dropped = 0
        self._displaced = 0  # deleted with a slow step, as others have slower ones
        self._begin_window()

    def _begin_window(self) -> None:
        self._opened, self._window_steps = self._clock(), 0
        self._slowest, self._reason = 0.0, ""

    def opened(self) -> None:
        """A window was opened; the next step begins."""
        if self._closed_at is not None:
            self._discard_ns, self._closed_at = self._clock() - self._closed_at, None
        self._begin_window()
        self._start = self._clock()

    def end_step(self, number: int) -> None:
        """Step `number` is over."""
        if self._start is None:
            return
        duration = self._clock() - self._start
        self._steps, self._window_steps = self._steps + 1, self._window_steps + 1
        if self._steps <= _STARTING:
            return
        if len(self._history) >= _FEWEST:
            median = statistics.median(self._history)
            slowness = duration / median
            if slowness > self._factor and slowness > self._slowest:
                self._slowest = slowness
                before = f"the median of the {len(self._history)} steps before it ({units.duration(round(median))})"
                self._reason = f"step {number} took {units.duration(duration)}, {slowness:.2f} times {before}"
        self._history.append(duration)

    def begin_step(self) -> None:
        self._start = self._clock()

    def window_is_over(self) -> bool:
        """Whether enough steps were recorded, and the window is kept or discarding it takes at most its share of the time."""
        is_cheap = self._discard_ns <= (self._clock() - self._opened) * self._share
        return self._window_steps >= _STEPS and (bool(self._reason) or is_cheap)

    def close(self, window: "Window") -> bool:
        """Stop the window. False if it was not worth keeping, and is deleted."""
        self._windows += 1
        began = self._clock()
        if not self._reason or not self._may_keep(self._slowest):
            if self._reason:
                self._displaced += 1
            else:
                self._dropped += 1
            window.discard()
            self._closed_at = began
            return False
        window.capture.notice(f"kept for a slow step: {self._reason}; so far, {_deleted(self._dropped)}")
        window.stop()
        window.reveal()
        self._kept.append((self._slowest, window))
        while len(self._kept) > 1 and sum(kept.capture.bytes for _, kept in self._kept) > self._most_bytes and self._displace():
            pass
        return True

    def _may_keep(self, slowness: float) -> bool:
        """Whether there is room: at most 20 windows are kept, the ones with the slowest steps."""
        if len(self._kept) < _MOST_KEPT:
            return True
        return min(slow for slow, _ in self._kept) < slowness and self._displace()

    def _displace(self) -> bool:
        """Delete the kept window whose slowest step is the least slow. Run folders stay: the program has made them."""
        captures = [(slowness, window) for slowness, window in self._kept if window.run is None]
        if not captures:
            return False
        fastest = min(captures, key=lambda kept: kept[0])
        shutil.rmtree(fastest[1].path, ignore_errors=True)
        fastest[1].is_deleted = True
        self._kept.remove(fastest)
        self._displaced += 1
        return True

    def summary(self) -> str:
        """What was kept, what was deleted, and why."""
        if not self._history:
            return f"kept no window: {units.count(self._steps, 'step')} ended, too few to find slow ones"
        median = units.duration(round(statistics.median(self._history)))
        limit = f"more than {self._factor:g} times the median of the steps before it (in the end {median})"
        kept = f"kept {len(self._kept)} of {units.count(self._windows, 'window')} ({units.count(self._steps, 'step')})"
        faster = f", and {self._displaced} more for windows with slower ones" if self._displaced else ""
        return f"{kept}: a slow step takes {limit}; {_deleted(self._dropped)}{faster}"


def _deleted(count: int) -> str:
    return f"{units.count(count, 'window')} without a slow step {'was' if count == 1 else 'were'} deleted"
