"""What keeps our sums apart from those of torch.profiler's key_averages()."""

import polars as pl

from stepscope.model.trace import Trace


def nothing_but_itself(trace: Trace) -> dict[str, list[int]]:
    """The durations, by name, of operators that one of the same name has alone inside it: torch's summary takes the two for one call."""
    spans = trace.spans.select("span", "parent", pl.col("name").cast(pl.String), "dur_ns").collect()
    alone = spans.filter(pl.len().over("parent") == 1).join(spans.select(parent="span", outer="name"), on="parent")
    again = alone.filter(pl.col("name") == pl.col("outer"))
    return dict(again.group_by("name").agg("dur_ns").iter_rows())
