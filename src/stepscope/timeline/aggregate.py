"""Sums over an area of a timeline: by name, kind or track, and the busy time of each group."""

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from stepscope.errors import UsageError
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.timeline import pyramid
from stepscope.timeline.construction import columns
from stepscope.timeline.layout import FLAT, KINDS, Group, Timeline, Track, track_rows
from stepscope.timeline.rows import CHUNK, LabelSums, Parents, last_begun, sum_by_label

_AT_ONCE = 1 << 20  # spans whose union is computed at a time
_RELEASED = 8  # intervals after which the memory of mapped files is released


def area(timeline: Timeline, tracks: list[Track], low: int, high: int, by: str = "name") -> pl.DataFrame:
    """Sums over the parts of spans between two timestamps, largest self time first.

    A span without duration counts where it is. `self_ns` excludes the spans below it in the same track. `by` is name (with kind and
    track), kind or `lane`, which is the track in the interface; `means` is the type of the spans with this name.
    """
    if by not in ("name", "kind", "lane"):
        raise UsageError(f"no area by '{by}'; expected name, kind or `lane`")
    if high <= low:
        raise UsageError(f"the area ends at {high}, before it begins at {low}")
    parts = []
    for track in tracks:
        sums = list(zip(*_track_sums(timeline, track, low, high), strict=True))
        frame = dict(zip(_SUMS, map(np.concatenate, sums), strict=True)) if sums else {}
        parts.append(pl.DataFrame(frame, schema=_SUMS).with_columns(pl.lit(track.id, pl.Int32).alias("lane")))
    key = {"name": ["name", "kind", "lane", "means"], "kind": ["kind"], "lane": ["lane"]}[by]
    is_flat = pl.col("kind").is_in([KINDS.index(kind) for kind in FLAT])
    by_label = (
        pl.concat([pl.DataFrame(schema=_SUMS | {"lane": pl.Int32}), *parts])
        .group_by("label", "lane")
        .agg(pl.col("spans", "total", "covered").sum(), pl.col("longest").max())
    )
    rows = (
        by_label.hstack(timeline.labels.select("name", "kind", "means")[by_label["label"]])
        .with_columns(self_time=pl.when(is_flat).then("total").otherwise(pl.col("total") - pl.col("covered")))
        .group_by(key)
        .agg(count=pl.col("spans").sum(), total_ns=pl.col("total").sum(), self_ns=pl.col("self_time").sum(), max_ns=pl.col("longest").max())
        .filter(pl.col("count") > 0)
    )
    texts = {"kind": pl.Series(KINDS), "lane": pl.Series([track.label for track in timeline.tracks], dtype=pl.String)}
    nulls = pl.Series([None] * rows.height, dtype=pl.String)
    return (
        rows.with_columns(
            (rows["name"] if by == "name" else texts[by].gather(rows[by])).alias("key"),
            (nulls if by == "lane" else texts["kind"].gather(rows["kind"])).alias("kind"),
            (nulls if by == "kind" else rows["lane"]).cast(pl.Int32).alias("lane"),
            (rows["means"] if by == "name" else nulls).alias("means"),
        )
        .with_columns(share=pl.col("total_ns") / (high - low), mean_ns=pl.col("total_ns") / pl.col("count"))
        .select("key", "kind", "lane", "means", "count", "total_ns", "self_ns", "share", "mean_ns", "max_ns")
        .sort("self_ns", "count", "key", "lane", "kind", descending=[True, True, False, False, False], nulls_last=True)
    )


_SUMS = {"label": pl.Int32, "spans": pl.Int64, "total": pl.Int64, "longest": pl.Int64, "covered": pl.Int64}


def summary(timeline: Timeline, groups: Iterable[Group], low: int, high: int) -> list[dict[str, int]]:
    """The busy time of each group between two timestamps, in total and by kind of work. Idle time excludes unrecorded time."""
    rows = []
    for group in groups:
        sums = _group_sums(timeline, group, low, high)
        busy, unrecorded = sums.pop("busy_ns", 0), 0
        for begin, end in ((max(begin, low), min(end, high)) for begin, end in group.unrecorded if begin < high and end > low):
            unrecorded += end - begin - _group_sums(timeline, group, begin, end).get("busy_ns", 0)
        rows.append({"group": group.id, "busy_ns": busy, "idle_ns": high - low - busy - unrecorded, "unrecorded_ns": unrecorded} | sums)
    return rows


def _group_sums(timeline: Timeline, group: Group, low: int, high: int) -> dict[str, int]:
    tracks = [track for track in timeline.tracks if track.group == group.id and track.kind == "spans"]
    rows = [(track, row) for track in tracks for row in track_rows(track)]
    sums: dict[str, int] = {}
    for number, (begin, end) in enumerate(split_time(timeline, [row for _, row in rows], low, high), 1):
        if number % _RELEASED == 0:
            columns.release(timeline.pyramid.spans)
        for kind, length in _busy(timeline, group, rows, begin, end).items():
            sums[kind] = sums.get(kind, 0) + length
    return sums


