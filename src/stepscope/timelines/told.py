"""Rows of what no span is, but what spans tell: they come by time, window by window, and what lies across two windows is told once."""

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.intervals import Ints, Set
from stepscope.timelines.columns import Waiting
from stepscope.timelines.reading import Labels

EVER = 1 << 62
_FIRST = 1 << 40  # rows are numbered from here on, far from those of the spans
_SCOPE = schema.KINDS.index("scope")
_SHALLOW, _BARE = -1, -2  # work whose scope has no such level; work without a scope
_Codes = NDArray[np.int32]


class Told:
    """More rows for what waits."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting, self._next = waiting, _FIRST

    def rows(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))

    def tell(self, row: int, start: Ints, dur: Ints, label: _Codes, kind: int | NDArray[np.uint8]) -> None:
        """More of a row, in order."""
        count = len(start)
        kinds = np.full(count, kind, np.uint8) if isinstance(kind, int) else kind
        self._waiting.add_row(row, (start, dur, label, kinds, np.full(count, -1, np.int32)))


class Union:
    """What any of some intervals covers, which come by start."""

    def __init__(self) -> None:
        self._rest = intervals.NONE

    def until(self, starts: Ints, ends: Ints, moment: int) -> Set:
        """The union before a moment, and after the last one; none of those that come later begins before it."""
        whole = intervals.join(self._rest, intervals.merge(starts, ends))
        self._rest = intervals.clip(whole, moment, EVER)
        return intervals.clip(whole, -EVER, moment)


class Pieces:
    """Intervals that come by time, cut at some moments: told whole."""

    def __init__(self, tell: Callable[[Ints, Ints], None]) -> None:
        self._tell, self._last = tell, intervals.NONE

    def add(self, found: Set) -> None:
        whole = intervals.join(self._last, found)
        self._tell(whole.starts[:-1], whole.ends[:-1])
        self._last = Set(whole.starts[-1:], whole.ends[-1:])

    def end(self) -> None:
        self._tell(*self._last)


class Scopes:
    """A row per level: from the first piece of work of a scope to the last before another scope's, or the next step's.

    Work without a scope, such as a collective on a stream beside, ends none that still runs. The work comes by start. A scope is called
    by its whole path.
    """

    def __init__(self, told: Told, labels: Labels, steps: Ints) -> None:
        self._told, self._all_labels, self._steps = told, labels, steps
        known = labels.spans()["scope"]
        paths = known.unique(maintain_order=True)
        self._path_of = (
            pl.DataFrame({"scope": known})
            .join(pl.DataFrame({"scope": paths}).with_row_index("at"), on="scope", how="left", maintain_order="left", nulls_equal=True)[
                "at"
            ]
            .to_numpy()
        )
        self._paths = [path.split("/") if path else [] for path in paths.to_list()]
        self._rows: list[int] = []
        self._labels: list[Ints] = []  # by level: of each path, the label of its beginning, or why there is none
        self._open: list[list[tuple[int, int, int, int]]] = []  # by level: scope, step, start and end of the last piece or two so far

    def add(self, label: _Codes, start: Ints, end: Ints) -> None:
        if len(start) == 0:
            return
        path = self._path_of[label]
        depth = max((len(self._paths[one]) for one in np.unique(path).tolist()), default=0)
        step = np.searchsorted(self._steps, start, "right")
        while len(self._rows) < depth:
            self._begin_level()
        for level in range(len(self._rows)):
            before = np.array(self._open[level], np.int64).reshape(-1, 4).T
            scope, own_step = np.append(before[0], self._labels[level][path]), np.append(before[1], step)
            begin, finish = np.append(before[2], start), np.append(before[3], end)
            first = np.flatnonzero(np.append(True, (scope[1:] != scope[:-1]) | (own_step[1:] != own_step[:-1])))
            until = np.maximum.reduceat(finish, first)
            scope, own_step, begin = scope[first], own_step[first], begin[first]
            passed = (scope[1:] == _BARE) & (own_step[1:] == own_step[:-1])  # of each but the last: the next does not end it
            until[:-1] = np.minimum(until[:-1], np.append(begin, EVER)[np.arange(1, len(first)) + passed])
            done = len(first) - (2 if passed[-1:].any() else 1)
            self._open[level] = list(zip(*(column[done:].tolist() for column in (scope, own_step, begin, until)), strict=True))
            self._tell(level, scope[:done], begin[:done], until[:done])

    def end(self) -> list[int]:
        for level, pieces in enumerate(self._open):
            scope, _, begin, until = np.array(pieces, np.int64).reshape(-1, 4).T
            self._tell(level, scope, begin, until)
        return self._rows

    def _begin_level(self) -> None:
        """Nothing so far has a scope of this level."""
        level = len(self._rows)
        whole = ["/".join(path[: level + 1]) if len(path) > level else None for path in self._paths]
        none = [_SHALLOW if path else _BARE for path in self._paths]
        labels = [here if path is None else self._all_labels.add(path, _SCOPE, path) for here, path in zip(none, whole, strict=True)]
        self._labels.append(np.array(labels, np.int64))
        self._rows += self._told.rows(1)
        self._open.append([])

    def _tell(self, level: int, scope: Ints, start: Ints, end: Ints) -> None:
        known = scope >= 0
        self._told.tell(self._rows[level], start[known], (end - start)[known], scope[known].astype(np.int32), _SCOPE)
