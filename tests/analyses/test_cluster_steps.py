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


def test_without_steps_each_rank_has_the_mean_of_those_it_made() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind    name  step  start_ns  dur_ns
            0     kernel  mm    1     0         40
            0     kernel  mm    2     100       60
            5     kernel  mm    2     100       80
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     1     0         100
            0     2     100       210
            5     2     100       200
        """,
    )
    tiny.assert_rows(
        trace.cluster_steps(per_step=False),
        """
        rank  step  steps  start_ns  total_ns  interval_ns  computing_ns  free_ns  wait_ns  matched
        0     -     2      0         105       -            50            55       -        0
        5     -     1      100       100       -            80            20       -        0
        """,
    )


def test_the_mean_leaves_a_slow_first_step_out_as_step_times_does() -> None:
    steps = """
        rank  step  start_ns  end_ns
        0     1     0         900
        0     2     900       1000
        0     3     1000      1100
        1     1     0         90
        1     2     900       1000
        1     3     1000      1100
    """
    assert tiny.trace(steps=steps).cluster_steps(per_step=False)["steps"].to_list() == [2, 3]
    assert tiny.trace(steps=steps).cluster_steps(per_step=False, warmup=0)["steps"].to_list() == [3, 3]
    assert tiny.trace(steps=steps).cluster_steps()["step"].to_list() == [1, 1, 2, 2, 3, 3]


def test_the_wait_of_a_step_is_the_sum_of_the_waits_of_its_calls() -> None:
    """Of a collective, of a receive whose send starts later, and of what the recording itself says."""
    trace = tiny.trace(
        spans="""
            rank  kind           track  name           step  start_ns  dur_ns  bytes  args
            0     communication  2      ncclAllReduce  1     10        30      8      -
            1     communication  2      ncclAllReduce  1     20        20      8      -
            0     communication  2      nccl:recv      1     50        40      8      -
            1     communication  2      nccl:send      1     70        20      8      -
            0     communication  2      hcom_x         2     100       40      8      {"wait_ns":7,"transit_ns":30,"idle_ns":3}
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     1     0         100
            0     2     100       200
            1     1     0         100
        """,
    )
    tiny.assert_rows(
        trace.cluster_steps(),
        """
        rank  step  wait_ns  known_waits  matched  transit_ns  communication_idle_ns
        0     1     30       2            2        -           -
        1     1     0        2            2        -           -
        0     2     7        1            0        30          3
        """,
    )
    assert trace.communication()["wait_ns"].sum() == trace.cluster_steps()["wait_ns"].sum()
