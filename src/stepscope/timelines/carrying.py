"""What a report carries of a timeline: all of it in outline, the spans as tables, and some steps to the last event.

A tile in which every event is drawn by itself shows all that finer ones would, so none are carried below it.
"""

import itertools
from collections.abc import Iterator

import msgspec
import polars as pl

from stepscope import pyramid
from stepscope.timelines import spans, tiles
from stepscope.timelines.lanes import Lane, Timeline, build
from stepscope.trace import Trace

_ROWS = 16  # of the lanes of one tile
_OUTLINE = 4  # levels of everything that come before the steps
_STRIDE = 2  # below them, a level is drawn from the one above it
_FINEST = 6  # its buckets are 64 ns
_STEPS = 3
_PLACES = 4096  # tiles of one level that are looked at


def parts(trace: Trace) -> Iterator[tuple[str, bytes]]:
    """The addresses below a run and what they answer, what is needed most first; as much of it as there is room for."""
    timeline = build(trace)
    if not timeline.lanes:
        return
    together = _bundles(timeline.lanes)
    yield "timeline", msgspec.json.encode(tiles.header(timeline) | {"bundles": [[lane.id for lane in some] for some in together]})
    top = timeline.pyramid.top
    outline = range(top, max(_FINEST, top - _OUTLINE + 1) - 1, -1) or range(top, top - 1, -1)
    below = [*range(outline[-1] - _STRIDE, _FINEST, -_STRIDE), *([_FINEST] if outline[-1] > _FINEST else [])]
    sent: set[tuple[int, int, int]] = set()
    exact: set[tuple[int, int, int]] = set()
    chosen = _chosen(trace, timeline)
    for levels, stretches in ((outline, [(0, timeline.end)]), (below, chosen), (below, [(0, timeline.end)])):
        if levels is below and stretches is chosen:
            for number, portion in enumerate(spans.portions(trace, timeline, chosen)):
                yield f"timeline/spans/{number}", portion
        for level in levels:
            for number, some in enumerate(together):
                for index in _places(stretches, level):
                    if (number, level, index) in sent or any(
                        (number, level + up, index >> up) in exact for up in range(1, top - level + 1)
                    ):
                        continue
                    content, whole = _tile(timeline, some, level, index)
                    sent.add((number, level, index))
                    if whole:
                        exact.add((number, level, index))
                    yield f"timeline/tiles/{level}/{index}?lanes={','.join(str(lane.id) for lane in some)}", content


def _tile(timeline: Timeline, lanes: list[Lane], level: int, index: int) -> tuple[bytes, bool]:
    """A tile, and whether it has every event by itself."""
    content = tiles.tile(timeline, lanes, level, index)
    length = int.from_bytes(content[:4], "little")
    said = msgspec.json.decode(content[4 : 4 + length])
    short = any(buckets for lane in said["lanes"] for _, buckets in lane.get("rows", []))
    dense = any(lane.get("points", 0) > pyramid.BUCKETS // 2 for lane in said["lanes"])
    return content, not short and not dense


def _bundles(lanes: list[Lane]) -> list[list[Lane]]:
    """Lanes of one group, at most _ROWS rows together."""
    found: list[list[Lane]] = []
    for lane in lanes:
        if found and found[-1][0].group == lane.group and sum(one.rows for one in found[-1]) + lane.rows <= _ROWS:
            found[-1].append(lane)
        else:
            found.append([lane])
    return found


def _chosen(trace: Trace, timeline: Timeline) -> list[tuple[int, int]]:
    """From when to when the steps are that are carried whole: the longest, and those of the usual length."""
    length = pl.col("end") - pl.col("start")
    steps = trace.steps.select(start=pl.col("start_ns") - timeline.origin, end=pl.col("end_ns") - timeline.origin).collect()
    if steps.height == 0:
        return [(0, timeline.end)]
    usual = (length - length.median()).abs()
    order = [steps.sort(length, descending=True).row(0), *steps.sort(usual).iter_rows()]
    return [(int(start), int(end)) for start, end in list(dict.fromkeys(order))[:_STEPS]]


def _places(stretches: list[tuple[int, int]], level: int) -> list[int]:
    """The tiles of a level that some stretch of time reaches into."""
    width = level + pyramid.BUCKETS_LOG2
    ends = [(max(0, low) >> width, (max(low, high - 1) >> width) + 1) for low, high in stretches]
    return list(dict.fromkeys(itertools.chain.from_iterable(range(low, min(high, low + _PLACES)) for low, high in ends)))
