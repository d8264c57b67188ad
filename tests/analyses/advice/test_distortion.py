"""A recording that lengthens its own steps is named, and gains of the host are reduced."""

import pytest

import tiny
from advice_rows import finding, rows
from stepscope.model.trace import Trace, UnprofiledSteps

TRACKS = "track kind label device\n0 thread main -\n7 stream s 0"


def launches(unprofiled_ns: int = 0, options: dict[str, bool] | None = None, extra: str = "") -> Trace:
    """One step of 600 us: 30 launches, one every 20 us, of kernels of 2 us."""
    spans = ["track kind name start_ns dur_ns span flow_in"]
    for i in range(30):
        spans.append(f"0 api cudaLaunchKernel {i * 20_000} 5000 {2 * i} -")
        spans.append(f"7 kernel k {i * 20_000 + 8_000} 2000 {2 * i + 1} {2 * i}")
    trace = tiny.trace(spans="\n".join([*spans, extra]).strip(), tracks=TRACKS, steps="step start_ns end_ns how\n0 0 600000 marker")
    bare = (
        []
        if unprofiled_ns is None
        else [UnprofiledSteps(rank=0, count=10, median_ns=unprofiled_ns, p10_ns=unprofiled_ns, p90_ns=unprofiled_ns)]
    )
    return trace.with_meta(unprofiled_steps=bare, options=options or {})


def test_the_gain_of_a_host_finding_is_the_part_of_the_idle_time_that_is_left_without_recording() -> None:
    # The device is busy for 60 us. Idle: 540 us while recorded, 240 us in an unprofiled step of 300 us.
    row = finding(launches(300_000), "launch_bound")
    assert row["gain_ns"] == round(532_000 * 240 / 540)
    (statement,) = rows(launches(300_000), "distortion")
    assert (statement["status"], statement["code"]) == ("statement", "advice-distortion-known")
    assert statement["title"].startswith("+100 % per recorded step: 600 µs, unprofiled 300 µs.")


def test_where_the_overhead_is_unknown_but_likely_the_confidence_is_lower() -> None:
    trace = launches(options={"with_stack": True}).with_meta(framework="pytorch")
    row = finding(trace, "launch_bound")
    assert (row["gain_ns"], row["confidence"]) == (532_000, "medium")
    (statement,) = rows(trace, "distortion")
    assert "stacks" in statement["title"]


def test_a_recording_that_costs_little_is_not_named() -> None:
    row = finding(launches(590_000), "launch_bound")
    assert row["gain_ns"] == pytest.approx(532_000, rel=0.05)
    assert row["confidence"] == "high"
    assert rows(launches(590_000), "distortion") == []


def test_profiler_work_inside_the_steps_is_named_with_its_share() -> None:
    (row,) = rows(launches(extra='0 other "Activity_Buffer_Request" 590000 9000 999 -'), "distortion")
    assert row["code"] == "advice-distortion-flush"
    assert row["parameters"]["time"] == 9_000
