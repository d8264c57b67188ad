"""What is drawn of a counter: the least, the most and the last of each bucket, however many samples there are."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.timeline import rows, tiles
from stepscope.timeline.construction.columns import RowBuffer
from stepscope.timeline.pyramid import BUCKETS

Sampled = list[tuple[int, float]]


@pytest.fixture(params=[1, 2, 3, 256])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many samples the extremes are kept."""
    for module in (rows, tiles):
        monkeypatch.setattr(module, "SAMPLES", request.param)
    monkeypatch.setattr(rows, "PORTION", 5)


def stored(counters: list[Sampled], folder: Path | None = None) -> rows.Samples:
    waiting = RowBuffer((np.int64, np.float64), folder)
    for number, samples in enumerate(counters):
        at, value = (np.array([one[place] for one in samples], kind) for place, kind in ((0, np.int64), (1, np.float64)))
        waiting.add_row(number, (at, value))
    return rows.build_samples(waiting, list(range(len(counters))), [False] * len(counters), folder)


def points(samples: Sampled, level: int, index: int) -> list[tuple[int, float, float]]:
    """As said, sample by sample."""
    begin = index * BUCKETS << level
    drawn = [(at, value, value) for at, value in samples if at < begin][-1:]
    for bucket in range(index * BUCKETS, (index + 1) * BUCKETS):
        inside = [(at, value) for at, value in samples if at >> level == bucket]
        if inside:
            values = [value for _, value in inside]
            drawn.append((inside[0][0], min(values), max(values)))
            if min(values) < max(values):
                drawn.append((inside[-1][0], values[-1], values[-1]))
    return drawn


COUNTER = st.lists(st.tuples(st.integers(0, 5000), st.integers(-9, 9).map(float)), max_size=60).map(
    lambda some: sorted(some, key=lambda one: one[0])
)


@pytest.mark.usefixtures("kept")
class TestAnyCounters:
    @given(counters=st.lists(COUNTER, min_size=1, max_size=3), level=st.integers(0, 8), index=st.integers(0, 4))
    def test_no_peak_of_any_bucket_is_hidden_and_its_last_value_holds_on(self, counters: list[Sampled], level: int, index: int) -> None:
        samples = stored(counters)
        for number, expected in enumerate(counters):
            found = tiles.counter(samples, number, level, index)
            assert list(zip(*(column.tolist() for column in found), strict=True)) == points(expected, level, index)


def test_a_million_samples_written_to_files_are_drawn_as_those_in_memory(tmp_path: Path) -> None:
    at = np.arange(1_000_003) * 7
    value = np.sin(at * 1e-4) + (at % 1_000_000 == 0) * 5.0
    waiting = RowBuffer((np.int64, np.float64), tmp_path)
    waiting.add_row(0, (at, value))
    samples = rows.build_samples(waiting, [0], [False], tmp_path)
    found = tiles.counter(samples, 0, 13, 0)
    buckets = [value[at >> 13 == bucket] for bucket in range(int(at[-1] >> 13) + 1)]
    assert found.low[::2].tolist() == [one.min() for one in buckets]
    assert found.high[::2].tolist() == [one.max() for one in buckets]
    assert found.low[1::2].tolist() == [one[-1] for one in buckets]
