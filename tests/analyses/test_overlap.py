import tiny


def test_communication_is_exposed_where_nothing_computes() -> None:
    trace = tiny.trace(
        spans="""
            kind           track  name  start_ns  dur_ns
            kernel         1      mm    0         40
            kernel         2      mm    20        30
            communication  3      all   40        40
            copy           4      h2d   75        15
            kernel         1      mm    110       10
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
            1     100       150
        """,
    )
    tiny.assert_rows(
        trace.overlap(),
        """
        rank  step  total_ns  computing_ns  communication_ns  overlapped_ns  exposed_ns  copy_ns  free_ns
        0     0     100       50            40                10             30          10       10
        0     1     50        10            0                 0              0           0        40
        """,
    )


def test_a_trace_without_steps_has_no_rows() -> None:
    assert tiny.trace().overlap().height == 0
