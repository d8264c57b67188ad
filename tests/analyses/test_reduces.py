import tiny


def test_the_part_of_a_transfer_that_runs_while_the_rank_computes_is_overlapped() -> None:
    trace = tiny.trace(
        spans="""
            rank  track  kind           name        start_ns  dur_ns  step  bytes  span
            0     7      kernel         mm          0         40      0     -      0
            0     7      kernel         mm          60        10      0     -      1
            0     9      communication  all_reduce  30        40      0     4096   2
            0     9      communication  all_reduce  150       20      0     -      3
            0     9      communication  broadcast   190       0       1     -      4
            0     9      communication  unmarked    300       10      -     -      5
            0     7      kernel         mm          195       5       1     -      6
            1     9      communication  all_reduce  30        40      0     -      0
        """,
        tracks="""
            rank  track  kind    label
            0     7      stream  "stream_7"
            0     9      stream  "stream_9"
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         100
            0     1     100       200
            1     0     0         100
        """,
    )
    tiny.assert_rows(
        trace.reduces(),
        """
        rank  step  name        stream      start_ns  end_ns  dur_ns  bytes  overlapped_ns  overlapped_share
        0     0     all_reduce  "stream_9"  30        70      40      4096   20             0.5
        0     0     all_reduce  "stream_9"  150       170     20      -      0              0.0
        0     1     broadcast   "stream_9"  190       190     0       -      0              -
        1     0     all_reduce  -           30        70      40      -      -              -
        """,
    )


def test_without_transfers_there_are_no_rows() -> None:
    assert tiny.trace().reduces().height == 0
