"""Rules for calls of modules: passes without a backward pass, and passes that are computed twice."""

import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace

TRACKS = "track kind label\n0 thread main"
TRAINING = """
    track  kind   name                    start_ns  dur_ns  span  flow_in  scope
    0      scope  "nn.Module:_Net"        0         200000  1     -        Net
    0      op     aten::linear            0         200000  2     -        Net
    0      op     autograd::engine        200000    300000  3     -        -
    0      op     AddmmBackward0          210000    290000  4     2        Net
"""


def step(extra: str, end_ns: int) -> Trace:
    trace = tiny.trace(spans=TRAINING + extra, tracks=TRACKS, steps=f"step start_ns end_ns\n0 0 {end_ns}")
    return trace.with_meta(framework="pytorch", format="capture", options={"with_modules": True})


def test_a_second_pass_of_a_model_without_a_backward_pass_takes_no_time_once_its_result_is_reused() -> None:
    again = """0 scope "nn.Module:_Net" 500000 150000 5 - Net
        0 op aten::linear 500000 150000 6 - Net"""
    row = finding(step(again, 650_000), "forward_only")
    assert (row["culprit"], row["gain_ns"], row["parameters"]["count"]) == ("Net", 150_000, 1)
    assert row["title"].startswith("Net also runs 1 time per step without a backward pass: 150 µs per step")


def test_a_model_that_only_infers_is_no_second_pass() -> None:
    teacher = """0 scope "nn.Module:_Teacher" 500000 150000 5 - Teacher
        0 op aten::linear 500000 150000 6 - Teacher"""
    assert rows(step(teacher, 650_000), "forward_only") == []


def test_a_run_that_only_infers_has_no_second_pass() -> None:
    spans = "\n".join(TRAINING.strip().splitlines()[:3])
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps="step start_ns end_ns\n0 0 200000")
    assert rows(trace.with_meta(framework="pytorch"), "forward_only") == []


def recomputed() -> Trace:
    """The gradient at 210 us first calls the module again, from 220 to 300 us."""
    inner = """0 scope "nn.Module:_Net" 220000 80000 5 - Net
        0 op aten::linear 220000 80000 6 - Net"""
    return step(inner, 500_000)


def test_a_pass_that_is_computed_again_gains_its_time_and_that_before_it() -> None:
    row = finding(recomputed(), "recomputation")
    assert (row["culprit"], row["gain_ns"], row["parameters"]["time"]) == ("Net", 90_000, 80_000)
    assert rows(recomputed(), "forward_only") == []


def test_a_model_without_checkpoints_is_computed_once() -> None:
    assert rows(step("", 500_000), "recomputation") == []


@pytest.mark.parametrize("rule", ["forward_only", "recomputation"])
def test_without_modules_the_rules_are_not_checked(rule: str) -> None:
    spans = "track kind name start_ns dur_ns\n0 op aten::linear 0 100"
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100").with_meta(framework="pytorch")
    assert "with_modules=True" in missing(trace, rule)


def test_anomaly_detection_gains_its_checks_and_the_stacks_of_operators_with_a_gradient() -> None:
    spans = """
        track  kind  name                                          start_ns  dur_ns  span  flow_in
        0      op    aten::relu                                    0         50000   1     -
        0      op    aten::clamp_min                               45000     5000    2     -
        0      op    autograd::engine::evaluate_function:Relu   50000     50000   3     -
        0      op    ReluBackward0                                 50000     20000   4     1
        0      op    aten::isnan                                   70000     10000   5     -
        0      op    aten::any                                     80000     10000   6     -
    """
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100000").with_meta(framework="pytorch")
    row = finding(trace, "anomaly_detection")
    assert (row["gain_ns"], row["culprit"], row["parameters"]["checks"]) == (45_000 + 20_000, "aten::isnan", 1)
    assert rows(trace, "host_operator") == []
