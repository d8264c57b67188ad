"""Rules for operators and kernels. The device is the bottleneck in most traces, so that a step gains what its kernels save."""

from typing import Any

import polars as pl
import pytest

import tiny
from advice_rows import finding, missing, rows
from device_steps import Call, step_of

LONG = Call("aten::mm", "gemm", 400_000)


def test_layout_conversions_gain_their_time() -> None:
    row = finding(step_of([LONG, Call("aten::cudnn_convolution", "void_cudnn::nchwToNhwcKernel<>", 100_000)]), "layout_conversion")
    assert (row["gain_ns"], row["culprit"]) == (100_000, "void_cudnn::nchwToNhwcKernel<>")
    assert rows(step_of([LONG]), "layout_conversion") == []


def test_a_contiguous_call_that_copies_gains_its_time_and_one_that_does_not_is_no_finding() -> None:
    row = finding(step_of([LONG, Call("aten::copy_", "copy_kernel", 100_000, around="aten::contiguous")]), "contiguous_copies")
    assert row["gain_ns"] == 100_000
    assert rows(step_of([LONG, Call("aten::contiguous", None, 1_000)]), "contiguous_copies") == []


def test_a_conversion_of_types_gains_its_time_and_a_copy_from_the_host_is_none() -> None:
    cast = Call("aten::copy_", "cast_kernel", 100_000, around="aten::to")
    assert finding(step_of([LONG, cast]), "type_conversion")["gain_ns"] == 100_000
    transfer = Call("aten::copy_", '"Memcpy_HtoD_(Pinned_->_Device)"', 100_000, kind="copy", around="aten::to")
    assert rows(step_of([LONG, transfer]), "type_conversion") == []
    assert rows(step_of([LONG, Call("aten::to", None, 1_000)]), "type_conversion") == []  # nothing to convert


def test_a_chain_of_elementwise_kernels_takes_as_long_as_its_longest() -> None:
    kernels = [Call("aten::mul", "vectorized_elementwise_kernel<a>", 60_000), Call("aten::add", "vectorized_elementwise_kernel<b>", 40_000)]
    row = finding(step_of([LONG, *kernels, LONG]), "elementwise_chain")
    assert (row["gain_ns"], row["parameters"]["kernels"], row["parameters"]["chains"]) == (pytest.approx(40_000, abs=2), 2, 1)
    apart = [kernels[0], LONG, kernels[1]]
    assert rows(step_of(apart), "elementwise_chain") == []


def attention(*between: Call) -> list[Call]:
    return [LONG, Call("aten::bmm", "gemm", 100_000), *between, Call("aten::bmm", "gemm", 100_000), LONG]


def test_attention_from_separate_operators_gains_what_is_between_its_products() -> None:
    between = [Call("aten::mul", "k", 30_000), Call("aten::softmax", "softmax", 50_000), Call("aten::dropout", "k", 20_000)]
    row = finding(step_of(attention(*between)), "unfused_attention")
    assert (row["gain_ns"], row["parameters"]["count"], row["culprit"]) == (100_000, 1, "aten::softmax")
    assert "scaled_dot_product_attention" in row["snippet"]


def test_a_softmax_after_the_last_product_is_no_attention() -> None:
    assert rows(step_of([*attention(Call("aten::mul", "k", 30_000)), Call("aten::softmax", "softmax", 50_000)]), "unfused_attention") == []


CONVOLUTION = "[[8,3,32,32],[16,3,3,3],[16]]"


def test_a_bias_before_a_batch_normalization_gains_the_kernel_that_adds_it() -> None:
    adds = Call("aten::add_", "k", 50_000, around="aten::conv2d")
    norm = Call("aten::batch_norm", "bn", 80_000)
    trace = step_of([LONG, adds, norm])
    assert "shapes" in missing(trace, "bias_before_norm")  # without them nothing is known of a bias
    spans = trace.spans.collect().to_dicts()
    for span in spans:
        span["shapes"] = CONVOLUTION if span["name"] == "aten::conv2d" else span["shapes"]
    schema = dict(trace.spans.collect_schema())
    row = finding(trace.with_tables(spans=pl.DataFrame(spans, schema)), "bias_before_norm")
    assert (row["gain_ns"], row["culprit"]) == (50_000, "aten::conv2d")


def single_updates(count: int) -> list[Call]:
    """Each update is an operator of 5 us on the host; one takes 2 us, which is the cost of a call."""
    updates = [Call("aten::addcdiv_", None, 5_000, around="Optimizer.step#Adam.step") for _ in range(count - 4)]
    cheap = [Call("aten::add_", None, 2_000, around="Optimizer.step#Adam.step")] * 4
    return [Call("aten::mm", None, 500_000), *updates, *cheap]


