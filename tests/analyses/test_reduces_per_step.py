import tiny

SPANS = """
    kind           track  name   step  start_ns  dur_ns
    kernel         1      mm     1     0         50
    communication  2      sum    1     30        40
    communication  2      sum    1     80        10
    communication  3      bcast  1     0         10
    kernel         1      mm     2     100       50
    communication  2      sum    2     140       20
"""
TRACKS = """
    track  label
    1      "stream_7"
    2      "stream_20"
    3      "stream_21"
"""
STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
"""


def test_transfers_are_averaged_by_stream_name_and_place() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS).reduces_per_step(),
        """
        rank  stream       name   nth  steps  offset_ns  dur_ns  overlapped_ns  exposed_ns  overlapped_share
        0     "stream_21"  bcast  1    1      0.0        10.0    10.0           0.0         1.0
        0     "stream_20"  sum    1    2      35.0       30.0    15.0           15.0        0.5
        0     "stream_20"  sum    2    1      80.0       10.0    0.0            10.0        0.0
        """,
    )


def test_warm_up_is_left_out() -> None:
    table = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS).reduces_per_step(warmup=1)
    tiny.assert_rows(
        table,
        """
        stream       name  nth  steps  offset_ns  dur_ns
        "stream_20"  sum   1    1      40.0       20.0
        """,
    )
