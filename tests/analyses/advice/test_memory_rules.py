"""Rules for memory. The device has 80 GB."""

from typing import Any

import tiny
from advice_rows import finding, missing, rows
from device_steps import Call, step_of
from stepscope.model.trace import Trace

H100 = "NVIDIA_H100_80GB_HBM3"
GB = 10**9


def with_samples(allocated: int, reserved: int) -> Trace:
    """A step in which the device computes for a tenth of the time, with two samples of its memory."""
    samples = f"""
        name    series      owner  number  value        unit  at_ns
        a       allocated   gpu    0       {allocated}  bytes 1000
        r       reserved    gpu    0       {reserved}   bytes 1000
        a       allocated   gpu    0       1            bytes 200000
        r       reserved    gpu    0       {reserved}   bytes 200000
    """
    calls = [Call("aten::mm", "gemm", 50_000), Call("aten::numpy", None, 449_000), Call("aten::mm", "gemm", 10_000)]
    return step_of(calls, chip=H100, counters=samples)


def statement(trace: Trace, rule: str) -> dict[str, Any]:
    (row,) = rows(trace, rule)
    assert row["status"] == "statement"
    return row


def test_a_device_that_is_nearly_full_is_stated() -> None:
    row = statement(with_samples(70 * GB, 76 * GB), "memory_limit")
    assert row["parameters"]["used"] == 0.95
    assert rows(with_samples(60 * GB, 70 * GB), "memory_limit") == []  # 87.5 %


def test_unused_memory_of_an_idle_device_is_stated() -> None:
    row = statement(with_samples(10 * GB, 20 * GB), "memory_headroom")
    assert row["title"].startswith("gpu 0: 25.0 % of the memory is in use at the peak")
    assert rows(with_samples(30 * GB, 41 * GB), "memory_headroom") == []


def test_reserved_memory_that_holds_no_tensor_is_stated_where_the_device_is_half_full() -> None:
    row = statement(with_samples(45 * GB, 60 * GB), "fragmentation")
    assert row["parameters"]["unused"] == 0.25
    assert rows(with_samples(10 * GB, 30 * GB), "fragmentation") == []  # there is room


def test_memory_has_to_be_recorded() -> None:
    trace = step_of([Call("aten::mm", "gemm", 50_000)], chip=H100)
    assert "profile_memory=True" in missing(trace, "memory_limit")


def test_calls_of_the_driver_for_memory_gain_their_time() -> None:
    spans = """
        track  kind    name             start_ns  dur_ns  span  flow_in  op
        0      op      aten::empty      0         300000  1     -        -
        0      api     cudaMalloc       50000     200000  2     -        -
        0      op      aten::mm         300000    100000  3     -        -
        0      api     cudaLaunchKernel 310000    10000   4     -        -
        7      kernel  gemm             330000    50000   5     4        3
    """
    tracks = "track kind label device\n0 thread main -\n7 stream s 0"
    row = finding(tiny.trace(spans=spans, tracks=tracks, steps="step start_ns end_ns\n0 0 400000"), "allocator_stalls")
    assert (row["gain_ns"], row["culprit"], row["step_ns"]) == (200_000, "cudaMalloc", 400_000)


def blocks(freed: bool) -> Trace:
    """Six steps of 1 ms, each with a block of 1 MB of aten::add that stays, or is freed at the end of the step."""
    spans, steps, allocated = ["kind name start_ns dur_ns"], ["step start_ns end_ns"], ["device address bytes alloc_ns free_ns op scope"]
    allocated.append("cpu 0 4000000 - - - -")
    for step in range(6):
        start = step * 1_000_000
        spans.append(f"op aten::add {start} 900000")
        steps.append(f"{step} {start} {start + 1_000_000}")
        allocated.append(f"cpu {step + 1} 1000000 {start + 500} {start + 800_000 if freed else '-'} aten::add loss")
    tables = {name: "\n".join(lines) for name, lines in (("spans", spans), ("steps", steps), ("allocations", allocated))}
    return tiny.trace(**tables)


def test_blocks_that_every_step_leaves_are_growth_with_the_operator_that_leaves_them() -> None:
    row = statement(blocks(freed=False), "memory_growth")
    growth = {"growth": 1_000_000, "live": 10_000_000, "lost": 1_000_000, "operator": "aten::add", "scope": "loss"}
    assert growth.items() <= row["parameters"].items()
    assert row["culprit"] == "loss"
    assert rows(blocks(freed=True), "memory_growth") == []
