import itertools
import random

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import tiny

TRACKS = """
    track  kind    label         device
    0      thread  main          -
    1      thread  other         -
    7      stream  "stream_7"    0
    8      stream  "stream_8"    0
"""


def test_the_path_leads_from_a_synchronizing_call_over_the_device_work_to_the_first_launch() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name      start_ns  dur_ns  span  flow_in
            0      step    step      0         100     0     -
            0      op      a         0         10      1     -
            0      api     launch    2         2       2     -
            0      op      b         10        20      3     -
            0      api     launch    12        2       4     -
            0      sync    wait      40        40      5     -
            0      op      c         82        13      6     -
            7      kernel  k1        10        20      7     2
            7      kernel  k2        32        38      8     4
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.critical_path(),
        """
        rank  step  start_ns  dur_ns  kind    name  span  share_of_step
        0     0     0         2       host    a     1     0.02
        0     0     2         8       launch  k1    7     0.08
        0     0     10        20      kernel  k1    7     0.2
        0     0     30        2       launch  k2    8     0.02
        0     0     32        38      kernel  k2    8     0.38
        0     0     70        10      host    wait  5     0.1
        0     0     80        2       host    -     -     0.02
        0     0     82        13      host    c     6     0.13
        0     0     95        5       host    -     -     0.05
        """,
    )


def test_a_wait_on_another_track_of_the_same_thread_is_one_of_that_thread() -> None:
    # Ascend: operators on one track, calls into its libraries on another, launches by a thread of their own.
    tracks = """
        track  kind    label         device  group        tid  sort
        0      thread  main          -       "python_9"   9    0
        1      thread  "main_CANN"   -       "python_9"   9    1
        2      thread  "queue_CANN"  -       "python_9"   10   2
        7      stream  "stream_7"    0       "NPU_0"      7    3
    """
    trace = tiny.trace(
        spans="""
            track  kind    name      start_ns  dur_ns  span  flow_in
            0      step    step      0         100     0     -
            0      op      a         0         10      1     -
            0      op      item      20        75      2     -
            1      sync    wait      25        65      3     -
            2      api     launch    12        2       4     -
            7      kernel  k1        30        50      5     4
        """,
        tracks=tracks,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.critical_path(),
        """
        start_ns  dur_ns  kind    name
        0         10      host    a
        10        2       host    -
        12        18      launch  k1
        30        50      kernel  k1
        80        10      host    wait
        90        5       host    item
        95        5       host    -
        """,
    )


def test_annotations_on_a_device_are_not_host_activity() -> None:
    # Ascend: iterations and GetNext are marked on the device, and the step ends a moment after its last kernel.
    trace = tiny.trace(
        spans="""
            track  kind    name     start_ns  dur_ns  span
            8      step    "It_1"   0         100     1
            9      data    GetNext  0         20      2
            7      kernel  k1       20        75      3
        """,
        tracks="""
            track  kind        label       device  group    tid      sort
            7      stream      "Stream_7"  0       "NPU_0"  7        0
            8      annotation  "Steps"     0       "NPU_0"  model    1
            9      annotation  GetNext     0       "NPU_0"  getnext  2
        """,
        steps="""
            step  start_ns  end_ns
            1     0         100
        """,
    )
    found = [f"{kind} {name or '-'} {dur}" for kind, name, dur in trace.critical_path().select("kind", "name", "dur_ns").iter_rows()]
    assert found == ["wait k1 20", "kernel k1 75", "wait - 5"]


def test_reading_a_value_of_the_device_waits_for_it_without_a_recorded_call() -> None:
    def path(*more: str, until: int = 95) -> list[str]:
        read = "aten::_local_scalar_dense"
        lines = [
            "track  kind    name      start_ns  dur_ns  span  flow_in",
            "0      op      a         0         10      1     -",
            f"0     op      {read}    20        {until - 20}  2     -",
            "0      api     launch    2         2       4     -",
            "7      kernel  k1        30        50      5     4",
            *more,
        ]
        trace = tiny.trace(spans="\n".join(lines), tracks=TRACKS, steps="step start_ns end_ns\n0 0 100")
        found = trace.critical_path().select("kind", "name", "dur_ns")
        return [f"{kind} {(name or '-').removeprefix('aten::_')} {dur}" for kind, name, dur in found.iter_rows()]

    assert path() == ["host a 2", "launch k1 28", "kernel k1 50", "host local_scalar_dense 15", "host - 5"]
    # Something still runs when it returns: the value was one of the host's.
    assert path("8 kernel k2 40 58 6 -") == ["host a 10", "host - 10", "host local_scalar_dense 75", "host - 5"]
    # A call that waits is recorded inside, and over before the work is: it is the call that tells.
    assert path("0 sync query 21 2 6 -") == [
        "host a 10",
        "host - 10",
        "host local_scalar_dense 1",
        "host query 2",
        "host local_scalar_dense 72",
        "host - 5",
    ]


