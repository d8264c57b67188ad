import gzip
import json
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny

SPANS = """
    track  kind           name  op_type  start_ns  dur_ns  args
    1      kernel         gemm  mm       0         30      "{"grid":[2,_1,_1],"block":[64,_1,_1],"registers_per_thread":32,"shared_memory":16,"est._achieved_occupancy_%":50}"
    2      kernel         gemm  mm       40        10      "{"grid":_[2,1,1],_"block":_[64,1,1],"registers_per_thread":32,"shared_memory":16,"est._achieved_occupancy_%":100}"
    1      kernel         gemm  mm       60        60      "{"grid":[8,1,1],"block":[64,1,1],"registers_per_thread":48,"shared_memory":0}"
    1      kernel         gemm  bmm      200       50      "{}"
    3      communication  nccl  -        300       50      -
    1      copy           htod  copy_    400       100     -
    1      set            zero  zero_    500       100     -
    0      op             mm    mm       0         900     -
    4      communication  gloo  -        0         900     -
"""  # noqa: E501
TRACKS = """
    track  kind    device  tid
    0      thread  -       100
    1      stream  0       7
    2      stream  0       20
    3      stream  0       30
    4      thread  -       101
"""


def test_a_kernel_has_a_row_per_operator_that_launches_it() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS).kernels(),
        """
        rank  device  name  op   stream   calls  total_ns  avg_ns     min_ns  max_ns  share
        0     0       gemm  mm   "7,_20"  3      100       33.333333  10      60      0.5
        0     0       gemm  bmm  "7"      1      50        50.0       50      50      0.25
        0     0       nccl  -    "30"     1      50        50.0       50      50      0.25
        """,
    )


def test_a_launch_is_the_most_frequent_one_and_occupancy_weighs_by_duration() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS).kernels(),
        """
        op   grid   block   launch_count  registers  shared_memory_bytes  occupancy
        mm   2x1x1  64x1x1  2             32         16                   0.625
        bmm  -      -       0             -          -                    -
        -    -      -       0             -          -                    -
        """,
    )


def test_the_occupancy_of_a_kernel_with_more_shared_memory_than_the_default_is_unknown() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name   start_ns  dur_ns  args
            1      kernel  large  0         30      "{"shared_memory":49153,"est._achieved_occupancy_%":0}"
            1      kernel  both   40        20      "{"shared_memory":49153,"est._achieved_occupancy_%":0}"
            1      kernel  both   60        20      "{"shared_memory":16,"est._achieved_occupancy_%":80}"
            1      kernel  tiny   90        10      "{"shared_memory":49152,"est._achieved_occupancy_%":0}"
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(trace.kernels(), "name occupancy\nboth 0.8\nlarge -\ntiny 0.0")


def test_copies_and_fills_are_rows_when_asked_for() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS).kernels(copies=True),
        """
        name  op     total_ns  share
        gemm  mm     100       0.25
        htod  copy_  100       0.25
        zero  zero_  100       0.25
        gemm  bmm    50        0.125
        nccl  -      50        0.125
        """,
    )


def test_by_scope_a_kernel_has_a_row_per_scope_of_its_operators() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  op_type  scope  start_ns  dur_ns
            1      kernel  gemm  mm       net/a  0         30
            1      kernel  gemm  mm       net/b  40        50
            1      kernel  gemm  mm       net/b  100       20
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(
        trace.kernels(by_scope=True),
        """
        name  op  scope  calls  total_ns  share
        gemm  mm  net/b  2      70        0.7
        gemm  mm  net/a  1      30        0.3
        """,
    )
    tiny.assert_rows(trace.kernels(), "name op scope calls total_ns\ngemm mm - 3 100")


def test_a_trace_without_kernels_has_no_rows() -> None:
    assert tiny.trace().kernels().height == 0


@pytest.mark.parametrize(
    "name",
    [
        "torch_h200/gpt2_full.json.gz",
        "torch_h200/ddp_gloo_rank1.json.gz",
        "torch_public/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
        "torch_public/two_ranks/sampled_rank-1.json.gz",
    ],
)
def test_totals_per_kernel_are_those_of_the_file_itself(shared: Path, name: str) -> None:
    with gzip.open(shared / name) as text:
        events = json.load(text)["traceEvents"]
    expected: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            expected[event["name"]].append(round(event["dur"] * 1000))
    rows = stepscope.open(shared / name, cache=False).kernels()
    got = rows.group_by("name").agg(pl.col("calls", "total_ns").sum(), pl.col("min_ns").min(), pl.col("max_ns").max())
    assert {row[0]: row[1:] for row in got.iter_rows()} == {
        kernel: (len(times), sum(times), min(times), max(times)) for kernel, times in expected.items()
    }
    assert rows["share"].sum() == pytest.approx(1)
    grids = {"x".join(map(str, event["args"]["grid"])) for event in events if event.get("cat") == "kernel"}
    assert set(rows["grid"]) <= grids
    assert rows["registers"].null_count() == 0
