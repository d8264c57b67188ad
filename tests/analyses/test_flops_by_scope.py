from pathlib import Path

import pytest

import stepscope
import tiny

SPANS = """
    kind  name       scope       start_ns  dur_ns  shapes
    op    aten::mm   net/head/a  0         10      [[2,3],[3,4]]
    op    aten::mm   net/head/b  10        10      [[2,3],[3,2]]
    op    aten::mm   net         20        20      [[1,1],[1,14]]
    op    aten::mm   network     40        20      [[1,1],[1,10]]
    op    aten::mm   -           60        40      [[1,1],[1,50]]
    op    aten::add  net/head/a  100       50      [[2,3]]
"""


def test_a_scope_has_what_is_below_it_and_the_empty_one_has_all() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS).flops_by_scope(),
        """
        rank  scope       depth  calls  flops  share  time_ns  flops_per_s
        0     ""          0      5      220    1.0    100      2200000000.0
        0     net         1      3      100    0.454545  40    2500000000.0
        0     net/head    2      2      72     0.327273  20    3600000000.0
        0     net/head/a  3      1      48     0.218182  10    4800000000.0
        0     net/head/b  3      1      24     0.109091  10    2400000000.0
        0     network     1      1      20     0.090909  20    1000000000.0
        """,
    )


@pytest.mark.parametrize(("depth", "scopes"), [(0, [""]), (1, ["", "net", "network"]), (2, ["", "net", "net/head", "network"])])
def test_depth_is_how_many_levels_are_shown(depth: int, scopes: list[str]) -> None:
    rows = tiny.trace(spans=SPANS).flops_by_scope(depth=depth)
    assert rows["scope"].to_list() == scopes
    assert rows["flops"][0] == 220


def test_utilization_of_a_scope_is_the_time_at_peak_over_the_time_it_took() -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name       scope  op  start_ns  dur_ns  shapes                     dtypes
            0     0      op      aten::mm   net    -   0         9       [[100,100],[100,100]]      ["c10::Half","c10::Half"]
            1     1      kernel  k          net    0   10        100     -                          -
            2     0      op      aten::bmm  net    -   10        9       [[1,100,100],[1,100,100]]  ["float","float"]
            3     1      kernel  k          net    2   200       300     -                          -
        """,
        tracks="track kind device\n0 thread -\n1 stream 0",
        devices='device kind name\n0 gpu "NVIDIA_H200"',
    )
    # 2e6 FLOP at 989.4 TFLOP/s are 2.0214 ns, at 67 TFLOP/s 29.851 ns; they took 400 ns.
    tiny.assert_rows(
        trace.flops_by_scope(depth=0),
        """
        scope  flops    time_ns  utilization
        ""     4000000  400      0.07968
        """,
    )


def test_a_trace_without_operators_has_no_rows() -> None:
    assert tiny.trace().flops_by_scope().height == 0


def test_the_whole_is_the_sum_of_the_operators_of_a_real_trace(shared: Path) -> None:
    trace = stepscope.open(shared / "torch_h200" / "gpt2_full.json.gz", cache=False)
    whole, operators = trace.flops_by_scope(depth=0), trace.flops()
    assert whole["flops"].to_list() == [operators["flops"].sum()]
    assert whole["time_ns"].to_list() == [operators["time_ns"].sum()]
