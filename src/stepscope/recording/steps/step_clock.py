"""Durations of the steps that run while nothing is recorded: the duration of a step without a profiler."""

import sys
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepscope.recording.process.runtime import runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = 4096  # durations that are kept: the latest


class StepClock:
    """Durations of the steps in which no window was open, opened or closed, in memory of a fixed size."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, size: int = SIZE) -> None:
        self._clock, self._size = clock, size
        self._order, self._step, self._duration = (array("q", bytes(8 * size)) for _ in range(3))
        self.count = 0  # durations measured so far; the last `size` of them are kept
        self._step_ends = 0
        self._start: int | None = None  # of the step that runs now; None where its duration would not count
        self._window_changes = 0
        self._stopped = False

    def end_step(self, step: int) -> None:
        """Step `step` is over, and the next one begins."""
        now = self._clock()
        order, self._step_ends = self._step_ends, self._step_ends + 1
        changes, self._window_changes = self._window_changes, runtime.window_changes
        if self._stopped or runtime.window is not None or _torch_is_profiling():
            self._start = None
            return
        if self._start is not None and changes == runtime.window_changes:
            row = self.count % self._size
            self._order[row], self._step[row], self._duration[row] = order, step, now - self._start
            self.count += 1
        self._start = now

    def skip(self) -> None:
        """The step that runs now does not count: its start is unknown."""
        self._start = None

    def stop(self) -> None:
        """Measure no further steps: another profiler may be running."""
        self._stopped = True

    def columns(self, since: int = 0) -> "dict[str, NDArray[Any]]":
        """The durations kept, without the first `since` of all: position in the order of steps, number of the step, duration."""
        import numpy as np

        rows = np.arange(max(since, self.count - self._size), self.count) % self._size
        arrays = {"order": self._order, "step": self._step, "dur_ns": self._duration}
        return {name: np.frombuffer(values, np.int64)[rows] for name, values in arrays.items()}


def _torch_is_profiling() -> bool:
    """Whether PyTorch's profiler is running, ours or another."""
    enabled = getattr(sys.modules.get("torch.autograd"), "_profiler_enabled", None)
    return enabled is not None and bool(enabled())
