from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kineto
import tiny
from volume import mostly_deep

TRACKS = """
    track  kind    label         device
    0      thread  main          -
    1      thread  other         -
    7      stream  "stream_7"    0
    8      stream  "stream_8"    0
"""


def test_a_gap_is_a_time_without_work_on_any_stream_and_its_cause_is_the_host_activity_before_the_launch() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name                   start_ns  dur_ns  span  flow_in
            0      step    ProfilerStep#0         0         400     0     -
            0      data    enumerate(DataLoader)  0         60      1     -
            0      api     launch                 70        10      2     -
            0      op      aten::mm               100       60      3     -
            0      op      aten::empty            110       25      4     -
            0      api     launch                 140       10      5     -
            0      api     launch                 152       5       6     -
            0      sync    cudaStreamSynchronize  180       60      7     -
            0      op      aten::add              240       60      8     -
            0      api     launch                 260       10      9     -
            7      kernel  a                      80        20      10    2
            8      kernel  b                      90        20      11    2
            7      kernel  c                      150       30      12    5
            7      kernel  d                      190       40      13    6
            7      kernel  e                      270       20      14    9
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         400
        """,
    )
    tiny.assert_rows(
        trace.gaps(),
        """
        rank  device  step  start_ns  dur_ns  cause             next_kernel  host_activity            share_of_step  next_span
        0     0       0     0         80      "data_wait"       a            enumerate(DataLoader)    0.2            10
        0     0       0     110       40      host-bound        c            aten::empty              0.1            12
        0     0       0     180       10      "launch_latency"  d            -                        0.025          13
        0     0       0     230       40      sync              e            aten::add                0.1            14
        0     0       0     290       110     host-bound        -            -                        0.275          -
        """,
    )
    assert trace.gaps(min_ns=80)["dur_ns"].to_list() == [80, 110]


def test_a_gap_is_communication_when_the_launching_thread_waits_for_host_transfers() -> None:
    def cause(activity: str, track: int) -> str:
        trace = tiny.trace(
            spans=f"""
                track  kind           name             start_ns  dur_ns  span  flow_in
                0      step           ProfilerStep#0   0         100     0     -
                1      communication  gloo:all_reduce  10        70      1     -
                {track}  {activity}   x                20        50      2     -
                {track}  api          launch           90        2       3     -
                7      kernel         a                0         10      4     -
                7      kernel         b                95        5       5     3
            """,
            tracks=TRACKS,
            steps="""
                step  start_ns  end_ns
                0     0         100
            """,
        )
        found: str = trace.gaps()["cause"].item()
        return found

    assert cause("python", 0) == "communication"
    assert cause("op", 0) == "host-bound"
    assert cause("op", 1) == "communication"


def test_the_thread_of_the_operator_gives_the_cause_if_another_thread_makes_the_call() -> None:
    # Ascend: operators on one track of a thread, calls into its libraries on another, launches by a thread that empties a queue.
    trace = tiny.trace(
        spans="""
            track  kind    name       start_ns  dur_ns  span  flow_in  op
            0      step    step       0         100     0     -        -
            0      op      mul        0         10      1     -        -
            0      op      item       20        30      2     -        -
            0      op      add        55        10      3     -        -
            1      sync    wait       22        26      4     -        -
            2      api     launch     4         2       5     -        -
            2      api     launch     75        2       6     -        -
            7      kernel  k1         10        30      7     5        1
            7      kernel  k2         80        20      8     6        3
        """,
        tracks="""
            track  kind    label         device  group       tid  sort
            0      thread  main          -       "python_9"  9    0
            1      thread  "main_CANN"   -       "python_9"  9    1
            2      thread  "queue_CANN"  -       "python_9"  10   2
            7      stream  "stream_7"    0       "NPU_0"     7    3
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.gaps(),
        """
        start_ns  dur_ns  cause       next_kernel  host_activity
        0         10      host-bound  k1           mul
        40        40      sync        k2           add
        """,
    )


