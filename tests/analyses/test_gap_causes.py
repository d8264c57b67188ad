from pathlib import Path

import pytest

import kineto
import tiny
from volume import mostly_deep


def test_gaps_are_summed_by_cause_over_all_steps() -> None:
    trace = tiny.trace(
        spans="""
            rank  track  kind    name                   start_ns  dur_ns  span  flow_in
            0     0      step    ProfilerStep#0         0         100     0     -
            0     0      data    enumerate(DataLoader)  0         30      1     -
            0     0      api     launch                 35        2       2     -
            0     0      api     launch                 36        2       3     -
            0     0      api     launch                 80        2       4     -
            0     7      kernel  a                      40        10      5     2
            0     7      kernel  b                      52        8       6     3
            0     7      kernel  c                      85        15      7     4
            0     7      kernel  d                      110       60      8     -
            1     7      kernel  d                      0         50      0     -
        """,
        tracks="""
            rank  track  kind    label  device
            0     0      thread  main   -
            0     7      stream  s      0
            1     7      stream  s      0
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         100
            0     1     100       200
            1     0     0         100
        """,
    )
    tiny.assert_rows(
        trace.gap_causes(),
        """
        rank  device  cause             gaps  total_ns  avg_ns  max_ns  share
        0     0       host-bound        2     55        28      30      0.275
        0     0       "data_wait"       1     40        40      40      0.2
        0     0       unknown           1     10        10      10      0.05
        0     0       "launch_latency"  1     2         2       2       0.01
        1     0       unknown           1     50        50      50      0.5
        """,
    )
    assert trace.gap_causes(min_ns=35)["total_ns"].to_list() == [40, 50]
    assert trace.gap_causes()["step"].null_count() == 5
    tiny.assert_rows(
        trace.gap_causes(per_step=True),
        """
        rank  device  step  cause             gaps  total_ns  share
        0     0       0     "data_wait"       1     40        0.4
        0     0       0     host-bound        1     25        0.25
        0     0       0     "launch_latency"  1     2         0.02
        0     0       1     host-bound        1     30        0.3
        0     0       1     unknown           1     10        0.1
        1     0       0     unknown           1     50        0.5
        """,
    )


def test_a_trace_of_nothing_has_no_causes() -> None:
    assert tiny.trace().gap_causes().height == 0


@pytest.mark.parametrize("file", mostly_deep(kineto.FILES, keep=kineto.ONE_OF_EACH))
def test_idle_time_of_all_causes_and_busy_time_make_up_the_steps(shared: Path, file: str) -> None:
    trace = kineto.opened(shared / file)
    assert trace.gap_causes()["share"].sum() + trace.overview()["busy_share"].item() == pytest.approx(1)
