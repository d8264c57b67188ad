"""Results that several analyses share, computed once per trace."""

import functools
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import msgspec
import numpy as np
import polars as pl

if TYPE_CHECKING:
    from stepscope.model.trace import Trace

_P = ParamSpec("_P")
_T = TypeVar("_T")
LIMIT = 1 << 30  # bytes of results that a trace keeps; beyond it, the least recently used are computed again


def memoized(function: "Callable[Concatenate[Trace, _P], _T]") -> "Callable[Concatenate[Trace, _P], _T]":
    """Decorator for a function of a trace: its result is computed once per trace, rank and range of steps, and freed with the trace.

    The function returns values that callers do not change, such as data frames, and takes hashable arguments.
    """

    @functools.wraps(function)
    def shared(trace: "Trace", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return trace.memo(function, *args, **kwargs)

    return shared


class Memo:
    """Results by key. Threads that ask for the same key at the same time wait for one computation."""

    def __init__(self, limit: int = LIMIT, size_of: Callable[[Any], int] | None = None) -> None:
        self._limit, self._size_of = limit, size_of or _size
        self._lock = threading.Lock()
        self._results: dict[Hashable, tuple[Any, int]] = {}  # with sizes, the least recently used first
        self._computing: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            with self._lock:
                if (known := self._results.pop(key, None)) is not None:
                    self._results[key] = known
                    result: _T = known[0]
                    return result
            try:
                result = compute()
            finally:
                with self._lock:
                    self._computing.pop(key, None)
            with self._lock:
                self._results[key] = result, self._size_of(result)
                while len(self._results) > 1 and sum(size for _, size in self._results.values()) > self._limit:
                    del self._results[next(iter(self._results))]
            return result


def _size(value: Any) -> int:
    """Bytes of the frames and arrays in a result."""
    if isinstance(value, pl.DataFrame | pl.Series):
        return int(value.estimated_size())
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_size, value)) if isinstance(value, tuple | list) else 0
