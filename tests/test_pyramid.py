"""What is seen of the events at any zoom is what happened: busy time, counts and the longest, against a count of every nanosecond."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope import pyramid
from stepscope.pyramid import BUCKETS, Events, Pyramid, Tile, Unsorted

# The fixture is the same for every example of one test.
LAW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def some_events(draw: st.DrawFn) -> Events:
    """Rows of events that follow one another; some touch, some overlap by a little, some last no time."""
    found = []
    for row in range(draw(st.integers(1, 2))):
        now = draw(st.integers(0, 50))
        for gap, length in draw(st.lists(st.tuples(st.integers(-3, 40), st.integers(0, 80)), max_size=12)):
            now = max(0, now + gap)
            found.append((row, now, length))
            now += length
    found = draw(st.permutations(found))
    rows, start, dur = (np.array([event[at] for event in found], np.int64) for at in range(3))
    numbers = np.arange(len(found), dtype=np.int32)
    every = Unsorted(rows, start, dur, numbers, np.zeros(len(found), np.uint8), numbers)
    apart = [Unsorted(*(column[rows == one] for column in every)) for one in range(2)]
    return pyramid.events(draw(st.sampled_from([[every], apart])), 2)


def covered(events: Events, row: int, low: int, high: int) -> int:
    """How many nanoseconds between two moments some event of the row covers: counted one by one."""
    line = np.zeros(high, bool)
    for at in range(events.offsets[row], events.offsets[row + 1]):
        line[events.start[at] : events.start[at] + events.dur[at]] = True
    return int(line[low:high].sum())


@pytest.fixture(params=[1, 8, 1 << 15], ids=["kept from the first level", "kept from some level", "all summed up when asked"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pyramid, "FEW", request.param)
    monkeypatch.setattr(pyramid, "BUCKETS_LOG2", 3)
    monkeypatch.setattr(pyramid, "BUCKETS", 8)
    return int(request.param)


@pytest.mark.usefixtures("few")
class TestAnyZoom:
    @LAW
    @given(some_events())
    def test_a_tile_is_as_busy_as_the_union_of_its_events(self, events: Events) -> None:
        made = pyramid.build(events)
        for row, level, index, tile in tiles(made):
            low, high = index * 8 << level, (index + 1) * 8 << level
            line = np.zeros(high - low, bool)
            for at in tile.long:
                line[max(0, events.start[at] - low) : max(0, events.start[at] + events.dur[at] - low)] = True
            shown = int(line.sum()) + int(tile.buckets.busy.sum())
            truth = covered(events, row, low, high)
            # What two events of a row share may be seen twice: as part of a long one, and in the sum of the short ones.
            own = slice(events.offsets[row], events.offsets[row + 1])
            shared = np.minimum(events.reach[own][:-1], (events.start + events.dur)[own][1:]) - events.start[own][1:]
            assert truth <= shown <= truth + int(np.maximum(shared, 0).sum())

    @LAW
    @given(some_events())
    def test_every_event_is_there_once_and_none_is_longer_than_the_longest(self, events: Events) -> None:
        made = pyramid.build(events)
        every = tiles(made)
        for level in range(made.top + 1):
            for row in range(events.rows):
                found = [tile for at_row, at_level, _, tile in every if (at_row, at_level) == (row, level)]
                short = sum(int(tile.buckets.began.sum()) for tile in found)
                long = {int(at) for tile in found for at in tile.long}
                assert short + len(long) == events.offsets[row + 1] - events.offsets[row]
                for index, tile in enumerate(found):
                    for bucket, longest in zip(tile.buckets.bucket, tile.buckets.longest, strict=True):
                        low = (index * 8 + int(bucket)) << level
                        ends = events.start + events.dur
                        own = np.arange(len(ends))
                        inside = (own >= events.offsets[row]) & (own < events.offsets[row + 1]) & (events.dur < 1 << level)
                        inside &= (events.start < low + (1 << level)) & ((ends > low) | (events.start >= low))
                        assert events.dur[longest] == events.dur[inside].max()

    @LAW
    @given(some_events())
    def test_what_was_written_reads_the_same(self, tmp_path_factory: pytest.TempPathFactory, events: Events) -> None:
        folder = tmp_path_factory.mktemp("pyramid")
        made = pyramid.build(events)
        pyramid.write(made, folder)
        for (*_, one), (*_, other) in zip(tiles(made), tiles(pyramid.read(folder)), strict=True):
            assert one.long.tolist() == other.long.tolist()
            assert [column.tolist() for column in one.buckets] == [column.tolist() for column in other.buckets]


def tiles(made: Pyramid) -> list[tuple[int, int, int, Tile]]:
    return [
        (row, level, index, pyramid.tile(made, row, level, index))
        for row in range(made.events.rows)
        for level in range(made.top + 1)
        for index in range(((made.events.end >> level) // pyramid.BUCKETS) + 1)
    ]


def test_levels_are_kept_only_where_a_tile_holds_many() -> None:
    count = pyramid.FEW * 4
    start = np.arange(count, dtype=np.int64) * 1000
    zeros, numbers = np.zeros(count, np.int64), np.arange(count, dtype=np.int32)
    made = pyramid.build(pyramid.events([Unsorted(zeros, start, zeros + 500, numbers, zeros.astype(np.uint8), numbers)], 1))
    assert made.lowest > 0
    for level in (0, made.lowest - 1, made.lowest, made.top):
        for index in range(3):
            tile = pyramid.tile(made, 0, level, index)
            assert len(tile.long) + len(tile.buckets.row) <= 2 * BUCKETS


def test_nothing_at_all_is_a_pyramid_too() -> None:
    nothing, none = np.empty(0, np.int64), np.empty(0, np.int32)
    made = pyramid.build(pyramid.events([Unsorted(nothing, nothing, nothing, none, none.astype(np.uint8), none)], 2))
    assert pyramid.tile(made, 1, 0, 0).long.tolist() == []
