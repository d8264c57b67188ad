from pathlib import Path

import polars as pl
import pytest

import kineto
import tiny
from stepscope.errors import UsageError
from stepscope.model.trace import Trace

# Thread 0 runs the steps, thread 1 is the autograd engine's, track 7 a device stream that is behind by a third of a step.
TRAINING_SPANS = """
    track  kind        name                                            start_ns  dur_ns  step  span  flow_in
    0      step        ProfilerStep#0                                  0         100     0     0     -
    0      op          aten::log                                       2         1       0     1     -
    0      data        enumerate(DataLoader)                           5         10      0     2     -
    0      op          aten::stack                                     6         4       0     3     -
    0      op          aten::to                                        16        3       0     4     -
    0      annotation  Optimizer.zero_grad#SGD.zero_grad               20        5       0     5     -
    0      op          aten::zero_                                     21        2       0     6     -
    0      op          aten::conv2d                                    30        10      0     7     -
    0      api         cudaLaunchKernel                                32        3       0     8     -
    1      op          autograd::engine::evaluate_function:_A          50        10      0     9     -
    1      api         cudaLaunchKernel                                52        3       0     10    -
    1      op          autograd::engine::evaluate_function:_B          65        12      0     11    -
    1      api         ncclLaunch                                      70        2       0     12    -
    0      annotation  Optimizer.step#SGD.step                         80        15      0     13    -
    0      api         cudaLaunchKernel                                85        3       0     14    -
    0      step        ProfilerStep#1                                  104       100     1     15    -
    0      op          aten::conv2d                                    120       10      1     16    -
    0      api         cudaLaunchKernel                                121       3       1     17    -
    1      op          autograd::engine::evaluate_function:_A          150       30      1     18    -
    1      api         cudaLaunchKernel                                160       3       1     19    -
    7      kernel      conv                                            40        20      0     20    8
    7      kernel      grad                                            60        30      0     21    10
    8      communication  all_reduce                                   75        30      0     22    12
    7      kernel      update                                          105       10      0     23    14
    7      kernel      conv                                            125       30      1     24    17
    7      kernel      grad                                            170       25      1     25    19
"""
TRACKS = """
    track  kind    label
    0      thread  main
    1      thread  autograd
    7      stream  "stream_7"
    8      stream  "stream_8"
"""
STEPS = """
    step  start_ns  end_ns  how
    0     0         100     marker
    1     104       204     marker
"""


def training() -> Trace:
    return tiny.trace(spans=TRAINING_SPANS, tracks=TRACKS, steps=STEPS)


def test_forward_starts_with_the_first_operator_after_the_data_and_backward_ends_with_autograd() -> None:
    tiny.assert_rows(
        training().step_trace(),
        """
        rank  step  start_ns  end_ns  total_ns  interval_ns  fp_bp_ns  tail_ns  gap_ns  fp_start_ns  bp_end_ns  fp_start_op   how     clock
        0     0     0         100     100       30           47        23       -       30           77         aten::conv2d  marker  host
        0     1     104       204     100       16           60        24       4       120          180        aten::conv2d  marker  host
        """,
    )
    assert training().step_trace()["found"].to_list() == ["first op, autograd"] * 2


def test_on_the_device_clock_a_step_starts_at_the_end_of_the_previous_one_and_communication_is_tail() -> None:
    tiny.assert_rows(
        training().step_trace(clock="device"),
        """
        rank  step  start_ns  end_ns  total_ns  interval_ns  fp_bp_ns  tail_ns  gap_ns  fp_start_ns  bp_end_ns  clock
        0     0     40        115     75        0            50        25       -       40           90         device
        0     1     115       195     80        10           70        0        0       125          195        device
        """,
    )


