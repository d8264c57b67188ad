"""Which spans have some words: how many, how long together, and the one of any number by time, without a list of them all."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from stepscope import tables
from stepscope.errors import UsageError
from stepscope.intervals import Bools, Ints
from stepscope.timelines.filling import CHUNK
from stepscope.timelines.lanes import KINDS, Timeline, rows_of
from stepscope.trace import Trace

_ARGS = 1 << 20  # spans whose arguments are read for every search; of more, only where that is asked for
_PORTION = 1 << 20
_FEW = 1 << 17  # events that are put in order to tell which is of a number
_WORDS = ("name", "type", "scope")


class Found:
    """Some spans. They are told by their labels, or where that does not do, one by one."""

    def __init__(
        self, timeline: Timeline, rank: int | None, labels: Bools, flags: Bools | None = None, searched: tuple[str, ...] = _WORDS
    ) -> None:
        """`flags` are of all events."""
        self.searched = searched
        self._timeline, self._labels, self._flags = timeline, labels, flags
        self._rows = [row for lane in timeline.lanes if lane.kind == "spans" and rank in (None, lane.rank) for row in rows_of(lane)]
        chunks, lengths = self._by_chunk()
        # By row: how many are before each of its chunks, and in all.
        of_row = [slice(*timeline.sums.first[row : row + 2].tolist()) for row in self._rows]
        self._until = [np.append(0, np.cumsum(chunks[own])) for own in of_row]
        self.count = sum(int(until[-1]) for until in self._until)
        self.total_ns = sum(int(lengths[own].sum()) for own in of_row)

    def before(self, moment: int) -> int:
        """How many of them begin before a moment."""
        events = self._timeline.pyramid.events
        count = 0
        for row, until in zip(self._rows, self._until, strict=True):
            first, last = events.offsets[row : row + 2].tolist()
            inside = int(np.searchsorted(events.start[first:last], moment, "left"))
            edge = inside // CHUNK
            count += int(until[edge]) + int(self._hits(first + edge * CHUNK, first + inside).sum())
        return count

    def between(self, low: int, high: int) -> Ints:
        """Those that begin between two moments, by time."""
        events = self._timeline.pyramid.events
        parts = [np.empty(0, np.int64)]
        for row in self._rows:
            first, last = events.offsets[row : row + 2].tolist()
            from_, to = (first + np.searchsorted(events.start[first:last], (low, high), "left")).tolist()
            parts.append(from_ + np.flatnonzero(self._hits(from_, to)))
        at = np.concatenate(parts)
        return at[np.argsort(events.start[at], kind="stable")]

    def number(self, number: int) -> int | None:
        """The event that is this one of them by time, counted from 0."""
        if not 0 <= number < self.count:
            return None
        low, high = 0, self._timeline.end + 1
        while high - low > 1 and self._events_between(low, high) > _FEW:
            middle = (low + high) // 2
            low, high = (middle, high) if self.before(middle) <= number else (low, middle)
        return int(self.between(low, high)[number - self.before(low)])

    def _events_between(self, low: int, high: int) -> int:
        events, count = self._timeline.pyramid.events, 0
        for row in self._rows:
            first, last = events.offsets[row : row + 2].tolist()
            from_, to = np.searchsorted(events.start[first:last], (low, high), "left").tolist()
            count += to - from_
        return count

    def _hits(self, low: int, high: int) -> Bools:
        if self._flags is not None:
            return self._flags[low:high]
        found: Bools = self._labels[self._timeline.pyramid.events.label[low:high]]
        return found

    def _by_chunk(self) -> tuple[Ints, Ints]:
        """How many there are in each chunk, and how long together."""
        sums = self._timeline.sums
        if self._flags is None:
            hit = self._labels[sums.entries.label]
            running = (np.append(0, np.cumsum(np.where(hit, column, 0))) for column in (sums.entries.times, sums.entries.total))
            count, total = (until[sums.places[:, 1]] - until[sums.places[:, 0]] for until in running)
            return count, total
        events = self._timeline.pyramid.events
        count, total = np.zeros(len(sums.places), np.int64), np.zeros(len(sums.places), np.int64)
        for row in self._rows:
            first, last = events.offsets[row : row + 2].tolist()
            for chunk, low in enumerate(range(first, last, CHUNK), int(sums.first[row])):
                own = self._hits(low, min(low + CHUNK, last))
                count[chunk], total[chunk] = own.sum(), events.dur[low : low + len(own)][own].sum()
        return count, total


def search(
    trace: Trace, timeline: Timeline, text: str, kinds: Iterable[str] = (), rank: int | None = None, args: bool | None = None
) -> Found:
    """All spans with these words in name, type or scope (or matching a /regular expression/); in arguments, too, where there are few.

    `args` says whether arguments are looked at, however many there are.
    """
    with_args = timeline.spans <= _ARGS if args is None else args
    is_pattern = text.startswith("/") and len(text) > 1
    words = [text] if is_pattern else text.split()
    if not words:
        raise UsageError("nothing to search for")
    if unknown := set(kinds) - set(KINDS):
        raise UsageError(f"no kind '{min(unknown)}'; expected {', '.join(KINDS)}")
    of_kind = np.isin(timeline.labels["kind"].to_numpy(), [KINDS.index(kind) for kind in kinds or KINDS])
    by_word = [_labels(timeline, word) for word in words]
    if not with_args:
        return Found(timeline, rank, np.logical_and.reduce([of_kind, *by_word]))
    events = timeline.pyramid.events
    flags = np.empty(len(events.label), np.bool_)
    for low in range(0, len(flags), _PORTION):
        flags[low : low + _PORTION] = of_kind[events.label[low : low + _PORTION]]
    for word, labels in zip(words, by_word, strict=True):
        _mark(trace, timeline, word, labels, flags)
    return Found(timeline, rank, of_kind, flags, (*_WORDS, "args"))


def same_name(timeline: Timeline, rank: int, name: str) -> Found:
    return Found(timeline, rank, (timeline.labels["name"] == name).to_numpy())


def _labels(timeline: Timeline, word: str) -> Bools:
    found = np.zeros(timeline.labels.height, np.bool_)
    found[tables.matching(timeline.labels.lazy().drop("means").with_row_index("at"), word).select("at").collect()["at"].to_numpy()] = True
    return found


def _mark(trace: Trace, timeline: Timeline, word: str, labels: Bools, flags: Bools) -> None:
    """Leave those flagged that have the word in what they are called or in their arguments."""
    events = timeline.pyramid.events
    hits = tables.matching(trace.spans.select("rank", "span", "args"), word).select("rank", "span").collect()
    of_rank = {rank: rows["span"].to_numpy() for (rank,), rows in hits.partition_by("rank", as_dict=True).items()}
    nothing = pl.Series([], dtype=pl.Int64).to_numpy()
    for lane in timeline.lanes:
        if lane.kind == "spans":
            first, last = events.offsets[[lane.first, lane.first + lane.rows]].tolist()
            for low in range(first, last, _PORTION):
                own = slice(low, min(low + _PORTION, last))
                flags[own] &= labels[events.label[own]] | np.isin(events.span[own], of_rank.get(lane.rank, nothing))
