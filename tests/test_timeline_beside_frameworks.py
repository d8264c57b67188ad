"""The timeline of what torch_npu, MindSpore and MindInsight wrote beside the timeline that each of them wrote itself, event by event."""

import json
import re
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from conftest import SHARED
from stepscope.timeline.layout import Timeline, build, track_rows

TORCH = [*sorted((SHARED / "ascend" / "torch_npu" / "text").glob("level*/rank*")), SHARED / "ascend" / "trace_view"]
MINDSPORE = sorted((SHARED / "mindspore_cpu").glob("*/*_ascend_ms"))
MAREY = SHARED / "mindinsight" / "marey_graph" / "ascend_marey_timeline_1.json"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="real data of others is not here")

Event = tuple[int, int, str]  # start and length in ns, and name


_LEVEL = re.compile(r"^(AscendCL|Node|Model|Runtime|Hccl|HCCL)@")


def theirs(file: Path) -> dict[tuple[str, str], list[Event]]:
    """By process and thread."""
    tracks: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for event in json.loads(file.read_text(), parse_float=Decimal):
        if event["ph"] == "X":
            times = (round(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
            # Ascend's level of a call, as in `Node@launch`, is a column of its own.
            tracks[str(event["pid"]), str(event["tid"])].append((*times, _LEVEL.sub("", event["name"])))
    return dict(tracks)


def ours(timeline: Timeline, track: Any) -> list[Event]:
    events, names = timeline.pyramid.spans, timeline.labels["name"].to_list()
    own = [at for row in track_rows(track) for at in range(int(events.offsets[row]), int(events.offsets[row + 1]))]
    return [(int(events.start[at]) + timeline.origin, int(events.dur[at]), names[int(events.label[at])]) for at in own]


def assert_alike(mine: list[Event], other: list[Event], slack: int) -> None:
    """The same events, but for how times are rounded."""
    assert Counter(name for _, _, name in mine) == Counter(name for _, _, name in other)
    for edge in (0, 1):
        one, two = (np.sort(np.array([event[edge] for event in events])) for events in (mine, other))
        assert np.abs(one - two).max() <= (slack if edge == 0 else 1)


@pytest.mark.parametrize("path", TORCH, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_lane_of_torch_npus_timeline_is_one_of_ours(path: Path) -> None:
    trace = stepscope.open(path)
    timeline = build(trace)
    names = {row["track"]: (row["pid"], row["tid"]) for row in trace.tracks.collect().iter_rows(named=True)}
    tracks = {names[track.track]: track for track in timeline.tracks if track.kind == "spans"}
    (file,) = path.rglob("trace_view.json")
    named = [event for event in json.loads(file.read_text()) if event["ph"] == "M" and event["name"] == "process_name"]
    (overlap,) = (str(event["pid"]) for event in named if event["args"]["name"] == "Overlap Analysis")
    compared = 0
    for where, events in theirs(file).items():
        if where[0] != overlap:
            assert_alike(ours(timeline, tracks[where]), events, 1)
            compared += 1
    assert compared >= 7


@pytest.mark.parametrize("path", MINDSPORE, ids=lambda path: path.parent.name)
def test_every_operator_of_mindspores_timeline_is_one_of_ours(path: Path) -> None:
    timeline = build(stepscope.open(path))
    (track,) = (track for track in timeline.tracks if track.label == "operators")
    file = path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(file.read_text())
    (cpu,) = (str(event["pid"]) for event in events if event["ph"] == "M" and event.get("args", {}).get("name") == "CPU OP")
    (operators,) = (some for (pid, _), some in theirs(file).items() if pid == cpu)
    assert_alike(ours(timeline, track), operators, 250)  # its moments are doubles of us since 1970: a quarter of one apart


def test_every_operator_of_mindinsights_marey_timeline_is_one_of_ours() -> None:
    timeline = build(stepscope.open(MAREY))
    for device, operators in json.loads(MAREY.read_text())["maps"].items():
        tracks = [track for track in timeline.tracks if f"device{track.rank}" == device and track.label in ("operators", "communication")]
        events = [(round(one["st"] * 1000), round(one["dur"] * 1000), name) for name, one in operators.items()]
        assert_alike([event for track in tracks for event in ours(timeline, track)], events, 1)
