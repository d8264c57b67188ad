"""Attention is computed by separate operators, which write and read the matrix of all scores.

Fires for a softmax between two batched products, and for its gradient. The fix computes attention with one operator that keeps the scores
on the chip: softmax, scaling, mask and dropout between the two products take no time.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import removed, time_ns
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
FIX = {"pytorch": "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)"}
_PRODUCT = r"^(?:aten::(?:bmm|baddbmm|matmul|einsum)|(?:autograd::engine::evaluate_function: )?BmmBackward0)$"
_SOFTMAX = r"^(?:aten::_?softmax|(?:autograd::engine::evaluate_function: )?SoftmaxBackward0|aten::_softmax_backward_data)$"
_BETWEEN = 8  # operators between a product and the softmax: scale, mask, add, dropout, views


def unfused_attention(run: Run) -> Iterator[Finding]:
    calls = run.top_level.with_columns(
        product=pl.col("name").str.contains(_PRODUCT), softmax=pl.col("name").str.contains(_SOFTMAX), row=pl.int_range(pl.len())
    )
    thread = ["rank", "thread", "step"]
    calls = calls.with_columns(
        before=pl.when("product").then("row").forward_fill().over(thread),
        after=pl.when("product").then("row").backward_fill().over(thread),
    )
    attention = calls.filter(
        "softmax", pl.col("row") - pl.col("before") <= _BETWEEN + 1, pl.col("after") - pl.col("row") <= _BETWEEN + 1
    ).select("before", "after")
    if attention.is_empty():
        return
    between = calls.join_asof(attention.sort("before").rename({"before": "from", "after": "to"}), left_on="row", right_on="from")
    between = between.filter(pl.col("row") > pl.col("from"), pl.col("row") < pl.col("to"))
    total, count = run.per_step(time_ns(between)), round(attention.height / run.steps.height)
    softmax = between.filter("softmax")
    name = str(softmax["name"].mode().sort()[0])
    yield Finding(
        parameters={"count": count, "time": total, "share": run.share(total), "operator": name},
        evidence=Evidence("operators", {}, {"name": name}, {"total_ns": total, "calls": count}),
        changes=removed(run, between),
        culprit=name,
        source=run.source_of(softmax),
        spans=softmax.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="medium",
    )
