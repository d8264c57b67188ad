"""What is in the recording, by kind and name?"""

import polars as pl

from stepscope.model.parameters import check_word
from stepscope.model.schema import KINDS
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "kind": pl.String,
    "category": pl.String,
    "name": pl.String,
    "calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "avg_ns": pl.Float64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
}


def totals(trace: Trace, *, kind: str | None = None) -> pl.DataFrame:
    """Per rank, kind, category of the source, and name: number of spans, their time, and their time without the spans inside them.

    Nothing is left out: the rows add up to the table `spans`.
    """
    if kind is not None:
        check_word("kind of span", kind, KINDS)
    spans = trace.spans if kind is None else trace.spans.filter(pl.col("kind").cast(pl.String) == kind)
    duration = pl.col("dur_ns")
    return (
        spans.group_by("rank", "kind", "category", "name")
        .agg(
            calls=pl.len(),
            total_ns=duration.sum(),
            self_ns=pl.col("self_ns").sum(),
            avg_ns=duration.mean(),
            min_ns=duration.min(),
            max_ns=duration.max(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
        .sort("rank", "total_ns", "kind", "category", "name", descending=[False, True, False, False, False])
        .collect()
    )
