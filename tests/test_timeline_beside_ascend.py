"""The timeline of raw Ascend data beside the one that Ascend's own exporter makes of it, event by event."""

import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from conftest import SHARED
from stepscope.model import intervals
from stepscope.timeline.layout import Timeline, build, track_rows

CASES = sorted((SHARED / "ascend" / "synth").glob("*/expected/msprof*.json")) if SHARED.is_dir() else []
CASES = [file for file in CASES if file.parents[1].name != "c12m_no_start_log"]  # hours off: the exporter takes the counter's start for 0
# What each case.md says that the exporter loses or makes up.
ENDLESS = ("c12o_hwts_orphans",)  # a task that began hours ago
LOST_CALLS = ("c07b_api_straddle",)
WHOLE_TASKS = ("c03_mix", "c03b_mix_taskblock", "c10b_level0")  # a kernel on both kinds of core counts as long as its task
TWO_FORWARDS = ("c01b_loop_sink",)  # a second tag of the forward pass moves that of the next iteration
OVERLAP = ("Computing", "Communication", "Communication(Not Overlapped)")

Event = tuple[int, int, str]  # start and length in ns, and name


Theirs = dict[tuple[str, str, str], list[Event]]  # by process, device and thread
Ours = dict[tuple[str, str], list[list[Event]]]  # by group and track, row by row
Both = tuple[str, Theirs, Ours]


def theirs(file: Path) -> Theirs:
    events = json.loads(file.read_text(), parse_float=Decimal)
    names: dict[tuple[str, Any], str] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] in ("process_name", "process_labels", "thread_name"):
            key = (event["name"], (event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"])
            names[key] = next(iter(event["args"].values()))
    tracks: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    group: dict[Any, dict[int, str]] = defaultdict(dict)  # of communication, by process: the thread from which on it is this group
    for (kind, at), label in names.items():
        if kind == "thread_name" and label.startswith("Group "):
            group[at[0]][at[1]] = label.split()[1]
    for event in events:
        if event["ph"] != "X":
            continue
        pid, tid = event["pid"], event["tid"]
        thread = names["thread_name", (pid, tid)]
        if thread.startswith("Plane "):
            thread = f"{thread} of {group[pid][max(first for first in group[pid] if first < tid)]}"
        # Lengths are written as floats of microseconds: 23.779999999999998.
        span = (int(Decimal(event["ts"]) * 1000), round(Decimal(event["dur"]) * 1000), event["name"])
        tracks[names["process_name", pid], names["process_labels", pid], thread].append(span)
    return dict(tracks)


def ours(timeline: Timeline) -> Ours:
    events, names = timeline.pyramid.spans, timeline.labels["name"].to_list()
    found: Ours = {}
    for track in timeline.tracks:
        label = f"{track.label} of {track.note.rpartition(' ')[2]}" if track.label.startswith("Plane ") else track.label
        for row in track_rows(track):
            own = range(int(events.offsets[row]), int(events.offsets[row + 1]))
            some = [(int(events.start[at]) + timeline.origin, int(events.dur[at]), names[int(events.label[at])]) for at in own]
            found.setdefault((timeline.groups[track.group].label, label), []).append(some)
    return found


@pytest.fixture(scope="module", params=CASES, ids=lambda file: file.parents[1].name)
def both(request: pytest.FixtureRequest) -> Both:
    case = request.param.parents[1]
    return case.name, theirs(request.param), ours(build(stepscope.open(next(case.glob("PROF*")))))


def place(track: tuple[str, str, str], our: Ours) -> tuple[str, str]:
    process, device, thread = track
    if process == "CANN":
        return next(known for known in our if known[1] == thread)
    return device, thread.removesuffix(" Communication")


def moved(their: Theirs, our: Ours) -> int:
    """The exporter adds the date as a float: all is off by the same, up to 0.2 us."""
    offsets = {
        min(start for row in our[place(track, our)] for start, _, _ in row) - min(start for start, _, _ in spans)
        for track, spans in their.items()
        if track[0] == "CANN" or track[2].startswith("Stream ")
    }
    shift = min(offsets, key=abs) if offsets else 0
    assert abs(shift) < 200
    return shift


def test_every_lane_of_tasks_and_calls_has_the_same_events(both: Both) -> None:
    case, their, our = both
    shift = moved(their, our)
    for track, spans in their.items():
        process, _, thread = track
        if process == "Overlap Analysis" or thread.startswith("Step Trace"):
            continue
        mine = Counter((start, dur) for row in our[place(track, our)] for start, dur, _ in row)
        # Copies stand twice there, as the task log and as the scheduler have them; of two devices, so does the first call.
        listed = [span for span in spans if span[2] != "MemcopyAsync" and not (case in ENDLESS and span[2] == "Other")]
        wanted = Counter((start + shift, dur) for start, dur, _ in (set(listed) if process == "CANN" else listed))
        assert not wanted - mine, (track, list((wanted - mine).items())[:3])
        assert case in LOST_CALLS or not mine - wanted, (track, list((mine - wanted).items())[:3])


def test_events_are_called_the_same_or_more_exactly(both: Both) -> None:
    case, their, our = both
    shift = moved(their, our)
    for track, spans in their.items():
        if track[0] == "Overlap Analysis" or track[2].startswith("Step Trace"):
            continue
        mine = {(start, dur): name for row in our[place(track, our)] for start, dur, name in row}
        for start, dur, name in spans:
            # The level of a call stands beside its name here. Where the exporter has lost it, it says a type instead, or its number.
            bare = name.partition("@")[2] or name
            if not bare.isupper() and not bare.isdecimal() and bare != "MemcopyAsync" and (start + shift, dur) in mine:
                assert mine[start + shift, dur] == bare, case


def test_iterations_stand_over_their_two_passes_and_what_follows_them(both: Both) -> None:
    case, their, our = both
    shift = moved(their, our)
    tracks = [rows for (_, label), rows in our.items() if label.startswith("Step Trace")]
    for what in ("Iteration ", "FP_BP Time ", "Iteration Refresh "):
        if case in TWO_FORWARDS and what == "FP_BP Time ":
            continue
        listed = Counter(
            (start + shift, dur, name)
            for (_, _, thread), spans in their.items()
            for start, dur, name in spans
            if thread.startswith("Step Trace") and name.startswith(what) and name.removeprefix(what).isdecimal()
        )
        row = 0 if what == "Iteration " else 1
        assert listed == Counter(one for rows in tracks for one in rows[row] if one[2].rstrip("0123456789") == what)


def test_the_overlap_of_each_device_is_the_same(both: Both) -> None:
    case, their, our = both
    shift = moved(their, our)
    for (process, device, thread), spans in their.items():
        if process != "Overlap Analysis" or thread not in OVERLAP or case in (*WHOLE_TASKS, *ENDLESS):
            continue
        mine = our[device, "overlap"][OVERLAP.index(thread)]
        shown, listed = (merged(own, by) for own, by in ((mine, 0), (spans, shift)))
        assert shown == listed, thread


def merged(spans: list[Event], shift: int) -> list[tuple[int, int]]:
    start, dur = (np.array([span[at] for span in spans if span[1]], np.int64) for at in (0, 1))
    whole = intervals.merge(start + shift, start + shift + dur)
    return list(zip(whole.starts.tolist(), whole.ends.tolist(), strict=True))
