"""Collectors, which run inside the job: one module per framework or source. They need numpy and the framework, nothing else."""

from typing import Protocol

from stepscope.model.captures import Capture


class Collector(Protocol):
    """Records one source between start and stop, and writes it into the capture. Times are those of `clock.now_ns()`."""

    def start(self, capture: Capture) -> None:
        """Begin. `capture.notice` reports data that cannot be collected."""

    def step(self, number: int) -> None:
        """Step `number` begins now; the previous one is over."""

    def stop(self) -> None:
        """End, and write all data into the capture."""