def test_a_step_without_device_work_has_no_device_times() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  step
            7      kernel  a     10        20      0
            7      kernel  b     210       20      2
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100
            1     100       200
            2     200       300
        """,
    )
    tiny.assert_rows(
        trace.step_trace(clock="device"),
        """
        step  start_ns  end_ns  total_ns
        0     10        30      20
        1     -         -       -
        2     30        230     200
        """,
    )


def test_a_named_range_or_module_starts_the_forward_pass() -> None:
    def forward_start(kind: str, name: str) -> list[object]:
        trace = tiny.trace(
            spans=f"""
                kind        name                        start_ns  dur_ns  step
                op          aten::sort                  5         5       0
                {kind}      {name}                      20        30      0
                op          aten::mm                    25        5       0
                op          aten::mm                    60        5       0
            """,
            steps="""
                step  start_ns  end_ns
                0     0         100
            """,
        )
        return [trace.step_trace()[column].item() for column in ("fp_start_ns", "fp_start_op", "found", "bp_end_ns", "fp_bp_ns", "tail_ns")]

    assert forward_start("annotation", '"##_forward_##"') == [20, "## forward ##", "range, last op", None, 45, 35]
    assert forward_start("annotation", "DistributedDataParallel.forward") == [
        20,
        "DistributedDataParallel.forward",
        "range, last op",
        None,
        45,
        35,
    ]
    assert forward_start("scope", '"nn.Module:_Net"') == [20, "nn.Module: Net", "module, last op", None, 45, 35]
    assert forward_start("annotation", "forwarding") == [5, "aten::sort", "first op, last op", None, 60, 35]


def test_data_fetched_after_the_backward_pass_does_not_move_the_forward_start() -> None:
    trace = tiny.trace(
        spans="""
            kind  name                                    start_ns  dur_ns  step
            op    aten::mm                                10        5       0
            op    autograd::engine::evaluate_function:_A  20        5       0
            data  enumerate(DataLoader)                   30        5       0
            op    aten::mm                                40        5       0
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.step_trace(),
        """
        interval_ns  fp_bp_ns  tail_ns
        10           15        75
        """,
    )


def test_recorded_points_are_not_inferred_and_points_of_the_user_win() -> None:
    trace = tiny.trace(
        spans="""
            kind    name  start_ns  dur_ns  step
            op      a     10        5       0
            kernel  b     90        30      0
        """,
        steps="""
            step  start_ns  end_ns  fp_start_ns  bp_end_ns
            0     0         100     20           70
        """,
    )
    tiny.assert_rows(
        trace.step_trace(),
        """
        interval_ns  fp_bp_ns  tail_ns  fp_start_op
        20           50        30       -
        """,
    )
    tiny.assert_rows(
        trace.step_trace(bp_end="b"),
        """
        interval_ns  fp_bp_ns  tail_ns  fp_start_ns  bp_end_ns  bp_end_op
        20           80        0        20           100        b
        """,
    )
    assert trace.step_trace(bp_end="b")["found"].item() == "source, given kernel"
    assert trace.step_trace(clock="device").equals(trace.step_trace())
    assert trace.step_trace()["clock"].item() == "source"


def test_a_kernel_chosen_by_name_has_its_own_time_on_both_clocks() -> None:
    for clock in ("host", "device"):
        found = training().step_trace(bp_end="grad", clock=clock)
        assert found["bp_end_ns"].to_list() == [90, 195]
        assert found["found"].to_list() == ["first op, given kernel"] * 2


def test_names_may_be_whole_patterns_or_parts_of_one_name() -> None:
    trace = training()
    assert trace.step_trace(fp_start="aten::to")["fp_start_ns"].to_list() == [16, None]
    assert trace.step_trace(fp_start="*:to")["fp_start_ns"].to_list() == [16, None]
    assert trace.step_trace(bp_end="zero_grad")["bp_end_ns"].to_list() == [30, None]  # the range ends at 25: forward comes first
    assert trace.step_trace(bp_end="*evaluate_function*")["bp_end_ns"].to_list() == [77, 180]


