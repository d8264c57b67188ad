"""What a client draws of some lanes between two moments: a header and plain arrays.

docs/web.md says how the bytes are laid out.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import pyramid
from stepscope.intervals import Ints
from stepscope.pyramid import BUCKETS
from stepscope.timelines.filling import SAMPLES, Samples
from stepscope.timelines.lanes import KINDS, Lane, Timeline, rows_of

_Array = NDArray[Any]
_AROUND = 0.03  # of the steps that are shown first
# In this order, each for all rows of all lanes; see docs/web.md.
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
    """What a client must know before it asks for tiles."""
    return {
        "origin_ns": str(timeline.origin),
        "end_ns": timeline.end,
        "top_level": timeline.pyramid.top,
        "buckets": BUCKETS,
        "version": version,
        "events": timeline.spans,
        "opens": _opens(timeline),
        "kinds": KINDS,
        "groups": timeline.groups,
        "lanes": timeline.lanes,
    }


def _opens(timeline: Timeline) -> tuple[int, int]:
    """The time that is shown first: the steps and a little around them, where these are less than half of the time and hold most of what
    was recorded, else all of it. A trace may begin long before its first step."""
    events = timeline.pyramid.events
    steps, spans = (
        [row for lane in timeline.lanes if lane.kind == kind for row in rows_of(lane) if events.offsets[row] < events.offsets[row + 1]]
        for kind in ("steps", "spans")
    )
    first = min((int(events.start[events.offsets[row]]) for row in steps), default=0)
    last = max((int(events.reach[events.offsets[row + 1] - 1]) for row in steps), default=timeline.end)
    recorded = sum(int(events.offsets[row + 1] - events.offsets[row]) for row in spans)
    within = sum(some.stop - some.start for some in (pyramid.within(events, row, first, last) for row in spans))
    if 2 * (last - first) >= timeline.end or 2 * within < recorded:
        return 0, timeline.end
    around = round((last - first) * _AROUND)
    return max(0, first - around), min(timeline.end, last + around)


class Points(NamedTuple):
    """A counter, to be drawn as steps: each holds until the next one."""

    at: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def tile(timeline: Timeline, lanes: list[Lane], level: int, index: int, by: str | None = None) -> bytes:
    """The tile of these lanes; `by` is "type" or "scope" where these are wanted beside the names."""
    events = timeline.pyramid.events
    about: list[dict[str, Any]] = []
    parts: dict[str, list[_Array]] = {name: [] for name in LAYOUT}
    labels: list[_Array] = []
    for lane in lanes:
        if lane.kind == "counter":
            points = counter(timeline.samples, lane.first, level, index)
            about.append({"id": lane.id, "points": len(points.at)})
            parts["point_at"].append(points.at)
            parts["point_low"].append(points.low)
            parts["point_high"].append(points.high)
            continue
        about.append({"id": lane.id, "rows": []})
        for row in rows_of(lane):
            long, buckets = pyramid.tile(timeline.pyramid, row, level, index)
            about[-1]["rows"].append([len(long), len(buckets.bucket)])
            longest = buckets.longest
            columns: dict[str, _Array] = {
                "long_start": events.start[long],
                "long_dur": events.dur[long],
                "long_name": events.label[long],
                "long_span": events.span[long],
                "long_kind": events.kind[long],
                "bucket_count": buckets.began,
                "bucket_name": events.label[longest],
                "bucket_span": events.span[longest],
                "bucket_x": buckets.bucket,
                "bucket_busy": _share(buckets.busy, level),
                "bucket_kind": events.kind[longest],
            }
            for name, column in columns.items():
                parts[name].append(column)
    arrays = {name: np.concatenate(columns) if columns else np.empty(0) for name, columns in parts.items()}
    labels = [arrays["long_name"].astype(np.int64), arrays["bucket_name"].astype(np.int64)]
    names, used = _names(timeline.labels, np.concatenate(labels), by)
    arrays["long_name"], arrays["bucket_name"] = used[: len(labels[0])], used[len(labels[0]) :]
    return _packed({"level": level, "index": index, **names, "lanes": about}, arrays)


def counter(samples: Samples, number: int, level: int, index: int) -> Points:
    """What is needed to draw a counter: what it was before the tile, and of each bucket its least and most, and then its last.

    No peak is hidden, and what holds on after a bucket is the last that was sampled in it.
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
    # Twice where they differ: the range at the first moment, and the last value at the last.
    place = np.repeat(np.arange(len(begin)), 1 + several)
    is_last = np.append(np.diff(place, prepend=-1) == 0, False)[: len(place)]
    end = value[finish]
    points = (
        np.where(is_last, at[finish][place], at[begin][place]),
        np.where(is_last, end[place], least[place]),
        np.where(is_last, end[place], most[place]),
    )
    return Points(*(np.append(column, rest).astype(float) for column, rest in zip((at[before], *[value[before]] * 2), points, strict=True)))


