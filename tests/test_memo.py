"""Results that analyses share: computed once per trace and narrowing, in any number of threads, within a limit of memory."""

import functools
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from stepscope.model.memo import Memo, memoized
from stepscope.model.trace import Meta, Trace

calls: list[tuple[int, str]] = []


@memoized
def span_count(trace: Trace, kind: str = "op") -> pl.DataFrame:
    frame = trace.spans.filter(pl.col("kind") == kind).select(pl.len()).collect()
    calls.append((frame.item(), kind))
    return frame


@pytest.fixture
def trace() -> Trace:
    calls.clear()
    spans = pl.DataFrame({"rank": [0, 0, 1], "span": [0, 1, 0], "step": [1, 2, 1], "kind": ["op", "op", "op"], "start_ns": [0, 10, 0]})
    steps = pl.DataFrame({"rank": [0, 0, 1], "step": [1, 2, 1], "start_ns": [0, 10, 0], "end_ns": [10, 20, 10]})
    return Trace({"spans": spans.with_columns(dur_ns=1), "steps": steps}, Meta(ranks=[0, 1]))


def test_a_result_is_computed_once_per_argument_and_narrowing(trace: Trace) -> None:
    for _ in range(2):
        assert span_count(trace).item() == 3
        assert span_count(trace, kind="kernel").item() == 0
        assert span_count(trace.of_rank(0)).item() == 2
        assert span_count(trace.of_rank(1)).item() == 1
        assert span_count(trace.of_rank(0).of_steps(1, 1)).item() == 1
        assert span_count(trace.of_steps(1, 1)).item() == 2
    assert len(calls) == 6


def test_another_trace_and_another_selection_of_rows_share_nothing(trace: Trace) -> None:
    assert span_count(trace).item() == 3
    assert span_count(trace.of_time(0, 5)).item() == 2
    assert span_count(trace.part({"spans": trace.spans.head(1)})).item() == 1
    assert span_count(trace.of_rank(0).as_rank(1)).item() == 2


def test_threads_wait_for_one_computation(trace: Trace) -> None:
    started = threading.Barrier(4)

    def ask() -> int:
        started.wait()
        return int(span_count(trace).item())

    with ThreadPoolExecutor(4) as pool:
        assert {future.result() for future in [pool.submit(ask) for _ in range(4)]} == {3}
    assert len(calls) == 1


def test_an_error_is_not_kept() -> None:
    memo = Memo()
    with pytest.raises(ZeroDivisionError):
        memo.get("key", lambda: 1 // 0)
    assert memo.get("key", lambda: 7) == 7


def test_the_least_recently_used_result_goes_beyond_the_limit() -> None:
    memo = Memo(limit=2_000)
    hundred = pl.DataFrame({"x": list(range(100))})  # 800 bytes
    computed: list[str] = []

    def compute(key: str) -> pl.DataFrame:
        computed.append(key)
        return hundred

    for key in ("a", "b", "a", "c", "a", "b"):
        memo.get(key, functools.partial(compute, key))
    assert computed == ["a", "b", "c", "b"]


def test_results_are_freed_with_the_trace() -> None:
    own = Trace({"spans": pl.DataFrame({"kind": ["op"]})})
    frame = weakref.ref(span_count(own))
    assert frame() is not None
    gc.disable()  # no cycle needs the collector
    try:
        del own
        assert frame() is None
    finally:
        gc.enable()
