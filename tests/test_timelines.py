"""The timeline shows what was recorded: every span, its true busy time, the analyses' own figures, at any zoom."""

import bisect
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
import tiny
from conftest import ROOT, SHARED
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.errors import DataError, UsageError
from stepscope.io import cache
from stepscope.io.sources import find_sources
from stepscope.model import intervals, schema
from stepscope.model.intervals import Set
from stepscope.model.trace import Meta, Trace, complete
from stepscope.timeline import aggregate, details, layout, pyramid, search
from stepscope.timeline import cache as keeping
from stepscope.timeline.construction.tracks import first_fit, nested_fit
from stepscope.timeline.layout import KINDS, Timeline, Track, build, track_rows
from stepscope.timeline.tiles import header, tile
from tiles import by_row, decoded

SAMPLES = ROOT / "tests" / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"


def known() -> list[Path]:
    """Every sample, and every trace beside the project that a reader knows."""
    found = [source.path for source in find_sources(SAMPLES)]
    for folder in ("torch_h200", "torch_public", "mindspore_cpu", "ascend/synth/c03_mix", "ascend/trace_view"):
        if (SHARED / folder).is_dir():
            found += [source.path for source in find_sources(SHARED / folder, lambda error: None)]
    return found


@pytest.fixture(scope="module", params=known(), ids=lambda path: path.name[:40])
def opened(request: pytest.FixtureRequest) -> tuple[Trace, Timeline]:
    try:
        trace = stepscope.open(request.param)
    except DataError as error:  # damaged on purpose, or of a format that has no reader yet
        pytest.skip(str(error))
    return trace, build(trace)


def drawn(timeline: Timeline, kind: str | None = None) -> list[Track]:
    return [track for track in timeline.tracks if track.kind != "counter" and kind in (None, track.kind)]


def spans_of(timeline: Timeline, row: int) -> slice:
    return slice(int(timeline.pyramid.spans.offsets[row]), int(timeline.pyramid.spans.offsets[row + 1]))


def levels(timeline: Timeline) -> list[int]:
    top = timeline.pyramid.top
    return sorted({top, max(top - 1, 0), max(top - 3, 0), max(top - 5, 0)})


def tiles_of(timeline: Timeline, level: int) -> range:
    return range((timeline.end >> level + pyramid.BUCKETS_LOG2) + 1)


