"""Kernels that only pass over memory follow each other, and each reads what the one before it wrote.

Fires for elementwise kernels that follow each other on a stream. The fix fuses them: a chain takes as long as its longest kernel, which
makes one pass over the data.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "device")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
FIX = {
    "pytorch": "model = torch.compile(model)  # fuses elementwise operators",
    "mindspore": "mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_config={'jit_level': 'O1'})  # fuses elementwise operators",
    "jax": "step = jax.jit(train_step)  # fuses elementwise operators",
    "tensorflow": "@tf.function(jit_compile=True)\ndef train_step(batch): ...",
}
_ELEMENTWISE = r"elementwise_kernel|^(?:Add|Sub|Mul|Div|RealDiv|Relu|Gelu|Silu|Sigmoid|Tanh|Exp|Sqrt|Cast|Neg|Muls|Adds)(?:V2|Grad)?$"


def elementwise_chain(run: Run) -> Iterator[Finding]:
    elementwise = pl.col("name").str.contains(_ELEMENTWISE) | pl.col("type").str.contains(_ELEMENTWISE).fill_null(False)
    stream = ["rank", "step", "track"]
    work = run.work.sort("rank", "track", "start_ns").with_columns(elementwise=(pl.col("kind") == "kernel") & elementwise)
    chains = (
        work.with_columns(chain=pl.col("elementwise").rle_id().over("rank", "track"))
        .filter("elementwise")
        .with_columns(length=pl.len().over(*stream, "chain"), longest=pl.col("dur_ns").max().over(*stream, "chain"))
        .filter(pl.col("length") > 1, pl.col("dur_ns") > 0)
        .with_columns(total=pl.col("dur_ns").sum().over(*stream, "chain"))
    )
    if chains.is_empty():
        return
    count = chains.select(*stream, "chain").n_unique()
    total = run.per_step(chains["dur_ns"])
    by_type = chains.with_columns(operator=pl.coalesce("op_name", "type", "name"))
    largest = by_type.group_by("operator").agg(pl.col("dur_ns").sum()).sort("dur_ns", "operator", descending=[True, False])
    culprit = str(largest["operator"][0])
    yield Finding(
        parameters={
            "chains": round(count / run.steps.height),
            "kernels": round(chains.height / run.steps.height),
            "time": total,
            "share": run.share(total),
            "operator": culprit,
        },
        evidence=Evidence("kernels", {}, {}, {"total_ns": total, "kernels": round(chains.height / run.steps.height)}),
        changes=(scale_work(chains, pl.col("longest") / pl.col("total")),),
        culprit=culprit,
        spans=chains.sort("total", "start_ns", descending=[True, False]).select("rank", "step", "span"),
        confidence="medium",
    )
