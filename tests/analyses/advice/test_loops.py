"""Loops of small operators, and operators that a training on the CPU rarely has to run."""

import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace

TRACKS = "track kind label\n0 thread main"


def loop(calls: int, scope: str = "-", framework: str = "pytorch") -> Trace:
    """A module of 100 us, then `calls` calls of select, one every 10 us, then the end of the step after 1 ms."""
    spans = ["track kind name start_ns dur_ns scope", "0 op aten::linear 0 100000 net/layer"]
    for i in range(calls):
        spans.append(f"0 op aten::select {100_000 + i * 10_000} 5000 {scope if scope == '-' else f'{scope}/{i}'}")
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="step start_ns end_ns\n0 0 1000000")
    return trace.with_meta(framework=framework)


def test_a_loop_over_rows_takes_the_time_of_two_iterations_once_it_is_batched() -> None:
    row = finding(loop(50), "small_operators")
    # From 100 to 595 us: 495 us for 50 iterations, 19.8 us for two.
    assert (row["culprit"], row["parameters"]["count"], row["parameters"]["time"]) == ("aten::select", 50, 495_000)
    assert row["gain_ns"] == 495_000 - 19_800
    assert row["title"].startswith("50 calls of aten::select per step, one by one in a loop: 495 µs per step")


def test_a_loop_over_layers_is_no_loop_of_small_operators() -> None:
    assert rows(loop(50, scope="net/layers"), "small_operators") == []


def test_few_calls_are_no_loop() -> None:
    assert rows(loop(31), "small_operators") == []


def test_the_modules_of_torchscript_do_not_tell_rows_from_layers() -> None:
    spans = ["track kind name start_ns dur_ns", *(f"0 op aten::batch_norm {i * 10_000} 5000" for i in range(50))]
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="step start_ns end_ns\n0 0 500000")
    kineto = trace.with_meta(framework="pytorch", format="chrome", options={"with_modules": True})
    assert "operators with their modules" in missing(kineto, "small_operators")


def test_loops_need_modules_to_tell_rows_from_layers() -> None:
    trace = tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 100", tracks=TRACKS, steps="step start_ns end_ns\n0 0 100")
    assert "operators with their modules" in missing(trace, "small_operators")


def test_a_step_of_jax_that_calls_many_functions_gains_the_time_without_operators() -> None:
    spans = ["track kind name start_ns dur_ns"]
    for i in range(20):
        spans += [f"0 other PjitFunction(mul) {i * 10_000} 8000", f"1 op multiply {i * 10_000 + 4000} 1000"]
    tracks = "track kind label\n0 thread main\n1 thread xla"
    trace = tiny.trace(spans="\n".join([*spans, "0 step train 0 220000"]), tracks=tracks, steps="step start_ns end_ns\n0 0 220000")
    row = finding(trace.with_meta(framework="jax"), "small_operators")
    # From 0 to 198 us, less 20 us of operators.
    assert (row["gain_ns"], row["culprit"]) == (178_000, "mul")
    assert "jax.jit" in row["snippet"]


def sorting(operator: str) -> Trace:
    return tiny.trace(
        spans=f"""
            track  kind  name          start_ns  dur_ns
            0      op    aten::linear  0         60000
            0      op    {operator}    60000     40000
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 100000",
    )


@pytest.mark.parametrize("operator", ["aten::sort", "aten::cat", "aten::normal_", "aten::quantile", "aten::isnan"])
def test_an_operator_that_a_training_rarely_needs_gains_at_most_its_time(operator: str) -> None:
    row = finding(sorting(operator), "host_operator")
    assert (row["culprit"], row["gain_ns"], row["confidence"]) == (operator, 40_000, "medium")
    assert row["title"].startswith(f"40.0 % of each step is {operator} on the CPU")


@pytest.mark.parametrize("operator", ["aten::addmm", "aten::bernoulli_", "aten::relu", "aten::convolution"])
def test_the_operators_of_a_model_are_no_finding(operator: str) -> None:
    assert rows(sorting(operator), "host_operator") == []


def test_a_loop_that_another_program_interrupts_is_one_loop_without_the_interruption() -> None:
    spans = ["track kind name start_ns dur_ns scope"]
    for i in range(40):
        at = i * 10_000 + (30_000_000 if i >= 20 else 0)
        spans.append(f"0 op aten::select {at} 5000 -")
    steps = "step start_ns end_ns\n0 0 30400000"
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps=steps)
    row = finding(trace.with_meta(framework="pytorch", format="capture", options={"with_modules": True}), "small_operators")
    # Two parts of 195 us, which take 2 of 40 iterations after the fix; the 30 ms between them stay.
    assert row["gain_ns"] == 2 * (195_000 - round(195_000 / 20))


def test_a_loop_of_long_operators_is_no_loop_of_small_ones() -> None:
    spans = ["track kind name start_ns dur_ns scope"]
    for i in range(40):
        spans += [f"0 op aten::select {i * 500_000} 5000 -", f"0 op aten::mm {i * 500_000 + 6_000} 490000 -"]
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="step start_ns end_ns\n0 0 20000000")
    assert rows(trace.with_meta(framework="pytorch", format="capture", options={"with_modules": True}), "small_operators") == []


def eager(dur_ns: int) -> Trace:
    """20 operators of MindSpore, one every 10 us."""
    spans = ["track kind name start_ns dur_ns", *(f"0 op MatMul {i * 10_000} {dur_ns}" for i in range(20))]
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="step start_ns end_ns\n0 0 200000")
    return trace.with_meta(framework="mindspore", extra={"mode": "pynative"}, format="capture", options={"with_modules": True})


def test_a_step_in_pynative_mode_gains_the_time_between_its_operators() -> None:
    row = finding(eager(1_000), "small_operators")
    assert (row["code"], row["gain_ns"], row["culprit"]) == ("advice-small_operators-eager", 19 * 9_000, "MatMul")
    assert "mindspore.jit" in row["snippet"]
    assert rows(eager(8_000), "small_operators") == []