class TestEveryTrace:
    def test_every_span_stands_in_one_row_of_its_tracks_lane(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        events = timeline.pyramid.spans
        spans = trace.spans.select("rank", "track", "span", start=pl.col("start_ns") - timeline.origin, dur="dur_ns").collect()
        by_track = spans.partition_by("rank", "track", as_dict=True)
        layout = {(track.rank, track.track): track for track in drawn(timeline, "spans")}
        assert set(layout) == set(by_track)
        for key, track in layout.items():
            own = slice(int(events.offsets[track.first]), int(events.offsets[track.first + track.rows]))
            shown = sorted(zip(events.span[own].tolist(), events.start[own].tolist(), events.dur[own].tolist(), strict=True))
            assert shown == sorted(by_track[key].select("span", "start", "dur").iter_rows())
            assert track.events == len(shown)

    def test_every_event_is_counted_once_or_drawn_by_itself_at_any_zoom(self, opened: tuple[Trace, Timeline]) -> None:
        _, timeline = opened
        layout = drawn(timeline)
        for level in levels(timeline):
            short: Counter[tuple[int, int]] = Counter()
            long: dict[tuple[int, int], set[tuple[float, float, int]]] = {}
            for index in tiles_of(timeline, level):
                for key, part in by_row(decoded(tile(timeline, layout, level, index))).items():
                    short[key] += int(part["bucket_count"].sum())
                    seen = zip(part["long_start"].tolist(), part["long_dur"].tolist(), part["long_span"].tolist(), strict=True)
                    long.setdefault(key, set()).update(seen)
            for track in layout:
                for row, at in enumerate(track_rows(track)):
                    own = spans_of(timeline, at)
                    assert short[track.id, row] + len(long.get((track.id, row), ())) == own.stop - own.start

    def test_rows_are_as_busy_as_the_union_of_their_events_at_any_zoom(self, opened: tuple[Trace, Timeline]) -> None:
        _, timeline = opened
        events, layout = timeline.pyramid.spans, drawn(timeline)
        for level in levels(timeline):
            for index in tiles_of(timeline, level):
                low, high = index * 1024 << level, (index + 1) * 1024 << level
                for (track, row), part in by_row(decoded(tile(timeline, layout, level, index))).items():
                    own = spans_of(timeline, timeline.tracks[track].first + row)
                    start, end = events.start[own], events.start[own] + events.dur[own]
                    truth = intervals.clip(intervals.merge(start, end), low, high).total
                    ends = (part["long_start"] + part["long_dur"]).astype(np.int64)
                    drawn_alone = intervals.clip(intervals.merge(part["long_start"].astype(np.int64), ends), low, high).total
                    shown = drawn_alone + float(part["bucket_busy"].sum()) / 255 * (1 << level)
                    # The sum of shares is right to one part. What two events of a row share, by the jitter of clocks, may be seen twice.
                    shared = np.maximum(np.minimum(np.maximum.accumulate(end)[:-1], end[1:]) - start[1:], 0)
                    twice = int(shared[(start[1:] < high) & (end[1:] > low)].sum())
                    slack = (1 << level) / 255 + 1
                    assert truth - slack <= shown <= truth + slack + twice

    def test_the_rows_of_the_overlap_track_are_the_analysis(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        truth = trace.overlap().filter("complete")  # of the other steps the analysis says nothing
        layout = {
            track.rank: track for track in reversed(drawn(timeline, "overlap"))
        }  # where each device has one, that of the rank is first
        assert set(layout) == set(trace.overlap()["rank"].to_list())
        steps = device_steps(trace).join(truth, on=["rank", "step"], how="semi", maintain_order="left")
        for rank, track in layout.items():
            own = steps.filter(pl.col("rank") == rank)
            start, end = ((own[name] - timeline.origin).to_numpy() for name in ("start_ns", "end_ns"))
            known = truth.filter(pl.col("rank") == rank)
            # Transfers that the host runs beside a device, as those over gloo, are no communication of the device.
            on_host = trace.overview().filter(pl.col("rank") == rank)["device_data"].item() == "host"
            places = trace.tracks.filter(pl.lit(on_host) | pl.col("kind").is_in(["stream", "communication"]), pl.col("kind") != "other")
            transfers = trace.spans.filter(pl.col("rank") == rank, pl.col("kind") == "communication")
            transfers = transfers.join(places, on=["rank", "track"], how="semi").with_columns(pl.col("start_ns") - timeline.origin)
            first, last = transfers.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
            communication = intervals.covered(intervals.merge(first.to_numpy(), last.to_numpy()), start, end)
            exposed = known["device_exposed_ns"].to_numpy()
            truths = {name: known[f"{name}_ns"].to_list() for name in ("computing", "free", "copy")}
            truths |= {"communication": communication.tolist(), "exposed": exposed.tolist()}
            for row, name in enumerate(track.row_labels):
                shown = intervals.covered(merged(timeline, track.first + row), start, end)
                assert shown.tolist() == truths[name], name
            hidden = intervals.covered(merged(timeline, track.first + 1, "hidden"), start, end)
            assert hidden.tolist() == (communication - exposed).tolist()

    def test_counters_hide_no_peak_and_end_where_they_ended(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        layout = [track for track in timeline.tracks if track.kind == "counter"]
        counters = trace.counters.filter(pl.col("value").is_finite()).with_columns(pl.col("at_ns") - timeline.origin)
        samples = counters.sort("at_ns", maintain_order=True).with_columns(pl.col("name").cast(pl.String)).collect()
        for track in layout:
            own = samples.filter(pl.col("rank") == track.rank, pl.col("name") == (track.note or track.label))
            at, value = own["at_ns"].to_numpy(), own["value"].to_numpy()
            if track.unit in ("share", "percent", "cores", "1/s", "bytes/s"):  # holds for the time since the sample before
                at = np.append(max(0, 2 * at[0] - at[1]) if len(at) > 1 else 0, at[:-1])
            assert (track.events, track.min, track.max) == (own.height, value.min(), value.max())
            for level in levels(timeline):
                for index in tiles_of(timeline, level):
                    low, high = index * 1024 << level, (index + 1) * 1024 << level
                    part = by_row(decoded(tile(timeline, [track], level, index)))[track.id, -1]
                    inside, before = value[(at >= low) & (at < high)], value[at < low]
                    first = 1 if len(before) else 0
                    if len(before):
                        assert (part["point_low"][0], part["point_high"][0]) == (before[-1], before[-1])
                    if len(inside):
                        assert part["point_high"][first:].max() == inside.max()
                        assert part["point_low"][first:].min() == inside.min()
                        assert part["point_low"][-1] == part["point_high"][-1] == inside[-1]
                    else:
                        assert len(part["point_at"]) == first
                    assert (np.diff(part["point_at"]) >= 0).all()

    def test_a_search_finds_what_reading_everything_finds(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        columns = [pl.col(name).cast(pl.String).fill_null("") for name in ("kind", "name", "op_type", "scope", "args")]
        rows = trace.spans.select("span", "rank", "start_ns", "dur_ns", *columns).collect().rows()
        texts = [(row, "\n".join(row[5:]).lower()) for row in rows]
        name = texts[len(texts) // 2][0][5] if texts else "nothing"  # a recording of counters alone
        for words in (name.split()[0], "a", "aten conv", "zebra crossing", "stream"):
            wanted = [row for row, text in texts if all(word in text for word in words.lower().split())]
            found = search.search(trace, timeline, words)
            assert (found.count, found.total_ns) == (len(wanted), sum(row[3] for row in wanted))
            starts = timeline.pyramid.spans.start[found.between(0, timeline.end + 1)].tolist()
            assert starts == sorted(row[2] - timeline.origin for row in wanted)
            for number in range(0, len(starts), max(len(starts) // 5, 1)):
                at = found.at(number)
                assert at is not None
                assert timeline.pyramid.spans.start[at] == starts[number]
                assert found.before(starts[number]) == bisect.bisect_left(starts, starts[number])
            assert found.at(len(starts)) is None
        rank = trace.meta.ranks[0]
        of_kind = search.search(trace, timeline, "a", ["kernel", "op"], rank)
        assert of_kind.count == sum(row[4] in ("kernel", "op") and row[1] == rank and "a" in text for row, text in texts)

    def test_an_area_sums_up_what_lies_in_it(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        low, high = timeline.end // 3, timeline.end // 2 + 1
        totals: Counter[tuple[str, str, int]] = Counter()
        counts: Counter[tuple[str, str, int]] = Counter()
        longest: dict[tuple[str, str, int], int] = {}
        layout = {(track.rank, track.track): track.id for track in drawn(timeline, "spans")}
        spans = trace.spans.select("rank", "track", pl.col("name", "kind").cast(pl.String), "start_ns", "dur_ns").collect()
        for rank, track, name, kind, start, dur in spans.iter_rows():
            begin = start - timeline.origin
            if begin < high and (begin + dur > low or (dur == 0 and begin >= low)):
                key = name or "", kind, layout[rank, track]
                inside = min(begin + dur, high) - max(begin, low)
                totals[key] += inside
                counts[key] += 1
                longest[key] = max(longest.get(key, 0), inside)
        found = aggregate.area(timeline, drawn(timeline, "spans"), low, high)
        shown = {tuple(row[:3]): tuple(row[3:]) for row in found.select("key", "kind", "lane", "count", "total_ns", "max_ns").iter_rows()}
        assert shown == {key: (counts[key], totals[key], longest[key]) for key in counts}
        for by, place in (("kind", 1), ("lane", 2)):
            sums: Counter[Any] = Counter()
            for key, total in totals.items():
                sums[key[place]] += total
            table = aggregate.area(timeline, drawn(timeline, "spans"), low, high, by)
            assert dict(table.select("kind" if by == "kind" else "lane", "total_ns").iter_rows()) == sums

    def test_own_time_in_all_is_that_of_the_spans(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        layout = {(track.rank, track.track): track.id for track in drawn(timeline, "spans") if track.nested or track.tangled}
        truth: Counter[int] = Counter()
        for rank, track, own in trace.spans.group_by("rank", "track").agg(pl.col("self_ns").sum()).collect().iter_rows():
            if (rank, track) in layout:
                truth[layout[rank, track]] = own
        table = aggregate.area(timeline, [timeline.tracks[one] for one in layout.values()], 0, timeline.end + 1, "lane")
        shown = dict(table.select("lane", "self_ns").iter_rows())
        assert shown.keys() == truth.keys()
        for track, own in truth.items():
            # Where children outlast their parents by the jitter of clocks, the reader moves their ends.
            assert shown[track] == pytest.approx(own, rel=0.001, abs=20_000)

    def test_the_next_key_reaches_every_event_of_a_row(self, opened: tuple[Trace, Timeline]) -> None:
        _, timeline = opened
        track = max((track for track in drawn(timeline, "spans") if track.events < 5000), key=lambda track: track.events, default=None)
        for row in range(track.rows if track else 0):
            assert track is not None
            own = spans_of(timeline, track.first + row)
            for direction, order in (("next", 1), ("prev", -1)):
                seen = []
                one = details.near(timeline, track, row, -1 if order > 0 else timeline.end + 1, direction)
                while one is not None:
                    seen.append(one["span"])
                    one = details.near(timeline, track, row, one["start"], direction, one["span"])
                assert seen[::order] == timeline.pyramid.spans.span[own].tolist()

    def test_a_device_is_busy_but_for_its_gaps(self, opened: tuple[Trace, Timeline]) -> None:
        trace, timeline = opened
        devices = [group for group in timeline.groups if group.kind == "device"]
        if not devices:
            return
        counts = trace.overlap().filter("complete").join(counting_steps(trace, None), on=["rank", "step"], how="semi")
        idle = trace.gaps().join(counts, on=["rank", "step"], how="semi").group_by("rank", "device").agg(pl.col("dur_ns").sum())
        total = dict(counts.group_by("rank").agg(pl.col("device_ns").sum()).iter_rows())
        for group in devices:
            if group.rank not in total:  # no step is completely recorded
                assert group.busy_share is None
                continue
            here = idle.filter(pl.col("rank") == group.rank, pl.col("device") == group.device)["dur_ns"].sum()
            assert group.busy_share == pytest.approx(1 - here / total[group.rank], abs=1e-9)


def merged(timeline: Timeline, row: int, kind: str | None = None) -> Set:
    events, own = timeline.pyramid.spans, spans_of(timeline, row)
    chosen = events.kind[own] == KINDS.index(kind) if kind else slice(None)
    start, dur = events.start[own][chosen], events.dur[own][chosen]
    return intervals.merge(start, start + dur)


@pytest.fixture(scope="module")
def resnet() -> tuple[Trace, Timeline]:
    trace = stepscope.open(RESNET)
    return trace, build(trace)


class TestDetails:
    def test_a_kernel_is_told_as_the_table_has_it(self, resnet: tuple[Trace, Timeline]) -> None:
        trace, timeline = resnet
        kernel = trace.spans.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).collect().row(100, named=True)
        shown_details = details.details(trace, timeline, 0, kernel["span"])
        for name in ("span", "name", "kind", "step", "scope", "op_type", "correlation", "flops", "bytes", "flow_in", "op", "track"):
            assert shown_details[name] == kernel[name]
        assert (shown_details["start"], shown_details["dur"], shown_details["self"]) == (
            kernel["start_ns"] - timeline.origin,
            kernel["dur_ns"],
            kernel["self_ns"],
        )
        assert shown_details["start_ns"] == str(kernel["start_ns"])
        assert shown_details["args"] == json.loads(kernel["args"])
        step = trace.steps.filter(pl.col("step") == kernel["step"]).collect().row(0, named=True)
        assert shown_details["share_of_step"] == kernel["dur_ns"] / (step["end_ns"] - step["start_ns"])
        assert timeline.tracks[shown_details["lane"]].track == kernel["track"]
        assert [one["span"] for one in shown_details["flows"]["in"]] == [kernel["flow_in"]]
        assert shown_details["operator"]["span"] == kernel["op"]

    def test_flows_lead_both_ways(self, resnet: tuple[Trace, Timeline]) -> None:
        trace, timeline = resnet
        linked = trace.spans.filter(pl.col("flow_in").is_not_null()).select("span", "flow_in").collect()
        for span, cause in linked.gather_every(max(linked.height // 20, 1)).iter_rows():
            assert cause in [one["span"] for one in details.details(trace, timeline, 0, span)["flows"]["in"]]
            assert span in [one["span"] for one in details.details(trace, timeline, 0, cause)["flows"]["out"]]

    def test_an_operator_says_what_it_launched_and_what_it_is_part_of(self, resnet: tuple[Trace, Timeline]) -> None:
        trace, timeline = resnet
        spans = trace.spans.collect()
        kernels = spans.filter(pl.col("kind") == "kernel", pl.col("op").is_not_null())
        op = kernels["op"][50]
        shown_details = details.details(trace, timeline, 0, op)
        own = spans.filter(pl.col("op") == op, pl.col("span") != op)
        assert sorted(one["span"] for one in shown_details["launched"]) == sorted(own["span"].to_list())
        assert shown_details["launched_ns"] == own["dur_ns"].sum()
        above, parent = [], spans.filter(span=op)["parent"].item()
        while parent is not None:
            above.append(parent)
            parent = spans.filter(span=parent)["parent"].item()
        assert [one["span"] for one in shown_details["parents"]] == above

    def test_calls_of_one_name_are_a_chain(self, resnet: tuple[Trace, Timeline]) -> None:
        trace, timeline = resnet
        calls = trace.spans.filter(pl.col("name") == "aten::relu_").sort("start_ns").collect()["span"].to_list()
        shown_details = details.details(trace, timeline, 0, calls[3])
        assert (shown_details["previous"]["span"], shown_details["next"]["span"]) == (calls[2], calls[4])
        assert (shown_details["same_name"], shown_details["same_name_before"]) == (len(calls), 3)
        assert details.details(trace, timeline, 0, calls[0])["previous"] is None

    def test_an_unknown_span_is_refused(self, resnet: tuple[Trace, Timeline]) -> None:
        with pytest.raises(UsageError, match="no span 99999999"):
            details.details(*resnet, 0, 99_999_999)

    @pytest.mark.parametrize(
        ("most", "with_cause", "at_once"),
        [(1 << 30, True, 1 << 20), (22_000, True, 1 << 20), (0, False, 1 << 20), (0, False, 40)],
        ids=["whole", "steps", "many", "in pieces"],
    )
    def test_gaps_are_those_of_the_analysis(
        self, resnet: tuple[Trace, Timeline], monkeypatch: pytest.MonkeyPatch, most: int, with_cause: bool, at_once: int
    ) -> None:
        """Whether it is asked of the whole trace, of the steps around, or is only told from what ran, all at once or piece by piece."""
        monkeypatch.setattr(aggregate, "_AT_ONCE", at_once)
        monkeypatch.setattr(details, "_GAP_SPANS", most)
        trace, timeline = resnet
        device = next(group for group in timeline.groups if group.kind == "device")
        step = trace.steps.sort("start_ns").collect().row(0, named=True)
        low, high = step["start_ns"] - timeline.origin, step["end_ns"] - timeline.origin
        truth = trace.gaps().filter(pl.col("step") == step["step"]).sort("dur_ns", "start_ns", descending=[True, False]).head(details.MANY)
        found = details.gaps(trace, timeline, device, low, high)
        assert [(gap["start"] + timeline.origin, gap["dur"]) for gap in found] == list(truth.select("start_ns", "dur_ns").iter_rows())
        assert [gap["share_of_step"] for gap in found] == truth["share_of_step"].to_list()
        assert [gap["cause"] for gap in found] == (truth["cause"].to_list() if with_cause else [None] * truth.height)

    def test_a_pattern_is_matched_and_a_wrong_one_refused(self, resnet: tuple[Trace, Timeline]) -> None:
        trace, timeline = resnet
        names = trace.spans.select(pl.col("name").cast(pl.String)).collect()["name"].to_list()
        found = search.search(trace, timeline, "/^aten::(conv2d|relu_)$/", ["op"], args=False)
        assert found.count == sum(name in ("aten::conv2d", "aten::relu_") for name in names)
        assert found.searched == ("name", "type", "scope")
        with pytest.raises(UsageError, match="not a regular expression"):
            search.search(trace, timeline, "/(/")
        with pytest.raises(UsageError, match="no kind 'colonel'"):
            search.search(trace, timeline, "a", ["colonel"])


SCOPED = """
    track kind   name start_ns dur_ns scope  step
    0     kernel a    100      10     m/x    0
    0     kernel b    120      10     m/x    0
    0     kernel c    140      10     m/y    0
    1     kernel d    145      10     n      0
    0     kernel e    160      10     m/y/z  0
    0     kernel f    180      10     -      0
    0     kernel g    200      10     m/y    1
"""
STREAMS = """
    track group  label kind   device
    0     gpu    s0    stream 0
    1     gpu    s1    stream 0
"""
STEPS = """
    step start_ns end_ns how
    0    100      195    marker
    1    195      300    marker
"""


def events_of(timeline: Timeline, track: Track) -> list[list[tuple[str, int, int]]]:
    """Name, start and end of what stands in each row."""
    events, names = timeline.pyramid.spans, timeline.labels["name"]
    return [
        [
            (names[int(events.label[at])], int(events.start[at]), int(events.start[at] + events.dur[at]))
            for at in range(*spans_of(timeline, row).indices(1 << 60))
        ]
        for row in track_rows(track)
    ]


def test_a_scope_lasts_until_another_begins_or_the_step_ends() -> None:
    timeline = build(tiny.trace(spans=SCOPED, tracks=STREAMS, steps=STEPS))
    (track,) = drawn(timeline, "scope")
    assert timeline.origin == 100
    assert events_of(timeline, track) == [
        # c ends at 50, but d, of another scope, begins at 45
        [("m", 0, 45), ("n", 45, 55), ("m", 60, 70), ("m", 100, 110)],
        [("m/x", 0, 30), ("m/y", 40, 45), ("m/y", 60, 70), ("m/y", 100, 110)],
        [("m/y/z", 60, 70)],
    ]


def test_work_without_a_scope_ends_none_that_still_runs() -> None:
    spans = """
    track kind          name start_ns dur_ns scope
    0     kernel        a    0        100    m/x
    1     communication c    20       100    -
    0     kernel        b    105      10     m/x
    1     communication d    130      10     -
    0     kernel        e    150      50     m/y
    1     kernel        f    160      90     n
    1     communication g    255      5      -
    """
    timeline = build(tiny.trace(spans=spans, tracks=STREAMS, steps="step start_ns end_ns how\n0 0 400 marker"))
    (track,) = drawn(timeline, "scope")
    assert events_of(timeline, track) == [
        [("m", 0, 100), ("m", 105, 115), ("m", 150, 160), ("n", 160, 250)],
        [("m/x", 0, 100), ("m/x", 105, 115), ("m/y", 150, 160)],
    ]


def test_scopes_come_from_the_host_where_no_device_has_any() -> None:
    spans = SCOPED.replace("kernel", "op    ")
    timeline = build(tiny.trace(spans=spans, tracks=STREAMS.replace("stream 0", "thread -"), steps=STEPS))
    (track,) = drawn(timeline, "scope")
    # Track 1 is another thread.
    assert events_of(timeline, track)[0] == [("m", 0, 70), ("m", 100, 110)]


def test_work_that_overlaps_on_a_stream_gets_as_few_rows_as_it_can() -> None:
    rows = "\n".join(f"    0 kernel k{at} {at * 10} 15" for at in range(200))  # each overlaps the next
    timeline = build(tiny.trace(spans="    track kind name start_ns dur_ns\n" + rows, tracks=STREAMS))
    (track,) = drawn(timeline, "spans")
    assert track.rows == 2


def test_each_of_several_devices_has_an_overlap_of_its_own() -> None:
    tracks = """
    track group  label  kind   device
    0     gpu_0  s0     stream 0
    1     gpu_1  s1     stream 1
    """
    spans = """
    track kind          name start_ns dur_ns
    0     kernel        k    0        40
    0     communication c    60       40
    1     kernel        k    50       50
    """
    steps = """
    step start_ns end_ns how
    0    0        100    marker
    """
    timeline = build(tiny.trace(spans=spans, tracks=tracks, steps=steps))
    found = {timeline.groups[track.group].label: events_of(timeline, track) for track in drawn(timeline, "overlap")}
    assert found == {
        # Both together: what one computes hides what the other sends.
        "rank 0": [[("computing", 0, 40), ("computing", 50, 100)], [("communication", 60, 100)], [], [("free", 40, 50)]],
        "gpu_0": [[("computing", 0, 40)], [("communication", 60, 100)], [("exposed", 60, 100)], [("free", 40, 60)]],
        "gpu_1": [[("computing", 50, 100)], [], [], [("free", 0, 50)]],
    }


def test_the_thread_that_trains_comes_first_and_nothing_is_said_twice() -> None:
    tracks = """
    track  group  kind        label                                sort  pid  tid
    0      p      thread      "thread_9"                           0     1    9
    6      p      thread      "thread_5_CANN"                      6     7    5
    1      p      annotation  "thread_1_(python3.11)_annotations"  1     1    1
    2      p      thread      "thread_1_(python3.11)"              2     1    1
    3      p      thread      "thread_5_(autograd)"                3     1    5
    4      q      thread      "small"                              4     2    1
    5      q      thread      "operators"                          5     2    2
    """
    spans = """
    track  kind        name  start_ns  dur_ns
    0      api         a     0         1
    1      step        s     0         9
    2      op          o     1         1
    3      op          o     1         1
    4      op          o     1         1
    5      op          o     1         1
    5      op          o     3         1
    6      api         c     1         1
    """
    layout = drawn(build(tiny.trace(spans=spans, tracks=tracks)), "spans")
    assert [(track.label, track.note) for track in layout] == [
        ("thread 1 annotations", "step"),
        ("thread 1", "operators"),
        ("thread 5 (autograd)", "operators"),
        ("thread 5 CANN", "calls"),  # beside the thread that makes them, whoever says it
        ("thread 9", "calls"),  # has no name: behind those that have
        ("operators", ""),  # the most of a process in which nobody marks steps
        ("small", "operators"),
    ]


def test_a_name_means_its_type_where_all_that_bear_it_have_the_same() -> None:
    spans = """
    track kind   name  op_type  start_ns dur_ns
    0     kernel cube  MatMul   0        10
    0     kernel cube  MatMul   10       10
    0     kernel two   MatMul   20       10
    0     kernel two   Cast     30       10
    0     kernel Add   Add      40       10
    0     kernel bare  -        50       10
    """
    timeline = build(tiny.trace(spans=spans, tracks=STREAMS))
    for by in (None, "type", "scope"):
        tile_header = decoded(tile(timeline, drawn(timeline, "spans"), 0, 0, by))["header"]
        assert dict(zip(tile_header["names"], tile_header["means"], strict=True)) == {
            "cube": "MatMul",
            "two": None,
            "Add": None,
            "bare": None,
        }
    assert "means" not in decoded(tile(timeline, drawn(timeline, "overlap"), 0, 0))["header"]  # nothing to say, nothing is said


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=30))
def test_first_fit_puts_nothing_over_another(found: list[tuple[int, int]]) -> None:
    start = np.array([one for one, _ in found], np.int64)
    end = start + np.array([dur for _, dur in found], np.int64)
    rows = first_fit(start, end)
    for one in range(len(found)):
        for other in range(one):
            apart = end[one] <= start[other] or end[other] <= start[one]
            assert rows[one] != rows[other] or apart
    most = max((sum(start[at] <= moment < end[at] for at in range(len(found))) for moment in range(100)), default=0)
    assert rows.max(initial=-1) + 1 <= most + 1  # one of no length may need a row of its own


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 30_000)), max_size=30))
def test_nested_fit_puts_nothing_over_another_and_what_lies_within_below(found: list[tuple[int, int]]) -> None:
    start = np.array([one for one, _ in found], np.int64)
    end = start + np.array([dur for _, dur in found], np.int64)
    rows = nested_fit(start, end)
    for one in range(len(found)):
        for other in range(len(found)):
            apart = one == other or end[one] <= start[other] or end[other] <= start[one]
            assert apart or rows[one] != rows[other]
            within = start[other] <= start[one] and end[one] <= end[other] and (start[one], end[one]) != (start[other], end[other])
            assert apart or not within or rows[one] > rows[other]


def test_calls_that_overlap_the_next_make_no_stairs() -> None:
    # Each call begins 3 us before the one before it ends, and has a launch in it, which has another.
    calls = "\n".join(
        f"    0 api call {at * 20_000} 23_000\n    0 api launch {at * 20_000 + 4000} 14_000\n    0 api kernel {at * 20_000 + 6000} 5_000"
        for at in range(8)
    )
    tracks = "    track group kind label\n    0 p thread t"
    trace = tiny.trace(spans="    track kind name start_ns dur_ns\n" + calls.replace("_", ""), tracks=tracks)
    timeline = build(trace)
    (track,) = drawn(timeline, "spans")
    assert track.rows == 4
    row_of = {(name, start): row for row, events in enumerate(events_of(timeline, track)) for name, start, _ in events}
    assert len(row_of) == 24
    for at in range(8):
        begin = at * 20_000
        assert row_of["call", begin] < row_of["launch", begin + 4000] < row_of["kernel", begin + 6000]
    # A call is not inside the one that it only overlaps.
    for span, inside in ((3, []), (4, [3]), (5, [4, 3])):
        assert [one["span"] for one in details.details(trace, timeline, 0, span)["parents"]] == inside


def test_a_range_stands_above_the_calls_that_it_begins_and_ends_in() -> None:
    # In us: main calls enter, in which the range "step" begins; work is part of step, and exit ends it.
    found = {
        "main": (0, 100),
        "enter": (10, 18),
        "record": (11, 15),
        "step": (12, 92),
        "work": (20, 80),
        "exit": (88, 97),
    }
    start, end = (np.array(edge, np.int64) * 1000 for edge in zip(*found.values(), strict=True))
    rows = dict(zip(found, nested_fit(start, end).tolist(), strict=True))
    assert rows == {"main": 0, "step": 1, "enter": 2, "record": 3, "work": 2, "exit": 2}


@st.composite
def small(draw: st.DrawFn) -> Trace:
    count = draw(st.integers(1, 25))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    spans = pl.DataFrame(
        {
            "rank": column(st.integers(0, 1)),
            "track": column(st.integers(0, 2)),
            "kind": column(st.sampled_from(schema.KINDS)),
            "name": column(st.sampled_from(["a", "b/c", "", "日本", 'q"\\'])),
            "scope": column(st.sampled_from([None, "m", "m/n"])),
            "start_ns": column(st.integers(-(10**12), 10**12) if draw(st.booleans()) else st.integers(0, 5000)),
            "dur_ns": column(st.integers(0, 3000)),
        }
    ).with_columns(span=pl.int_range(pl.len(), dtype=pl.Int64).over("rank"))
    parts = [complete(part) for part in spans.partition_by("rank")]
    whole = pl.concat(parts).cast({name: schema.TABLES["spans"][name] for name in spans.columns})
    return Trace({"spans": whole}, Meta(source="small", ranks=sorted(set(spans["rank"].to_list()))))


@settings(max_examples=60, deadline=None)
@given(small(), st.integers(0, 40), st.sampled_from([None, "type", "scope"]))
def test_what_is_decoded_is_what_was_recorded(trace: Trace, zoom: int, by: str | None) -> None:
    timeline = build(trace)
    layout = drawn(timeline, "spans")
    level = min(zoom, timeline.pyramid.top)
    raw = {
        (row["rank"], row["span"]): row
        for row in trace.spans.with_columns(pl.col("kind", "name", "scope").cast(pl.String)).collect().iter_rows(named=True)
    }
    indices = {(row["start_ns"] - timeline.origin) >> level + 10 for row in raw.values()}
    found = set()
    for index in indices:
        got = decoded(tile(timeline, layout, level, index, by))
        header = got["header"]
        assert (header["level"], header["index"]) == (level, index)
        for (track, _), part in by_row(got).items():
            rank = timeline.tracks[track].rank
            for kind in ("long", "bucket"):
                for name, span, code in zip(part[f"{kind}_name"], part[f"{kind}_span"], part[f"{kind}_kind"], strict=True):
                    row = raw[rank, int(span)]
                    assert (header["names"][name], KINDS[code]) == (row["name"], row["kind"])
                    assert by != "scope" or header["scopes"][name] == row["scope"]
            for start, dur, span in zip(part["long_start"], part["long_dur"], part["long_span"], strict=True):
                row = raw[rank, int(span)]
                assert (start, dur) == (row["start_ns"] - timeline.origin, row["dur_ns"])
                assert dur >= 1 << level
            found |= {(rank, int(span)) for span in (*part["long_span"], *part["bucket_span"])}
            assert (np.diff(part["bucket_x"].astype(int)) > 0).all()
    long = {key for key, row in raw.items() if row["dur_ns"] >= 1 << level}
    assert long <= found


def test_what_is_large_is_kept_and_opens_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)
    trace = stepscope.open(RESNET)
    name = keeping.entry_key("a run")
    made, again = keeping.open_timeline(trace, name), keeping.open_timeline(trace, name)
    assert isinstance(again.pyramid.spans.start.base, np.memmap)
    (entry,) = cache.entries()
    assert (entry.path.name, entry.source) == (name, trace.meta.source)
    for level in levels(made):
        assert tile(made, made.tracks, level, 0) == tile(again, again.tracks, level, 0) == tile(build(trace), made.tracks, level, 0)
    (tmp_path / name / "start").unlink()  # it is mapped: writing into it would be the test's own fault
    (tmp_path / name / "start").write_bytes(b"damaged")
    assert tile(keeping.open_timeline(trace, name), made.tracks, made.pyramid.top, 0) == tile(made, made.tracks, made.pyramid.top, 0)


def test_what_is_small_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    keeping.open_timeline(tiny.trace(spans=SCOPED, tracks=STREAMS), keeping.entry_key("tiny"))
    assert list(tmp_path.iterdir()) == []


def test_a_trace_of_nothing_has_no_lanes() -> None:
    timeline = build(Trace({}))
    assert (timeline.tracks, timeline.end, timeline.spans) == ([], 0, 0)
    assert decoded(tile(timeline, [], 0, 0))["header"]["lanes"] == []
    assert header(timeline)["opens"] == (0, 0)


def test_of_two_who_build_at_the_same_time_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)
    trace, name = stepscope.open(RESNET), keeping.entry_key("a run")
    both = threading.Barrier(2)
    arrived: set[int] = set()

    def on_progress(share: float) -> None:
        if threading.get_ident() not in arrived:
            arrived.add(threading.get_ident())
            both.wait(60)  # neither is done before the other has begun

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: keeping.open_timeline(trace, name, on_progress=on_progress), range(2)))
    assert [entry.path.name for entry in cache.entries()] == [name]
    assert not list(tmp_path.glob(".reading.*"))
    tiles = [tile(one, one.tracks, one.pyramid.top, 0) for one in found]
    assert tiles[0] == tiles[1]


