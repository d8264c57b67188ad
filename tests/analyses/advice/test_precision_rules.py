"""Rules for the precision and the shapes of matrix products. The chip is an H100: 989.4 TFLOP/s in bf16, 494.7 in TF32, 67 in fp32."""

import polars as pl
import pytest

import stepscope
from advice_rows import finding, missing, rows
from device_steps import Call, step_of
from stepscope.cli.setup.demo import RECORDING

H100 = "NVIDIA_H100_80GB_HBM3"
BF16 = '["c10::BFloat16","c10::BFloat16"]'
FP32 = '["float","float"]'


def mm(m: int, k: int, n: int, dur_ns: int, dtypes: str = BF16, kernel: str = "gemm") -> Call:
    return Call("aten::mm", kernel, dur_ns, f"[[{m},{k}],[{k},{n}]]", dtypes)


# 2 x 4096^3 FLOPs take 138.9 us at the peak: the aligned product reaches 69.5 % of it.
ALIGNED = mm(4096, 4096, 4096, 200_000)


def test_an_odd_dimension_gains_the_time_of_its_padded_flops_at_the_speed_of_the_aligned_products() -> None:
    trace = step_of([ALIGNED, mm(8192, 768, 50257, 6_000_000)], chip=H100)
    row = finding(trace, "misaligned_product")
    aligned_share = 137_438_953_472 / 989.4e12 / 200e-6
    padded_ns = 2 * 8192 * 768 * 50304 / 989.4e12 / aligned_share * 1e9
    assert row["gain_ns"] == pytest.approx(6_000_000 - padded_ns, abs=2)
    assert (row["culprit"], row["parameters"]["padded"]) == ("aten::mm, dimension 50257", "50304")
    assert row["parameters"]["reference"] == pytest.approx(aligned_share)
    assert row["evidence"]["rows"] == {"name": "aten::mm"}


def test_an_odd_dimension_that_is_as_fast_as_the_others_is_no_finding() -> None:
    # 50257 takes 640 us at the peak, 915 us at 70 % of it: the aligned product reaches 69.5 %.
    assert rows(step_of([ALIGNED, mm(8192, 768, 50257, 915_000)], chip=H100), "misaligned_product") == []


def test_a_small_odd_product_without_others_to_compare_with_is_no_finding() -> None:
    assert rows(step_of([mm(100, 99, 100, 50_000)], chip=H100), "misaligned_product") == []


def test_a_32_bit_product_has_no_alignment() -> None:
    assert (
        rows(step_of([mm(4096, 4096, 4096, 9_000_000, FP32), mm(8192, 768, 50257, 90_000_000, FP32)], chip=H100), "misaligned_product")
        == []
    )


def test_shapes_are_needed() -> None:
    assert "record_shapes=True" in missing(step_of([Call("aten::mm", "gemm", 1_000)], chip=H100), "misaligned_product")


def test_32_bit_products_gain_what_16_bits_take_at_the_same_share_of_the_peak() -> None:
    trace = step_of([mm(4096, 4096, 4096, 4_102_655, FP32)], chip=H100)
    row = finding(trace, "mixed_precision")
    # 50 % of 67 TFLOP/s: 16 bits would take 278 us at half the peak, but a quarter of the time is the floor of the rule.
    assert row["gain_ns"] == pytest.approx(4_102_655 * 3 / 4, abs=2)
    assert (row["culprit"], row["parameters"]["precision"]) == ("aten::mm", "FP32")


def test_products_on_tensor_cores_of_32_bits_gain_at_most_the_ratio_of_the_peaks() -> None:
    tf32 = mm(4096, 4096, 4096, 555_635, FP32, kernel="sm80_xmma_gemm_tf32f32")  # 50 % of 494.7 TFLOP/s
    row = finding(step_of([tf32], chip=H100), "mixed_precision")
    assert row["gain_ns"] == pytest.approx(555_635 * (1 - 494.7 / 989.4), rel=1e-4)
    assert rows(step_of([tf32], chip=H100), "tf32") == []


def test_32_bit_products_without_tensor_cores_are_told_that_tf32_is_off() -> None:
    row = finding(step_of([mm(4096, 4096, 4096, 4_102_655, FP32)], chip=H100), "tf32")
    assert row["gain_ns"] == pytest.approx(4_102_655 * 3 / 4, abs=2)  # 494.7 is 7.4 times 67: the floor again
    assert "set_float32_matmul_precision" in row["snippet"]


def test_16_bit_products_have_no_finding_on_precision() -> None:
    trace = step_of([ALIGNED], chip=H100)
    assert [rows(trace, rule) for rule in ("mixed_precision", "tf32", "double_precision")] == [[], [], []]


def test_64_bit_operators_take_half_of_their_time_in_32_bits() -> None:
    double = Call("aten::add", None, 400_000, "[[1000],[1000],[]]", '["double","double","Scalar"]')
    trace = step_of([double, Call("aten::mul", None, 600_000, "[[1000]]", '["float"]')])
    row = finding(trace, "double_precision")
    assert (row["gain_ns"], row["culprit"], row["step_ns"]) == (200_000, "aten::add", 1_000_000)


def test_padding_the_vocabulary_of_gpt2_gains_once_the_launches_no_longer_limit_the_step() -> None:
    """The demo: GPT-2 on an H200, whose critical path is on the host."""
    advice = stepscope.open(RECORDING).analyse("advice")
    position = dict(advice.filter(status="finding").select("rule", "position").iter_rows())
    row = advice.row(by_predicate=pl.col("rule") == "misaligned_product", named=True)
    assert advice["limited_by"][0] == "host" and advice["rule"][0] == "launch_bound"
    assert (row["gain_ns"], row["after"], row["culprit"]) == (0, "launch_bound", "aten::mm, dimension 50257")
    assert row["later_ns"] == pytest.approx(12.7e6, rel=0.02) and row["device_ns"] == pytest.approx(12.7e6, rel=0.02)
    assert position["misaligned_product"] > position["launch_bound"]
    assert row["title"].startswith("3 calls of aten::mm per step with the dimension 50257 reach 12.4 % of the peak")
