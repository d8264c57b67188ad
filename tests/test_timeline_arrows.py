"""What the timeline says a span is connected with, and what of it is on the critical path."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
import tiny
from conftest import ROOT
from stepscope.analyses.shared.ranks.counterparts import matched_calls
from stepscope.model.trace import Trace
from stepscope.timeline import arrows, critical_path, layout
from stepscope.timeline.layout import KINDS, build
from stepscope.timeline.tiles import tile
from tiles import by_row, decoded

RESNET = ROOT / "tests" / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200"
TRACKS = """
    rank  track  kind           label     device  group
    0     0      thread         main      -       "python_1"
    0     1      thread         backward  -       "python_1"
    0     7      stream         stream7   0       gpu
    1     0      thread         main      -       "python_2"
    1     7      stream         stream7   0       gpu
"""
SPANS = """
    rank  track  kind           name             step  start_ns  dur_ns  span  flow_in  op
    0     0      op             aten::linear     0     100       50      0     -        -
    0     0      op             aten::addmm      0     110       30      1     -        -
    0     0      api            launch           0     120       5       2     -        -
    0     1      op             evaluate         0     300       60      3     -        -
    0     1      op             AddmmBackward0   0     310       40      4     1        -
    0     7      kernel         gemm             0     140       20      5     2        1
    0     7      communication  gloo:all_reduce  0     400       50      6     -        -
    0     7      communication  gloo:send        0     460       5       7     -        -
    0     7      communication  gloo:send        0     470       5       8     -        -
    1     7      communication  gloo:all_reduce  0     420       30      0     -        -
    1     7      communication  gloo:recv        0     455       30      1     -        -
    1     7      communication  gloo:recv        0     490       30      2     -        -
"""


def _trace() -> Trace:
    steps = """
        rank  step  start_ns  end_ns
        0     0     100       500
        1     0     400       520
    """
    return tiny.trace(spans=SPANS, tracks=TRACKS, steps=steps)


def _once(key: tuple[Any, ...], ask: Any) -> Any:
    return ask()


def _ends(trace: Trace, rank: int, span: int) -> list[tuple[str, str, int, str, int]]:
    drawn_arrows = arrows.arrows(trace, build(trace), rank, span, _once)
    assert drawn_arrows["arrow_count"] == len(drawn_arrows["arrows"])
    return [(one["how"], one["way"], one["rank"], one["name"], one["delay"]) for one in drawn_arrows["arrows"]]


def test_a_kernel_was_launched_by_its_call_and_the_operator_launches_it() -> None:
    trace = _trace()
    assert _ends(trace, 0, 5) == [("launch", "in", 0, "launch", -20)]
    assert _ends(trace, 0, 2) == [("launch", "out", 0, "gemm", 20)]
    assert _ends(trace, 0, 1) == [("launch", "out", 0, "gemm", 30), ("backward", "out", 0, "AddmmBackward0", 200)]


def test_forward_leads_to_backward_also_from_what_only_wraps_them() -> None:
    trace = _trace()
    assert _ends(trace, 0, 4) == [("backward", "in", 0, "aten::addmm", -200)]
    assert _ends(trace, 0, 3) == [("backward", "in", 0, "aten::addmm", -190)]
    assert _ends(trace, 0, 0) == [("backward", "out", 0, "AddmmBackward0", 210)]


def test_a_collective_meets_the_same_one_of_the_other_rank_and_a_send_its_receive() -> None:
    trace = _trace()
    assert _ends(trace, 0, 6) == [("collective", "with", 1, "gloo:all_reduce", 20)]
    assert _ends(trace, 1, 0) == [("collective", "with", 0, "gloo:all_reduce", -20)]
    assert _ends(trace, 0, 8) == [("transfer", "out", 1, "gloo:recv", 20)]
    assert _ends(trace, 1, 1) == [("transfer", "in", 0, "gloo:send", 5)]
    assert _ends(trace.of_rank(0), 0, 8) == []


def test_sends_without_as_many_receives_meet_nothing() -> None:
    spans = "\n".join(SPANS.strip().splitlines()[:-1])
    found = matched_calls(tiny.trace(spans=spans, tracks=TRACKS))
    assert found.rows() == [(0, 6, 0, "together"), (1, 0, 0, "together")]


def test_a_send_says_whom_it_is_for_where_there_are_more_than_two_ranks() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name        start_ns  dur_ns  span
            0     communication  nccl:send   0         10      0
            0     communication  nccl:send   20        10      1
            1     communication  nccl:recv   25        10      0
            2     communication  nccl:recv   5         10      0
        """
    )
    assert matched_calls(trace).is_empty()
    args = pl.Series(['{"Dst Rank": 2}', '{"Dst Rank": 1}', '{"Src Rank": 0}', '{"Src Rank": 0}'])
    with_args = Trace({**trace.tables, "spans": trace.spans.collect().with_columns(args.alias("args"))}, trace.meta)
    assert sorted(matched_calls(with_args).select("call", "rank", "span").rows()) == [(0, 0, 0), (0, 2, 0), (1, 0, 1), (1, 1, 0)]