def test_building_that_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)

    def on_progress(share: float) -> None:
        if share > 0.5:
            raise UsageError("stopped")

    with pytest.raises(UsageError, match="stopped"):
        keeping.open_timeline(stepscope.open(RESNET), keeping.entry_key("a run"), on_progress=on_progress)
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_a_cache_it_is_built_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "file"))  # where no folder can be
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)
    timeline = keeping.open_timeline(stepscope.open(RESNET), keeping.entry_key("a run"))
    assert not isinstance(timeline.pyramid.spans.start.base, np.memmap)
    assert timeline.tracks
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("damage", ["start", "labels.parquet", "timeline.json", "offsets.npy", "busy"])
def test_what_is_damaged_in_the_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)
    trace, name = stepscope.open(RESNET), keeping.entry_key("a run")
    made = keeping.open_timeline(trace, name)
    before = tile(made, made.tracks, made.pyramid.top, 0)
    size = (tmp_path / name / damage).stat().st_size
    (tmp_path / name / damage).unlink()  # it is mapped: writing into it would be the test's own fault
    (tmp_path / name / damage).write_bytes(b"damaged")
    again = keeping.open_timeline(trace, name)
    assert tile(again, again.tracks, again.pyramid.top, 0) == before
    assert (tmp_path / name / damage).stat().st_size == size


