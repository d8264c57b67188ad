"""The longest span of a step that shows why the step is slow."""

import polars as pl

from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace

_Cause = pl.Enum(["compute", "garbage_collection", "input"])
KEY = ["rank", "step", "cause"]


def longest_spans(trace: Trace, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """rank, step, cause (compute, input, garbage_collection), span and dur_ns: the longest span of each; of these `steps`, or of all."""
    if (stored := stored_rows(trace, "rank_longest_spans")) is not None:
        return stored if steps is None else stored.join(steps, on=["rank", "step"], how="semi")
    kind = pl.col("kind")
    gc = trace.spans.select(pl.col("category").unique()).collect().filter(pl.col("category").cast(pl.String) == "gc")["category"]
    collection = pl.col("category").is_in(gc.implode()) if len(gc) else pl.lit(value=False)
    cause = pl.when(collection).then(pl.lit("garbage_collection", _Cause)).when(kind == "data").then(pl.lit("input", _Cause))
    cause = cause.when(kind.is_in(["kernel", "op"])).then(pl.lit("compute", _Cause))
    spans = trace.spans.filter(pl.col("step").is_not_null())
    if steps is not None:
        spans = spans.join(steps.lazy(), on=["rank", "step"], how="semi")
    longest = pl.col("dur_ns") == pl.col("dur_ns").max()
    rows = spans.select("rank", "step", "span", "dur_ns", cause=cause).filter(pl.col("cause").is_not_null())
    rows = rows.group_by(KEY).agg(pl.col("span").filter(longest).max(), pl.col("dur_ns").max())
    return rows.with_columns(pl.col("cause").cast(pl.String)).sort(KEY).collect()
