import tiny

STEPS = """
    step  start_ns  end_ns  fp_start_ns  bp_end_ns
    1     0         900     500          800
    2     900       1000    910          980
    3     1010      1130    1020         1100
    4     1130      1210    1150         1200
"""


def test_figures_leave_out_a_first_step_that_was_plainly_slower() -> None:
    tiny.assert_rows(
        tiny.trace(steps=STEPS).step_times(),
        """
        rank  stage                   steps  left_out  mean_ns     min_ns  p50_ns  p90_ns  p99_ns  max_ns  share
        0     step                    3      1         100.0       80      100     120     120     120     1.0
        0     interval                3      1         13.333333   10      10      20      20      20      0.133333
        0     "forward_and_backward"  3      1         66.666667   50      70      80      80      80      0.666667
        0     tail                    3      1         20.0        10      20      30      30      30      0.2
        0     gap                     3      1         3.333333    0       0       10      10      10      0.033333
        """,
    )


def test_warm_up_can_be_given() -> None:
    table = tiny.trace(steps=STEPS).step_times(warmup=0)
    tiny.assert_rows(
        table.head(1),
        """
        stage  steps  left_out  mean_ns  min_ns  p50_ns  max_ns
        step   4      0         300.0    80      110     900
        """,
    )
    assert tiny.trace(steps=STEPS).step_times(warmup=2)["steps"].to_list() == [2, 2, 2, 2, 2]


def test_a_first_step_is_kept_where_two_others_are_not_there_to_compare_it_with() -> None:
    steps = """
        step  start_ns  end_ns
        1     0         900
        2     900       1000
    """
    tiny.assert_rows(
        tiny.trace(steps=steps).step_times(),
        """
        stage  steps  left_out  max_ns
        step   2      0         900
        gap    1      1         0
        """,
    )


def test_a_first_step_is_kept_where_one_in_ten_of_the_others_was_slower() -> None:
    steps = """
        step  start_ns  end_ns
        1     0         400
        2     400       900
        3     900       1000
        4     1000      1100
    """
    assert tiny.trace(steps=steps).step_times()["steps"].to_list() == [4, 3]


def test_a_trace_without_steps_has_no_rows() -> None:
    assert tiny.trace().step_times().height == 0


def test_exposed_communication_is_that_of_overlap() -> None:
    spans = """
        kind           track  name           step  start_ns  dur_ns
        kernel         1      mm             2     900       60
        communication  2      ncclAllReduce  2     950       30
        communication  3      ncclAllReduce  2     955       15
        kernel         1      mm             3     1020      80
        communication  2      ncclAllReduce  4     1140      40
        kernel         1      mm             4     1185      15
    """
    table = tiny.trace(steps=STEPS, spans=spans).step_times()
    tiny.assert_rows(
        table.filter(stage="exposed communication"),
        """
        steps  left_out  mean_ns  min_ns  p50_ns  max_ns  share
        3      1         20.0     0       20      40      0.2
        """,
    )