def test_what_is_given_back_is_there_when_it_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "MIN_SPANS", 1000)
    timeline = keeping.open_timeline(stepscope.open(RESNET), keeping.entry_key("a run"))
    before = tile(timeline, timeline.tracks, timeline.pyramid.top, 0)
    keeping.release(timeline)
    assert tile(timeline, timeline.tracks, timeline.pyramid.top, 0) == before


@pytest.mark.parametrize(
    ("spans", "opens"),
    [
        # The steps are from 7,000 to 8,000 of 10,000, and 3 % of their time is shown on either side.
        ([0, 7100, 7500, 9990], (6970, 8030)),
        # Most of what was recorded is elsewhere.
        ([0, 100, 7100, 9990], (0, 10_000)),
        # The steps are half of the time.
        ([6000, 7100, 7200, 7990], (0, 2000)),
    ],
)
def test_a_timeline_opens_on_the_steps_where_they_hold_most_in_less_than_half_of_the_time(spans: list[int], opens: tuple[int, int]) -> None:
    rows = "\n".join(f"op o {start} 10" for start in spans)
    steps = "step start_ns end_ns\n1 7000 7600\n2 7600 8000"
    timeline = build(tiny.trace(spans="kind name start_ns dur_ns\n" + rows, steps=steps))
    assert header(timeline)["opens"] == opens


