"""Steps of loops that MindSpore compiles with jit: an operator's kth run belongs to the kth call of its graph, whenever it ran."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import preloaded
import stepscope
from programs import needs, run
from stepscope.model import captures
from stepscope.model.trace import Trace

SCRIPT = Path(__file__).parent / "mindspore_jit.py"

# Kernels of one call, by hand. Forward: MatMul and BiasAdd of two layers, ReLU, the loss. Backward: BiasAddGrad and MatMul for the
# weights of two layers, MatMul for the input of the second, ReluGrad, the loss. Update: the counter of steps, and four parameters.
FORWARD, BACKWARD, UPDATE = 6, 7, 5
TRAIN = FORWARD + BACKWARD + UPDATE


def record(folder: Path, mode: str, loop: str, start: int | None = 0, **options: Any) -> Trace:
    """Iterations `start` to 19, by a Profiler whose step() nobody calls; or, without a start, steps 3 to 14 by `stepscope run`."""
    needs("mindspore")
    job, variables = [str(SCRIPT), mode, loop], {"OPTIONS": json.dumps(options)}
    if start is None:
        done = run(folder, "--steps", "3:14", "--out", "out", *job, GLOG_v="3", **variables)
    else:
        done = preloaded.run("mindspore", folder, *job, str(start), variables=variables, GLOG_v="3")
    assert done.returncode == 0, done.stderr[-3000:]
    return stepscope.open(folder / "out", cache=False)


def operators_of_steps(trace: Trace) -> dict[int | None, int]:
    return dict(trace.spans.filter(pl.col("op_type").is_not_null()).group_by("step").len().sort("step").collect().rows())


def problems_of(trace: Trace) -> str:
    return "\n".join(trace.problems.collect()["what"])


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_each_call_of_a_compiled_training_function_is_a_step_with_all_its_operators(mode: str, tmp_path: Path) -> None:
    trace = record(tmp_path, mode, "step")
    assert operators_of_steps(trace) == dict.fromkeys(range(20), TRAIN)
    assert trace.spans.filter(pl.col("name").cast(pl.String) == "compile train_step").select("step").collect()["step"].to_list() == [0]
    assert problems_of(trace) == "no step markers: each step ends with a call of jit train_step, which uses an optimizer"
    # MindSpore's own summary: so many operators, each as often as the function was called.
    own = pl.read_csv(next(tmp_path.glob("out/*/mindspore/000000/cpu_op_detail_info_*.csv")))
    assert own["op_occurrences"].to_list() == [20] * TRAIN
    # At the end of a step its kernels are waited for: none runs outside its step.
    inside = trace.spans.filter(pl.col("op_type").is_not_null()).join(trace.steps.select("step", "end_ns", begin_ns="start_ns"), on="step")
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
    assert inside.filter((start < pl.col("begin_ns")) | (end > pl.col("end_ns"))).collect().is_empty()


@pytest.mark.parametrize("sync_enable", [True, False])
def test_a_start_in_mid_run_counts_no_operator_of_the_step_before(sync_enable: bool, tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "step", start=6, sync_enable=sync_enable)
    assert operators_of_steps(trace) == dict.fromkeys(range(14), TRAIN)


@pytest.mark.parametrize("loop", ["two", "eager_update", "recompile"])
def test_functions_that_are_called_in_each_iteration_belong_to_its_step(loop: str, tmp_path: Path) -> None:
    assert operators_of_steps(record(tmp_path, "pynative", loop)) == dict.fromkeys(range(20), TRAIN)


def test_training_functions_that_take_turns_make_one_step(tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "turns")
    assert operators_of_steps(trace) == dict.fromkeys(range(20), 2 * TRAIN)
    assert "take turns: each step ends with the last of them" in problems_of(trace)


@pytest.mark.parametrize("sync_enable", [True, False])
def test_an_evaluation_every_fifth_iteration_is_between_steps(sync_enable: bool, tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "evaluate", sync_enable=sync_enable)
    assert operators_of_steps(trace) == {None: 4 * FORWARD} | dict.fromkeys(range(20), TRAIN)
    assert "3 calls of jit evaluate are between steps" in problems_of(trace)  # the fourth is after the last
    calls = trace.spans.filter(pl.col("kind") == "api").group_by(pl.col("name").cast(pl.String)).agg(pl.col("step").count(), pl.len())
    assert sorted(calls.collect().rows()) == [("jit evaluate", 0, 4), ("jit train_step", 20, 20)]


def test_under_run_an_evaluation_is_between_steps_too(tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "evaluate", start=None)
    assert operators_of_steps(trace) == {None: 2 * FORWARD} | dict.fromkeys(range(3, 15), TRAIN)


def test_an_operator_of_a_branch_counts_in_the_steps_that_took_it(tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "branch")
    # A comparison in each; from iteration 10 on, Exp.
    assert operators_of_steps(trace) == dict.fromkeys(range(10), TRAIN + 1) | dict.fromkeys(range(10, 20), TRAIN + 2)
    assert "may belong" not in problems_of(trace)


def test_operators_called_one_by_one_count_in_the_step_whose_training_call_follows(tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "mixed")
    ones = trace.spans.filter(pl.col("op_type").cast(pl.String).is_in(["Tanh", "Exp"])).cast({"op_type": pl.String}).collect()
    steps = dict(ones.group_by("op_type").agg(pl.col("step").sort(nulls_last=True)).rows())
    assert steps == {"Tanh": list(range(20)), "Exp": [*range(1, 20), None]}  # Exp is called after the training function


def test_a_compiled_function_without_an_optimizer_has_steps_too(tmp_path: Path) -> None:
    trace = record(tmp_path, "pynative", "infer")
    assert operators_of_steps(trace) == dict.fromkeys(range(20), FORWARD)
    assert "each step ends with a call of jit evaluate" in problems_of(trace)


# What depends on how fast kernels run: written by hand, times in nanoseconds.


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., Trace]:
    def write(runs: dict[str, list[int]], calls: list[tuple[str, bool, int, int]] | None = None, trains: str = "") -> Trace:
        """`runs` of 5 ns each; `calls`: function, whether kernels were waited for at its end, start, end."""
        made = captures.Capture(tmp_path / "made.capture", {"base": "mindspore", "rank": 0, "pid": 1, "mode": "graph"})
        made.header["start_ns"] = 0
        piece = made.folder / "mindspore" / "000000"
        piece.mkdir(parents=True)
        lines = [f"{name};HostCpuOps;{' '.join(f'{at},0.000005,0' for at in starts)} \n" for name, starts in runs.items()]
        (piece / "cpu_op_execute_timestamp_0.txt").write_text("".join(lines))
        if calls:
            names, drained, starts, ends = zip(*calls, strict=True)
            numbers = np.array([sorted(set(names)).index(name) for name in names])
            times = {"start_ns": np.array(starts), "end_ns": np.array(ends)}
            columns = {"function": names, "caller": numbers, "graph": numbers, "drained": np.array(drained), "tid": numbers}
            made.append("mindspore_graph_calls", columns | times)
            training = [number for number, name in enumerate(names) if name == trains]
            made.append("mindspore_updates", {key: values[training] for key, values in (times | {"caller": numbers}).items()})
        made.finish()
        return stepscope.open(made.folder, cache=False)

    return write


def steps_of(trace: Trace, name: str) -> list[int | None]:
    return trace.spans.filter(pl.col("name").cast(pl.String) == name).sort("start_ns").collect()["step"].to_list()


def test_an_operator_that_runs_in_the_next_call_belongs_to_its_own(capture: Callable[..., Trace]) -> None:
    calls = [("jit train", False, 0, 40), ("jit train", False, 50, 90), ("jit train", False, 100, 140)]
    trace = capture({"Default/A-op0": [10, 80, 130], "Default/B-op0": [60, 110, 150]}, calls, trains="jit train")
    assert trace.steps.select("step", "start_ns", "end_ns").collect().rows() == [(0, 0, 40), (1, 40, 90), (2, 90, 140)]
    assert steps_of(trace, "Default/A-op0") == steps_of(trace, "Default/B-op0") == [0, 1, 2]


def test_operators_of_a_call_before_the_recording_belong_to_no_step(capture: Callable[..., Trace]) -> None:
    calls = [("jit train", False, 50, 90), ("jit train", False, 100, 140)]
    # B still ran for a call before: it has one run more.
    trace = capture({"Default/A-op0": [80, 130], "Default/B-op0": [60, 110, 150]}, calls, trains="jit train")
    assert steps_of(trace, "Default/A-op0") == [0, 1]
    assert steps_of(trace, "Default/B-op0") == [None, 0, 1]
    assert "1 operator call of a graph that was called before the recording began" in problems_of(trace)


def test_of_graphs_called_equally_often_the_neighbours_tell_which_an_operator_is_of(capture: Callable[..., Trace]) -> None:
    train, score = ("jit train", False), ("jit score", False)
    calls = [(*train, 0, 40), (*score, 41, 80), (*train, 100, 140), (*score, 141, 180), (*train, 200, 240), (*score, 241, 280)]
    # B runs while `score` is called, but right after A and before C has begun: it is of the graph of A.
    runs = {"Default/A-op0": [10, 110, 210], "Default/B-op0": [50, 150, 250], "Default/C-op0": [95, 195, 295]}
    trace = capture(runs, calls, trains="jit train")
    assert steps_of(trace, "Default/B-op0") == [0, 1, 2]
    assert steps_of(trace, "Default/C-op0") == [1, 2, None]  # called after `train`, which ends the step


def test_a_graph_of_which_no_call_is_known_is_cut_by_run_and_not_by_time(capture: Callable[..., Trace]) -> None:
    # B runs before A in the second run of the graph. C belongs to a run that began before, and A and B to one that did not end.
    runs = {"Default/A-op0": [100, 220, 300], "Default/B-op0": [120, 210, 310], "Default/C-op0": [10, 140, 240]}
    runs |= {"Default/D-op0": [130, 230], "Default/E-op0": [135, 235]}
    trace = capture(runs)
    assert trace.steps.select("step", "start_ns", "end_ns").collect().rows() == [(0, 100, 210), (1, 210, 245)]
    assert steps_of(trace, "Default/A-op0") == steps_of(trace, "Default/B-op0") == [0, 1, None]
    assert steps_of(trace, "Default/C-op0") == [None, 0, 1]
    assert "3 operator calls are of a run of the graph that was not recorded whole" in problems_of(trace)