def test_the_lane_of_the_critical_path_is_the_analysis() -> None:
    trace = _trace()
    timeline = build(trace)
    truth = trace.critical_path()
    assert truth["rank"].unique().to_list() == [0]  # of rank 1 only a transfer is known
    (track,) = [track for track in timeline.tracks if track.kind == "path"]
    assert track.rows == 1
    events = timeline.pyramid.spans
    own = slice(*(int(edge) for edge in events.offsets[track.first : track.first + 2]))
    assert (events.start[own] + timeline.origin).tolist() == truth["start_ns"].to_list()
    assert events.dur[own].tolist() == truth["dur_ns"].to_list()
    assert [KINDS[kind] for kind in events.kind[own]] == truth["kind"].to_list()
    assert np.all(events.span[own] == -1)


def test_what_only_happens_while_the_path_waits_is_not_on_it() -> None:
    spans = """
    track kind   name  start_ns dur_ns span
    0     kernel one   0        100    0
    0     sync   event 120      10     1
    0     kernel two   200      100    2
    """
    steps = """
    step start_ns end_ns how
    0    0        300    marker
    """
    trace = tiny.trace(spans=spans, tracks="track group label kind device\n0 gpu s stream 0", steps=steps)
    assert trace.critical_path().select("kind", "span", "dur_ns").rows() == [("kernel", 0, 100), ("wait", 2, 100), ("kernel", 2, 100)]
    timeline = build(trace)
    assert critical_path.critical_part(trace, timeline, 0, 1, 0, _once) == {"critical_ns": 0, "critical": []}


def test_a_span_says_how_much_of_it_is_on_the_path() -> None:
    # The step ends while nothing runs on the device and nothing waited for it: the host alone is the path.
    trace = _trace()
    timeline = build(trace)
    assert critical_path.critical_part(trace, timeline, 0, 0, 0, _once) == {"critical_ns": 50, "critical": [{"kind": "host", "ns": 50}]}
    # What is inside of it is on the path with it.
    assert critical_path.critical_part(trace, timeline, 0, 1, 0, _once) == {"critical_ns": 30, "critical": [{"kind": "host", "ns": 30}]}
    assert critical_path.critical_part(trace, timeline, 0, 5, 0, _once) == {"critical_ns": 0, "critical": []}
    piece = critical_path.piece_at(trace, timeline, 0, 20, _once)
    assert piece == {"kind": "host", "name": "aten::linear", "span": 0, "start": 0, "dur": 50}
    assert critical_path.piece_at(trace, timeline, 0, 401, _once) is None


def test_the_path_of_a_step_alone_is_that_of_the_whole_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = stepscope.open(RESNET)
    timeline = build(trace)
    whole = trace.critical_path()
    monkeypatch.setattr(critical_path, "PATH_SPANS", 0)
    for step in whole["step"].unique():
        request: list[pl.DataFrame] = []
        span = whole.filter(pl.col("step") == step, pl.col("span").is_not_null())["span"][5]
        critical_path.critical_part(trace, timeline, 0, span, step, lambda _, ask, into=request: into.append(ask()) or into[-1])  # type: ignore[misc]
        assert request[0].rows() == whole.filter(pl.col("step") == step).rows()


def test_of_too_many_spans_the_lane_of_the_path_is_empty_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PATH_SPANS", 7)
    timeline = build(_trace())
    found = [track for track in timeline.tracks if track.kind == "path"]
    assert [(track.rank, track.rows, track.events, track.note) for track in found] == [
        (rank, 1, 0, "not computed for more than 7 spans; select a span to see the critical path of its step") for rank in (0, 1)
    ]
    for track in found:
        part = by_row(decoded(tile(timeline, [track], timeline.pyramid.top, 0)))[track.id, 0]
        assert len(part["long_start"]) == len(part["bucket_x"]) == 0
