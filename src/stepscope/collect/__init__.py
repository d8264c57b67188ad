"""What runs inside the job: one module per framework or source, each a `Collector`. Needs numpy and the framework, nothing else."""

from typing import Protocol

from stepscope.captures import Capture


class Collector(Protocol):
    """Records one source between start and stop, and writes what it saw into the capture. Times are those of `clock.now_ns()`."""

    def start(self, capture: Capture) -> None:
        """Begin. What cannot be collected here is said with `capture.notice`."""

    def step(self, number: int) -> None:
        """Step `number` begins now; the one before it is over."""

    def stop(self) -> None:
        """End, and write everything into the capture."""
