import pytest

import tiny

TRACKS = "track kind device\n0 thread -\n1 stream 0"
H200 = 'device kind name\n0 gpu "NVIDIA_H200"'


def test_the_intensity_of_a_product_is_its_flops_by_its_minimum_of_bytes() -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name      op_type   op  start_ns  dur_ns  shapes                   dtypes
            0     0      op      aten::mm  aten::mm  -   0         100     [[1024,512],[512,2048]]  ["c10::BFloat16","c10::BFloat16"]
            1     1      kernel  gemm      aten::mm  0   200       10000   -                        -
        """,
        tracks=TRACKS,
        devices=H200,
    )
    (row,) = trace.roofline().to_dicts()
    # 2 x 1024 x 512 x 2048 FLOPs; two bytes for each of 1024 x 512, 512 x 2048 and 1024 x 2048 numbers.
    assert (row["flops"], row["bytes"]) == (2_147_483_648, 2 * (524_288 + 1_048_576 + 2_097_152))
    assert row["intensity"] == pytest.approx(292.571, abs=0.001)
    assert row["flops_per_s"] == pytest.approx(214_748_364_800_000)
    assert row["peak_bytes_per_s"] == 4.8e12
    # The ridge of an H200 in bf16 is 989.4 / 4.8 = 206 FLOPs per byte.
    assert row["bound"] == "compute"
    assert row["roof_flops_per_s"] == row["peak_flops_per_s"] == pytest.approx(989.4e12, rel=0.001)
    assert row["how"] == "from shapes"


def test_few_flops_per_byte_are_bound_by_memory() -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name      op_type   op  start_ns  dur_ns  shapes                dtypes
            0     0      op      aten::mm  aten::mm  -   0         100     [[1,1024],[1024,64]]  ["float","float"]
            1     1      kernel  gemm      aten::mm  0   200       1000    -                     -
        """,
        tracks=TRACKS,
        devices=H200,
    )
    (row,) = trace.roofline().to_dicts()
    assert row["bytes"] == 4 * (1024 + 65_536 + 64)
    assert row["bound"] == "memory"
    assert row["roof_flops_per_s"] == pytest.approx(row["intensity"] * 4.8e12)
    assert row["reached_share"] == pytest.approx(row["flops_per_s"] / row["roof_flops_per_s"])


def test_recorded_bytes_precede_those_of_shapes_and_an_unknown_chip_has_no_roof() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name    op_type  start_ns  dur_ns  flops  bytes
            1      kernel  fusion  fusion   0         100     1000   500
            1      kernel  fusion  fusion   200       100     1000   500
            1      kernel  other   other    400       100     1000   -
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(
        trace.roofline(),
        """
        name    calls  flops  bytes  time_ns  intensity  roof_flops_per_s  bound  how
        fusion  2      2000   1000   200      2.0        -                 -      recorded
        """,
    )


def test_without_flops_or_shapes_there_are_no_rows() -> None:
    assert tiny.trace().roofline().height == 0
    assert tiny.trace(spans="kind name start_ns dur_ns\nop aten::mm 0 1").roofline().height == 0
