"""Peaks of chips, by the name that frameworks print: dense FLOP/s per precision, memory bandwidth, and their source.

A peak is the limit of a dense matrix product of that precision, on tensor or matrix cores where the chip has them for it;
figures that need sparsity are left out. It is the peak of one *device* as frameworks count them: where they show the halves of a
module as two devices (AMD MI250X, Intel Max 1550, TPU v2, v3 and 7x, Ascend 910C), it is that of a half.
Figures that could not be confirmed are absent: no figure is better than a wrong one.
"""

import re
from typing import NamedTuple

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")


class Chip(NamedTuple):
    name: str
    pattern: str  # of the whole name, lower case, without vendor and brand, one blank for anything but letters and digits
    peak: dict[str, int]  # FLOP/s (OP/s for int8) by precision
    bandwidth: int | None  # bytes/s
    source: str


def find(name: str) -> Chip | None:
    """The chip of that name; None for an unknown chip, and for a slice of a chip (MIG)."""
    plain = re.sub(r"\((r|tm)\)", " ", name.lower())
    plain = re.sub(r"[^a-z0-9]+", " ", plain).strip()
    plain = re.sub(r"^((nvidia|tesla|geforce|amd|instinct|intel|huawei|google|habana|graphics) )+", "", plain)
    return next((chip for chip in CHIPS if re.fullmatch(chip.pattern, plain)), None)


def peak(name: str, dtype: str | None = None) -> int | None:
    """The chip's peak in FLOP/s for a data type as frameworks write it; without one, that of 16-bit training (bf16, else fp16)."""
    chip = find(name)
    if chip is None:
        return None
    if dtype is None:
        return chip.peak.get("bf16", chip.peak.get("fp16"))
    return chip.peak.get(precision(dtype) or "")


def precision(dtype: str) -> str | None:
    """One of PRECISIONS for a data type as PyTorch, JAX or MindSpore write it: `c10::BFloat16` is bf16."""
    plain = dtype.lower().removeprefix("c10::").removeprefix("torch.").removeprefix("dt_")
    if plain.startswith(("float8", "f8")):
        return "fp8"
    return _DTYPES.get(plain, plain if plain in PRECISIONS else None)


_DTYPES = {
    "double": "fp64", "float64": "fp64", "f64": "fp64",
    "float": "fp32", "float32": "fp32", "f32": "fp32",
    "tfloat32": "tf32",
    "bfloat16": "bf16", "bf16": "bf16",
    "half": "fp16", "float16": "fp16", "f16": "fp16",
    "signed char": "int8", "char": "int8", "int8": "int8", "s8": "int8",
}  # fmt: skip


def _chip(name: str, pattern: str, source: str, gb_per_s: float | None, **tera: float) -> Chip:
    """A row of the table: peaks in TFLOP/s, as data sheets print them."""
    return Chip(
        name,
        pattern,
        {precision: round(value * 1e12) for precision, value in tera.items()},
        None if gb_per_s is None else round(gb_per_s * 1e9),
        source,
    )


_CANN = "CANN platform_config {}.ini: cores x 16x16x16 multiply-adds x cube_freq"
_GOOGLE = "Google Cloud TPU documentation, TPU {}"

