"""Kernels only convert the memory layout of tensors, such as between NCHW and NHWC.

The fix keeps tensors in the layout that the kernels use: the conversions are not made.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"
FIX = {
    "pytorch": "model = model.to(memory_format=torch.channels_last)\nx = x.to(memory_format=torch.channels_last)",
    "mindspore": 'x = mindspore.ops.transpose(x, (0, 2, 3, 1))  # once, and data_format="NHWC" in the layers',
}
_CONVERSIONS = r"(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|^trans_?data|batched_transpose_"


def layout_conversion(run: Run) -> Iterator[Finding]:
    work = run.work.filter(pl.col("name").str.contains(_CONVERSIONS) | pl.col("type").str.contains(_CONVERSIONS).fill_null(False))
    if work.is_empty():
        return
    total, count = run.per_step(work["dur_ns"]), round(work.height / run.steps.height)
    name = str(work.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])["name"][0])
    yield Finding(
        parameters={"kernel": name, "calls": count, "time": total, "share": run.share(total)},
        evidence=Evidence("kernels", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=(scale_work(work),),
        culprit=name,
        source=run.source_of(work.select("rank", span="op").drop_nulls()),
        spans=work.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
