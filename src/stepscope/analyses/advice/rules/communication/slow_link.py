"""A link between two ranks is slower than the other links of its kind.

Fires for a link whose bandwidth is more than 20 % below the mean of the links of the same transport. What the job loses depends on the
algorithm of each collective and is not predicted.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("links",)
APPLIES = ("several ranks",)
ALL_RANKS = True
LINK = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
FIX = {"": "# check the cable, the port and the route between the two hosts; exchange the devices and record again"}
_BELOW, _LEAST_LINKS = 0.2, 3


def slow_link(run: Run) -> Iterator[Finding]:
    links = run.table("links").filter(pl.col("bytes_per_s").is_not_null(), pl.col("src") != pl.col("dst"))
    links = links.group_by("src", "dst", "transport").agg(
        pl.col("bytes", "total_ns", "transfers").sum(), bytes_per_s=pl.col("bytes").sum() / pl.col("total_ns").sum() * 1e9
    )
    same = links.with_columns(mean=pl.col("bytes_per_s").mean().over("transport"), links=pl.len().over("transport"))
    slow = same.filter(pl.col("links") >= _LEAST_LINKS, pl.col("bytes_per_s") < (1 - _BELOW) * pl.col("mean")).sort("bytes_per_s")
    for row in slow.head(3).iter_rows(named=True):
        name = f"{row['src']} → {row['dst']}"
        yield Finding(
            parameters={
                "link": name,
                "transport": str(row["transport"] or ""),
                "speed": round(row["bytes_per_s"]),
                "mean": round(row["mean"]),
                "below": 1 - row["bytes_per_s"] / row["mean"],
            },
            evidence=Evidence("links", {}, {"src": row["src"], "dst": row["dst"]}, {"below_share": 1 - row["bytes_per_s"] / row["mean"]}),
            culprit=name,
            statement=True,
        )
