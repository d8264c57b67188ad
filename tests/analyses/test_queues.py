from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import kineto
import tiny

TRACKS = """
    track  kind    label       device
    0      thread  main        -
    7      stream  "stream_7"  0
    8      stream  "stream_8"  0
"""
SPANS = """
    track  kind    name    start_ns  dur_ns  span  flow_in
    0      api     launch  0         10      0     -
    0      api     launch  20        20      1     -
    0      api     launch  50        10      2     -
    0      api     launch  70        10      3     -
    7      kernel  a       5         25      4     0
    7      kernel  a       40        30      5     1
    7      copy    b       72        8       6     2
    8      kernel  a       100       10      7     3
    8      kernel  lost    120       10      8     -
"""


def test_the_average_queue_is_over_time() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    tiny.assert_rows(
        trace.queues(),
        """
        rank  device  stream      max_length  mean_length  empty_ns  empty_share
        0     0       "stream_7"  2           1.375        0         0.0
        0     0       "stream_8"  1           1.0          0         0.0
        """,
    )


def test_a_queue_is_empty_between_its_work() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name    start_ns  dur_ns  span  flow_in
            0      api     launch  0         10      0     -
            0      api     launch  90        10      1     -
            7      kernel  a       5         5       2     0
            7      kernel  a       95        5       3     1
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(
        trace.queues(),
        """
        max_length  mean_length  empty_ns  empty_share
        1           0.2          80        0.8
        """,
    )


def test_without_device_work_there_are_no_queues() -> None:
    assert tiny.trace().queues().height == 0


@pytest.mark.parametrize("file", kineto.FILES)
def test_queues_equal_those_of_the_file(shared: Path, file: str) -> None:
    found, calls = kineto.opened(shared / file).queues(), kineto.launches(shared / file)
    changes: defaultdict[Any, list[Any]] = defaultdict(list)
    for event in kineto.work(shared / file):
        if call := calls.get(event.args["correlation"]):
            changes[f"stream {event.tid}"] += [(call.start, 1), (event.end, -1)]
    assert sorted(found["stream"]) == sorted(changes)
    for row in found.iter_rows(named=True):
        moments = sorted(changes[row["stream"]])
        first, last = moments[0][0], moments[-1][0]
        longest, area, empty, length, before = 0, 0, 0, 0, first
        for at, change in moments:
            area += length * (at - before)
            empty += at - before if length == 0 else 0
            length, before = length + change, at
            longest = max(longest, length)
        assert row["empty_ns"] == empty
        assert row["mean_length"] == pytest.approx(area / (last - first))
        assert row["max_length"] == longest
