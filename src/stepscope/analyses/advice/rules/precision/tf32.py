"""Matrix products of 32-bit tensors run without tensor cores, because TF32 is off.

The fix allows TF32: each product takes its FLOPs at the share of the TF32 peak that it reaches of its own peak now (at most 60 %), and at
least a quarter of its time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.products import flop_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.model.devices import chips

NEEDS = ("steps", "device", "launches", "shapes", "chip")
APPLIES = ("gpu",)
LINK = "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices"
FIX = {
    "pytorch": 'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
    "jax": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
    "tensorflow": "tf.config.experimental.enable_tensor_float_32_execution(True)",
}
_REACHED, _LEAST = 0.6, 0.25


def tf32(run: Run) -> Iterator[Finding]:
    names = run.trace.devices.select("name").collect()["name"].drop_nulls().unique()
    peak = max((chips.peak(name, "tf32") or 0 for name in names), default=0)
    calls = flop_work(run).filter(pl.col("precision") == "fp32", pl.col("peak") < peak)
    if calls.is_empty():
        return
    reached = (pl.col("ideal_ns") / pl.col("time_ns")).clip(0.01, _REACHED)
    calls = calls.with_columns(factor=(pl.col("flops") / (peak * reached) * 1e9 / pl.col("time_ns")).clip(_LEAST, 1))
    work = work_under(run, calls).join(calls.select("rank", "factor", call="span"), on=["rank", "call"])
    total = run.per_step(calls["time_ns"])
    culprit = calls.group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])["name"][0]
    yield Finding(
        parameters={"time": total, "share": run.share(total), "operator": culprit},
        evidence=Evidence("flops", {}, {"name": culprit}, {"total_ns": total, "share": run.share(total)}),
        changes=(scale_work(work, pl.col("factor")),),
        culprit=culprit,
        source=run.source_of(calls),
        spans=work.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