def split_time(timeline: Timeline, rows: list[int], low: int, high: int) -> Iterator[tuple[int, int]]:
    """An interval in parts that overlap at most _AT_ONCE spans of these rows each."""
    slices = [pyramid.within(timeline.pyramid.spans, row, low, high) for row in rows]
    if sum(part.stop - part.start for part in slices) <= _AT_ONCE or high - low < 2:
        yield low, high
        return
    middle = (low + high) // 2
    yield from split_time(timeline, rows, low, middle)
    yield from split_time(timeline, rows, middle, high)


def _busy(timeline: Timeline, group: Group, rows: list[tuple[Track, int]], low: int, high: int) -> dict[str, int]:
    spans = timeline.pyramid.spans
    # Ranges and instants are labels, not work.
    is_work = np.array([kind not in ("step", "scope", "annotation", "instant") for kind in KINDS])
    sets: dict[str, list[intervals.Set]] = {}
    complete: Track | None = None
    for track, row in rows:
        if track is complete:
            continue  # deeper rows are part of the rows above
        part = pyramid.within(spans, row, low, high)
        start, kind = spans.start[part], spans.kind[part]
        end, runs = start + spans.dur[part], is_work[kind]
        for number in np.unique(kind[runs]) if group.kind == "device" else [-1]:
            chosen = slice(None) if runs.all() and number < 0 else runs if number < 0 else kind == number
            sets.setdefault("" if number < 0 else KINDS[number], []).append(intervals.merge(start[chosen], end[chosen]))
        if track.nested and len(start) and runs.all():
            complete = track
    busy = {kind: intervals.clip(intervals.join(*parts), low, high) for kind, parts in sets.items()}
    total = intervals.join(*busy.values()).total if busy else 0
    return {"busy_ns": total} | {f"{kind}_ns": times.total for kind, times in busy.items() if kind}


def _track_sums(timeline: Timeline, track: Track, low: int, high: int) -> Iterator[LabelSums]:
    """Sums of the spans of a track between two timestamps: from whole chunks, and from the spans at the edges."""
    spans, labels = timeline.pyramid.spans, timeline.labels.height
    tangle: list[tuple[Ints, Ints, Ints]] = []
    for row in track_rows(track):
        edges = [pyramid.within(spans, row, low, high)]
        if not track.tangled:
            chunks, edges = _whole_chunks(timeline, row, low, high, edges[0])
            yield from chunks
        parent_row = row - 1 if track.nested and row > track.first else None
        for edge in edges:
            for begin in range(edge.start, edge.stop, CHUNK):
                part = slice(begin, min(begin + CHUNK, edge.stop))
                start, dur, label = spans.start[part], spans.dur[part], spans.label[part]
                inside = (start + dur > low) | ((dur == 0) & (start >= low))
                start, dur, label = start[inside], dur[inside], label[inside]
                clipped, end = np.maximum(start, low), np.minimum(start + dur, high)
                if track.tangled:
                    tangle.append((label, clipped, end))
                    continue
                parents = None if parent_row is None or len(start) == 0 else _parents(timeline, parent_row, start)
                yield sum_by_label(labels, label, end - clipped, parents and parents.covered(slice(None), clipped, end))
    if tangle:
        label, start, end = (np.concatenate(column) for column in zip(*tangle, strict=True))
        self_time = intervals.nest(np.zeros(len(start), np.int64), start, end).self_time
        codes = label.astype(np.int32)
        yield sum_by_label(labels, codes, end - start, (codes, end - start - self_time))


def _whole_chunks(timeline: Timeline, row: int, low: int, high: int, near: slice) -> tuple[list[LabelSums], list[slice]]:
    """The sums of the chunks of a row that are completely inside, and the spans of `near` that are in none of them."""
    spans, sums = timeline.pyramid.spans, timeline.sums
    from_, to = spans.offsets[row : row + 2].tolist()
    first = from_ + int(np.searchsorted(spans.start[from_:to], low, "left"))
    last = min(from_ + int(np.searchsorted(spans.reach[from_:to], high, "right")), near.stop)
    begin, end = -(-(first - from_) // CHUNK), (last - from_) // CHUNK if last < to else -(-(to - from_) // CHUNK)
    if begin >= end:
        return [], [near]
    places = sums.places[int(sums.first[row]) + begin : int(sums.first[row]) + end].tolist()
    whole = [LabelSums._make(column[from_entry:to_entry] for column in sums.entries) for from_entry, to_entry in places]
    return whole, [slice(near.start, from_ + begin * CHUNK), slice(min(from_ + end * CHUNK, to), near.stop)]


def _parents(timeline: Timeline, row: int, at: Ints) -> Parents:
    """The last span of a row that began by each timestamp; timestamps are in order."""
    spans = timeline.pyramid.spans
    row_spans = spans.row_slice(row)
    low, high = (row_spans.start + np.searchsorted(spans.start[row_spans], (at[0], at[-1]), "right")).tolist()
    near = slice(max(low - 1, row_spans.start), high)
    return last_begun(at, spans.start[near], spans.dur[near], spans.label[near])
