"""Rows of a table are looked up by a product with one-hot vectors, which multiplies and reads all of it.

Fires where a matrix product follows `aten::one_hot`, at most with a conversion between them. The fix looks the rows up by their index: no
one-hot vector, no conversion and no product, nor its backward pass.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import removed
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators")
APPLIES = ("pytorch",)
EXPLAINS = ("host_operator",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html"
FIX = {"pytorch": "rows = torch.nn.functional.embedding(words, table)  # in place of F.one_hot(words, n).float() @ table"}
_BETWEEN = ("aten::to", "aten::type_as", "aten::view", "aten::reshape", "aten::flatten")
_PRODUCTS = ("aten::matmul", "aten::mm", "aten::bmm", "aten::linear", "aten::addmm", "aten::einsum")
_MOST = 3  # operators between them


def one_hot_product(run: Run) -> Iterator[Finding]:
    ops = run.top_level.with_row_index("row").with_columns(hot=pl.col("name") == "aten::one_hot")
    ops = ops.with_columns(chain=pl.col("hot").cum_sum().over("rank", "thread"))
    ops = ops.filter(pl.col("chain") > 0).with_columns(at=pl.int_range(pl.len()).over("rank", "thread", "chain"))
    other = ~pl.col("name").is_in(_BETWEEN) & ~pl.col("hot")
    ops = ops.with_columns(end=pl.col("at").filter(other).min().over("rank", "thread", "chain"))
    product = pl.col("name").is_in(_PRODUCTS) & (pl.col("at") == pl.col("end"))
    is_lookup = product.any().over("rank", "thread", "chain")
    calls = ops.filter(is_lookup, pl.col("at") <= pl.col("end"), pl.col("end") <= _MOST)
    if calls.is_empty():
        return
    spans = run.trace.spans.filter((pl.col("kind") == "op") & pl.col("flow_in").is_not_null())
    backward = spans.select("rank", "flow_in", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    first = calls.select("rank", low="start_ns", high="end_ns").sort("low")
    forward = run.operators.select("rank", "start_ns", flow_in="span").sort("start_ns")
    forward = forward.join_asof(first, left_on="start_ns", right_on="low", by="rank", check_sortedness=False)
    forward = forward.filter(pl.col("start_ns") < pl.col("high"))
    backward = backward.join(forward.select("rank", "flow_in"), on=["rank", "flow_in"], how="semi")
    total, count = run.per_step(calls["dur_ns"]), round(calls.filter("hot").height / run.steps.height)
    yield Finding(
        parameters={"count": count, "time": total, "share": run.share(total)},
        evidence=Evidence("operators", {}, {"name": "aten::one_hot"}, {"total_ns": total, "calls": count}),
        changes=(*removed(run, calls), scale_host(backward)),
        culprit="aten::one_hot",
        source=run.source_of(calls.filter("hot")),
        spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
