from collections import defaultdict
from pathlib import Path

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


def test_a_launch_is_host_bound_when_its_stream_had_nothing_left_to_do() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS).launches(),
        """
        device  stream      name  calls  launch_avg_ns  delay_avg_ns  delay_min_ns  delay_max_ns  kernel_avg_ns  host_bound_calls
        0       "stream_7"  a     2      15             12            5             20            28             1
        0       "stream_7"  b     1      10             22            22            22            8              0
        0       "stream_8"  a     1      10             30            30            30            10             1
        """,
    )


def test_a_call_is_short_when_its_kernel_takes_less_than_its_launch() -> None:
    assert tiny.trace(spans=SPANS, tracks=TRACKS).launches()["short_calls"].to_list() == [0, 1, 0]


def test_without_device_work_there_are_no_launches() -> None:
    assert tiny.trace().launches().height == 0


@pytest.mark.parametrize("file", kineto.FILES)
def test_delays_equal_those_of_the_file(shared: Path, file: str) -> None:
    found, calls = kineto.opened(shared / file).launches(), kineto.launches(shared / file)
    delays = defaultdict(list)
    for event in kineto.work(shared / file):
        if call := calls.get(event.args["correlation"]):
            delays[f"stream {event.tid}", event.name].append(event.start - call.start)
    assert delays
    assert {(row["stream"], row["name"]): row["calls"] for row in found.iter_rows(named=True)} == {key: len(d) for key, d in delays.items()}
    for row in found.iter_rows(named=True):
        some = delays[row["stream"], row["name"]]
        assert (row["delay_min_ns"], row["delay_max_ns"]) == (min(some), max(some))
        assert row["delay_avg_ns"] == pytest.approx(sum(some) / len(some), abs=0.5)