def test_a_gap_over_several_steps_counts_in_each_and_not_between_them() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns
            7      kernel  a     0         90
            7      kernel  b     130       70
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100
            1     105       105
            2     110       200
            3     115       125
        """,
    )
    tiny.assert_rows(
        trace.gaps(),
        """
        step  start_ns  dur_ns  cause    next_kernel
        0     90        10      unknown  b
        2     110       20      unknown  b
        3     115       10      unknown  b
        """,
    )


def test_each_device_has_its_own_gaps() -> None:
    trace = tiny.trace(
        spans="""
            rank  track  kind    name  start_ns  dur_ns  span
            0     7      kernel  a     0         100     0
            0     9      kernel  a     50        50      1
            1     7      kernel  a     0         90      0
        """,
        tracks="""
            rank  track  kind    label  device
            0     7      stream  s      0
            0     9      stream  s      1
            1     7      stream  s      0
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         100
            1     0     0         100
        """,
    )
    tiny.assert_rows(
        trace.gaps(),
        """
        rank  device  start_ns  dur_ns
        0     1       0         50
        1     0       90        10
        """,
    )


def test_without_a_device_a_gap_is_where_no_operator_runs() -> None:
    trace = tiny.trace(
        spans="""
            kind    name                   start_ns  dur_ns
            data    enumerate(DataLoader)  0         30
            op      aten::mm               30        40
            op      aten::empty            35        10
            python  train.py(12):_loss     75        10
            op      aten::add              90        10
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.gaps(),
        """
        device  start_ns  dur_ns  cause        next_kernel  host_activity
        -       0         30      "data_wait"  aten::mm     enumerate(DataLoader)
        -       70        20      host-bound   aten::add    train.py(12):_loss
        """,
    )


_KERNELS = st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(0, 60), st.integers(0, 15)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=50)
@given(_KERNELS, st.integers(1, 59))
def test_gaps_are_the_times_at_which_nothing_runs(kernels: list[tuple[int, int, int]], border: int) -> None:
    trace = tiny.trace(
        spans="track kind name start_ns dur_ns\n" + "\n".join(f"{track} kernel k {start} {dur}" for track, start, dur in kernels),
        tracks=TRACKS,
        steps=f"""
            step  start_ns  end_ns
            0     0         {border}
            1     {border}  60
        """,
    )
    idle = {
        (step, at) for step, start, dur in trace.gaps().select("step", "start_ns", "dur_ns").iter_rows() for at in range(start, start + dur)
    }
    running = {at for _, start, dur in kernels for at in range(start, start + dur)}
    recorded = trace.overlap().filter("complete")["step"].to_list()
    assert idle == {(int(at >= border), at) for at in range(60) if at not in running and int(at >= border) in recorded}


def test_a_trace_of_nothing_has_no_gaps() -> None:
    assert tiny.trace().gaps().height == 0


@pytest.mark.parametrize("file", mostly_deep(kineto.FILES, keep=kineto.ONE_OF_EACH))
def test_gaps_and_busy_time_make_up_each_step(shared: Path, file: str) -> None:
    gaps = kineto.opened(shared / file).gaps()
    work = kineto.work(shared / file)
    for number, (start, end) in kineto.device_steps(shared / file).items():
        idle = gaps.filter(pl.col("step") == number)["dur_ns"].sum()
        assert idle + kineto.covered(work, start, end) == end - start


@pytest.mark.parametrize("file", mostly_deep(kineto.FILES, keep=kineto.ONE_OF_EACH))
def test_the_cause_is_launch_latency_if_the_call_began_before_the_gap(shared: Path, file: str) -> None:
    gaps = kineto.opened(shared / file).gaps()
    steps, calls = kineto.steps(shared / file).values(), kineto.launches(shared / file)
    starts = {step.start for step in steps}
    first_at: dict[int, kineto.Event] = {}
    for event in kineto.work(shared / file):
        if event.end > event.start:
            first_at.setdefault(event.start, event)
    checked = 0
    for row in gaps.iter_rows(named=True):
        follower = first_at.get(row["start_ns"] + row["dur_ns"])
        if follower and row["start_ns"] not in starts and follower.args["correlation"] in calls:
            launched = calls[follower.args["correlation"]].start
            assert (row["cause"] == "launch latency") == (launched <= row["start_ns"]), row
            checked += 1
    assert checked > 0.9 * gaps.height
