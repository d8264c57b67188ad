from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kineto
import tiny


def test_all_time_of_a_step_belongs_to_one_stage() -> None:
    trace = tiny.trace(
        spans="""
            track  kind           name                                   start_ns  dur_ns  step
            0      step           ProfilerStep#0                         0         200     0
            0      data           enumerate(DataLoader)                  5         20      0
            0      op             aten::to                               30        10      0
            0      annotation     Optimizer.zero_grad#SGD.zero_grad      45        5       0
            0      op             aten::conv2d                           60        10      0
            0      op             aten::relu                             80        10      0
            1      op             autograd::engine::evaluate_function:_A 100       10      0
            1      op             ABackward0                             102       5       0
            1      op             autograd::engine::evaluate_function:_B 115       10      0
            2      communication  gloo:all_reduce                        110       40      0
            0      annotation     Optimizer.step#SGD.step                160       30      0
            0      op             aten::add_                             165       5       0
        """,
        steps="""
            step  start_ns  end_ns
            0     0         200
        """,
    )
    tiny.assert_rows(
        trace.step_stages(),
        """
        rank  step  stage            start_ns  dur_ns  share
        0     0     "data_wait"      5         20      0.1
        0     0     "input_copy"     30        10      0.05
        0     0     forward          60        40      0.2
        0     0     backward         100       25      0.125
        0     0     communication    125       25      0.125
        0     0     optimizer        45        35      0.175
        0     0     other            0         45      0.225
        """,
    )


def test_a_step_of_several_backward_calls_has_a_forward_before_each() -> None:
    trace = tiny.trace(
        spans="""
            kind  name                                   start_ns  dur_ns  step
            data  enumerate(DataLoader)                  0         10      0
            op    aten::mm                               10        10      0
            op    autograd::engine::evaluate_function:_A 25        10      0
            data  enumerate(DataLoader)                  35        5       0
            op    aten::mm                               50        10      0
            op    autograd::engine::evaluate_function:_A 60        5       0
            op    autograd::engine::evaluate_function:_B 70        10      0
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
    )
    tiny.assert_rows(
        trace.step_stages(),
        """
        stage        start_ns  dur_ns
        "data_wait"  0         15
        forward      10        25
        backward     25        30
        other        40        30
        """,
    )


def test_a_step_without_backward_is_forward_up_to_its_last_operator() -> None:
    trace = tiny.trace(
        spans="""
            kind  name      start_ns  dur_ns  step
            op    aten::mm  10        10      0
            op    aten::mm  40        10      0
            op    aten::mm  120       30      1
            op    autograd::engine::evaluate_function:_A 160       10      1
        """,
        steps="""
            step  start_ns  end_ns
            0     0         100
            1     100       200
        """,
    )
    tiny.assert_rows(
        trace.step_stages(),
        """
        step  stage     start_ns  dur_ns
        0     forward   10        40
        0     other     0         60
        1     forward   120       40
        1     backward  160       10
        1     other     100       50
        """,
    )


def test_recorded_forward_and_backward_are_one_stage() -> None:
    trace = tiny.trace(
        spans="""
            kind           name      start_ns  dur_ns  step
            op             dot       10        80      0
            communication  all       50        40      0
        """,
        steps="""
            step  start_ns  end_ns  fp_start_ns  bp_end_ns
            0     0         100     20           70
        """,
    )
    tiny.assert_rows(
        trace.step_stages(),
        """
        stage                   start_ns  dur_ns
        "forward_and_backward"  20        50
        communication           70        20
        other                   0         30
        """,
    )


def test_without_roles_the_whole_step_is_other() -> None:
    trace = tiny.trace(
        steps="""
            rank  step  start_ns  end_ns
            1     0     0         100
        """
    )
    tiny.assert_rows(
        trace.step_stages(),
        """
        rank  step  stage  start_ns  dur_ns  share
        1     0     other  0         100     1.0
        """,
    )
    assert tiny.trace().step_stages().height == 0


_SPANS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "data load",
                "op aten::mm",
                "op aten::to",
                "op ABackward0",
                "annotation forward",
                "annotation Optimizer.step",
                "communication c",
            ]
        ),
        st.integers(0, 1),
        st.integers(0, 60),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=50)
@given(_SPANS)
def test_whatever_overlaps_the_stages_add_up(spans: list[tuple[str, int, int, int]]) -> None:
    lines = [f"{track} {what} {start} {dur} {0 if start < 40 else 1}" for what, track, start, dur in spans]
    trace = tiny.trace(
        spans="track kind name start_ns dur_ns step\n" + "\n".join(lines),
        steps="""
            step  start_ns  end_ns
            0     0         40
            1     40        70
        """,
    )
    found = trace.step_stages()
    assert dict(found.group_by("step").agg(pl.col("dur_ns").sum()).iter_rows()) == {0: 40, 1: 30}
    stages = trace.step_trace()
    known = stages.filter(pl.col("fp_bp_ns").is_not_null())
    assert known.select((pl.col("interval_ns") + pl.col("fp_bp_ns") + pl.col("tail_ns")).eq(pl.col("total_ns")).all()).item()
    assert known.select((pl.min_horizontal("interval_ns", "fp_bp_ns", "tail_ns") >= 0).all()).item()


@pytest.mark.parametrize("file", kineto.FILES)
def test_the_stages_of_real_steps_add_up_and_those_with_ranges_equal_them(shared: Path, file: str) -> None:
    found = kineto.opened(shared / file).step_stages()
    marked = [e for e in kineto.events(shared / file) if e.category == "user_annotation"]
    steps = kineto.steps(shared / file)
    assert set(found["step"]) == set(steps)
    for (number,), rows in found.group_by("step"):
        step = steps[int(str(number))]
        took = dict(rows.select("stage", "dur_ns").iter_rows())
        assert sum(took.values()) == step.end - step.start
        assert rows.select((pl.col("start_ns") >= step.start) & (pl.col("start_ns") < step.end)).to_series().all()
        loading = [e for e in marked if e.name.startswith("enumerate(DataLoader)")]
        updating = [e for e in marked if e.name.startswith("Optimizer.") or e.name == "## optimizer ##"]
        assert took.get("data wait", 0) == kineto.covered(loading, step.start, step.end)
        assert took["optimizer"] == kineto.covered(updating, step.start, step.end)
        assert took["forward"] > 0
        assert took["backward"] > 0