def test_work_waits_for_another_stream_only_if_its_launch_call_had_returned() -> None:
    def path(launch_ns: int) -> list[str]:
        trace = tiny.trace(
            spans=f"""
                track  kind    name      start_ns     dur_ns  span  flow_in
                0      op      a         0            60      1     -
                0      api     launch    2            2       2     -
                0      api     launch    {launch_ns}  5       3     -
                7      kernel  k1        10           20      4     2
                8      kernel  k2        36           64      5     3
            """,
            tracks=TRACKS,
            steps="""
                step  start_ns  end_ns
                0     0         100
            """,
        )
        return [f"{kind} {name} {dur}" for kind, name, dur in trace.critical_path().select("kind", "name", "dur_ns").iter_rows()]

    # Called at 12, returned at 17: the first kernel, until 30, was what it waited for.
    assert path(12) == ["host a 2", "launch k1 8", "kernel k1 20", "launch k2 6", "kernel k2 64"]
    # Called at 28 and not back when the first one ended: the host was late.
    assert path(28) == ["host a 28", "launch k2 8", "kernel k2 64"]


def test_input_and_host_communication_are_on_the_path_where_no_operator_runs() -> None:
    trace = tiny.trace(
        spans="""
            track  kind           name    start_ns  dur_ns  span
            0      step           step    0         100     0
            0      data           loader  0         30      1
            0      op             decode  5         10      2
            0      op             a       30        20      3
            1      communication  reduce  40        30      4
            1      op             b       60        20      5
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.critical_path(),
        """
        start_ns  dur_ns  kind           name    span
        0         30      wait           loader  1
        30        20      host           a       3
        50        20      communication  reduce  4
        70        10      host           b       5
        80        20      host           -       -
        """,
    )


def test_without_launches_the_wait_of_the_device_has_an_unknown_cause() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  span
            7      kernel  k1    10        20      0
            7      copy    c     35        10      1
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         40
            1     40        60
        """,
    )
    tiny.assert_rows(
        trace.critical_path(),
        """
        step  start_ns  dur_ns  kind    name
        0     0         10      wait    k1
        0     10        20      kernel  k1
        0     30        5       wait    c
        0     35        5       copy    c
        1     40        5       copy    c
        1     45        15      wait    -
        """,
    )


def test_nothing_known_is_no_path() -> None:
    assert tiny.trace(steps="step  start_ns  end_ns\n0  0  40").critical_path().is_empty()


_TIME = st.integers(0, 60)
_SPANS = st.lists(st.tuples(st.sampled_from(["op", "api", "sync", "data", "communication", "kernel", "copy"]), _TIME, _TIME), max_size=25)


@given(_SPANS, st.lists(_TIME, min_size=2, max_size=4, unique=True), st.randoms())
def test_the_path_of_a_step_has_no_overlap_and_adds_up_to_it(
    spans: list[tuple[str, int, int]], edges: list[int], dice: random.Random
) -> None:
    calls = [at for at, (kind, _, _) in enumerate(spans) if kind == "api"]
    lines = ["track kind name start_ns dur_ns span flow_in"]
    for at, (kind, start, dur) in enumerate(spans):
        on_device = kind in ("kernel", "copy")
        launch = dice.choice([*calls, "-"]) if on_device else "-"
        track = dice.choice([7, 8]) if on_device else dice.choice([0, 1])
        lines.append(f"{track} {kind} n{at} {start} {dur} {at} {launch}")
    cuts = sorted(edges)
    steps = ["step start_ns end_ns", *(f"{at} {low} {high}" for at, (low, high) in enumerate(itertools.pairwise(cuts)))]
    trace = tiny.trace(tracks=TRACKS, steps="\n".join(steps), **({"spans": "\n".join(lines)} if spans else {}))
    found = trace.critical_path()
    known = any(kind in ("kernel", "copy") or (kind != "api" and dur > 0) for kind, _, dur in spans)
    recorded = trace.overlap().filter("complete")["step"].to_list()
    shown = [step for step in range(len(cuts) - 1) if known and (step in recorded or trace.overview()["device_data"][0] in ("host", None))]
    assert sorted(found["step"].unique()) == shown
    for step, (low, high) in enumerate(itertools.pairwise(cuts)):
        own = found.filter(pl.col("step") == step)
        if step not in shown:
            continue
        starts, ends = own["start_ns"].to_list(), (own["start_ns"] + own["dur_ns"]).to_list()
        assert (starts[0], ends[-1]) == (low, high)
        assert starts[1:] == ends[:-1]
        assert min(own["dur_ns"]) > 0
        assert abs(own["share_of_step"].sum() - 1) < 1e-9
