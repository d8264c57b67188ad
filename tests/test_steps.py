"""A range of steps: what of a trace belongs to it, the same in Python and on the command line."""

from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.cli import main
from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.trace import Trace, analysis_names

SAMPLES = Path(__file__).parent / "samples"
TRACES = [
    SAMPLES / "chrome" / "torch-2.11" / "h200_modules.json.gz",
    SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz",
    SAMPLES / "xplane" / "jax-0.11.2-gpu" / "train.xplane.pb",
    SAMPLES / "capture" / "stepscope-0.1.0" / "torch.capture",
]


@pytest.fixture
def trace() -> Trace:
    """Two ranks, the second with two steps and a clock of its own: step 2 is 20 to 30 here and 1025 to 1035 there."""
    return tiny.trace(
        steps="""
        rank step start_ns end_ns how
        0    1    10       20     marker
        0    2    20       30     marker
        0    3    32       40     marker
        0    4    40       50     marker
        1    1    1015     1025   marker
        1    2    1025     1035   marker
        """,
        spans="""
        span rank track kind       name    start_ns dur_ns step
        0    0    0     op         first   11       4      1
        1    0    0     op         second  21       4      2
        2    0    1     kernel     late    31       4      2
        3    0    0     op         third   33       4      3
        4    0    0     annotation between 30       1      -
        5    0    0     annotation before  5        1      -
        6    0    0     annotation after   50       1      -
        0    1    0     op         second  1026     4      2
        1    1    0     annotation no_step 26       1      -
        """,
        counters="""
        rank name  at_ns value
        0    depth 19    1
        0    depth 20    2
        0    depth 31    3
        0    depth 40    4
        1    depth 25    5
        1    depth 1034  6
        1    depth 1035  7
        """,
        allocations="""
        rank bytes alloc_ns free_ns
        0    1     -        20
        0    2     -        21
        0    3     10       -
        0    4     39       60
        0    5     40       60
        1    6     1000     1025
        1    7     1000     1026
        """,
        links="""
        rank step bytes
        0    1    1
        0    2    2
        0    3    3
        0    4    4
        """,
        devices="""
        rank device name
        0    0      chip
        1    0      chip
        """,
    )


def test_a_range_keeps_what_its_steps_claim_and_what_falls_into_their_time_on_each_rank(trace: Trace) -> None:
    kept = trace.of_steps(2, 3)
    tiny.assert_rows(
        kept.steps.collect(),
        """
        rank step
        0    2
        0    3
        1    2
        """,
    )
    # The kernel of step 2 ran while step 3 was on: it is of step 2. What no step claims is kept between the two of rank 0.
    tiny.assert_rows(
        kept.spans.collect(),
        """
        rank name
        0    second
        0    late
        0    third
        0    between
        1    second
        """,
    )
    assert kept.counters.collect()["value"].to_list() == [2, 3, 6]
    assert kept.allocations.collect()["bytes"].to_list() == [2, 3, 4, 7]
    assert kept.table("links").collect()["bytes"].to_list() == [2, 3]
    assert kept.devices.collect().height == 2
    assert kept.meta.ranks == [0, 1]


def test_a_rank_that_made_none_of_the_steps_has_nothing_in_the_range(trace: Trace) -> None:
    kept = trace.of_steps(4, 9)
    assert kept.steps.collect().select("rank", "step").rows() == [(0, 4)]
    assert kept.counters.collect().select("rank", "value").rows() == [(0, 4)]
    assert kept.allocations.collect()["rank"].unique().to_list() == [0]


def test_steps_and_rank_restrict_any_analysis(trace: Trace) -> None:
    assert trace.analyse("step_trace", steps=(2, 3)).select("rank", "step").rows() == [(0, 2), (0, 3), (1, 2)]
    assert trace.analyse("step_trace", rank=1, steps=(2, 3)).select("rank", "step").rows() == [(1, 2)]
    assert trace.step_trace(steps=(4, 4)).select("rank", "step").rows() == [(0, 4)]


def test_steps_that_are_not_there_are_refused(trace: Trace) -> None:
    with pytest.raises(UsageError, match="no steps 7 to 9 in tiny; it has steps 1 to 4"):
        trace.of_steps(7, 9)
    with pytest.raises(UsageError, match="it has no steps"):
        tiny.trace(spans="rank track kind name start_ns dur_ns\n0 0 op a 0 1").of_steps(0, 1)


@pytest.mark.parametrize(("text", "steps"), [("2:5", (2, 5)), ("3", (3, 3)), ("0:0", (0, 0))])
def test_a_range_is_written_first_to_last(text: str, steps: tuple[int, int]) -> None:
    assert parameters.steps(text) == steps


@pytest.mark.parametrize("text", ["", ":", "2:", ":5", "5:2", "-1:2", "a", "1:2:3", "1.5", "٣", "9" * 12])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="FIRST:LAST"):
        parameters.steps(text)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_analysis_answers_for_one_step_and_for_all_as_for_the_whole(path: Path) -> None:
    trace = stepscope.open(path)
    steps = trace.steps.select("step").collect()["step"]
    last, everything = int(steps.max()), (int(steps.min()), int(steps.max()))  # type: ignore[arg-type]
    for name in analysis_names():
        assert trace.analyse(name, steps=(last, last)).columns == trace.analyse(name).columns, name
    inside = trace.spans.filter(pl.col("step").is_not_null()).select("span").collect()
    assert set(trace.of_steps(*everything).spans.collect()["span"]) >= set(inside["span"])


def test_the_command_line_takes_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "steps", str(TRACES[0]), "--steps", "2:3", "--format", "csv", "--columns", "step"]) == 0
    assert capsys.readouterr().out == "step\n2\n3\n"
    assert main(["query", str(TRACES[0]), "select count(*) as n from steps", "--steps", "3", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "n\n1\n"
    assert main(["summary", str(TRACES[0]), "--steps", "5:2"]) == 2
    assert "expected FIRST:LAST" in capsys.readouterr().err