CHIPS: tuple[Chip, ...] = (
    # NVIDIA. fp32 is that of the CUDA cores; matrix products of fp32 tensors that are allowed TF32 are held against tf32.
    _chip("P100 SXM2", r"p100 sxm2 16gb", "NVIDIA Tesla P100 data sheet", 732, fp64=5.3, fp32=10.6, fp16=21.2),
    _chip("P100 PCIe 16GB", r"p100 pcie 16gb", "NVIDIA Tesla P100 data sheet", 732, fp64=4.7, fp32=9.3, fp16=18.7),
    _chip("P100 PCIe 12GB", r"p100 pcie 12gb", "NVIDIA Tesla P100 data sheet", 549, fp64=4.7, fp32=9.3, fp16=18.7),
    _chip("V100 SXM", r"v100 sxm[23] (16|32)gb( ls)?", "NVIDIA V100 data sheet", 900, fp64=7.8, fp32=15.7, fp16=125),
    _chip("V100 PCIe", r"v100 pcie (16|32)gb", "NVIDIA V100 data sheet", 900, fp64=7, fp32=14, fp16=112),
    _chip("V100S PCIe", r"v100s pcie 32gb", "NVIDIA V100 data sheet", 1134, fp64=8.2, fp32=16.4, fp16=130),
    _chip("T4", r"t4", "NVIDIA T4 data sheet", 320, fp32=8.1, fp16=65, int8=130),
    _chip("A10", r"a10", "NVIDIA A10 data sheet", 600, fp32=31.2, tf32=62.5, bf16=125, fp16=125, int8=250),
    _chip("A10G", r"a10g", "NVIDIA A10G data sheet (AWS)", 600, fp32=35, tf32=35, bf16=70, fp16=70, int8=140),
    _chip("A30", r"a30", "NVIDIA A30 data sheet", 933, fp64=10.3, fp32=10.3, tf32=82, bf16=165, fp16=165, int8=330),
    _chip("A40", r"a40", "NVIDIA A40 data sheet", 696, fp32=37.4, tf32=74.8, bf16=149.7, fp16=149.7, int8=299.3),
    *(
        _chip(name, pattern, source, gb_per_s, fp64=19.5, fp32=19.5, tf32=156, bf16=312, fp16=312, int8=624)
        for name, pattern, source, gb_per_s in (
            ("A100 40GB", r"a100 (sxm4?|pcie) 40gb", "NVIDIA A100 data sheet", 1555),
            ("A100 SXM 80GB", r"a100 sxm4? 80gb", "NVIDIA A100 data sheet", 2039),
            ("A100 PCIe 80GB", r"a100 (80gb pcie|pcie 80gb)", "NVIDIA A100 data sheet", 1935),
            ("A800 SXM 80GB", r"a800 sxm4? 80gb", "NVIDIA A800 data sheet", 2039),
            ("A800 PCIe 80GB", r"a800 (80gb pcie|pcie 80gb)", "NVIDIA A800 data sheet", 1935),
        )
    ),
    _chip("L4", r"l4", "NVIDIA L4 data sheet, halved for density", 300, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242.5, int8=242.5),
    _chip("L40", r"l40", "NVIDIA L40 data sheet", 864, fp32=90.5, tf32=90.5, bf16=181.05, fp16=181.05, fp8=362, int8=362),
    _chip("L40S", r"l40s", "NVIDIA L40S data sheet", 864, fp32=91.6, tf32=183, bf16=362.05, fp16=362.05, fp8=733, int8=733),
    # GeForce: 16-bit and fp8 products that accumulate in fp32, as frameworks do.
    _chip("RTX 3090", r"rtx 3090", "NVIDIA GA102 whitepaper", 936, fp32=35.6, tf32=35.6, bf16=71, fp16=71, int8=284),
    _chip("RTX 4090", r"rtx 4090", "NVIDIA Ada whitepaper", 1008, fp32=82.6, tf32=82.6, bf16=165.2, fp16=165.2, fp8=330.3, int8=660.6),
    _chip(
        "RTX 5090", r"rtx 5090", "NVIDIA RTX Blackwell whitepaper", 1792, fp32=104.8, tf32=104.8, bf16=209.5, fp16=209.5, fp8=419, int8=838
    ),
    _chip("RTX A6000", r"rtx a6000", "NVIDIA GA102 whitepaper", 768, fp32=38.7, tf32=77.4, bf16=154.8, fp16=154.8, int8=309.7),
    _chip(
        "RTX 6000 Ada", r"rtx 6000 ada generation", "NVIDIA Ada ProViz whitepaper", 960,
        fp32=91.1, tf32=182.1, bf16=364.2, fp16=364.2, fp8=728.5, int8=728.5,
    ),
    *(
        _chip(name, pattern, source, gb_per_s, fp64=67, fp32=67, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9, int8=1978.9)
        for name, pattern, source, gb_per_s in (
            ("H100 SXM", r"h100 (sxm5? )?80gb( hbm3)?|h100 sxm5?", "NVIDIA H100 data sheet, halved for density", 3350),
            ("GH200 96GB", r"gh200 (480gb|120gb)", "NVIDIA GH200 data sheet, halved for density", 4000),
            ("GH200 144GB", r"gh200 144g hbm3e", "NVIDIA GH200 data sheet, halved for density", 4900),
            ("H200 SXM", r"h200( sxm5?)?( 141gb)?( hbm3e)?", "NVIDIA H200 data sheet, halved for density", 4800),
        )
    ),
    _chip(
        "H100 PCIe", r"h100 pcie", "NVIDIA H100 data sheet, halved for density", 2000,
        fp64=51, fp32=51, tf32=378, bf16=756.5, fp16=756.5, fp8=1513, int8=1513,
    ),
    *(
        _chip(name, pattern, source, gb_per_s, fp64=60, fp32=60, tf32=417.5, bf16=835.5, fp16=835.5, fp8=1670.5, int8=1670.5)
        for name, pattern, source, gb_per_s in (
            ("H100 NVL", r"h100 nvl", "NVIDIA H100 data sheet, halved for density", 3900),
            ("H200 NVL", r"h200 nvl", "NVIDIA H200 data sheet, halved for density", 4800),
        )
    ),
    _chip(
        "H800 SXM", r"h800( sxm5?)?( 80gb)?( hbm3)?", "NVIDIA H800 data sheet, halved for density", 3350,
        fp32=67, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9, int8=1978.9,
    ),
    _chip("H20", r"h20", "NVIDIA H20 data sheet", 4000, fp32=44, tf32=74, bf16=148, fp16=148, fp8=296, int8=296),
    _chip(
        "B100", r"b100", "NVIDIA HGX B100 data sheet, an eighth, halved for density", 8000,
        fp64=30, fp32=60, tf32=875, bf16=1750, fp16=1750, fp8=3500, int8=3500,
    ),
    _chip(
        "B200", r"b200", "NVIDIA HGX B200 data sheet, an eighth, halved for density", 8000,
        fp64=37, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500, int8=4500,
    ),
    _chip(
        "GB200", r"gb200", "NVIDIA GB200 NVL72 data sheet, a 72nd, halved for density", 8000,
        fp64=40, fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, int8=5000,
    ),
    # AMD
    _chip("MI100", r"mi100", "AMD Instinct MI100 data sheet", 1228.8, fp64=11.5, fp32=46.1, bf16=92.3, fp16=184.6, int8=184.6),
    _chip("MI210", r"mi210", "AMD Instinct MI210 data sheet", 1638.4, fp64=45.3, fp32=45.3, bf16=181, fp16=181, int8=181),
    _chip(
        "MI250X, one of two dies", r"mi250x", "AMD Instinct MI250X data sheet, halved", 1638.4,
        fp64=47.85, fp32=47.85, bf16=191.5, fp16=191.5, int8=191.5,
    ),
    _chip(
        "MI300A", r"mi300a", "AMD Instinct MI300A data sheet", 5300,
        fp64=122.6, fp32=122.6, tf32=490.3, bf16=980.6, fp16=980.6, fp8=1961.2, int8=1961.2,
    ),
    *(
        _chip(name, pattern, source, gb_per_s, fp64=163.4, fp32=163.4, tf32=653.7, bf16=1307.4, fp16=1307.4, fp8=2614.9, int8=2614.9)
        for name, pattern, source, gb_per_s in (
            ("MI300X", r"mi300x( oam| vf)?", "AMD Instinct MI300X data sheet", 5300),  # VF: a virtual machine has the whole GPU
            ("MI325X", r"mi325x( oam)?", "AMD Instinct MI325X data sheet", 6000),
        )
    ),
    _chip(
        "MI350X", r"mi350x( oam)?", "AMD Instinct MI350X data sheet", 8000,
        fp64=72.1, fp32=144.2, bf16=2306.9, fp16=2306.9, fp8=4613.7, int8=4613.7,
    ),
    _chip(
        "MI355X", r"mi355x( oam)?", "AMD Instinct MI355X data sheet", 8000,
        fp64=78.6, fp32=157.3, bf16=2516.6, fp16=2516.6, fp8=5033.2, int8=5033.2,
    ),
    # Intel
    _chip(
        "Max 1550, one of two stacks", r"data center gpu max 1550", "Intel Data Center GPU Max product brief, halved", 1638.4,
        fp64=26, fp32=26, tf32=209.5, bf16=419.5, fp16=419.5, int8=839,
    ),
    _chip("Gaudi 2", r"gaudi ?2|hl 225\w*", "Intel Gaudi 2 white paper", 2450, bf16=432, fp8=865),
    _chip("Gaudi 3", r"gaudi ?3|hl 325\w*", "Intel Gaudi 3 white paper", 3700, bf16=1835, fp8=1835),
    # Huawei Ascend. Plain "Ascend910" and "Ascend910B" are printed by several chips and so by none we could name.
    _chip("Ascend 310P3", r"ascend ?310p3", "Huawei Atlas 300I Pro data sheet", 204.8, fp16=70, int8=140),
    _chip("Ascend 910A", r"ascend ?910a", "Huawei, DaVinci, Hot Chips 31", 1200, fp16=256, int8=512),
    _chip("Ascend 910B2", r"ascend ?910b2c?", _CANN.format("Ascend910B2"), None, bf16=353.8944, fp16=353.8944, int8=707.7888),
    _chip("Ascend 910B3", r"ascend ?910b3", _CANN.format("Ascend910B3"), None, bf16=294.912, fp16=294.912, int8=589.824),
    _chip("Ascend 910B4", r"ascend ?910b4( 1)?", _CANN.format("Ascend910B4"), None, bf16=245.76, fp16=245.76, int8=491.52),
    _chip(
        "Ascend 910C, one of two dies", r"ascend ?910 9392", _CANN.format("Ascend910_9392"), 1600,
        bf16=353.8944, fp16=353.8944, int8=707.7888,
    ),
    # Google TPU: one device is a core of v2, v3 and 7x, a chip of the others.
    _chip("TPU v2, one of two cores", r"tpu v2", _GOOGLE.format("v2") + ", halved", 300, bf16=22.5),
    _chip("TPU v3, one of two cores", r"tpu v3", _GOOGLE.format("v3") + ", halved", 450, bf16=61.5),
    _chip("TPU v4", r"tpu v4", _GOOGLE.format("v4"), 1200, bf16=275, int8=275),
    _chip("TPU v5e", r"tpu v5( lite|e)", _GOOGLE.format("v5e"), 819, bf16=197, int8=393),
    _chip("TPU v5p", r"tpu v5p?", _GOOGLE.format("v5p"), 2765, bf16=459, fp8=459, int8=918),
    _chip("TPU v6e", r"tpu v6( lite|e)", _GOOGLE.format("v6e"), 1640, bf16=918, fp8=918, int8=1836),
    _chip("TPU7x, one of two cores", r"tpu ?v?7x?", _GOOGLE.format("7x") + ", halved", 3690, bf16=1153.5, fp8=2307),
)  # fmt: skip
