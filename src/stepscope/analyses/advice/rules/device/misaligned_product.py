"""A dimension of a matrix product does not fit the tensor cores, which run it far below the speed of the others.

Fires for 16-bit, 8-bit and TF32 products on a GPU with a dimension that is no multiple of 16 bytes, where they reach less than three
quarters of what the aligned products of the run reach. The fix pads the dimension to a multiple of 64: the padded FLOPs then take the
time that they take at the share of the peak of the aligned products. If the run has none with at least a 32nd of the FLOPs, only large
products are judged, and half of the peak is assumed.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.products import products
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device", "launches", "shapes", "chip")
APPLIES = ("gpu",)
LINK = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"
FIX = {
    "pytorch": "vocab_size = (vocab_size + 63) // 64 * 64  # pad the dimension to a multiple of 64",
    "jax": "x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 64)))  # pad the dimension to a multiple of 64",
}
_ALIGNED = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}  # elements in 16 bytes
_PADDED = 64
_REFERENCE = 0.5  # share of the peak, where the run has no aligned product to compare with
_FAR_BELOW = 0.75
_LARGE = 10**10  # FLOPs of a product that fills the chip by itself
_ALIKE = 32  # an aligned product with a 32nd of the FLOPs still fills the chip


def misaligned_product(run: Run) -> Iterator[Finding]:
    width = pl.col("precision").replace_strict(_ALIGNED, default=None, return_dtype=pl.Int64)
    dims = pl.col("dims")
    odd = pl.concat_list(pl.when(dims.list.get(at) % width != 0).then(dims.list.get(at)) for at in range(3)).list.max()
    padded = pl.lit(1.0)
    for at in range(3):
        size = dims.list.get(at)
        rounded = (size + _PADDED - 1) // _PADDED * _PADDED
        padded = padded * pl.when(size % width != 0).then(rounded / size).otherwise(1.0)
    calls = products(run).filter(width.is_not_null()).with_columns(odd=odd, padded=padded)
    aligned = calls.filter(pl.col("odd").is_null())
    for (name, precision, size), group in calls.drop_nulls("odd").group_by("name", "precision", "odd", maintain_order=True):
        alike = aligned.filter(pl.col("precision") == precision, pl.col("flops") >= int(group["flops"].max()) / _ALIKE)  # type: ignore[arg-type]
        reference = _reached(alike) if alike.height else _REFERENCE
        reached = _reached(group)
        if alike.is_empty() and int(group["flops"].max()) < _LARGE:  # type: ignore[arg-type]
            continue
        if reached >= _FAR_BELOW * reference:
            continue
        factors = group.select("rank", call="span", factor=pl.col("ideal_ns") * pl.col("padded") / reference / pl.col("time_ns"))
        work = work_under(run, group).join(factors, on=["rank", "call"])
        total = run.per_step(group["time_ns"])
        yield Finding(
            parameters={
                "operator": str(name),
                "count": round(group.height / run.steps.height),
                "size": str(size),
                "padded": str((int(str(size)) + _PADDED - 1) // _PADDED * _PADDED),
                "reached": reached,
                "time": total,
            }
            | ({"reference": reference} if alike.height else {}),
            evidence=Evidence(
                "roofline", {}, {"name": str(name)}, {"reached_share": reached, "aligned_share": reference, "total_ns": total}
            ),
            changes=(scale_work(work, pl.col("factor")),),
            culprit=f"{name}, dimension {size}",
            source=run.source_of(group),
            spans=work.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="high" if alike.height else "low",
        )


def _reached(calls: pl.DataFrame) -> float:
    """Share of the peak over all calls."""
    return float(calls["ideal_ns"].sum()) / float(calls["time_ns"].sum())
