"""The spans of a timeline as tables in a report, so that it can be searched and summed without a server."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.shared.ranks.counterparts import matched_calls
from stepscope.model.output import tables
from stepscope.model.trace import Trace
from stepscope.timeline.layout import Timeline, track_rows

MOST = 40_000  # rows of all tables
_PART = 10_000
_TEXTS = ("name", "op_type", "scope", "shapes", "dtypes", "category")
_NUMBERS = ("self_ns", "step", "parent", "flow_in", "op", "correlation", "flops", "bytes")
_PLACE = pl.Schema({"rank": pl.Int32, "lane": pl.Int32, "row": pl.Int32, "span": pl.Int64, "start": pl.Int64, "dur": pl.Int64})


def portions(trace: Trace, timeline: Timeline, times: list[tuple[int, int]]) -> Iterator[bytes]:
    """Arrow tables: first the spans that overlap these intervals, then the others, MOST in all.

    Times count from the origin of the timeline. Arguments are left out.
    """
    spans = timeline.pyramid.spans
    rows = [pl.DataFrame(schema=_PLACE)]
    for track in timeline.tracks:
        for depth, number in enumerate(track_rows(track) if track.kind == "spans" else ()):
            row_spans = spans.row_slice(number)
            columns = {"span": spans.span[row_spans].astype(np.int64), "start": spans.start[row_spans], "dur": spans.dur[row_spans]}
            place = (pl.lit(value).alias(name) for name, value in (("rank", track.rank), ("lane", track.id), ("row", depth)))
            rows.append(pl.DataFrame(columns).with_columns(place).select(list(_PLACE)).cast(_PLACE))
    drawn = pl.concat(rows)
    inside = pl.any_horizontal((pl.col("start") < high) & (pl.col("start") + pl.col("dur") > low) for low, high in times or [(0, 0)])
    order = drawn.select(pl.arg_sort_by(~inside, "start")).to_series().head(MOST)
    texts = [pl.col(name).cast(pl.String) for name in _TEXTS]
    calls = matched_calls(trace).cast({"call": pl.Int32})
    for part in drawn[order].iter_slices(_PART):
        wanted = part["span"].unique().to_list()
        fields = trace.spans.filter(pl.col("span").is_in(wanted)).select("rank", "span", pl.col("kind").cast(pl.String), *_NUMBERS, *texts)
        table = part.join(fields.collect(), on=["rank", "span"], how="left", maintain_order="left")
        yield tables.arrow(table.join(calls, on=["rank", "span"], how="left", maintain_order="left"))
