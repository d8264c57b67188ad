from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny


def test_operators_of_a_type_are_taken_together() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name       op_type  scope  start_ns  dur_ns
            0      op      fc1/dense  MatMul   fc1    0         100
            0      op      fc1/add    Add      fc1    10        20
            0      op      fc2/dense  MatMul   fc2    200       40
            1      kernel  fc1/dense  MatMul   fc1    300       60
            1      kernel  fc2/dense  MatMul   fc2    400       20
            1      kernel  strange    -        -      500       20
        """
    )
    tiny.assert_rows(
        trace.operator_types(),
        """
        rank  device  type     calls  total_ns  self_ns  avg_ns  min_ns  max_ns  share
        0     gpu     MatMul   2      80        80       40.0    20      60      0.8
        0     gpu     strange  1      20        20       20.0    20      20      0.2
        0     cpu     MatMul   2      140       120      70.0    40      100     0.857143
        0     cpu     Add      1      20        20       20.0    20      20      0.142857
        """,
    )
    assert trace.operator_types(device="gpu")["type"].to_list() == ["MatMul", "strange"]


def test_a_trace_without_operators_has_no_rows() -> None:
    assert tiny.trace().operator_types().height == 0


def test_types_add_up_to_the_operators_of_a_real_trace(shared: Path) -> None:
    trace = stepscope.open(shared / "torch_h200" / "resnet50_full.json.gz", cache=False)
    types, operators = trace.operator_types(), trace.operators()
    for column in ("calls", "total_ns", "self_ns"):
        assert types[column].sum() == operators[column].sum() > 0
    assert types.select("device", "type").is_duplicated().sum() == 0
    assert types.group_by("device").agg(pl.col("share").sum())["share"].to_list() == [pytest.approx(1), pytest.approx(1)]
