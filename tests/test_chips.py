"""The table of chips: names as frameworks print them, figures as data sheets print them."""

import pytest

from stepscope.model.devices import chips

PRINTED = [
    ("NVIDIA H200", "bf16", 989.4),
    ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
    ("NVIDIA H100 PCIe", "fp16", 756.5),
    ("NVIDIA H100 NVL", "fp64", 60),
    ("NVIDIA A100-SXM4-80GB", "tf32", 156),
    ("NVIDIA A100-SXM4-40GB", "bf16", 312),
    ("NVIDIA A100 80GB PCIe", "int8", 624),
    ("A100-PCIE-40GB", "fp32", 19.5),
    ("Tesla V100-SXM2-32GB", "fp16", 125),
    ("Tesla V100-PCIE-16GB", "fp16", 112),
    ("Tesla T4", "fp16", 65),
    ("NVIDIA A10G", "fp16", 70),
    ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
    ("NVIDIA RTX 6000 Ada Generation", "bf16", 364.2),
    ("NVIDIA B200", "bf16", 2250),
    ("AMD Instinct MI300X", "fp16", 1307.4),
    ("AMD Instinct MI300X VF", "bf16", 1307.4),
    ("AMD Instinct MI250X", "fp16", 191.5),
    ("Intel(R) Data Center GPU Max 1550", "bf16", 419.5),
    ("Ascend910B3", "fp16", 294.912),
    ("TPU v5 lite", "bf16", 197),
    ("TPU v5p", "bf16", 459),
    ("TPU v6 lite", "bf16", 918),
]


@pytest.mark.parametrize(("printed", "precision", "tera"), PRINTED)
def test_a_chip_is_found_under_the_name_that_frameworks_print(printed: str, precision: str, tera: float) -> None:
    assert chips.peak(printed, precision) == round(tera * 1e12)


@pytest.mark.parametrize(
    "printed",
    [
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100",
        "Ascend910B",
        "AMD EPYC 9374F",
        "",
    ],
)
def test_a_slice_a_relative_or_a_stranger_is_no_chip_of_the_table(printed: str) -> None:
    assert chips.find(printed) is None
    assert chips.peak(printed) is None


def test_data_types_are_read_as_frameworks_write_them() -> None:
    written = ["c10::BFloat16", "c10::Half", "float", "double", "c10::Float8_e4m3fn", "signed char", "f32", "torch.bfloat16", "long int"]
    assert [chips.precision(dtype) for dtype in written] == ["bf16", "fp16", "fp32", "fp64", "fp8", "int8", "fp32", "bf16", None]


def test_without_a_data_type_the_peak_is_that_of_16_bit_training() -> None:
    assert chips.peak("NVIDIA H200") == 989_400_000_000_000
    assert chips.peak("Tesla V100-SXM2-32GB") == 125_000_000_000_000


@pytest.mark.parametrize("chip", chips.CHIPS, ids=lambda chip: chip.name)
def test_every_chip_names_its_source_and_orders_its_precisions(chip: chips.Chip) -> None:
    assert chip.source
    assert set(chip.peak) <= set(chips.PRECISIONS)
    order = [chip.peak[one] for one in chips.PRECISIONS if one in chip.peak and one != "fp64"]
    assert order == sorted(order), "a narrower type is never slower"
    assert chip.bandwidth is None or 1e11 < chip.bandwidth < 1e13


def test_no_name_fits_two_chips() -> None:
    for printed, _, _ in PRINTED:
        first = chips.find(printed)
        assert first is not None
        others = tuple(chip for chip in chips.CHIPS if chip is not first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chips, "CHIPS", others)
            assert chips.find(printed) is None
