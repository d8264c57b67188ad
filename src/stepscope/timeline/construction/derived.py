"""Rows that are derived from spans: unions of intervals and scopes, computed window by window."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stepscope.model import intervals, schema
from stepscope.model.intervals import Ints, Set
from stepscope.timeline.construction.columns import RowBuffer
from stepscope.timeline.construction.portions import Labels

END_OF_TIME = 1 << 62
_FIRST = 1 << 40  # derived rows are numbered from here, far from the rows of spans
_SCOPE = schema.KINDS.index("scope")
_SHALLOW, _NO_SCOPE = -1, -2  # the scope of a span has no such level; the span has no scope
_Codes = NDArray[np.int32]


class DerivedRows:
    """Additional rows in the buffer of the spans."""

    def __init__(self, buffer: RowBuffer) -> None:
        self._buffer, self._next = buffer, _FIRST

    def allocate(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))

    def append(self, row: int, start: Ints, dur: Ints, label: _Codes, kind: int | NDArray[np.uint8]) -> None:
        """Append spans to a row; they must be ordered by start."""
        count = len(start)
        kinds = np.full(count, kind, np.uint8) if isinstance(kind, int) else kind
        self._buffer.add_row(row, (start, dur, label, kinds, np.full(count, -1, np.int32)))


class Union:
    """The union of intervals that arrive ordered by start."""

    def __init__(self) -> None:
        self._rest = intervals.NONE

    def until(self, starts: Ints, ends: Ints, time: int) -> Set:
        """The union from the previous call's `time` to this one. Later intervals must not begin before it."""
        whole = intervals.join(self._rest, intervals.merge(starts, ends))
        self._rest = intervals.clip(whole, time, END_OF_TIME)
        return intervals.clip(whole, -END_OF_TIME, time)


class Pieces:
    """Joins intervals that were cut at window edges, and passes each whole interval on."""

    def __init__(self, append: Callable[[Ints, Ints], None]) -> None:
        self._append, self._last = append, intervals.NONE

    def add(self, pieces: Set) -> None:
        whole = intervals.join(self._last, pieces)
        self._append(whole.starts[:-1], whole.ends[:-1])
        self._last = Set(whole.starts[-1:], whole.ends[-1:])

    def finish(self) -> None:
        self._append(*self._last)


class Scopes:
    """One row per level of scope: from the first kernel of a scope to the last one before another scope or the next step.

    A kernel without a scope, such as a collective on another stream, does not end the current scope. Spans arrive ordered by start. The
    label of a scope is its whole path.
    """

    def __init__(self, rows: DerivedRows, labels: Labels, steps: Ints) -> None:
        self._derived, self._all_labels, self._steps = rows, labels, steps
        scopes = labels.span_labels().select("scope")
        paths = scopes.unique(maintain_order=True)
        numbered = paths.with_row_index("number")
        self._path_of = scopes.join(numbered, on="scope", how="left", maintain_order="left", nulls_equal=True)["number"].to_numpy()
        self._paths = [path.split("/") if path else [] for path in paths["scope"].to_list()]
        self._rows: list[int] = []
        self._labels: list[Ints] = []  # by level, then path: the label of the path up to this level, _SHALLOW or _NO_SCOPE
        self._open: list[list[tuple[int, int, int, int]]] = []  # by level: scope, step, start and end of the last one or two pieces

    def add(self, label: _Codes, start: Ints, end: Ints) -> None:
        if len(start) == 0:
            return
        path = self._path_of[label]
        depth = max((len(self._paths[number]) for number in np.unique(path).tolist()), default=0)
        step = np.searchsorted(self._steps, start, "right")
        while len(self._rows) < depth:
            self._add_level()
        for level in range(len(self._rows)):
            before = np.array(self._open[level], np.int64).reshape(-1, 4).T
            scope, steps = np.append(before[0], self._labels[level][path]), np.append(before[1], step)
            starts, ends = np.append(before[2], start), np.append(before[3], end)
            first = np.flatnonzero(np.append(True, (scope[1:] != scope[:-1]) | (steps[1:] != steps[:-1])))
            ends = np.maximum.reduceat(ends, first)
            scope, steps, starts = scope[first], steps[first], starts[first]
            continues = (scope[1:] == _NO_SCOPE) & (steps[1:] == steps[:-1])  # for each but the last: the next one does not end it
            ends[:-1] = np.minimum(ends[:-1], np.append(starts, END_OF_TIME)[np.arange(1, len(first)) + continues])
            done = len(first) - (2 if continues[-1:].any() else 1)
            self._open[level] = list(zip(*(column[done:].tolist() for column in (scope, steps, starts, ends)), strict=True))
            self._append(level, scope[:done], starts[:done], ends[:done])

    def finish(self) -> list[int]:
        """The rows, outermost level first."""
        for level, pieces in enumerate(self._open):
            scope, _, start, end = np.array(pieces, np.int64).reshape(-1, 4).T
            self._append(level, scope, start, end)
        return self._rows

    def _add_level(self) -> None:
        level = len(self._rows)
        labels = []
        for path in self._paths:
            prefix = "/".join(path[: level + 1])
            labels.append(self._all_labels.add(prefix, _SCOPE, prefix) if len(path) > level else _SHALLOW if path else _NO_SCOPE)
        self._labels.append(np.array(labels, np.int64))
        self._rows += self._derived.allocate(1)
        self._open.append([])

    def _append(self, level: int, scope: Ints, start: Ints, end: Ints) -> None:
        has_scope = scope >= 0
        self._derived.append(self._rows[level], start[has_scope], (end - start)[has_scope], scope[has_scope].astype(np.int32), _SCOPE)
