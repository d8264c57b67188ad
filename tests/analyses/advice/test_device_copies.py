"""Rules for copies from the host and for operators on the wrong device."""

import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace

TRACKS = """
    track  kind    label         device
    0      thread  main          -
    7      stream  "stream_7"    0
"""


def copies(name: str, call_ns: int) -> Trace:
    """A copy of 100 us, whose call takes `call_ns`, then a kernel of 100 us."""
    return tiny.trace(
        spans=f"""
            track  kind    name              start_ns  dur_ns     span  flow_in
            0      op      aten::copy_       0         160000     1     -
            0      api     cudaMemcpyAsync   10000     {call_ns}  2     -
            0      op      aten::mm          160000    40000      3     -
            0      api     cudaLaunchKernel  170000    5000       4     -
            7      copy    {name}            20000     100000     5     2
            7      kernel  k                 180000    100000     6     4
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 290000",
    )


def test_a_copy_from_pageable_memory_gains_the_time_that_its_call_blocks() -> None:
    row = finding(copies('"Memcpy_HtoD_(Pageable_->_Device)"', 120_000), "pageable_copies")
    # The call takes 10 us instead of 120: everything after it moves 110 us ahead, the copy itself ends at 120 us as before.
    # The kernel is launched at 60 us, starts after the copy at 120 and ends at 220 us; the host ends at 180 us.
    assert row["gain_ns"] == pytest.approx(290_000 - 220_000, abs=1_000)
    assert row["parameters"]["time"] == 120_000


def test_a_copy_from_pinned_memory_whose_call_returns_at_once_is_not_blocking() -> None:
    assert rows(copies('"Memcpy_HtoD_(Pinned_->_Device)"', 5_000), "pageable_copies") == []


def test_copies_that_the_device_waits_for_gain_their_time() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name                              start_ns  dur_ns  span  flow_in
            0      api     cudaMemcpyAsync                   10000     5000    1     -
            0      api     cudaLaunchKernel                  20000     5000    2     -
            7      copy    "Memcpy_HtoD_(Pinned_->_Device)"  20000     300000  3     1
            7      kernel  k                                 320000    100000  4     2
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 100000",
    )
    row = finding(trace, "host_copies")
    # The kernel starts 10 us after its launch, as the copy did: at 30 us. The step ends with it, at 130 instead of 420 us.
    assert (row["step_ns"], row["gain_ns"], row["device_ns"]) == (420_000, 290_000, 300_000)


def test_copies_between_devices_are_no_copies_from_the_host() -> None:
    assert rows(copies('"Memcpy_DtoD_(Device_->_Device)"', 5_000), "host_copies") == []


def test_a_recording_without_launches_cannot_show_which_copies_block() -> None:
    trace = tiny.trace(
        spans="track kind name start_ns dur_ns\n7 copy HtoD 0 10\n7 kernel k 10 50",
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 100",
    )
    assert "launch calls linked to kernels" in missing(trace, "pageable_copies")


def ascend(category: str) -> Trace:
    return tiny.trace(
        spans=f"""
            track  kind    name      start_ns  dur_ns  category    op_type
            7      kernel  Cast0     0         100000  {category}  Cast
            7      kernel  MatMul0   100000    100000  AI_CORE     MatMul
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 200000",
        devices="device kind name\n0 aicore Ascend910",
    )


def test_an_operator_on_the_ai_cpu_gains_at_most_its_time() -> None:
    row = finding(ascend("AI_CPU"), "wrong_device")
    assert (row["culprit"], row["gain_ns"], row["confidence"]) == ("Cast", 100_000, "medium")
    assert row["title"].startswith("100 µs per step on the AI CPU: Cast")


def test_operators_on_the_ai_cores_are_where_they_belong() -> None:
    assert rows(ascend("AI_CORE"), "wrong_device") == []


def test_a_rule_for_an_npu_has_no_row_on_a_gpu() -> None:
    assert rows(copies('"Memcpy_HtoD_(Pinned_->_Device)"', 5_000), "wrong_device") == []
