"""Interval algebra on integer arrays: unions, overlaps, gaps and nesting.

A set of intervals is a pair of int64 arrays (starts, ends), half open. `merge` returns a *merged* set, sorted and disjoint; the other
functions expect one.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Set(NamedTuple):
    """A merged set of intervals."""

    starts: Ints
    ends: Ints

    @property
    def total(self) -> int:
        return int((self.ends - self.starts).sum())


NONE = Set(np.empty(0, np.int64), np.empty(0, np.int64))


def merge(starts: Ints, ends: Ints) -> Set:
    """The union of any intervals. Empty and negative ones cover nothing."""
    covers = ends > starts
    if not covers.all():
        starts, ends = starts[covers], ends[covers]
    if len(starts) == 0:
        return NONE
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.empty(len(starts), np.bool_)
    first[0] = True
    np.greater(starts[1:], reach[:-1], out=first[1:])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
    return Set(starts[first], reach[last])


def join(*sets: Set) -> Set:
    """The union of merged sets."""
    some = [s for s in sets if len(s.starts)]
    if len(some) < 2:
        return some[0] if some else NONE
    return merge(np.concatenate([s.starts for s in some]), np.concatenate([s.ends for s in some]))


def intersect(a: Set, b: Set) -> Set:
    """The intersection of two merged sets."""
    if len(a.starts) > len(b.starts):
        a, b = b, a
    if len(a.starts) == 0:
        return NONE
    # Pairs of intervals that overlap. No intervals of a merged set touch, so those of the result do not touch either.
    first, last = np.searchsorted(b.ends, a.starts, "right"), np.searchsorted(b.starts, a.ends, "left")
    count = last - first
    of_a = np.repeat(np.arange(len(a.starts)), count)
    of_b = np.arange(len(of_a)) + (first - np.cumsum(count) + count)[of_a]
    return Set(np.maximum(a.starts[of_a], b.starts[of_b]), np.minimum(a.ends[of_a], b.ends[of_b]))


def subtract(a: Set, b: Set) -> Set:
    """The part of `a` outside of `b`."""
    if len(a.starts) == 0 or len(b.starts) == 0:
        return a
    low, high = int(min(a.starts[0], b.starts[0])), int(max(a.ends[-1], b.ends[-1]))
    return intersect(a, gaps(b, low, high))


def gaps(a: Set, low: int, high: int) -> Set:
    """The gaps of `a` between `low` and `high`."""
    a = clip(a, low, high)
    starts, ends = np.append(low, a.ends).astype(np.int64), np.append(a.starts, high).astype(np.int64)
    nonempty = ends > starts  # only gaps at the edges can be empty
    return Set(starts[nonempty], ends[nonempty])


def clip(a: Set, low: int, high: int) -> Set:
    """The part of `a` between `low` and `high`."""
    first, last = int(np.searchsorted(a.ends, low, "right")), int(np.searchsorted(a.starts, high, "left"))
    if first >= last:
        return NONE
    return Set(np.maximum(a.starts[first:last], low), np.minimum(a.ends[first:last], high))


def covered(a: Set, starts: Ints, ends: Ints) -> Ints:
    """The part of each interval that `a` covers. The intervals may overlap."""
    return _covered_before(a, np.maximum(starts, ends)) - _covered_before(a, starts)


def _covered_before(a: Set, at: Ints) -> Ints:
    if len(a.starts) == 0:
        return np.zeros(len(at), np.int64)
    until = np.concatenate(([0], np.cumsum(a.ends - a.starts)))
    index = np.searchsorted(a.starts, at, "right")
    past_end = np.where(index > 0, a.ends[index - 1] - at, 0)
    return until[index] - np.maximum(past_end, 0)


class Nesting(NamedTuple):
    depth: Ints  # 0 is outermost
    parent: Ints  # index of the enclosing interval, -1 for none
    self_time: Ints  # duration less the time of direct children


# Two clock readings a few nanoseconds apart can make a child end after its parent; more than this is a real overlap.
JITTER_NS = 2_000


def nest(track: Ints, starts: Ints, ends: Ints) -> Nesting:
    """Depth, parent and self time of the intervals of each track.

    An interval that starts inside another and ends at most JITTER_NS after it counts as inside. Where two overlap by
    more, the later one is a level deeper, and only the overlap is subtracted from the self time of the earlier one.
    """
    count = len(starts)
    if count == 0:
        return Nesting(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    # The tracks are placed one after the other on one axis, so that one sort and one search handle all of them.
    low = int(starts.min())
    width = int(max(ends.max(), starts.max())) - low + 1
    if width >= 2**62:
        return _nest_near(track, starts, ends)
    if int(track.min()) < 0 or int(track.max()) * width >= 2**62:
        return _nest_each(track, starts, ends)
    offset = track * width - low
    order = _by_start(starts + offset, ends)
    offset = offset[order]
    begin, finish = starts[order] + offset, ends[order] + offset
    depth, parent = _levels(begin, finish)
    wrong = (parent >= 0) & (finish > finish[parent])
    for first, last in _islands(depth, wrong):
        part = slice(first, last)
        depth[part], above, finish[part] = _nest_overlapping(begin[part], finish[part])
        parent[part] = np.where(above >= 0, above + first, -1)
    inside = parent >= 0
    length = finish - begin
    child_time = np.zeros(count, np.int64)
    overlap = np.minimum(finish, finish[parent]) - begin
    np.add.at(child_time, parent[inside], overlap[inside])
    result_depth, result_parent, result_self = np.empty(count, np.int64), np.full(count, -1, np.int64), np.empty(count, np.int64)
    result_depth[order] = depth
    result_parent[order] = np.where(inside, order[parent], -1)
    result_self[order] = np.maximum(np.maximum(length, 0) - child_time, 0) + (ends[order] - starts[order] - length)
    return Nesting(result_depth, result_parent, result_self)


def _nest_near(track: Ints, starts: Ints, ends: Ints) -> Nesting:
    """`nest` for times that are more than a century apart, which no clock has measured: outliers are moved to the edge."""
    middle = int(np.sort(starts)[len(starts) // 2])
    low, high = max(middle - 2**60, -(2**63)), min(middle + 2**60, 2**63 - 1)
    near_starts, near_ends = np.clip(starts, low, high), np.clip(ends, low, high)
    nesting = nest(track, near_starts, near_ends)
    with np.errstate(over="ignore"):
        cut = np.maximum((ends - starts) - (near_ends - near_starts), 0)
    return nesting._replace(self_time=nesting.self_time + cut)


def _by_start(begin: Ints, ends: Ints) -> Ints:
    """The order by start; of equal starts, the longest first."""
    order = np.argsort(begin, kind="stable")
    sorted_ = begin[order]
    same = sorted_[1:] == sorted_[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort((-ends[rows], begin[rows]))]
    return order


def _levels(begin: Ints, finish: Ints) -> tuple[Ints, Ints]:
    """Depth and parent of intervals sorted by start: the number of earlier intervals that are open, and the innermost of them."""
    index = np.arange(len(begin))
    # An interval that has ended at or before this start is closed; an empty interval never opens.
    closed = np.searchsorted(np.sort(np.maximum(finish, begin)), begin, "right")
    opened_at_once = finish <= begin  # already counted as closed at their own start
    ties = np.cumsum(opened_at_once)
    # Empty intervals with this start that sort after it were counted too early.
    same_start_after = np.searchsorted(begin, begin, "right")
    depth = index - closed + (ties[same_start_after - 1] - (ties - opened_at_once))
    parent = np.full(len(begin), -1, np.int64)
    deepest = int(depth.max())
    by_depth = np.argsort(depth.astype(np.int16) if deepest < 1 << 15 else depth, kind="stable")  # short integers sort much faster
    edges = np.searchsorted(depth[by_depth], np.arange(deepest + 2))
    for level in range(1, len(edges) - 1):
        rows, above = by_depth[edges[level] : edges[level + 1]], by_depth[edges[level - 1] : edges[level]]
        solid = above[finish[above] > begin[above]]
        parent[rows] = solid[np.searchsorted(solid, rows) - 1]
    return depth, parent


def _islands(depth: Ints, wrong: Bools) -> list[tuple[int, int]]:
    """Ranges of rows: the outermost intervals with overlaps inside, each with all intervals in it."""
    if not wrong.any():
        return []
    edges = np.append(np.flatnonzero(depth == 0), len(depth))
    hit = np.unique(np.searchsorted(edges, np.flatnonzero(wrong), "right") - 1)
    return list(zip(edges[hit].tolist(), edges[hit + 1].tolist(), strict=True))


def _nest_overlapping(begin: Ints, finish: Ints) -> tuple[Ints, Ints, Ints]:
    """Depth, parent and end of intervals that are not properly nested. The parent is the open interval that started last."""
    depth, parent = [0] * len(begin), [-1] * len(begin)
    starts, ends = begin.tolist(), finish.tolist()
    stack: list[int] = []
    earliest: list[int] = []  # the first end of the open intervals up to each
    for index, start in enumerate(starts):
        while stack and ends[stack[-1]] <= start:
            stack.pop()
            earliest.pop()
        if stack and earliest[-1] <= start:
            stack = [other for other in stack if ends[other] > start]
            earliest = list(accumulate((ends[other] for other in stack), min))
        if stack:
            top = stack[-1]
            depth[index], parent[index] = depth[top] + 1, top
            if ends[top] < ends[index] <= ends[top] + JITTER_NS:
                ends[index] = ends[top]
        if ends[index] > start:
            stack.append(index)
            earliest.append(min(ends[index], earliest[-1]) if earliest else ends[index])
    return np.array(depth), np.array(parent), np.array(ends)


def _nest_each(track: Ints, starts: Ints, ends: Ints) -> Nesting:
    """`nest` track by track: for clocks so far apart that one axis would overflow."""
    result = Nesting(np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), np.empty(len(starts), np.int64))
    for number in np.unique(track):
        rows = np.flatnonzero(track == number)
        part = nest(np.zeros(len(rows), np.int64), starts[rows], ends[rows])
        result.depth[rows], result.self_time[rows] = part.depth, part.self_time
        result.parent[rows] = np.where(part.parent >= 0, rows[part.parent], -1)
    return result


def enclosing(starts: Ints, ends: Ints, at: Ints) -> Ints:
    """The index of the interval that covers each timestamp, -1 for none. Intervals are sorted by start and disjoint."""
    if len(starts) == 0:
        return np.full(len(at), -1, np.int64)
    index = np.searchsorted(starts, at, "right") - 1
    return np.where((index >= 0) & (at < ends[index]), index, -1)