def test_a_share_holds_for_the_time_before_its_sample_and_a_level_for_the_time_after() -> None:
    counters = """
    name       unit       at_ns  value
    threads    threads    1010   3
    busy       share      1010   0.5
    busy       share      1030   0.75
    busy       share      1040   0.25
    "cpu_idle" share      1030   0.9
    """
    timeline = build(tiny.trace(spans="kind name start_ns dur_ns\nop o 1000 100", counters=counters))
    found = {}
    for track in timeline.tracks:
        if track.kind == "counter":
            own = slice(*timeline.samples.offsets[track.first : track.first + 2])
            found[track.label] = list(zip(timeline.samples.at[own].tolist(), timeline.samples.value[own].tolist(), strict=True))
    # Of the first of several, the time that it is of is taken to be as long as that of the next: 20, of which 10 were recorded.
    assert found == {"threads": [(10, 3.0)], "busy": [(0, 0.5), (10, 0.75), (30, 0.25)], "cpu idle": [(0, 0.9)]}


def test_a_lane_of_a_device_says_what_stands_in_it_and_counters_are_in_the_order_of_their_numbers() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name         start_ns  dur_ns
            3      other   "NOTIFY_A"   0         10
            4      other   "SDMA"       2         3
            5      kernel  "MatMul"     0         7
            6      kernel  "sum"        0         7
            7      op      "forward"    0         7
            8      other   "AI_CPU"     0         7
        """,
        tracks="""
            track  kind           label                           group    device  sort
            3      stream         "Stream_3"                      "NPU_0"  0       0
            4      communication  "Plane_0"                       "NPU_0"  0       1
            5      other          "Kernels"                       "NPU_0"  0       2
            6      other          "sums,_of_each_step"            "NPU_0"  0       3
            7      annotation     "thread_7_(main)_annotations"   "p_7"    -       4
            8      annotation     "AI_CPU"                        "NPU_0"  0       5
        """,
        counters="""
            name              at_ns  value  unit
            "HBM_10_npu_0"    0      1.0    bytes
            "HBM_9_npu_0"     0      1.0    bytes
            "reserved_npu_0"  0      1.0    bytes
        """,
    )
    layout = build(trace).tracks
    notes = {track.label: track.note for track in layout if track.kind == "spans"}
    assert notes == {
        "Stream 3": "tasks",
        "Plane 0": "tasks",
        "Kernels": "without timestamps",
        "sums": "of each step",
        "thread 7 annotations": "main",
        "AI CPU": "tasks",
    }
    assert [track.label for track in layout if track.kind == "counter"] == ["reserved", "HBM 9", "HBM 10"]


def test_what_is_left_of_calls_without_what_called_them_is_summed_up_as_it_is() -> None:
    """As where only some steps are shown."""
    trace = tiny.trace(
        spans="""
            kind  name  start_ns  dur_ns  depth
            op    a     0         5       0
            op    b     100       10      2
            op    c     102       3       3
        """,
        tracks="track kind label\n0 thread main",
    )
    timeline = build(trace)
    (track,) = drawn(timeline, "spans")
    sums = aggregate.area(timeline, [track], 0, 200).sort("key").select("key", "total_ns", "self_ns")
    assert sums.rows() == [("a", 5, 5), ("b", 10, 7), ("c", 3, 3)]


def test_many_counters_of_a_device_stand_behind_the_threads_that_launch_its_work() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name      start_ns  dur_ns
            1      op      "mul"     0         3
            3      kernel  "MatMul"  0         10
        """,
        tracks="""
            track  kind    label      group    device  sort
            1      thread  "main"     "p_1"    -       0
            3      stream  "Stream_3" "NPU_0"  0       1
        """,
        counters="""
            name                 at_ns  value  unit
            "cpu_idle"           0      1.0    share
            "HBM_0_npu_0"        0      1.0    bytes
            "HBM_1_npu_0"        0      1.0    bytes
            "HBM_2_npu_0"        0      1.0    bytes
            "HBM_3_npu_0"        0      1.0    bytes
            "HBM_4_npu_0"        0      1.0    bytes
            "allocated_npu_0"    0      1.0    bytes
        """,
    )
    whole = build(trace)
    few = build(Trace({**trace.tables, "counters": trace.counters.filter(pl.col("name").cast(pl.String) != "HBM 4 npu 0")}, trace.meta))
    assert {group.label: [track.label for track in whole.tracks if track.group == group.id] for group in whole.groups} == {
        "rank 0": [],
        "NPU 0": ["Stream 3", "allocated"],
        "p 1": ["main"],
        "NPU 0 counters": ["HBM 0", "HBM 1", "HBM 2", "HBM 3", "HBM 4"],
        "host": ["cpu idle"],
    }
    assert {group.label: [track.label for track in few.tracks if track.group == group.id] for group in few.groups} == {
        "rank 0": [],
        "NPU 0": ["Stream 3", "allocated", "HBM 0", "HBM 1", "HBM 2", "HBM 3"],
        "p 1": ["main"],
        "host": ["cpu idle"],
    }


