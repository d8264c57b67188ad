import tiny


def test_each_rank_and_step_has_its_work_and_its_wait() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           track  name                 step  start_ns  dur_ns
            0     kernel         1      mm                   1     0         40
            0     communication  2      ncclAllReduce        1     40        50
            1     kernel         1      mm                   1     0         70
            1     communication  2      ncclAllReduce        1     70        20
            0     copy           1      h2d                  2     100       10
            1     kernel         1      mm                   2     100       90
        """,
        steps="""
            rank  step  start_ns  end_ns  fp_start_ns  bp_end_ns
            0     1     0         100     0            40
            0     2     100       200     -            -
            1     1     0         100     10           70
            1     2     100       200     -            -
        """,
    )
    tiny.assert_rows(
        trace.cluster_steps(),
        """
        rank  step  total_ns  interval_ns  fp_bp_ns  tail_ns  computing_ns  communication_ns  exposed_ns  copy_ns  free_ns  wait_ns  matched
        0     1     100       0            40        60       40            50                50          0        10       30       1
        1     1     100       10           60        30       70            20                20          0        10       0        1
        0     2     100       -            -         -        0             0                 0           10       90       -        0
        1     2     100       -            -         -        90            0                 0           0        10       -        0
        """,
    )


def test_ranks_and_steps_that_are_missing_have_no_rows() -> None:
    steps = """
        rank  step  start_ns  end_ns
        0     1     0         100
        0     2     100       200
        5     2     100       210
    """
    tiny.assert_rows(
        tiny.trace(steps=steps).cluster_steps(),
        """
        rank  step  total_ns  computing_ns  wait_ns
        0     1     100       -             -
        0     2     100       -             -
        5     2     110       -             -
        """,
    )
