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


def test_the_gain_of_a_host_finding_is_that_of_the_unprofiled_step() -> None:
    # With the fix, 600 - 532 = 68 us of the recorded step are left: 60 us of kernels and the first launch. The unprofiled step has 300 us.
    row = finding(launches(300_000), "launch_bound")
    assert row["gain_ns"] == 300_000 - 68_000
    assert (row["of_step"], row["of_step_ns"], row["gain_share"]) == ("unprofiled", 300_000, 232 / 300)
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


def crowded(own: float, world_size: int = 1) -> Trace:
    """A step of 1 ms that sorts for half of it; in the second before its end, the machine of 2 cores has none free."""
    spans = "track kind name start_ns dur_ns\n0 op aten::mm 0 500000\n0 op aten::sort 500000 500000"
    counters = ["name at_ns value unit", '"cpu_cores" 0 2 cores']
    for at in (0, 1_000_000_000):
        shares = {"cpu user": 0.9, "cpu system": 0.1, "cpu io": 0.0, "cpu idle": 0.0, "cpu steal": 0.0} if at else {}
        counters += [f'"{name.replace(" ", "_")}" {at} {value} share' for name, value in shares.items()]
        counters += [f'"process_7_cpu_user" {at} {own} cores', f'"process_7_cpu_system" {at} 0.0 cores'] if at else []
        counters.append(f'"run_queue" {at} 3 processes')
    steps = "step start_ns end_ns how\n0 0 1000000 marker"
    trace = tiny.trace(spans=spans, tracks="track kind label\n0 thread main", steps=steps, counters="\n".join(counters))
    return trace.with_meta(framework="pytorch", world_size=world_size)


def test_other_programs_on_a_full_machine_are_stated_and_lower_the_confidence() -> None:
    (row,) = rows(crowded(0.2), "other_programs")
    assert row["title"].startswith("Other programs used the CPU while this was recorded: 100.0 % of 2 cores busy, 10.0 % by this run")
    found = finding(crowded(0.2), "host_operator")
    assert (found["gain_ns"], found["confidence"], found["severity"]) == (500_000, "low", "medium")


@pytest.mark.parametrize(("own", "world_size"), [(1.8, 1), (0.2, 8)])
def test_a_machine_that_the_run_fills_itself_or_ranks_that_are_not_open_is_not_disturbed(own: float, world_size: int) -> None:
    trace = crowded(own, world_size)
    assert rows(trace, "other_programs") == []
    assert finding(trace, "host_operator")["confidence"] == "medium"
