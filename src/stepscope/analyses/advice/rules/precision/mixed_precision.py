"""Matrix math runs in 32 bits, on a device that is several times as fast in 16 bits.

The fix runs the operators with FLOPs in bf16 or fp16: each takes its FLOPs at the share of the 16-bit peak that it reaches of its own
peak now (at most 60 %), and at least a quarter of its time, because it still reads half of the bytes.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import work_under
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.products import flop_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.model.devices import chips

NEEDS = ("steps", "device", "launches", "shapes", "chip")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/docs/stable/amp.html"
FIX = {
    "pytorch": 'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(x)',
    "mindspore": 'model = mindspore.amp.auto_mixed_precision(model, "O2")',
    "jax": "x = x.astype(jnp.bfloat16)  # and the parameters of the forward pass",
    "tensorflow": 'tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")',
}
_REACHED, _LEAST = 0.6, 0.25


def mixed_precision(run: Run) -> Iterator[Finding]:
    names = {name: chips.peak(name) for name in run.trace.devices.select("name").collect()["name"].drop_nulls().unique()}
    half = max((peak for peak in names.values() if peak), default=None)
    calls = flop_work(run).filter(pl.col("precision").is_in(["fp32", "tf32"]))
    if half is None or calls.is_empty():
        return
    reached = (pl.col("ideal_ns") / pl.col("time_ns")).clip(0.01, _REACHED)
    factor = pl.col("flops") / (half * reached) * 1e9 / pl.col("time_ns")
    calls = calls.with_columns(factor=factor.clip(_LEAST, 1))
    work = work_under(run, calls).join(calls.select("rank", "factor", call="span"), on=["rank", "call"])
    total = run.per_step(calls["time_ns"])
    culprit = calls.group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])["name"][0]
    precision = calls.group_by("precision").agg(pl.col("time_ns").sum()).sort("time_ns", descending=True)["precision"][0]
    yield Finding(
        parameters={
            "time": total,
            "share": run.share(total),
            "precision": precision.upper(),
            "operator": culprit,
            "ratio": round(half / float(calls["peak"].median()), 1),  # type: ignore[arg-type]
        },
        evidence=Evidence("flops", {}, {"name": culprit}, {"total_ns": total, "share": run.share(total)}),
        changes=(scale_work(work, pl.col("factor")),),
        culprit=culprit,
        source=run.source_of(calls),
        spans=work.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
