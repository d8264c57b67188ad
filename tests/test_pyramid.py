"""What is seen of the spans at any zoom is what happened: busy time, counts and the longest, against a count of every nanosecond."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.timeline import pyramid, rows
from stepscope.timeline.construction import columns
from stepscope.timeline.construction.columns import RowBuffer
from stepscope.timeline.pyramid import BUCKETS, Pyramid, Spans, Tile

Portion = list[tuple[int, int, int]]  # row, start and duration

# The fixture is the same for every example of one test.
LAW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@st.composite
def some_events(draw: st.DrawFn) -> list[Portion]:
    """Rows of spans that follow one another; some touch, some overlap by a little, some last no time."""
    found = []
    for row in range(draw(st.integers(1, 2))):
        now = draw(st.integers(0, 50))
        for gap, length in draw(st.lists(st.tuples(st.integers(-3, 40), st.integers(0, 80)), max_size=12)):
            now = max(0, now + gap)
            found.append((row, now, length))
            now += length
    found = draw(st.permutations(found))
    return [found[low : low + size] for size in [draw(st.integers(1, 30))] for low in range(0, len(found), size)]


def built(portions: list[Portion], folder: Path | None = None) -> Pyramid:
    """Of rows, starts and durations, in portions in any order."""
    waiting = RowBuffer((np.int64, np.int64, np.int32, np.uint8, np.int32), folder)
    for portion in portions:
        row, start, dur = (np.array([event[at] for event in portion], np.int64) for at in range(3))
        numbers = np.zeros(len(portion), np.int32)
        waiting.add(row, (start, dur, numbers, numbers.astype(np.uint8), numbers))
    end = max((start + dur for portion in portions for _, start, dur in portion), default=1)
    made, _ = rows.build_rows(waiting, [0, 1], [-1, -1], 1, end, folder, lambda share: None)
    return made


def ends(made: Pyramid) -> int:
    return int((made.spans.start + made.spans.dur).max(initial=1))


def covered(spans: Spans, row: int, low: int, high: int) -> int:
    """How many nanoseconds between two moments some event of the row covers: counted one by one."""
    line = np.zeros(high, bool)
    for at in range(spans.offsets[row], spans.offsets[row + 1]):
        line[spans.start[at] : spans.start[at] + spans.dur[at]] = True
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
    def test_a_tile_is_as_busy_as_the_union_of_its_events(self, portions: list[Portion]) -> None:
        made = built(portions)
        spans = made.spans
        for row, level, index, tile in tiles(made):
            low, high = index * 8 << level, (index + 1) * 8 << level
            line = np.zeros(high - low, bool)
            for at in tile.long:
                line[max(0, spans.start[at] - low) : max(0, spans.start[at] + spans.dur[at] - low)] = True
            shown = int(line.sum()) + int(tile.buckets.busy.sum())
            truth = covered(spans, row, low, high)
            # What two spans of a row share may be seen twice: as part of a long one, and in the sum of the short ones.
            own = slice(spans.offsets[row], spans.offsets[row + 1])
            shared = np.minimum(spans.reach[own][:-1], (spans.start + spans.dur)[own][1:]) - spans.start[own][1:]
            assert truth <= shown <= truth + int(np.maximum(shared, 0).sum())

    @LAW
    @given(some_events())
    def test_every_event_is_there_once_and_none_is_longer_than_the_longest(self, portions: list[Portion]) -> None:
        made = built(portions)
        spans = made.spans
        every = tiles(made)
        for level in range(made.top + 3):
            for row in range(spans.rows):
                found = [tile for at_row, at_level, _, tile in every if (at_row, at_level) == (row, level)]
                short = sum(int(tile.buckets.began.sum()) for tile in found)
                long = {int(at) for tile in found for at in tile.long}
                assert short + len(long) == spans.offsets[row + 1] - spans.offsets[row]
                for index, tile in enumerate(found):
                    for bucket, longest in zip(tile.buckets.bucket, tile.buckets.longest, strict=True):
                        low = (index * 8 + int(bucket)) << level
                        ends = spans.start + spans.dur
                        own = np.arange(len(ends))
                        inside = (own >= spans.offsets[row]) & (own < spans.offsets[row + 1]) & (spans.dur < 1 << level)
                        inside &= (spans.start < low + (1 << level)) & ((ends > low) | (spans.start >= low))
                        assert spans.dur[longest] == spans.dur[inside].max()

    @LAW
    @given(some_events())
    def test_it_is_the_same_in_files_and_in_memory_and_whatever_waits_there(
        self, tmp_path_factory: pytest.TempPathFactory, portions: list[Portion]
    ) -> None:
        folder = tmp_path_factory.mktemp("pyramid")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "MEMORY_ROWS", 5)
            patch.setattr(columns, "_STRIDE", 2)
            patch.setattr(rows, "PORTION", 4)
            patch.setattr(rows, "CHUNK", 2)
            kept = built(portions, folder)
        assert isinstance(kept.spans.start.base, np.memmap) or not portions
        for (*_, one), (*_, other) in zip(tiles(built(portions)), tiles(kept), strict=True):
            assert one.long.tolist() == other.long.tolist()
            assert [column.tolist() for column in one.buckets] == [column.tolist() for column in other.buckets]


def tiles(made: Pyramid) -> list[tuple[int, int, int, Tile]]:
    return [
        (row, level, index, pyramid.tile(made, row, level, index))
        for row in range(made.spans.rows)
        for level in range(made.top + 3)
        for index in range(((ends(made) >> level) // pyramid.BUCKETS) + 1)
    ]


def test_levels_are_kept_only_where_a_tile_holds_many() -> None:
    made = built([[(0, at * 1000, 500) for at in range(pyramid.FEW * 4)] + [(1, at * 100_000, 500) for at in range(pyramid.FEW)]])
    assert 0 < made.lowest[0] <= made.top
    assert made.lowest[1] == made.top + 1
    for level in (0, int(made.lowest[0]) - 1, int(made.lowest[0]), made.top, made.top + 1):
        for row, index in ((0, 0), (0, 1), (0, 2), (1, 0)):
            tile = pyramid.tile(made, row, level, index)
            assert len(tile.long) + len(tile.buckets.bucket) <= 2 * BUCKETS


def test_nothing_at_all_is_a_pyramid_too() -> None:
    assert pyramid.tile(built([]), 1, 0, 0).long.tolist() == []
