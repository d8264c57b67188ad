import pytest

import tiny
from stepscope.errors import UsageError

TRACKS = """
    track  kind    label       device
    0      thread  main        -
    7      stream  "stream_7"  0
    8      stream  "stream_8"  0
"""
SPANS = """
    track  kind           name   start_ns  dur_ns
    0      op             aten   0         200
    7      kernel         a      10        20
    8      kernel         b      20        20
    8      communication  all    30        30
    7      copy           h2d    55        10
    7      kernel         c      140       10
"""
STEPS = """
    step  start_ns  end_ns
    0     0         100
    1     100       200
"""


def test_each_bucket_has_the_share_of_it_in_which_something_ran() -> None:
    trace = tiny.trace(
        spans=SPANS,
        tracks=TRACKS,
        steps=STEPS,
        counters="""
            name                at_ns  value  unit
            "allocated_gpu_0"   5      7      bytes
            "reserved_gpu_0"    5      20     bytes
            "allocated_gpu_0"   60     9      bytes
            "allocated_gpu_0"   90     3      bytes
            "allocated_gpu_0"   160    1      bytes
            "allocated_cpu"     160    50     bytes
        """,
    )
    tiny.assert_rows(
        trace.activity(buckets=4),
        """
        rank  device  at_ns  bucket_ns  busy_share  computing_share  exposed_share  copy_share  allocated_bytes  reserved_bytes
        0     0       0      50         0.8         0.6              0.2            0.0         7                20
        0     0       50     50         0.3         0.0              0.2            0.1         9                20
        0     0       100    50         0.2         0.2              0.0            0.0         3                20
        0     0       150    50         0.0         0.0              0.0            0.0         3                20
        """,
    )


def test_one_step_has_all_work_in_its_time() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  step
            7      kernel  late  90        30      0
            7      kernel  own   150       30      1
        """,
        tracks=TRACKS,
        steps=STEPS,
    )
    tiny.assert_rows(
        trace.activity(step=1, buckets=3),
        """
        at_ns  bucket_ns  busy_share  allocated_bytes
        100    34         0.588235    -
        134    34         0.529412    -
        168    34         0.352941    -
        """,
    )


def test_buckets_add_up_to_the_union_of_the_work() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS)
    for buckets in (1, 3, 7, 500):
        rows = trace.activity(buckets=buckets)
        parts = rows["computing_share"] + rows["exposed_share"] + rows["copy_share"]
        assert (parts - rows["busy_share"]).abs().max() == pytest.approx(0)
        assert (rows["busy_share"] * rows["bucket_ns"]).sum() == pytest.approx(55 + 10)  # 10 to 65, and 140 to 150


def test_a_rank_without_a_device_is_judged_by_its_host_operators() -> None:
    trace = tiny.trace(
        spans="""
            track  kind  name  start_ns  dur_ns
            0      op    add   0         30
            1      op    mul   20        30
        """,
    )
    tiny.assert_rows(
        trace.activity(buckets=2),
        """
        device  at_ns  busy_share  computing_share
        -       0      1.0         1.0
        -       25     1.0         1.0
        """,
    )


def test_a_trace_without_work_has_no_rows() -> None:
    assert tiny.trace().activity().height == 0
    assert tiny.trace(steps=STEPS).activity().height == 0


def test_there_is_at_least_one_bucket() -> None:
    with pytest.raises(UsageError, match="buckets is 0"):
        tiny.trace().activity(buckets=0)
