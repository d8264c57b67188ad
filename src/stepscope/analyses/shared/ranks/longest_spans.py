"""The longest span of a step that shows why the step is slow."""

import polars as pl

from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace

KEY = ["rank", "step", "cause"]


def longest_spans(trace: Trace, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """rank, step, cause (compute, input, garbage_collection), span and dur_ns: the longest span of each; of these `steps`, or of all."""
    if (stored := stored_rows(trace, "rank_longest_spans")) is not None:
        return stored if steps is None else stored.join(steps, on=["rank", "step"], how="semi")
    kind, collection = pl.col("kind").cast(pl.String), pl.col("category").cast(pl.String) == "gc"
    cause = pl.when(collection).then(pl.lit("garbage_collection")).when(kind == "data").then(pl.lit("input"))
    cause = cause.when(kind.is_in(["kernel", "op"])).then(pl.lit("compute"))
    spans = trace.spans.filter(pl.col("step").is_not_null())
    if steps is not None:
        spans = spans.join(steps.lazy(), on=["rank", "step"], how="semi")
    rows = spans.with_columns(cause=cause).filter(pl.col("cause").is_not_null()).select(*KEY, "span", "dur_ns")
    longest = (
        rows.filter(pl.col("dur_ns") == pl.col("dur_ns").max().over(KEY)).group_by(KEY).agg(pl.col("span").max(), pl.col("dur_ns").first())
    )
    return longest.sort(KEY).collect()
