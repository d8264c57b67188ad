"""The spans of a timeline as tables that a report carries, so that it can be searched and summed up where no server is."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope import tables
from stepscope.analyses._meetings import meetings
from stepscope.timelines.lanes import Timeline, rows_of
from stepscope.trace import Trace

MOST = 40_000  # rows of all tables together
_PART = 10_000
_TEXTS = ("name", "op_type", "scope", "shapes", "dtypes", "category")
_NUMBERS = ("self_ns", "step", "parent", "flow_in", "op", "correlation", "flops", "bytes")


def portions(trace: Trace, timeline: Timeline, stretches: list[tuple[int, int]]) -> Iterator[bytes]:
    """Arrow, in portions: the spans that reach into these stretches of time first, the others after them, MOST at most.

    Times count from the timeline's origin. Arguments are left out.
    """
    events = timeline.pyramid.events
    rank, lane, row, span, start, dur = ([np.empty(0, np.int64)] for _ in range(6))
    for one in timeline.lanes:
        for at, number in enumerate(rows_of(one) if one.kind == "spans" else ()):
            own = slice(int(events.offsets[number]), int(events.offsets[number + 1]))
            for column, values in ((span, events.span[own]), (start, events.start[own]), (dur, events.dur[own])):
                column.append(values.astype(np.int64))
            count = own.stop - own.start
            for column, value in ((rank, one.rank), (lane, one.id), (row, at)):
                column.append(np.full(count, value, np.int64))
    names = ("rank", "lane", "row", "span", "start", "dur")
    columns = (np.concatenate(column) for column in (rank, lane, row, span, start, dur))
    placed = pl.DataFrame(dict(zip(names, columns, strict=True))).cast({"rank": pl.Int32, "lane": pl.Int32, "row": pl.Int32})
    inside = pl.any_horizontal((pl.col("start") < high) & (pl.col("start") + pl.col("dur") > low) for low, high in stretches or [(0, 0)])
    order = placed.select(pl.arg_sort_by(~inside, "start")).to_series().head(MOST)
    chosen = placed[order]
    texts = [pl.col(name).cast(pl.String) for name in _TEXTS]
    met = meetings(trace).cast({"call": pl.Int32})
    for part in chosen.iter_slices(_PART):
        wanted = part["span"].unique().to_list()
        known = trace.spans.filter(pl.col("span").is_in(wanted)).select("rank", "span", pl.col("kind").cast(pl.String), *_NUMBERS, *texts)
        rows = part.join(known.collect(), on=["rank", "span"], how="left", maintain_order="left")
        yield tables.arrow(rows.join(met, on=["rank", "span"], how="left", maintain_order="left"))
