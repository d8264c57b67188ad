"""Interval algebra against counting every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model import intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 20)), max_size=25)


def arrays(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([start for start, _ in rows], np.int64)
    return starts, starts + np.array([length for _, length in rows], np.int64)


def instants(rows: list[tuple[int, int]]) -> set[int]:
    return {at for start, length in rows for at in range(start, start + length)}


def instants_of(merged: intervals.Set) -> set[int]:
    assert (merged.starts < merged.ends).all()
    assert (merged.ends[:-1] < merged.starts[1:]).all()
    return {at for start, end in zip(merged.starts, merged.ends, strict=True) for at in range(start, end)}


@given(pairs, pairs)
def test_set_operations_cover_exactly_the_right_nanoseconds(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = intervals.merge(*arrays(a)), intervals.merge(*arrays(b))
    assert instants_of(left) == instants(a)
    assert left.total == len(instants(a))
    assert instants_of(intervals.intersect(left, right)) == instants(a) & instants(b)
    assert instants_of(intervals.subtract(left, right)) == instants(a) - instants(b)
    assert instants_of(intervals.clip(left, 10, 30)) == instants(a) & set(range(10, 30))
    assert instants_of(intervals.gaps(left, 5, 40)) == set(range(5, 40)) - instants(a)


@given(pairs, pairs)
def test_covered_counts_what_a_set_covers_of_each_interval(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    merged = intervals.merge(*arrays(a))
    expected = [len(instants([row]) & instants(a)) for row in b]
    assert intervals.covered(merged, *arrays(b)).tolist() == expected


def stacked(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Depth, parent and self time by walking a stack, one track at a time."""
    ends = [start + max(length, 0) for _, start, length in rows]
    answer = [(0, -1, 0)] * len(rows)
    children = [0] * len(rows)
    for track in {row[0] for row in rows}:
        order = sorted((i for i, row in enumerate(rows) if row[0] == track), key=lambda i: (rows[i][1], -rows[i][2]))
        done: list[int] = []
        for i in order:
            start = rows[i][1]
            open_ones = [j for j in done if ends[j] > start]
            parent = open_ones[-1] if open_ones else -1
            if parent >= 0:
                ends[i] = min(ends[i], ends[parent]) if ends[i] <= ends[parent] + intervals.JITTER_NS else ends[i]
                children[parent] += max(min(ends[i], ends[parent]) - start, 0)
            answer[i] = (answer[parent][0] + 1 if parent >= 0 else 0, parent, 0)
            done.append(i)
    return [
        (depth, parent, max(ends[i] - rows[i][1] - children[i], 0) + (rows[i][1] + rows[i][2] - ends[i]))
        for i, (depth, parent, _) in enumerate(answer)
    ]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 30)), max_size=20), st.sampled_from([0, 2, 1000]))
def test_nesting_is_what_a_stack_gives(rows: list[tuple[int, int, int]], jitter: int) -> None:
    was, intervals.JITTER_NS = intervals.JITTER_NS, jitter
    try:
        track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
        got = intervals.nest(track, start, start + length)
        assert list(zip(got.depth.tolist(), got.parent.tolist(), got.self_time.tolist(), strict=True)) == stacked(rows)
    finally:
        intervals.JITTER_NS = was


def test_self_times_add_up_to_the_parent() -> None:
    start, end = np.array([0, 10, 20, 25, 60]), np.array([100, 50, 40, 30, 90])
    got = intervals.nest(np.zeros(5, np.int64), start, end)
    assert got.depth.tolist() == [0, 1, 2, 3, 1]
    assert got.parent.tolist() == [-1, 0, 1, 2, 0]
    assert got.self_time.tolist() == [30, 20, 15, 5, 30]
    assert got.self_time.sum() == 100


def test_times_that_are_centuries_apart_do_not_disturb_how_the_others_nest() -> None:
    track = np.zeros(5, np.int64)
    starts = np.array([100, 110, 300, -(2**63), 2**63 - 10], np.int64)
    ends = np.array([200, 150, 400, -(2**63) + 5, 2**63 - 1], np.int64)
    found = intervals.nest(track, starts, ends)
    assert found.parent.tolist()[:3] == [-1, 0, -1]
    assert found.self_time.tolist()[:3] == [60, 40, 100]
    assert (found.self_time >= 0).all() and (found.depth >= 0).all()
