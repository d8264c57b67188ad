"""The tracks of a trace that have spans, in drawing order, and the rows of their spans."""

import heapq
import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import schema
from stepscope.model.intervals import JITTER_NS, Ints
from stepscope.model.trace import Trace
from stepscope.timeline.construction.columns import RowBuffer
from stepscope.timeline.construction.derived import DerivedRows
from stepscope.timeline.construction.portions import SpanRows

_MAX_DEPTH = 256  # spans open at one time; deeper nesting cannot be read from the picture
_NAMED = re.compile(r"\(.+\)")  # the label of a thread with a name beside its number
_Codes = NDArray[np.int32]


class SpanTrack(NamedTuple):
    rank: int
    track: int | None
    group: str
    label: str
    kind: str
    device: int | None
    pid: str | None
    rows: tuple[int, ...]  # in the buffer, outermost first
    tangled: bool
    spans: int
    kinds: tuple[str, ...]  # of its spans, most frequent first


def span_tracks(trace: Trace, spans: SpanRows, derived: DerivedRows) -> list[SpanTrack]:
    """The tracks that have spans, in drawing order. Where depths do not nest, the rows are laid out again."""
    schema_rows = _track_rows(trace)
    threads = _Threads(schema_rows)
    depths: dict[int, dict[int, int]] = {}
    for (number, depth), row in spans.rows.items():
        depths.setdefault(number, {})[depth] = row
    tracks = []
    for number, (rank, track) in enumerate(spans.tracks):
        about = schema_rows.get((rank, track), {})
        kind = about.get("kind") or ""
        rows = [depths[number].get(depth, -1) for depth in range(max(depths[number]) + 1)]  # a depth without spans is an empty row
        flat, tangled = kind == "stream", False
        if len(rows) > (1 if flat else 2) and not _nests(spans.buffer, rows):
            rows, tangled = _lay_out(spans.buffer, rows, derived, flat), True
        counts = spans.kinds[number]
        kinds = tuple(schema.KINDS[at] for at in np.argsort(-counts, kind="stable") if counts[at])
        texts = about.get("group") or "", about.get("label") or "", kind
        owner = about.get("device"), about.get("pid")
        made = SpanTrack(rank, None if track < 0 else track, *texts, *owner, tuple(rows), tangled, int(counts.sum()), kinds)
        thread = threads.of_track(rank, track, about)
        # Annotations of a thread are above it, annotations of a stream below.
        tracks.append((thread, (threads.sort.get(thread, 0), kind not in ("annotation", "stream"), not flat, about.get("sort") or 0), made))
    training = _training_threads([(thread, made) for thread, _, made in tracks])
    tracks.sort(key=lambda entry: (entry[0][0], entry[0] not in training, entry[0] not in threads.named, entry[1]))
    return [made for _, _, made in tracks]


def _track_rows(trace: Trace) -> dict[tuple[int, int], dict[str, Any]]:
    frame = trace.tracks.with_columns(pl.col("group", "kind").cast(pl.String)).collect()
    return {(row["rank"], row["track"]): row for row in frame.iter_rows(named=True)}


class _Threads:
    """Tracks of one thread are drawn next to each other, whichever group of its process they are in."""

    def __init__(self, rows: dict[tuple[int, int], dict[str, Any]]) -> None:
        self._devices = {(row["rank"], row["group"]) for row in rows.values() if row["kind"] == "stream"}
        self.sort: dict[Any, int] = {}
        self.named: set[Any] = set()
        for (rank, track), row in rows.items():
            thread = self.of_track(rank, track, row)
            self.sort[thread] = min(self.sort.get(thread, 1 << 31), row["sort"] or 0)
            if _NAMED.search(row["label"] or ""):
                self.named.add(thread)

    def of_track(self, rank: int, track: int, row: dict[str, Any]) -> Any:
        group = rank, row.get("group")
        return rank, row.get("pid") if group in self._devices else group, row.get("tid") or track


def _training_threads(tracks: list[tuple[Any, SpanTrack]]) -> set[Any]:
    """The threads and streams with step markers; in a process without markers, the thread with the most spans."""
    training = {thread for thread, track in tracks if "step" in track.kinds}
    by_process: dict[Any, dict[Any, int]] = {}
    for thread, track in tracks:
        spans = by_process.setdefault((track.rank, track.group), {})
        spans[thread] = spans.get(thread, 0) + (track.spans if track.kind == "thread" else 0)
    unmarked = [spans for spans in by_process.values() if not training & spans.keys() and any(spans.values())]
    return training | {max(spans, key=lambda thread: spans[thread]) for spans in unmarked}


