from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stepscope
import tiny
from stepscope.errors import UsageError

SPANS = """
    span  track  kind    name    op_type  scope  op  flow_in  step  start_ns  dur_ns  shapes
    0     0      op      linear  linear   net    -   -        1     0         100     [[2,3]]
    1     0      op      mm      mm       net    -   -        1     10        50      [[3,4]]
    2     0      api     launch  -        -      -   -        1     20        5       -
    3     1      kernel  gemm    mm       net    1   2        1     100       40      -
    4     1      copy    dtoh    -        -      -   -        2     170       20      -
    5     0      op      linear  linear   -      -   -        2     200       30      -
"""
TRACKS = """
    track  kind    device
    0      thread  -
    1      stream  0
"""


def test_every_call_has_a_row_and_device_work_belongs_to_the_operator_that_launched_it() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS).instances(),
        """
        device  number  track  step  span  start_ns  dur_ns  self_ns  name    type    scope  kernel  kind    op  delay_ns  shapes
        cpu     -       0      1     0     0         100     50       linear  linear  net    -       op      0   -         [[2,3]]
        cpu     -       0      1     1     10        50      50       mm      mm      net    -       op      1   -         [[3,4]]
        gpu     0       1      1     3     100       40      40       mm      mm      net    gemm    kernel  1   80        [[3,4]]
        gpu     0       1      2     4     170       20      20       dtoh    dtoh    -      dtoh    copy    -   -         -
        cpu     -       0      2     5     200       30      30       linear  linear  -      -       op      5   -         -
        """,
    )


def test_device_operator_type_and_kernel_choose_calls() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    assert trace.instances(operator="mm")["span"].to_list() == [1, 3]
    assert trace.instances(device="cpu", type="linear")["span"].to_list() == [0, 5]
    assert trace.instances(kernel="gemm")["span"].to_list() == [3]
    assert trace.instances(device="cpu", kernel="gemm").height == 0
    assert trace.instances(device="aicore").height == 0
    with pytest.raises(UsageError, match=r"no device 'npu'; did you mean .* Accepted: aicore"):
        trace.instances(device="npu")


def test_durations_are_those_that_at_least_so_many_calls_do_not_exceed() -> None:
    lines = "\n".join(f"op add add {at * 1000} {at}" for at in range(1, 21))
    trace = tiny.trace(spans=f"kind name op_type start_ns dur_ns\n{lines}\nop mul mul 90000 7")
    expected = """
        device  type  calls  min_ns  p50_ns  p90_ns  p95_ns  p99_ns  max_ns
        cpu     add   20     1       10      18      19      20      20
        cpu     mul   1      7       7       7       7       7       7
    """
    tiny.assert_rows(trace.durations(), expected)
    tiny.assert_rows(trace.durations(by="operator"), expected)
    assert trace.durations(by="operator")["name"].to_list() == ["add", "mul"]
    assert trace.durations()["name"].to_list() == [None, None]
    assert trace.durations(by="shape")["p50_ns"].to_list() == [10, 7]
    with pytest.raises(UsageError, match="no grouping 'scope'"):
        trace.durations(by="scope")


def test_steps_have_their_work_and_work_outside_steps_is_last() -> None:
    trace = tiny.trace(
        spans="""
            kind  name  op_type  step  start_ns  dur_ns
            op    mul   mul      -     0         3
            op    mul   mul      2     10        5
            op    mul   mul      2     20        5
            op    mul   mul      3     30        5
        """
    )
    tiny.assert_rows(
        trace.operator_steps(),
        """
        device  type  step  calls  total_ns  self_ns
        cpu     mul   2     2      10        10
        cpu     mul   3     1      5         5
        cpu     mul   -     1      3         3
        """,
    )


def test_a_trace_without_operators_has_no_calls() -> None:
    assert tiny.trace().instances().height == 0
    assert tiny.trace().durations().height == 0
    assert tiny.trace().operator_steps().height == 0


OPERATOR = ["rank", "device", "name", "type", "scope"]
SAMPLES = Path(__file__).parent.parent / "samples"


@pytest.mark.parametrize("sample", ["chrome/torch-2.11", "chrome/torch-2.13.0", "xplane/jax-0.10.2-cpu", "xplane/jax-0.11.2-gpu"])
def test_calls_add_up_to_operators_to_types_to_steps_and_to_kernels(sample: str) -> None:
    (file,) = (SAMPLES / sample).iterdir()
    trace = stepscope.open(file, cache=False)
    calls = trace.instances()
    assert calls.height > 0

    def summed(*keys: str) -> list[tuple[object, ...]]:
        once = pl.col("call").drop_nulls().n_unique() + pl.col("call").null_count()  # the pieces of one call of an operator are one
        sums = {"calls": once.cast(pl.Int64), "total_ns": pl.col("dur_ns").sum(), "self_ns": pl.col("self_ns").sum()}
        return calls.group_by(*keys).agg(**sums).sort(keys).rows()

    def given(table: pl.DataFrame, *keys: str) -> list[tuple[object, ...]]:
        return table.select(*keys, "calls", "total_ns", "self_ns").sort(keys).rows()

    assert summed(*OPERATOR) == given(trace.operators(), *OPERATOR)
    assert summed("rank", "device", "type") == given(trace.operator_types(), "rank", "device", "type")
    assert summed("rank", "device", "type", "step") == given(trace.operator_steps(), "rank", "device", "type", "step")
    work = calls.filter(pl.col("kernel").is_not_null()).group_by("rank", "number", "kernel")
    got = work.agg(pl.len().cast(pl.Int64), pl.col("dur_ns").sum()).sort("rank", "number", "kernel").rows()
    kernels = trace.kernels(copies=True).group_by("rank", "device", "name").agg(pl.col("calls", "total_ns").sum())
    assert got == kernels.sort("rank", "device", "name").rows()
    spread = trace.durations(by="operator").select(*OPERATOR, "calls", "min_ns", "max_ns").sort(OPERATOR).rows()
    assert spread == trace.operators().select(*OPERATOR, "calls", "min_ns", "max_ns").sort(OPERATOR).rows()
    shaped = [*OPERATOR, "shapes", "dtypes", "calls", "max_ns"]
    assert (
        trace.durations(by="shape").select(shaped).sort(shaped).rows() == trace.operators(by_shape=True).select(shaped).sort(shaped).rows()
    )


@pytest.mark.parametrize("path", ["torch_h200/gpt2_full.json.gz", "ascend/legacy/expected/run_1/normal_run/profiler"])
def test_every_call_that_operators_counts_is_there_and_no_other(shared: Path, path: str) -> None:
    """In the second recording operators are recorded for steps 1 to 14 of 322, and transfers for all of them."""
    if not (shared / path).exists():
        pytest.skip(f"no {path}")
    trace = stepscope.open(shared / path)
    row = ["rank", "device", "name", "type", "scope"]
    alone = pl.col("call").is_null()
    found = trace.instances().group_by(row).agg(calls=pl.col("call").drop_nulls().n_unique() + alone.sum(), total_ns=pl.col("dur_ns").sum())
    counted = trace.operators().group_by(row).agg(pl.col("calls", "total_ns").sum())
    spread = trace.durations(by="operator").select(*row, "calls")
    order = {"check_row_order": False, "check_dtypes": False}
    assert_frame_equal(found, counted, **order)
    assert_frame_equal(spread, counted.drop("total_ns"), **order)
    if "legacy" in path:
        transfers = trace.instances(operator="stream_520_parallel_0")
        assert transfers["step"].to_list() == list(range(1, 15))