def test_a_plane_is_named_without_its_group_which_is_told_beside_it() -> None:
    group = "10.1.2.3%eth0_60000_0_1699529623106750"
    trace = tiny.trace(
        spans="""
            track  kind           name       start_ns  dur_ns
            3      communication  allReduce  0         10
            4      other          SDMA       2         3
        """,
        tracks="""
            track  kind           label                          group    device  sort
            3      stream         "Group_GROUP_Communication"    "NPU_0"  0       0
            4      communication  "Group_GROUP_Plane_0"          "NPU_0"  0       1
        """.replace("GROUP", group.replace("_", "-")),
    )
    named = group.replace("_", "-")
    layout = [(track.label, track.note) for track in build(trace).tracks if track.kind == "spans"]
    assert layout == [(f"Group {named}", "communication"), ("Plane 0", f"tasks of {named}")]


def test_in_a_range_whose_device_work_is_not_recorded_nothing_is_idle() -> None:
    """Kernels of steps 0 and 1 only; the host launched none in step 2, but the source says that its passes ran."""
    trace = tiny.trace(
        spans="kind track step name start_ns dur_ns\nkernel 0 0 a 0 20\nkernel 0 1 a 30 25\ncommunication 0 2 c 60 5",
        tracks="track group label kind device\n0 chip s0 stream 0",
        steps="""
            step start_ns end_ns how    fp_start_ns bp_end_ns
            0    0        30     marker 0           20
            1    30       60     marker 30          55
            2    60       90     marker 60          85
        """,
    )
    timeline = layout.build(trace)
    (chip,) = (group for group in timeline.groups if group.kind == "device")
    assert chip.unrecorded == ((60, 90),)
    (sums,) = aggregate.summary(timeline, [chip], 0, 90)
    assert (sums["busy_ns"], sums["idle_ns"], sums["unrecorded_ns"]) == (50, 15, 25)
    (sums,) = aggregate.summary(timeline, [chip], 70, 80)
    assert (sums["busy_ns"], sums["idle_ns"], sums["unrecorded_ns"]) == (0, 0, 10)