def _extremes(samples: Samples, begin: Ints, end: Ints) -> tuple[_Array, _Array]:
    """The least and the most of the values between each two places: where there are many, from what is kept of each SAMPLES of them."""
    low, high = -(-begin // SAMPLES), end // SAMPLES
    whole = np.flatnonzero(low < high)
    # What is not whole: before the first and after the last that is, or all of it.
    starts = np.concatenate((begin, high[whole] * SAMPLES))
    ends = np.concatenate((np.where(low < high, low * SAMPLES, end), end[whole]))
    owner = np.concatenate((np.arange(len(begin)), whole))[starts < ends]
    starts, length = starts[starts < ends], (ends - starts)[starts < ends]
    first: Ints = np.cumsum(length, dtype=np.int64) - length
    loose = samples.value[np.repeat(starts - first, length) + np.arange(int(length.sum()))]
    found = []
    for reduce, kept in ((np.minimum, samples.least), (np.maximum, samples.most)):
        best = samples.value[begin]
        if len(owner):
            reduce.at(best, owner, reduce.reduceat(loose, first))
        if len(whole):
            inside = reduce.reduceat(kept, np.stack((low[whole], high[whole]), 1).ravel())[::2]
            best[whole] = reduce(best[whole], inside)
        found.append(best)
    return found[0], found[1]


def _share(busy: _Array, level: int) -> _Array:
    """Of 255 parts, rounded so that the sum over any buckets in a row is right to one part: many small shares are not all rounded up."""
    return np.diff((np.cumsum(busy) * 255 + (1 << level >> 1)) >> level, prepend=0)


def _names(labels: pl.DataFrame, used: _Array, by: str | None) -> tuple[dict[str, list[str | None]], _Array]:
    """The names that occur, and for each label in `used` which of them it is."""
    distinct, where = np.unique(used, return_inverse=True)
    columns = ["name", by] if by else ["name"]
    chosen = labels.select(*columns, "means")[distinct]
    kept = chosen.unique(columns, maintain_order=True).with_row_index("at")
    at = chosen.join(kept, on=columns, how="left", maintain_order="left", nulls_equal=True)["at"].to_numpy()
    lists: dict[str, list[str | None]] = {f"{column}s": kept[column].to_list() for column in columns}
    if kept["means"].count():
        lists["means"] = kept["means"].to_list()
    return lists, at[where] if len(at) else np.empty(0, np.uint32)


def _packed(header: dict[str, Any], arrays: dict[str, _Array]) -> bytes:
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % 8)
    pieces = [len(text).to_bytes(4, "little"), text]
    for name, kind in LAYOUT.items():
        content = arrays[name].astype(kind).tobytes()
        pieces += [content, b"\0" * (-len(content) % 8)]
    return b"".join(pieces)


def covers(level: int, index: int) -> tuple[int, int]:
    """From when to when a tile is."""
    return index * BUCKETS << level, (index + 1) * BUCKETS << level
