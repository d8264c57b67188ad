"""Durations of the steps that run while nothing is recorded: what a step takes without a profiler."""

import sys
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = 4096  # durations that are kept: the latest


class Windows:
    """Whether a window is open in this process, and how often one was opened or closed. `windows.Window` keeps it up to date."""

    open = False
    changes = 0

    @classmethod
    def opened(cls) -> None:
        cls.open, cls.changes = True, cls.changes + 1

    @classmethod
    def closed(cls) -> None:
        cls.open, cls.changes = False, cls.changes + 1


class StepClock:
    """Durations from border to border, of steps in which no window was open, opened or closed, in memory of a fixed size."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, size: int = SIZE) -> None:
        self._clock, self._size = clock, size
        self._order, self._step, self._duration = (array("q", bytes(8 * size)) for _ in range(3))
        self.count = 0  # durations seen so far; the last `size` of them are kept
        self._borders = 0
        self._began: int | None = None  # when the step that runs now began; None where its duration would not count
        self._changes = 0
        self._stopped = False

    def border(self, step: int) -> None:
        """Step `step` is over, and the next one begins."""
        now = self._clock()
        order, self._borders = self._borders, self._borders + 1
        changes, self._changes = self._changes, Windows.changes
        if self._stopped or Windows.open or _torch_is_profiling():
            self._began = None
            return
        if self._began is not None and changes == Windows.changes:
            at = self.count % self._size
            self._order[at], self._step[at], self._duration[at] = order, step, now - self._began
            self.count += 1
        self._began = now

    def skip(self) -> None:
        """The step that runs now does not count: its beginning was not reported."""
        self._began = None

    def stop(self) -> None:
        """Take no further steps: a profiler that is not ours may be at work."""
        self._stopped = True

    def columns(self, since: int = 0) -> "dict[str, NDArray[Any]]":
        """The durations kept, without the first `since` of all: the how manieth step of the process, its number, its duration."""
        import numpy as np

        numbers = np.arange(max(since, self.count - self._size), self.count) % self._size
        kept = {"order": self._order, "step": self._step, "dur_ns": self._duration}
        return {name: np.frombuffer(values, np.int64)[numbers] for name, values in kept.items()}


def _torch_is_profiling() -> bool:
    """Whether PyTorch's profiler is on, whoever started it."""
    enabled = getattr(sys.modules.get("torch.autograd"), "_profiler_enabled", None)
    return enabled is not None and bool(enabled())
