"""User annotations: `with record_function("load"): ...`, in any program, with or without a framework."""

import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Column
from stepscope.process import clock
from stepscope.recording.collectors.options import Options
from stepscope.recording.process.runtime import runtime

_BATCH = 50_000  # rows held in memory before they are written
_active: list["Collector"] = []  # of the open window
watchers: list[Callable[[str, bool], None]] = []  # called with the name of a range, when it is entered (True) and after it was left

Row = tuple[str, int, int, int, str, str | None]


class record_function:  # noqa: N801 - the name that PyTorch users know
    """A named range: a context manager and a decorator. Costs next to nothing while nothing records."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = str(name), None if args is None else str(args)  # a name of another type must not end the training
        self._start = 0

    def __enter__(self) -> "record_function":
        for watcher in tuple(watchers):
            watcher(self.name, True)
        self._start = clock.now_ns() if _active else 0
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._start and _active:
            end = clock.now_ns()
            for collector in _active:
                collector.add(self.name, self._start, end, self.args)
        for watcher in watchers:
            watcher(self.name, False)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped


class mstx:  # noqa: N801 - the name that MindSpore users know
    """MindSpore's markers, recorded on every platform with `mstx=True`. On Ascend, MindSpore records them, too."""

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = "default") -> None:
        """A marker without a duration."""
        if _active:
            now = clock.now_ns()
            _mark(message, now, now, domain)
        if stock := _stock_mstx():
            stock.mark(message, stream, domain)

    @staticmethod
    def range_start(message: str, stream: Any = None, domain: str = "default") -> int:
        """Begin a range. The result is the id with which it ends."""
        for watcher in tuple(watchers):
            watcher(str(message), True)
        stock = _stock_mstx()
        stock_id = stock.range_start(message, stream, domain) if stock else 0
        if not _active and not watchers:
            return stock_id
        number = next(_numbers)
        _open[number] = (message, clock.now_ns(), stock_id)
        return number

    @staticmethod
    def range_end(range_id: int, domain: str = "default") -> None:
        message, start, stock_id = _open.pop(range_id, ("", 0, range_id))
        if start and _active:
            _mark(message, start, clock.now_ns(), domain)
        if stock_id and (stock := _stock_mstx()):
            stock.range_end(stock_id, domain)
        for watcher in watchers:
            watcher(str(message), False)


def forget() -> None:
    """A forked child records nothing."""
    _active.clear()
    _open.clear()


class Collector:
    """Collects the ranges that `record_function` and `mstx` mark, on every thread."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._rows: list[Row] = []
        self._count = 0
        self._capture: Capture | None = None
        self._lock = threading.Lock()
        self.full = False

    def start(self, capture: Capture) -> None:
        self._capture, self._rows, self._count, self.full = capture, [], 0, False
        _active.append(self)

    def add(self, name: str, start: int, end: int, args: str | None = None) -> None:
        if self.full:
            return
        thread = threading.current_thread()
        with self._lock:
            self._rows.append((name, start, end, thread.native_id or 0, thread.name, args))
            self._count += 1
            is_batch = len(self._rows) >= _BATCH
            rows, self._rows = (self._rows, []) if is_batch else ([], self._rows)
            self.full = self._count >= self._options.max_events
        if rows:
            self._write(rows)

    def wants(self, domain: str) -> bool:
        options = self._options
        return (
            options.mstx
            and domain not in options.mstx_domain_exclude
            and (not options.mstx_domain_include or domain in options.mstx_domain_include)
        )

    def step(self, number: int) -> None:
        if self._capture is not None:
            self._capture.check_clock()

    def stop(self) -> None:
        if self in _active:
            _active.remove(self)
        assert self._capture is not None
        if self.full:
            self._capture.notice(f"ranges are recorded up to max_events={self._options.max_events:,}: later ones are missing")
        self._write(self._rows)

    def _write(self, rows: list[Row]) -> None:
        if not rows:
            return
        assert self._capture is not None
        names, starts, ends, threads, labels, args = zip(*rows, strict=True)
        start = np.array(starts, np.int64)
        columns: dict[str, Column] = {"name": names, "start_ns": start, "dur_ns": np.array(ends, np.int64) - start}
        with contextlib.suppress(OSError):  # a full disk, which the capture reports: the user's range must not raise
            self._capture.append("ranges", columns | {"tid": np.array(threads, np.int64), "thread": labels, "args": args})


_numbers = itertools.count(1 << 32)  # above any id of MindSpore
_open: dict[int, tuple[str, int, int]] = {}  # open mstx ranges: message, start, MindSpore's id


def _mark(message: str, start: int, end: int, domain: str) -> None:
    for collector in _active:
        if collector.wants(domain):
            collector.add(str(message), start, end, None if domain == "default" else json.dumps({"domain": str(domain)}))


def _stock_mstx() -> Any:
    stock = getattr(sys.modules.get("mindspore.profiler.mstx"), "Mstx", None)
    return stock if getattr(stock, "enable", False) else None


runtime.on_fork(forget)
runtime.on_uninstall(watchers.clear)
