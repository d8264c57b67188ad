"""Search for spans by text: the number of matches, their total duration, and any match by position, without a list of all."""

from collections.abc import Iterable

import numpy as np

from stepscope.errors import UsageError
from stepscope.model.intervals import Bools, Ints
from stepscope.model.output import tables
from stepscope.model.trace import Trace
from stepscope.timeline.layout import KINDS, Timeline, track_rows
from stepscope.timeline.rows import CHUNK

_ARGS = 1 << 20  # spans whose arguments every search reads; for more, only on request
_PORTION = 1 << 20
_FEW = 1 << 17  # spans that are sorted to find a match by position
_FIELDS = ("name", "type", "scope")


class Matches:
    """The spans that match a search: by label, or by one flag per span where the labels do not decide."""

    def __init__(
        self, timeline: Timeline, rank: int | None, labels: Bools, flags: Bools | None = None, searched: tuple[str, ...] = _FIELDS
    ) -> None:
        self.searched = searched
        self._spans, self._sums, self._end = timeline.pyramid.spans, timeline.sums, timeline.end
        self._labels, self._flags = labels, flags
        tracks = (track for track in timeline.tracks if track.kind == "spans" and rank in (None, track.rank))
        self._rows = [row for track in tracks for row in track_rows(track)]
        counts, durations = self._by_chunk()
        chunks = [slice(*self._sums.first[row : row + 2].tolist()) for row in self._rows]
        self._before_chunk = [np.append(0, np.cumsum(counts[part])) for part in chunks]  # by row: matches before each chunk, and in all
        self.count = sum(int(before[-1]) for before in self._before_chunk)
        self.total_ns = sum(int(durations[part].sum()) for part in chunks)

    def before(self, time: int) -> int:
        """The number of matches that begin before a timestamp."""
        count = 0
        for row, before in zip(self._rows, self._before_chunk, strict=True):
            row_spans = self._spans.row_slice(row)
            inside = int(np.searchsorted(self._spans.start[row_spans], time, "left"))
            chunk = inside // CHUNK
            count += int(before[chunk]) + int(self._matches(row_spans.start + chunk * CHUNK, row_spans.start + inside).sum())
        return count

    def between(self, low: int, high: int) -> Ints:
        """The numbers of the matches that begin between two timestamps, by time."""
        parts = [np.empty(0, np.int64)]
        for part in self._slices(low, high):
            parts.append(part.start + np.flatnonzero(self._matches(part.start, part.stop)))
        numbers = np.concatenate(parts)
        return numbers[np.argsort(self._spans.start[numbers], kind="stable")]

    def at(self, position: int) -> int | None:
        """The number of the span at this position among the matches by time, counted from 0."""
        if not 0 <= position < self.count:
            return None
        low, high = 0, self._end + 1
        while high - low > 1 and sum(part.stop - part.start for part in self._slices(low, high)) > _FEW:
            middle = (low + high) // 2
            low, high = (middle, high) if self.before(middle) <= position else (low, middle)
        return int(self.between(low, high)[position - self.before(low)])

    def _slices(self, low: int, high: int) -> Iterable[slice]:
        """The spans of each row that begin between two timestamps."""
        for row in self._rows:
            row_spans = self._spans.row_slice(row)
            yield slice(*(row_spans.start + np.searchsorted(self._spans.start[row_spans], (low, high), "left")).tolist())

    def _matches(self, low: int, high: int) -> Bools:
        if self._flags is not None:
            return self._flags[low:high]
        matches: Bools = self._labels[self._spans.label[low:high]]
        return matches

    def _by_chunk(self) -> tuple[Ints, Ints]:
        """The number of matches in each chunk, and their total duration."""
        sums = self._sums
        if self._flags is None:
            matches = self._labels[sums.entries.label]
            running = (np.append(0, np.cumsum(np.where(matches, column, 0))) for column in (sums.entries.spans, sums.entries.total))
            count, total = (until[sums.places[:, 1]] - until[sums.places[:, 0]] for until in running)
            return count, total
        count, total = np.zeros(len(sums.places), np.int64), np.zeros(len(sums.places), np.int64)
        for row in self._rows:
            row_spans = self._spans.row_slice(row)
            for chunk, low in enumerate(range(row_spans.start, row_spans.stop, CHUNK), int(sums.first[row])):
                matches = self._matches(low, min(low + CHUNK, row_spans.stop))
                count[chunk], total[chunk] = matches.sum(), self._spans.dur[low : low + len(matches)][matches].sum()
        return count, total


def search(
    trace: Trace, timeline: Timeline, text: str, kinds: Iterable[str] = (), rank: int | None = None, args: bool | None = None
) -> Matches:
    """All spans with these words (or a match of a /regular expression/) in name, type or scope, and in arguments of small traces.

    `args` forces or prevents the search in arguments.
    """
    with_args = timeline.spans <= _ARGS if args is None else args
    is_pattern = text.startswith("/") and len(text) > 1
    words = [text] if is_pattern else text.split()
    if not words:
        raise UsageError("nothing to search for")
    if unknown := set(kinds) - set(KINDS):
        raise UsageError(f"no kind '{min(unknown)}'; expected {', '.join(KINDS)}")
    of_kind = np.isin(timeline.labels["kind"].to_numpy(), [KINDS.index(kind) for kind in kinds or KINDS])
    by_word = [_matching_labels(timeline, word) for word in words]
    if not with_args:
        return Matches(timeline, rank, np.logical_and.reduce([of_kind, *by_word]))
    spans = timeline.pyramid.spans
    flags = np.empty(len(spans.label), np.bool_)
    for low in range(0, len(flags), _PORTION):
        flags[low : low + _PORTION] = of_kind[spans.label[low : low + _PORTION]]
    for word, labels in zip(words, by_word, strict=True):
        _clear_others(trace, timeline, word, labels, flags)
    return Matches(timeline, rank, of_kind, flags, (*_FIELDS, "args"))


def same_name(timeline: Timeline, rank: int, name: str) -> Matches:
    return Matches(timeline, rank, (timeline.labels["name"] == name).to_numpy())


def _matching_labels(timeline: Timeline, word: str) -> Bools:
    labels = np.zeros(timeline.labels.height, np.bool_)
    labels[tables.matching(timeline.labels.lazy().drop("means").with_row_index("at"), word).select("at").collect()["at"].to_numpy()] = True
    return labels


def _clear_others(trace: Trace, timeline: Timeline, word: str, labels: Bools, flags: Bools) -> None:
    """Clear the flags of spans without the word in their label or arguments."""
    spans = timeline.pyramid.spans
    hits = tables.matching(trace.spans.select("rank", "span", "args"), word).select("rank", "span").collect()
    by_rank = {rank: rows["span"].to_numpy() for (rank,), rows in hits.partition_by("rank", as_dict=True).items()}
    nothing = np.empty(0, np.int64)
    for track in timeline.tracks:
        if track.kind == "spans":
            first, last = spans.offsets[[track.first, track.first + track.rows]].tolist()
            for low in range(first, last, _PORTION):
                part = slice(low, min(low + _PORTION, last))
                flags[part] &= labels[spans.label[part]] | np.isin(spans.span[part], by_rank.get(track.rank, nothing))
