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


def test_a_queue_holds_work_from_its_launch_to_its_end() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    tiny.assert_rows(
        trace.queue_lengths(),
        """
        stream      track  at_ns  length
        "stream_7"  7      0      1
        "stream_7"  7      20     2
        "stream_7"  7      30     1
        "stream_7"  7      50     2
        "stream_7"  7      70     1
        "stream_7"  7      80     0
        "stream_8"  8      70     1
        "stream_8"  8      110    0
        """,
    )


def test_work_that_begins_and_ends_at_one_timestamp_changes_nothing() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name    start_ns  dur_ns  span  flow_in
            0      api     launch  0         10      0     -
            0      api     launch  20        10      1     -
            7      kernel  a       5         15      2     0
            7      kernel  a       25        15      3     1
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(
        trace.queue_lengths(),
        """
        at_ns  length
        0      1
        40     0
        """,
    )


def test_without_device_work_there_is_no_queue() -> None:
    assert tiny.trace().queue_lengths().height == 0
