"""Python's garbage collector: each collection of 20 us or more, on the thread that it interrupts."""

import contextlib
import gc
import threading
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.collectors.options import Options
from stepscope.recording.process.runtime import runtime

_SHORTEST_NS = 20_000  # shorter collections are frequent, and matter less than their record
_BATCH = 50_000  # rows held in memory before they are written
_active: list["Collector"] = []  # of the open window


class Collector:
    """Records the collections between start and stop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rows: list[tuple[int, int, int, str, int]] = []
        self._begin = 0
        self._count = 0
        self._capture: Capture | None = None

    def start(self, capture: Capture) -> None:
        self._capture, self._rows, self._begin, self._count = capture, [], 0, 0
        _active.append(self)
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        now = clock.now_ns()
        if phase == "start":
            self._begin = now
        elif self._begin and now - self._begin >= _SHORTEST_NS and self._count < self._options.max_events:
            thread = threading.current_thread()
            self._rows.append((self._begin, now, thread.native_id or 0, thread.name, info.get("generation", 0)))
            self._count += 1

    def step(self, number: int) -> None:
        if len(self._rows) >= _BATCH:
            self._write()

    def stop(self) -> None:
        remove(self)
        assert self._capture is not None
        if self._count >= self._options.max_events:
            self._capture.notice(f"garbage collections are recorded up to max_events={self._options.max_events:,}: later ones are missing")
        self._write()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        assert self._capture is not None
        begins, ends, threads, labels, generations = zip(*rows, strict=True)
        start = np.array(begins, np.int64)
        words = ["GC"] * len(rows)
        with contextlib.suppress(OSError):  # a full disk, which the capture reports
            self._capture.append(
                "spans",
                {
                    "name": words,
                    "start_ns": start,
                    "dur_ns": np.array(ends, np.int64) - start,
                    "tid": np.array(threads, np.int64),
                    "thread": labels,
                    "kind": ["other"] * len(rows),
                    "category": ["gc"] * len(rows),
                    "group": ["garbage collection"] * len(rows),
                    "track_kind": ["annotation"] * len(rows),
                    "args": [f'{{"generation":{generation}}}' for generation in generations],
                },
            )


def remove(collector: Collector) -> None:
    if collector in _active:
        _active.remove(collector)
    with contextlib.suppress(ValueError):  # the program has cleared the list
        gc.callbacks.remove(collector._note)


def forget() -> None:
    """A forked child records nothing."""
    for collector in list(_active):
        remove(collector)


runtime.on_fork(forget)
runtime.on_uninstall(forget)
