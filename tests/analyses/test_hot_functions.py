import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl

import stepscope
import tiny

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"


def test_a_function_inside_itself_is_not_counted_twice() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind    track  name  start_ns  dur_ns
            0     python  0      main  0         100
            0     python  0      f     10        30
            0     python  0      h     12        25
            0     python  0      f     15        20
            0     op      0      f     16        1
            0     python  0      f     50        20
            0     op      1      g     0         7
        """
    )
    # f: 30 + 20; the f inside h inside f is part of the 30. The operator named f is another function.
    tiny.assert_rows(
        trace.hot_functions(),
        """
        rank  name  kind    calls  total_ns  self_ns  share     self_share
        0     main  python  1      100       50       0.934579  0.46729
        0     f     python  3      50        44       0.46729   0.411215
        0     g     op      1      7         7        0.065421  0.065421
        0     h     python  1      25        5        0.233645  0.046729
        0     f     op      1      1         1        0.009346  0.009346
        """,
    )
    below = trace.hot_functions(root="h")
    assert below.select("name", "kind", "total_ns").rows() == [("f", "python", 20), ("h", "python", 25), ("f", "op", 1)]


def test_each_rank_has_its_own_functions() -> None:
    trace = tiny.trace(
        spans="""
            rank  span  kind  track  name  start_ns  dur_ns  depth  parent  self_ns
            0     0     op    0      a     0         10      0      -       10
            1     0     op    0      b     0         10      0      -       4
            1     1     op    0      a     2         6       1      0       6
        """
    )
    tiny.assert_rows(
        trace.hot_functions(),
        """
        rank  name  calls  total_ns  self_ns  share
        0     a     1      10        10       1.0
        1     a     1      6         6        0.6
        1     b     1      10        4        1.0
        """,
    )


def test_a_trace_without_host_spans_has_no_functions() -> None:
    assert tiny.trace().hot_functions().height == 0


def test_totals_of_a_real_recording_are_the_outermost_calls_of_each_name() -> None:
    events = [
        e
        for e in json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") in ("python_function", "cpu_op", "cuda_runtime", "cuda_driver")
    ]
    total: Counter[str] = Counter()
    until: dict[tuple[object, str], int] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        key, start = (event["tid"], event["name"]), round(event["ts"] * 1000)
        if start >= until.get(key, 0):
            until[key] = start + round(event["dur"] * 1000)
            total[event["name"]] += until[key] - start
    got = stepscope.open(SAMPLE).hot_functions()
    assert dict(got.select("name", "total_ns").iter_rows()) == dict(total)
    assert dict(got.select("name", "calls").iter_rows()) == Counter(e["name"] for e in events)
    assert got.filter(pl.col("total_ns") < pl.col("self_ns")).height == 0
