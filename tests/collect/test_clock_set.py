"""The wall clock of a job is set while it is recorded, for real: a library in front of the system's own sets it."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import needs, only, recordings, run_command, tensorflow_python
from stepscope.model.trace import Trace

HERE = Path(__file__).parent
# What one product is; JAX calls it differently in each release.
OPERATORS = {"torch": "^aten::mm$", "jax": "", "mindspore": "^MatMul$", "tensorflow": "MatMul$"}
SETTINGS = [-7200.0, 3600.0, -0.05]
EXACT_NS = 2_000_000  # the steps are ten times as long

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux preloads libraries this way"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc), which builds the clock that can be set"),
]


@functools.cache
def preloaded() -> Path:
    library = Path(tempfile.mkdtemp(prefix="stepscope-test-")) / "wall_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "wall_clock.c", "-ldl"], check=True)
    return library


@functools.cache
def all_recorded(framework: str) -> Path:
    """The job records one window after the other, and sets its clock in each."""
    if framework == "tensorflow":
        python = tensorflow_python()
    else:
        needs(framework)
        python = sys.executable
    folder = Path(tempfile.mkdtemp(prefix="stepscope-test-"))
    ahead = folder / "ahead"
    ahead.write_bytes(bytes(8))
    more = {"LD_PRELOAD": str(preloaded()), "WALL_CLOCK_AHEAD_NS": str(ahead), "JAX_PLATFORMS": "cpu"}
    done = run_command(folder, python, str(HERE / "clock_job.py"), framework, str(folder / "data"), *map(str, SETTINGS), **more)
    assert done.returncode == 0, done.stderr
    return folder / "data"


@functools.cache
def recorded(framework: str, seconds: float) -> Trace:
    return stepscope.open(only(recordings(all_recorded(framework) / str(seconds))), cache=False)


def spans(trace: Trace, pattern: str, kind: str = "annotation") -> pl.DataFrame:
    start, dur = pl.col("start_ns"), pl.col("dur_ns")
    found = trace.spans.filter(pl.col("kind") == kind).select(pl.col("name").cast(pl.String), start, end_ns=start + dur)
    return found.filter(pl.col("name").str.contains(pattern)).sort("start_ns").collect()


def per_step(trace: Trace, framework: str) -> list[int]:
    """Calls of the operator in each step. Each lies within the range that was around it."""
    operators = spans(trace, OPERATORS[framework], "op")
    ranges = spans(trace, "^around")
    counts = [0] * 6
    for start, end in operators.select("start_ns", "end_ns").iter_rows():
        around = ranges.filter(pl.col("start_ns") <= (start + end) // 2, pl.col("end_ns") >= (start + end) // 2)
        assert around["start_ns"].item() - EXACT_NS <= start
        assert end <= around["end_ns"].item() + EXACT_NS
        counts[int(around["name"].item().split()[1])] += 1
    return counts


def problems(trace: Trace) -> list[str]:
    return trace.problems.collect()["what"].to_list()


@pytest.mark.parametrize("seconds", SETTINGS)
@pytest.mark.parametrize("framework", OPERATORS)
def test_steps_follow_one_another_when_the_wall_clock_is_set(framework: str, seconds: float) -> None:
    trace = recorded(framework, seconds)
    steps = trace.steps.collect().sort("step")
    assert steps["step"].to_list() == [0, 1, 2, 3, 4, 5]
    ranges = spans(trace, "^around")
    for step, around in zip(steps.iter_rows(named=True), ranges.iter_rows(named=True), strict=True):
        assert step["start_ns"] - EXACT_NS <= around["start_ns"]
        assert around["end_ns"] <= step["end_ns"] + EXACT_NS
    way = "back" if seconds < 0 else "forward"
    assert f"set {way} by {abs(seconds):,.3f} s while recording: timestamps follow the monotonic clock" in "\n".join(problems(trace))


@pytest.mark.parametrize("framework", OPERATORS)
def test_operators_stay_in_their_steps_when_the_wall_clock_is_set_forward(framework: str) -> None:
    assert per_step(recorded(framework, 3600.0), framework) == [2] * 6


def test_operators_of_mindspore_stay_in_their_steps_when_the_wall_clock_is_set_back() -> None:
    assert per_step(recorded("mindspore", -7200.0), "mindspore") == [2] * 6


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_operators_that_the_profiler_drops_behind_a_clock_that_is_set_back_are_a_problem(framework: str) -> None:
    trace = recorded(framework, -7200.0)
    assert per_step(trace, framework) == [2, 2, 2, 1, 2, 2]
    assert "the profiler dropped later events: the machine's clock was set back to before its start" in problems(trace)


def test_pytorch_loses_the_durations_of_a_session_in_which_the_clock_is_set_back_past_its_start_and_problems_says_so() -> None:
    trace = recorded("torch", -7200.0)
    assert per_step(trace, "torch") == [0, 0, 0, 0, 2, 2]
    lost = trace.problems.filter(pl.col("what").str.contains("events of PyTorch are lost")).collect()["lost"].item()
    assert lost >= 4 * 2  # at least the products


def test_pytorchs_durations_are_what_they_were_when_the_clock_is_set_back_by_less_than_its_session() -> None:
    trace = recorded("torch", -0.05)
    assert per_step(trace, "torch") == [2] * 6


@pytest.mark.parametrize("framework", ["jax", "mindspore", "tensorflow"])
def test_operators_whose_time_is_not_certain_are_left_out_and_counted(framework: str) -> None:
    trace = recorded(framework, -0.05)
    counts = per_step(trace, framework)
    assert counts[4:] == [2, 2]  # of sessions that began after the clock was set
    lost = trace.problems.filter(pl.col("what").str.contains("their timestamps fit two times")).collect()["lost"].sum()
    assert lost >= 12 - sum(counts)