def _nests(buffer: RowBuffer, rows: list[int]) -> bool:
    """Are as many spans open at one time as there are levels above the deepest?"""
    first = int(next(buffer.windows([rows[-1]], 1)).columns[0][0])
    if sum(_is_open(buffer, row, first) for row in rows[:-1]) >= len(rows) - 1:
        return True
    windows = list(buffer.windows(rows))
    start = np.concatenate([window.columns[0] for window in windows])
    return len(rows) - 1 <= max_open(start, start + np.concatenate([window.columns[1] for window in windows]))


def _is_open(buffer: RowBuffer, row: int, time: int) -> bool:
    """Has the last span of a row that began by this time not ended?"""
    last = buffer.last_before(row, time + 1)
    return last is not None and int(last[0] + last[1]) > time


def _lay_out(buffer: RowBuffer, rows: list[int], derived: DerivedRows, flat: bool) -> list[int]:
    """New rows in which no two spans overlap."""
    windows = [window.columns for window in buffer.windows(rows)]
    columns = [np.concatenate(column) for column in zip(*windows, strict=True)]
    start, end = columns[0], columns[0] + columns[1]
    row = first_fit(start, end) if flat or max_open(start, end) > _MAX_DEPTH else nested_fit(start, end)
    for old in rows:
        buffer.drop(old)
    new_rows = derived.allocate(int(row.max()) + 1)
    for at, new in enumerate(new_rows):
        buffer.add_row(new, tuple(column[row == at] for column in columns))
    return new_rows


def first_fit(start: Ints, end: Ints) -> _Codes:
    """The first free row for each span; for spans that nest, the row is the depth."""
    row = np.zeros(len(start), np.int32)
    order = np.lexsort((-end, start))
    free: list[int] = []
    open_spans: list[tuple[int, int]] = []
    rows = 0
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        while open_spans and open_spans[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(open_spans)[1])
        if free:
            chosen = heapq.heappop(free)
        else:
            chosen, rows = rows, rows + 1
        row[index] = chosen
        heapq.heappush(open_spans, (finish, chosen))
    return row


class _Open(NamedTuple):
    end: int
    row: int
    has_room: bool  # a row above is left free for a span that outlives it


def nested_fit(start: Ints, end: Ints) -> _Codes:
    """A free row for each span, below all spans that enclose it; of two spans that only overlap, the longer one is above.

    Example: a range that begins or ends inside Python calls. The range encloses the function that makes the calls.
    """
    order = np.lexsort((-end, start))
    begins, ends = start[order].tolist(), end[order].tolist()
    rows: list[int] = []
    open_spans: list[_Open] = []
    for begin, finish, outlived in zip(begins, ends, _outliving_ends(begins, ends), strict=True):
        open_spans = [span for span in open_spans if span.end > begin]
        enclosing = [span for span in open_spans if span.end + JITTER_NS >= finish]
        # One free row is enough for all spans that the same longer span outlives.
        leaves_room = outlived is not None and not any(span.has_room and span.end < outlived for span in enclosing)
        chosen = max((span.row for span in enclosing), default=-1) + 1 + leaves_room
        occupied = {span.row for span in open_spans}
        while chosen in occupied:
            chosen += 1
        rows.append(chosen)
        open_spans.append(_Open(finish, chosen, leaves_room))
    row = np.zeros(len(start), np.int32)
    row[order] = rows
    return row


def _outliving_ends(begins: list[int], ends: list[int]) -> list[int | None]:
    """For each span the end of the first longer span that begins in it and ends after it."""
    result: list[int | None] = [None] * len(begins)
    open_spans: list[int] = []
    for index, (begin, finish) in enumerate(zip(begins, ends, strict=True)):
        open_spans = [other for other in open_spans if ends[other] > begin]
        for other in open_spans:
            if ends[other] + JITTER_NS < finish and ends[other] - begins[other] < finish - begin:
                result[other] = min(result[other] or finish, finish)
        open_spans.append(index)
    return result


def max_open(start: Ints, end: Ints) -> int:
    """The largest number of spans that are open at one time."""
    begun = np.sort(start)
    closed = np.searchsorted(np.sort(np.maximum(end, start)), begun, "right")
    return int((np.arange(1, len(begun) + 1) - closed).max(initial=0))
