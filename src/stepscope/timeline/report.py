"""The part of a timeline that a report contains: an outline, the spans as tables, and some steps in full detail.

A tile that draws each span by itself shows all that finer tiles would, so none are written below it.
"""

import itertools
from collections.abc import Iterator

import msgspec
import polars as pl

from stepscope.model.trace import Trace
from stepscope.timeline import pyramid, report_spans, tiles
from stepscope.timeline.layout import Timeline, Track, build

_ROWS = 16  # of the tracks of one tile
_OUTLINE = 4  # coarse levels of the whole trace, which come before the steps
_STRIDE = 2  # below them, every second level is enough
_FINEST = 6  # its buckets are 64 ns
_STEPS = 3
_MAX_TILES = 4096  # of one level


def parts(trace: Trace) -> Iterator[tuple[str, bytes]]:
    """The addresses below a run and their contents, most important first; the report takes what fits."""
    timeline = build(trace)
    if not timeline.tracks:
        return
    bundles = _bundles(timeline.tracks)
    yield "timeline", msgspec.json.encode(tiles.header(timeline) | {"bundles": [[track.id for track in bundle] for bundle in bundles]})
    top = timeline.pyramid.top
    outline = range(top, max(_FINEST, top - _OUTLINE + 1) - 1, -1) or range(top, top - 1, -1)
    detail = [*range(outline[-1] - _STRIDE, _FINEST, -_STRIDE), *([_FINEST] if outline[-1] > _FINEST else [])]
    everything, steps = [(0, timeline.end)], _chosen_steps(trace, timeline)
    written = _Written(timeline, bundles)
    yield from written.tiles(outline, everything)
    for number, portion in enumerate(report_spans.portions(trace, timeline, steps)):
        yield f"timeline/spans/{number}", portion
    yield from written.tiles(detail, steps)
    yield from written.tiles(detail, everything)


class _Written:
    """The tiles that were written, so that none is written twice or below an exact one."""

    def __init__(self, timeline: Timeline, bundles: list[list[Track]]) -> None:
        self._timeline, self._bundles = timeline, bundles
        self._is_exact: dict[tuple[int, int, int], bool] = {}  # by bundle, level and index

    def tiles(self, levels: range | list[int], times: list[tuple[int, int]]) -> Iterator[tuple[str, bytes]]:
        for level in levels:
            coarser = range(1, self._timeline.pyramid.top - level + 1)
            for number, bundle in enumerate(self._bundles):
                for index in _tile_indices(times, level):
                    key = number, level, index
                    if key in self._is_exact or any(self._is_exact.get((number, level + up, index >> up)) for up in coarser):
                        continue
                    content = tiles.tile(self._timeline, bundle, level, index)
                    self._is_exact[key] = _is_exact(content)
                    yield f"timeline/tiles/{level}/{index}?lanes={','.join(str(track.id) for track in bundle)}", content


def _is_exact(tile: bytes) -> bool:
    """Does the tile draw each span by itself?"""
    length = int.from_bytes(tile[:4], "little")
    tracks = msgspec.json.decode(tile[4 : 4 + length])["lanes"]
    has_short = any(buckets for track in tracks for _, buckets in track.get("rows", []))
    return not has_short and all(track.get("points", 0) <= pyramid.BUCKETS // 2 for track in tracks)


def _bundles(tracks: list[Track]) -> list[list[Track]]:
    """Tracks of one group, at most _ROWS rows together."""
    bundles: list[list[Track]] = []
    for track in tracks:
        if bundles and bundles[-1][0].group == track.group and sum(other.rows for other in bundles[-1]) + track.rows <= _ROWS:
            bundles[-1].append(track)
        else:
            bundles.append([track])
    return bundles


def _chosen_steps(trace: Trace, timeline: Timeline) -> list[tuple[int, int]]:
    """The intervals of the steps in full detail: the longest step, and steps of about the median length."""
    length = pl.col("end") - pl.col("start")
    steps = trace.steps.select(start=pl.col("start_ns") - timeline.origin, end=pl.col("end_ns") - timeline.origin).collect()
    if steps.height == 0:
        return [(0, timeline.end)]
    distance = (length - length.median()).abs()
    order = [steps.sort(length, descending=True).row(0), *steps.sort(distance).iter_rows()]
    return [(int(start), int(end)) for start, end in list(dict.fromkeys(order))[:_STEPS]]


def _tile_indices(times: list[tuple[int, int]], level: int) -> list[int]:
    """The tiles of a level that overlap one of the intervals."""
    width = level + pyramid.BUCKETS_LOG2
    ranges = [(max(0, low) >> width, (max(low, high - 1) >> width) + 1) for low, high in times]
    return list(dict.fromkeys(itertools.chain.from_iterable(range(low, min(high, low + _MAX_TILES)) for low, high in ranges)))
