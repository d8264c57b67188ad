"""A convolution adds a bias that the batch normalization after it subtracts again.

Fires for a convolution with a bias whose next operator is a batch normalization. The fix leaves the bias out: the kernel that adds it,
and the one that sums its gradient, are not launched.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import removed, time_ns
from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators", "shapes")
APPLIES = ("pytorch",)
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"pytorch": "nn.Conv2d(c_in, c_out, 3, bias=False)  # followed by nn.BatchNorm2d(c_out)"}
# BatchNorm counts its batches first, by adding to a number: that `aten::add_` is between the two.
_BIAS = r"^\[\[[^\]]*\],\s*\[[^\]]*\],\s*\[\s*\d"  # the third input has a shape


def bias_before_norm(run: Run) -> Iterator[Finding]:
    calls = run.top_level.filter(~((pl.col("name") == "aten::add_") & pl.col("shapes").str.starts_with("[[],").fill_null(False)))
    following = pl.col("name").shift(-1).over("rank", "thread")
    convolution = pl.col("name").str.contains(r"^aten::(?:conv\d?d?|convolution|_convolution)$")
    wasted = calls.with_columns(following=following).filter(
        convolution, pl.col("shapes").str.contains(_BIAS).fill_null(False), pl.col("following").str.contains("batch_norm").fill_null(False)
    )
    if wasted.is_empty():
        return
    ranges = wasted.select("rank", "thread", low="start_ns", high="end_ns").sort("low")
    adds = run.operators.filter(pl.col("name").is_in(["aten::add_", "aten::add"])).sort("start_ns")
    adds = adds.join_asof(ranges, left_on="start_ns", right_on="low", by=["rank", "thread"], check_sortedness=False)
    adds = adds.filter(pl.col("start_ns") < pl.col("high"))
    count, total = round(wasted.height / run.steps.height), run.per_step(time_ns(adds)) if adds.height else 0
    yield Finding(
        parameters={"count": count, "time": total},
        evidence=Evidence("operators", {}, {"name": str(wasted["name"][0])}, {"total_ns": total, "calls": count}),
        changes=removed(run, adds) if adds.height else (),
        culprit=str(wasted["name"].mode().sort()[0]),
        source=run.source_of(wasted),
        spans=wasted.select("rank", "step", "span"),
        confidence="medium",
        statement=adds.is_empty(),
    )