def test_an_optimizer_that_updates_one_parameter_after_the_other_saves_the_cost_of_each_call() -> None:
    row = finding(step_of(single_updates(40)), "optimizer_loop")
    # The fastest quarter of the calls takes up to 5 us, so that is the cost of a call, and all of 36 x 5 us + 4 x 2 us = 188 us is cost.
    assert (row["gain_ns"], row["culprit"], row["parameters"]["calls"]) == (188_000, "Adam.step", 40)


def test_an_optimizer_that_updates_all_parameters_together_is_no_finding() -> None:
    together = [Call("aten::_foreach_add_", None, 50_000, around="Optimizer.step#Adam.step") for _ in range(30)]
    assert rows(step_of(together), "optimizer_loop") == []
    assert rows(step_of(single_updates(10)), "optimizer_loop") == []  # a small model


def test_gradients_that_are_set_to_zero_gain_the_writes() -> None:
    zeros = [Call("aten::zero_", None, 20_000, around="Optimizer.zero_grad#SGD.zero_grad") for _ in range(3)]
    row = finding(step_of([Call("aten::mm", None, 500_000), *zeros]), "zero_grad")
    assert (row["gain_ns"], row["parameters"]["calls"]) == (60_000, 3)
    elsewhere = [Call("aten::zero_", None, 20_000)]
    assert rows(step_of([Call("aten::mm", None, 500_000), *elsewhere]), "zero_grad") == []


def shapes_of_steps(shapes: list[str]) -> list[dict[str, Any]]:
    spans = "\n".join(["kind name start_ns dur_ns shapes", *(f"op aten::mm {i * 1000} 900 {shape}" for i, shape in enumerate(shapes))])
    steps = "\n".join(["step start_ns end_ns", *(f"{i} {i * 1000} {i * 1000 + 1000}" for i in range(len(shapes)))])
    return rows(tiny.trace(spans=spans, steps=steps), "changing_shapes")


def test_shapes_that_differ_in_most_steps_are_stated() -> None:
    (row,) = shapes_of_steps([f"[[8,{i}]]" for i in range(10, 16)])
    assert (row["status"], row["culprit"]) == ("statement", "aten::mm")
    # The first step is warm-up.
    assert row["parameters"]["shapes"] >= 5
    assert shapes_of_steps(["[[8,10]]"] * 6) == []


def test_a_clock_below_its_highest_sample_gains_that_share_of_the_kernels() -> None:
    samples = """
        name   series       owner  number  value  at_ns
        clock  "gpu_clock"  gpu    0       1500   1000
        clock  "gpu_clock"  gpu    0       1500   500000
        clock  "gpu_clock"  gpu    0       2000   950000
    """
    calls = [Call("aten::mm", "gemm", 1_200_000), Call("aten::numpy", None, 899_000)]  # the step lasts 900 us on the host
    row = finding(step_of(calls, counters=samples), "clock_drop")
    assert (row["parameters"]["drop"], row["gain_ns"]) == (0.25, 300_000)


def test_blocks_that_do_not_fill_the_cores_take_the_rounds_of_full_ones() -> None:
    calls = [Call("MatMul", "MatMul_1", 100_000), Call("Add", "Add_1", 50_000)]  # their kernels are the spans 2 and 5
    tasks = """
        span  blocks
        2     30
        5     20
    """
    row = finding(step_of(calls, "mindspore", tasks=tasks, devices="device name kind cores\n0 Ascend910B aicore 20"), "block_count")
    assert (row["culprit"], row["parameters"]["blocks"], row["parameters"]["cores"]) == ("MatMul", 30, 20)
    assert row["gain_ns"] == 25_000  # 30 blocks are two rounds of 20 cores: 100 us x (1 - 30 / 40)


def test_the_batch_count_of_a_normalization_is_no_operator_between_it_and_its_convolution() -> None:
    count = Call("aten::add_", None, 1_000)
    adds = Call("aten::add_", "k", 50_000, around="aten::conv2d")
    trace = step_of([LONG, adds, count, Call("aten::batch_norm", "bn", 80_000)])
    spans = trace.spans.collect().to_dicts()
    for span in spans:
        span["shapes"] = {"aten::conv2d": CONVOLUTION, "aten::add_": "[[],[],[]]"}.get(span["name"], span["shapes"])
    schema = dict(trace.spans.collect_schema())
    assert finding(trace.with_tables(spans=pl.DataFrame(spans, schema)), "bias_before_norm")["gain_ns"] == 50_000
