"""Ranges that the user names: `with record_function("load"): ...`, in any program, with or without a framework."""

import threading
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

import numpy as np

from stepscope.captures import Capture

_active: list["Collector"] = []  # collectors that listen now


class record_function:  # noqa: N801 - the name that PyTorch users know
    """A named range: a context manager and a decorator. Costs next to nothing while nothing records."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._start = 0

    def __enter__(self) -> "record_function":
        self._start = time.time_ns() if _active else 0
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._start and _active:
            end = time.time_ns()
            for collector in _active:
                collector.add(self.name, self._start, end, self.args)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped


class Collector:
    """Collects the ranges that `record_function` marks, on every thread."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, int, int, str, str | None]] = []
        self._capture: Capture | None = None

    def start(self, capture: Capture) -> None:
        self._capture, self._rows = capture, []
        _active.append(self)

    def add(self, name: str, start: int, end: int, args: str | None) -> None:
        thread = threading.current_thread()
        self._rows.append((name, start, end, thread.native_id or 0, thread.name, args))

    def step(self, number: int) -> None:
        pass

    def stop(self) -> None:
        _active.remove(self)
        assert self._capture is not None
        if self._rows:
            names, starts, ends, threads, labels, args = zip(*self._rows, strict=True)
            start = np.array(starts, np.int64)
            self._capture.append(
                "ranges",
                {
                    "name": names,
                    "start_ns": start,
                    "dur_ns": np.array(ends, np.int64) - start,
                    "tid": np.array(threads, np.int64),
                    "thread": labels,
                    "args": args,
                },
            )
