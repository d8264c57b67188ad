"""Whatever was recorded, the timeline tells it: how busy a row is at any zoom, what overlaps, and every event by click, key and word."""

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.model import intervals, schema
from stepscope.model.trace import Meta, Trace, complete
from stepscope.timeline import aggregate, cache, details, layout, pyramid, search
from stepscope.timeline import rows as filling
from stepscope.timeline.construction import columns, derived
from stepscope.timeline.construction import portions as reading
from stepscope.timeline.layout import Timeline, Track, build, track_rows
from stepscope.timeline.tiles import tile
from tiles import by_row, decoded

LAW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
_WORDS = ["mm", "conv/2", "", "日本", 'q"\\', "copy"]


@st.composite
def some(draw: st.DrawFn) -> Trace:
    """A rank or two with a device and threads, of which some nest, some overlap, and some last no time; in any order."""
    count = draw(st.integers(1, 40))
    wide = draw(st.sampled_from([2_000, 10**6, 10**10]))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    spans = pl.DataFrame(
        {
            "rank": column(st.integers(0, draw(st.integers(0, 1)))),
            "track": column(st.integers(0, 4)),
            "kind": column(st.sampled_from(["kernel", "communication", "copy", "op", "op", "api", "annotation", "instant"])),
            "name": column(st.sampled_from(_WORDS)),
            "scope": column(st.sampled_from([None, "m", "m/n", "m/n/o"])),
            "start_ns": column(st.integers(0, wide)),
            "dur_ns": column(st.one_of(st.integers(0, 40), st.integers(0, wide))),
        }
    ).with_columns(pl.when(pl.col("kind") == "instant").then(0).otherwise("dur_ns").alias("dur_ns"))
    spans = spans.with_columns(span=pl.int_range(pl.len(), dtype=pl.Int64).over("rank"))
    whole = pl.concat([complete(part) for part in spans.partition_by("rank")])
    whole = whole.cast({name: schema.TABLES["spans"][name] for name in spans.columns})
    ranks = sorted(set(spans["rank"].to_list()))
    tracks = pl.DataFrame(
        [
            {"rank": rank, "track": at, "group": "gpu" if at < 2 else "host", "label": f"t{at}", "kind": "stream" if at < 2 else "thread"}
            | {"device": 0 if at < 2 else None, "sort": at, "pid": "1", "tid": str(at)}
            for rank in ranks
            for at in range(4)  # of the fifth nothing is known
        ],
        schema=schema.TABLES["tracks"],
    )
    cuts = sorted(draw(st.lists(st.integers(0, 2 * wide), min_size=0, max_size=4, unique=True)))
    steps = [
        {"rank": rank, "step": at, "start_ns": low, "end_ns": high}
        for rank in ranks
        for at, (low, high) in enumerate(itertools.pairwise(cuts))
    ]
    tables = {"spans": whole, "tracks": tracks, "steps": pl.DataFrame(steps, schema=schema.TABLES["steps"])}
    return Trace(tables, Meta(source="some", ranks=ranks))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions, chunks and tiles so small that all of them are met. Real traces are tried elsewhere, with those that are used."""
    monkeypatch.setattr(layout, "PATH_SPANS", 0)  # which has tests of its own
    for module, name, value in (
        (reading, "PORTION", 7),
        (columns, "MEMORY_ROWS", 5),
        (columns, "_STRIDE", 2),
        (filling, "PORTION", 4),
        *((module, "CHUNK", 2) for module in (filling, search, aggregate)),
        (search, "_FEW", 3),
        (aggregate, "_AT_ONCE", 3),
        (pyramid, "FEW", 2),
    ):
        monkeypatch.setattr(module, name, value)
    windows = columns.RowBuffer.windows
    monkeypatch.setattr(columns.RowBuffer, "windows", lambda self, rows, size=3: windows(self, rows, size))


def drawn(timeline: Timeline, kind: str | None = None) -> list[Track]:
    return [track for track in timeline.tracks if track.kind != "counter" and kind in (None, track.kind)]


def span_times(timeline: Timeline, row: int) -> tuple[Any, Any]:
    part = slice(*timeline.pyramid.spans.offsets[row : row + 2].tolist())
    start = timeline.pyramid.spans.start[part]
    return start, start + timeline.pyramid.spans.dur[part]


def without_host_transfers(trace: Trace) -> Trace:
    """The trace with communication on streams only: that of threads runs beside the device (see test_timelines.py)."""
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track", on_stream=True)
    spans = trace.spans.join(streams, on=["rank", "track"], how="left", maintain_order="left")
    kept = (pl.col("kind") != "communication") | pl.col("on_stream").fill_null(False)
    return trace.part({"spans": spans.filter(kept).drop("on_stream")})


@pytest.mark.usefixtures("small")
class TestAnyTrace:
    @LAW
    @given(trace=some(), data=st.data())
    def test_a_row_is_as_busy_in_any_window_at_any_zoom_as_it_was(self, trace: Trace, data: st.DataObject) -> None:
        """Drawn as a client must: long events where they are, each bucket's share over all of it. Right within the window's two buckets."""
        timeline = build(trace)
        every = drawn(timeline)
        for level in data.draw(st.lists(st.integers(0, timeline.pyramid.top), min_size=1, max_size=4, unique=True)):
            index = data.draw(st.integers(0, timeline.end >> level + pyramid.BUCKETS_LOG2))
            width, begin = 1 << level, index * pyramid.BUCKETS << level
            from_, to = sorted(data.draw(st.tuples(*[st.integers(0, pyramid.BUCKETS)] * 2)))
            low, high = begin + (from_ << level), begin + (to << level)
            for (track, row), part in by_row(decoded(tile(timeline, every, level, index))).items():
                start, end = span_times(timeline, timeline.tracks[track].first + row)
                truth = intervals.clip(intervals.merge(start, end), low, high).total if low < high else 0
                long = intervals.merge(part["long_start"].astype(np.int64), (part["long_start"] + part["long_dur"]).astype(np.int64))
                inside = (part["bucket_x"] >= from_) & (part["bucket_x"] < to)
                short = float(part["bucket_busy"][inside].sum()) / 255 * width
                shown = (intervals.clip(long, low, high).total if low < high else 0) + short
                # What two events of a row share, by less than the jitter of clocks, may be seen twice.
                twice = int(np.maximum(np.minimum(np.maximum.accumulate(end)[:-1], end[1:]) - start[1:], 0).sum()) if len(start) else 0
                assert truth - width <= shown <= truth + width + twice

    @LAW
    @given(trace=some())
    def test_the_overlap_rows_are_the_analysis(self, trace: Trace) -> None:
        trace = without_host_transfers(trace)
        timeline = build(trace)
        of_rank = {track.rank: track for track in drawn(timeline, "overlap")}
        truth = trace.overlap().filter("complete")  # of the other steps the analysis says nothing
        # A rank of which only communication is recorded has no track: whether compute hides it is unknown.
        assert set(truth["rank"].to_list()) <= set(of_rank) <= set(trace.overlap()["rank"].to_list())
        steps = trace.steps.sort("rank", "start_ns").collect().join(truth, on=["rank", "step"], how="semi", maintain_order="left")
        for rank, track in of_rank.items():
            mine = steps.filter(pl.col("rank") == rank)
            begin, finish = ((mine[name] - timeline.origin).to_numpy() for name in ("start_ns", "end_ns"))
            for row, name in zip(track_rows(track), track.row_labels, strict=True):
                start, end = span_times(timeline, row)
                shown = intervals.covered(intervals.merge(start, end), begin, finish).tolist()
                assert shown == truth.filter(pl.col("rank") == rank)[f"{name}_ns"].to_list()
                if name != "communication":  # which is in two parts: hidden and not
                    assert len(intervals.merge(start, end).starts) == len(start)  # whole, not cut where portions end

    @LAW
    @given(trace=some())
    def test_every_event_is_found_by_place_by_key_and_by_word(self, trace: Trace) -> None:
        timeline = build(trace)
        spans = trace.spans.with_columns(pl.col("name").cast(pl.String)).collect()
        at: dict[tuple[int, int], tuple[Track, int]] = {}
        for track in drawn(timeline, "spans"):
            for row in range(track.rows):
                one, seen = details.near(timeline, track, row, -1, "next"), []
                while one is not None:
                    seen.append(one)
                    one = details.near(timeline, track, row, one["start"], "next", one["span"])
                at |= {(track.rank, one["span"]): (track, row) for one in seen}
        assert set(at) == set(spans.select("rank", "span").iter_rows())
        for rank, span, name, start, dur in spans.select("rank", "span", "name", "start_ns", "dur_ns").iter_rows():
            track, row = at[rank, span]
            # At its own start it is there, or something that began with it in its row.
            there = details.near(timeline, track, row, start - timeline.origin, "at")
            assert there is not None
            assert there["start"] <= start - timeline.origin <= there["start"] + max(dur, there["dur"])
            if name:
                found = search.search(trace, timeline, name, rank=rank, args=False)
                numbers = [found.at(one) for one in range(found.count)]
                events = [details.span_at(timeline, one) for one in numbers if one is not None]
                assert (rank, span) in {(one["rank"], one["span"]) for one in events}
                assert [one["start"] for one in events] == sorted(one["start"] for one in events)
                matching = spans.filter(pl.col("rank") == rank, pl.col("name").str.to_lowercase().str.contains(name, literal=True))
                assert (found.count, found.total_ns) == (matching.height, matching["dur_ns"].sum())

    @LAW
    @given(trace=some(), data=st.data())
    def test_an_area_is_the_sum_of_what_lies_in_it(self, trace: Trace, data: st.DataObject) -> None:
        timeline = build(trace)
        low, high = sorted(data.draw(st.tuples(*[st.integers(-5, timeline.end + 5)] * 2)))
        high += low == high
        lane_of = {(track.rank, track.track): track.id for track in drawn(timeline, "spans")}
        truth: dict[tuple[str, str, int], list[int]] = {}
        columns_ = trace.spans.select("rank", "track", pl.col("name", "kind").cast(pl.String), "start_ns", "dur_ns").collect()
        for rank, track, name, kind, start, dur in columns_.iter_rows():
            begin = start - timeline.origin
            if begin < high and (begin + dur > low or (dur == 0 and begin >= low)):
                truth.setdefault((name, kind, lane_of[rank, track]), []).append(min(begin + dur, high) - max(begin, low))
        found = aggregate.area(timeline, drawn(timeline, "spans"), low, high)
        shown = {row[:3]: row[3:] for row in found.select("key", "kind", "lane", "count", "total_ns", "max_ns").iter_rows()}
        assert shown == {key: (len(parts), sum(parts), max(parts)) for key, parts in truth.items()}
        assert (found["self_ns"] <= found["total_ns"]).all()

    @LAW
    @given(trace=some())
    def test_a_timeline_in_files_is_the_same(self, tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
        folder = tmp_path_factory.mktemp("timeline")
        cache.write(build(trace, folder=folder), folder)
        kept, made = cache.read(folder), build(trace)
        assert kept.tracks == made.tracks
        for level in (0, made.pyramid.top // 2, made.pyramid.top, made.pyramid.top + 1):
            assert tile(kept, kept.tracks, level, 0) == tile(made, made.tracks, level, 0)
        every = (aggregate.area(one, drawn(one), 0, one.end + 1) for one in (kept, made))
        assert next(every).equals(next(every))
        assert not [file for file in folder.iterdir() if file.name.startswith("waiting")]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20), st.lists(st.integers(0, 60), max_size=5))
def test_intervals_that_come_in_windows_are_told_whole(found: list[tuple[int, int]], cuts: list[int]) -> None:
    start = np.array(sorted(begin for begin, _ in found), np.int64)
    end = start + np.array([length for _, length in found], np.int64)
    whole = intervals.merge(start, end)
    output: list[tuple[int, int]] = []
    union, pieces = derived.Union(), derived.Pieces(lambda low, high: output.extend(zip(low.tolist(), high.tolist(), strict=True)))
    before = -1
    for until in [*sorted(set(cuts)), derived.END_OF_TIME]:
        now = (start >= before) & (start < until)
        pieces.add(union.until(start[now], end[now], until))
        before = until
    pieces.finish()
    assert output == list(zip(whole.starts.tolist(), whole.ends.tolist(), strict=True))


@given(st.lists(st.lists(st.integers(0, 2**62), max_size=20), max_size=4))
def test_numbers_are_given_in_order_and_once(portions: list[list[int]]) -> None:
    numbers, seen = reading.Numbers(), []
    for keys in portions:
        found = numbers.encode(np.array(keys, np.int64))
        assert [numbers.keys[number] for number in found.tolist()] == keys
        seen += [keys[at] for at in numbers.first_seen.tolist()]
    assert seen == numbers.keys
    assert len(set(seen)) == len(seen)