def test_stages_are_unknown_together_where_a_given_name_is_absent() -> None:
    tiny.assert_rows(
        training().step_trace(fp_start="aten::to"),
        """
        step  interval_ns  fp_bp_ns  tail_ns
        0     16           61        23
        1     -            -         -
        """,
    )
    assert training().step_trace(fp_start="aten::to")["found"].to_list() == ["given, autograd", "none, autograd"]


def test_a_name_that_is_nowhere_is_refused_with_near_ones() -> None:
    with pytest.raises(UsageError, match="--fp-start: nothing in the trace is named 'aten::conv3d'; near it: aten::conv2d"):
        training().step_trace(fp_start="aten::conv3d")
    with pytest.raises(UsageError, match="--bp-end 'aten::' is part of 5 names"):
        training().step_trace(bp_end="aten::")
    with pytest.raises(UsageError, match="expected host or device"):
        training().step_trace(clock="wall")


def test_a_step_in_which_nothing_ran_keeps_its_length_and_has_no_stages() -> None:
    trace = tiny.trace(
        steps="""
            step  start_ns  end_ns  how
            0     0         100     whole
        """
    )
    tiny.assert_rows(
        trace.step_trace(),
        """
        step  total_ns  interval_ns  fp_bp_ns  tail_ns  how
        0     100       -            -         -        whole
        """,
    )
    assert trace.step_trace()["found"].item() == "none, none"


def test_a_trace_without_steps_has_no_rows() -> None:
    assert tiny.trace().step_trace().height == 0
    assert tiny.trace().step_trace(clock="device").height == 0


def test_ranks_are_kept_apart() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind  name                                    start_ns  dur_ns  step  span
            0     op    a                                       10        5       0     0
            0     op    autograd::engine::evaluate_function:_A  20        5       0     1
            1     op    a                                       40        5       0     0
            1     op    autograd::engine::evaluate_function:_A  50        5       0     1
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         100
            1     0     0         100
        """,
    )
    tiny.assert_rows(
        trace.step_trace(),
        """
        rank  interval_ns  fp_bp_ns  tail_ns
        0     10           15        75
        1     40           15        45
        """,
    )


@pytest.mark.parametrize("file", kineto.FILES)
@pytest.mark.parametrize("clock", ["host", "device"])
def test_the_stages_of_real_steps_add_up_on_either_clock(shared: Path, file: str, clock: str) -> None:
    found = kineto.opened(shared / file).step_trace(clock=clock)
    assert found.height == len(kineto.steps(shared / file))
    assert found["clock"].unique().to_list() == [clock]
    assert found.select((pl.col("interval_ns") + pl.col("fp_bp_ns") + pl.col("tail_ns") == pl.col("total_ns")).all()).item()
    assert found.select(pl.min_horizontal("interval_ns", "fp_bp_ns", "tail_ns") >= 0).to_series().all()


@pytest.mark.parametrize("file", kineto.FILES)
def test_backward_of_real_steps_ends_with_the_last_function_of_the_autograd_engine(shared: Path, file: str) -> None:
    found = kineto.opened(shared / file).step_trace()
    engine = [e for e in kineto.events(shared / file) if e.name.startswith("autograd::engine::evaluate_function")]
    for row in found.iter_rows(named=True):
        step = kineto.steps(shared / file)[row["step"]]
        assert (row["start_ns"], row["end_ns"]) == (step.start, step.end)
        assert row["bp_end_ns"] == max(e.end for e in engine if step.start <= e.start < step.end)


def test_forward_of_real_steps_starts_where_the_script_calls_the_model(shared: Path) -> None:
    resnet, ddp = (kineto.opened(shared / "torch_h200" / f"{name}.json.gz").step_trace() for name in ("resnet50_basic", "ddp_gloo_rank0"))
    assert set(resnet["fp_start_op"]) == {"aten::conv2d"}
    assert set(resnet["found"]) == {"first op, autograd"}
    assert set(ddp["fp_start_op"]) == {"DistributedDataParallel.forward"}
    assert set(ddp["found"]) == {"range, autograd"}
