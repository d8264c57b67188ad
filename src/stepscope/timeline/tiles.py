"""Tiles: the visible part of some tracks between two timestamps, as a header and plain arrays.

docs/web.md describes the layout of the bytes. In the interface, a track is called `lane`.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model.intervals import Ints
from stepscope.timeline import pyramid
from stepscope.timeline.layout import KINDS, Timeline, Track, track_rows
from stepscope.timeline.pyramid import BUCKETS
from stepscope.timeline.rows import SAMPLES, Samples

_Array = NDArray[Any]
_MARGIN = 0.03  # on each side of the steps in the first view, as a share of their time
# In this order, each array for all rows of all tracks.
LAYOUT = {
    "long_start": "<f8",
    "long_dur": "<f8",
    "point_at": "<f8",
    "point_low": "<f8",
    "point_high": "<f8",
    "long_name": "<u4",
    "long_span": "<i4",
    "bucket_count": "<u4",
    "bucket_name": "<u4",
    "bucket_span": "<i4",
    "bucket_x": "<u2",
    "long_kind": "u1",
    "bucket_busy": "u1",
    "bucket_kind": "u1",
}


def header(timeline: Timeline, version: str = "") -> dict[str, Any]:
    """What a client needs before it requests tiles."""
    return {
        "origin_ns": str(timeline.origin),
        "end_ns": timeline.end,
        "top_level": timeline.pyramid.top,
        "buckets": BUCKETS,
        "version": version,
        "events": timeline.spans,
        "opens": _first_view(timeline),
        "kinds": KINDS,
        "groups": timeline.groups,
        "lanes": timeline.tracks,
    }


def _first_view(timeline: Timeline) -> tuple[int, int]:
    """The interval that is shown first.

    A trace may begin long before its first step. So it is the steps with a margin if they are less than half of the time and contain most
    of the spans, else the whole trace.
    """
    spans = timeline.pyramid.spans
    step_rows, span_rows = (
        [row for track in timeline.tracks if track.kind == kind for row in track_rows(track) if spans.offsets[row] < spans.offsets[row + 1]]
        for kind in ("steps", "spans")
    )
    first = min((int(spans.start[spans.offsets[row]]) for row in step_rows), default=0)
    last = max((int(spans.reach[spans.offsets[row + 1] - 1]) for row in step_rows), default=timeline.end)
    recorded = sum(int(spans.offsets[row + 1] - spans.offsets[row]) for row in span_rows)
    inside = sum(part.stop - part.start for part in (pyramid.within(spans, row, first, last) for row in span_rows))
    if 2 * (last - first) >= timeline.end or 2 * inside < recorded:
        return 0, timeline.end
    margin = round((last - first) * _MARGIN)
    return max(0, first - margin), min(timeline.end, last + margin)


class Points(NamedTuple):
    """A counter as a step function: each value is valid until the next one."""

    at: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def tile(timeline: Timeline, tracks: list[Track], level: int, index: int, by: str | None = None) -> bytes:
    """The tile of these tracks; `by` ("type" or "scope") adds a second text to each name."""
    spans = timeline.pyramid.spans
    entries: list[dict[str, Any]] = []
    parts: dict[str, list[_Array]] = {name: [] for name in LAYOUT}
    for track in tracks:
        columns: dict[str, _Array]
        if track.kind == "counter":
            points = counter(timeline.samples, track.first, level, index)
            entries.append({"id": track.id, "points": len(points.at)})
            columns = {f"point_{name}": column for name, column in points._asdict().items()}
            for name, column in columns.items():
                parts[name].append(column)
            continue
        entries.append({"id": track.id, "rows": []})
        for row in track_rows(track):
            long, buckets = pyramid.tile(timeline.pyramid, row, level, index)
            entries[-1]["rows"].append([len(long), len(buckets.bucket)])
            longest = buckets.longest
            columns = {
                "long_start": spans.start[long],
                "long_dur": spans.dur[long],
                "long_name": spans.label[long],
                "long_span": spans.span[long],
                "long_kind": spans.kind[long],
                "bucket_count": buckets.began,
                "bucket_name": spans.label[longest],
                "bucket_span": spans.span[longest],
                "bucket_x": buckets.bucket,
                "bucket_busy": _busy_parts(buckets.busy, level),
                "bucket_kind": spans.kind[longest],
            }
            for name, column in columns.items():
                parts[name].append(column)
    arrays = {name: np.concatenate(columns) if columns else np.empty(0) for name, columns in parts.items()}
    labels = [arrays["long_name"].astype(np.int64), arrays["bucket_name"].astype(np.int64)]
    names, numbers = _names(timeline.labels, np.concatenate(labels), by)
    arrays["long_name"], arrays["bucket_name"] = numbers[: len(labels[0])], numbers[len(labels[0]) :]
    return _pack({"level": level, "index": index, **names, "lanes": entries}, arrays)


def counter(samples: Samples, number: int, level: int, index: int) -> Points:
    """The value before the tile, and for each bucket its range and its last value.

    No peak is hidden, and the value after a bucket is the last sample in it.
    """
    at, value = samples.at, samples.value
    from_, to = int(samples.offsets[number]), int(samples.offsets[number + 1])
    edges = from_ + np.searchsorted(at[from_:to], (index * BUCKETS + np.arange(BUCKETS + 1)) << level)
    before = slice(edges[0] - 1, edges[0]) if edges[0] > from_ else slice(0, 0)
    if edges[0] == edges[-1]:
        return Points(at[before].astype(float), value[before], value[before])
    filled = edges[1:] > edges[:-1]
    begin, finish = edges[:-1][filled], edges[1:][filled] - 1
    least, most = _extremes(samples, begin, finish + 1)
    several = least < most
    # Two points where they differ: the range at the first timestamp, and the last value at the last.
    bucket = np.repeat(np.arange(len(begin)), 1 + several)
    is_last = np.append(np.diff(bucket, prepend=-1) == 0, False)[: len(bucket)]
    end = value[finish]
    points = (
        np.where(is_last, at[finish][bucket], at[begin][bucket]),
        np.where(is_last, end[bucket], least[bucket]),
        np.where(is_last, end[bucket], most[bucket]),
    )
    return Points(*(np.append(column, rest).astype(float) for column, rest in zip((at[before], *[value[before]] * 2), points, strict=True)))


def _extremes(samples: Samples, begin: Ints, end: Ints) -> tuple[_Array, _Array]:
    """The least and the most of each range of values; long ranges use the stored extremes of SAMPLES values."""
    low, high = -(-begin // SAMPLES), end // SAMPLES
    whole = np.flatnonzero(low < high)
    # The values outside whole blocks: before the first block and after the last one, or the whole range.
    starts = np.concatenate((begin, high[whole] * SAMPLES))
    ends = np.concatenate((np.where(low < high, low * SAMPLES, end), end[whole]))
    owner = np.concatenate((np.arange(len(begin)), whole))[starts < ends]
    starts, length = starts[starts < ends], (ends - starts)[starts < ends]
    first: Ints = np.cumsum(length, dtype=np.int64) - length
    loose = samples.value[np.repeat(starts - first, length) + np.arange(int(length.sum()))]
    extremes = []
    for reduce, stored in ((np.minimum, samples.least), (np.maximum, samples.most)):
        best = samples.value[begin]
        if len(owner):
            reduce.at(best, owner, reduce.reduceat(loose, first))
        if len(whole):
            inside = reduce.reduceat(stored, np.stack((low[whole], high[whole]), 1).ravel())[::2]
            best[whole] = reduce(best[whole], inside)
        extremes.append(best)
    return extremes[0], extremes[1]


def _busy_parts(busy: _Array, level: int) -> _Array:
    """Busy time in parts of 255, rounded so that the sum over consecutive buckets is exact to one part."""
    return np.diff((np.cumsum(busy) * 255 + (1 << level >> 1)) >> level, prepend=0)


def _names(labels: pl.DataFrame, used: _Array, by: str | None) -> tuple[dict[str, list[str | None]], _Array]:
    """The distinct names, and the number of the name of each label in `used`."""
    distinct, inverse = np.unique(used, return_inverse=True)
    columns = ["name", by] if by else ["name"]
    chosen = labels.select(*columns, "means")[distinct]
    distinct_names = chosen.unique(columns, maintain_order=True).with_row_index("at")
    at = chosen.join(distinct_names, on=columns, how="left", maintain_order="left", nulls_equal=True)["at"].to_numpy()
    lists: dict[str, list[str | None]] = {f"{column}s": distinct_names[column].to_list() for column in columns}
    if distinct_names["means"].count():
        lists["means"] = distinct_names["means"].to_list()
    return lists, at[inverse] if len(at) else np.empty(0, np.uint32)


def _pack(header: dict[str, Any], arrays: dict[str, _Array]) -> bytes:
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % 8)
    pieces = [len(text).to_bytes(4, "little"), text]
    for name, kind in LAYOUT.items():
        content = arrays[name].astype(kind).tobytes()
        pieces += [content, b"\0" * (-len(content) % 8)]
    return b"".join(pieces)
