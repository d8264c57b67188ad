"""Operators compute in 64 bits.

The fix computes in 32 bits, which halves the bytes that an operator reads and writes: it takes half of its time. Products on a device
gain more; how much more is not known without its 64-bit peak.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import faster, time_ns
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators", "shapes")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch-dtype"
FIX = {
    "pytorch": "x = x.float()  # NumPy arrays are 64-bit: torch.from_numpy(array.astype(np.float32))",
    "mindspore": "x = mindspore.Tensor(array, mindspore.float32)",
    "jax": 'jax.config.update("jax_enable_x64", False)',
    "tensorflow": "x = tf.cast(x, tf.float32)",
}
_DOUBLE = r'^\["(?:double|float64|f64)"'  # the first input
_FACTOR = 0.5


def double_precision(run: Run) -> Iterator[Finding]:
    calls = run.operators.filter(pl.col("dtypes").str.contains(_DOUBLE).fill_null(False))
    calls = run.outermost(calls)
    if calls.is_empty():
        return
    calls = calls.with_columns(time_ns(calls))
    total = run.per_step(calls["time_ns"])
    largest = calls.group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])
    culprit = str(largest["name"][0])
    rows = calls.filter(pl.col("name") == culprit).sort("time_ns", descending=True)
    yield Finding(
        parameters={"time": total, "share": run.share(total), "operator": culprit},
        evidence=Evidence("operators", {}, {"name": culprit}, {"total_ns": total, "share": run.share(total)}),
        changes=faster(run, calls, _FACTOR),
        culprit=culprit,
        source=run.source_of(rows),
        spans=rows.select("rank", "step", "span"),
        confidence="medium",
    )
