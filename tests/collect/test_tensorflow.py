"""TensorFlow, recorded for real, in an environment of its own: it does not fit beside the other frameworks (`make tensorflow`)."""

import functools
import json
import tempfile
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl
import pytest

import stepscope
from programs import only, recordings, run_command, tensorflow_python
from stepscope.model.trace import Trace
from volume import mostly_deep

JOB = Path(__file__).parent / "tensorflow_job.py"
LOOP = Path(__file__).parent / "tensorflow_loop.py"
WAYS = mostly_deep(["fit", "train_on_batch", "eager", "function", "marked"], keep=["fit", "eager", "function", "marked"])
BATCHES = 12


def opened(folder: Path) -> Trace:
    return stepscope.open(only([one for one in recordings(folder) if one.name != "raw"]), cache=False)


def products(trace: Trace) -> pl.DataFrame:
    return trace.spans.filter(pl.col("kind") == "op", pl.col("op_type").cast(pl.String).str.contains("MatMul")).collect()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("tensorflow")
    done = run_command(folder, tensorflow_python(), str(JOB), "data")
    assert done.returncode == 0, done.stderr
    return opened(folder / "data")


def test_steps_are_those_that_were_marked(trace: Trace) -> None:
    assert trace.meta.framework == "tensorflow"
    assert trace.problems.collect().rows() == []
    steps = trace.step_trace()
    assert steps.select("step", "how").rows() == [(number, "marker") for number in range(7)]
    assert set(steps["found"]) == {"source, source"}
    assert (steps["interval_ns"] + steps["fp_bp_ns"] + steps["tail_ns"] == steps["total_ns"]).all()


def test_each_step_multiplies_as_often_as_its_two_layers_do(trace: Trace) -> None:
    """Two products forward, two for the gradients of the weights, one for that of the hidden layer."""
    found = products(trace)
    assert found.group_by("step").len().sort("step").rows() == [(number, 5) for number in range(7)]
    scopes = found["scope"].cast(pl.String).str.extract(r"^((?:gradient_tape/)?\w+)").unique()
    assert set(scopes) == {"hidden", "loss", "gradient_tape/hidden", "gradient_tape/loss"}


def test_the_users_ranges_and_the_host_are_there_too(trace: Trace) -> None:
    ranges = trace.spans.filter(pl.col("name").cast(pl.String) == "train", pl.col("kind") == "annotation").collect()
    assert ranges.height == 7
    assert trace.cpu().height > 0


@functools.cache
def bare(way: str) -> "CompletedProcess[str]":
    return run_command(Path(tempfile.mkdtemp(prefix="stepscope-test-")), tensorflow_python(), str(LOOP), way)


@functools.cache
def recorded(way: str) -> "tuple[CompletedProcess[str], Path]":
    folder = Path(tempfile.mkdtemp(prefix="stepscope-test-"))
    return run_command(folder, tensorflow_python(), "-m", "stepscope", "run", str(LOOP), way), folder / "data"


@pytest.mark.parametrize("way", mostly_deep(["fit", "train_on_batch", "eager", "function", "marked"], keep=["fit", "function"]))
def test_training_has_the_same_result_and_exit_code_recorded_or_not(way: str) -> None:
    """Weights after Adam and dropout, to the last bit."""
    alone, under = bare(way), recorded(way)[0]
    assert len(alone.stdout.split()) == 1
    assert (under.stdout, under.returncode) == (alone.stdout, 7)


@pytest.mark.parametrize("way", WAYS)
def test_there_is_a_step_for_every_batch_however_it_trains(way: str) -> None:
    trace = opened(recorded(way)[1])
    assert trace.meta.framework == "tensorflow"
    assert trace.problems.collect().rows() == []
    steps = trace.steps.collect()
    assert steps["step"].to_list() == list(range(BATCHES))
    assert (steps["end_ns"] > steps["start_ns"]).all()
    assert (steps["start_ns"][1:] >= steps["end_ns"][:-1]).all()
    begin, end = (trace.meta.extra[name] for name in ("start_ns", "end_ns"))
    assert begin <= steps["start_ns"][0] and steps["end_ns"][-1] <= end


@pytest.mark.parametrize("way", WAYS)
def test_every_step_has_the_operators_of_the_model(way: str) -> None:
    """Two layers: two products forward, and three backward, as the inputs of the first need no gradient. Evaluation has two more."""
    trace = opened(recorded(way)[1])
    counts = products(trace).group_by("step").len().filter(pl.col("step").is_not_null()).sort("step")
    evaluated = {"fit": [0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0], "function": [0, *[2] * 11], "marked": [2] * 12}
    assert counts["step"].to_list() == list(range(BATCHES))
    assert counts["len"].to_list() == [5 + more for more in evaluated.get(way, [0] * BATCHES)]
    kinds = trace.spans.filter(pl.col("kind") == "op").select(pl.col("op_type").cast(pl.String).unique()).collect()["op_type"]
    assert not [kind for kind in kinds if kind.startswith("__")]  # a function is made of operators, and none itself


def test_the_steps_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    run_command(tmp_path, tensorflow_python(), "-m", "stepscope", "run", "--steps", "2:4", str(LOOP), "function")
    assert opened(tmp_path / "data").steps.collect()["step"].to_list() == [2, 3, 4]


def test_a_callback_of_keras_can_mark_steps(tmp_path: Path) -> None:
    done = run_command(tmp_path, tensorflow_python(), str(LOOP), "callback")
    assert done.returncode == 7, done.stderr
    trace = opened(tmp_path / "data")
    assert trace.steps.collect()["step"].to_list() == list(range(BATCHES))
    assert set(products(trace)["step"]) == set(range(BATCHES))


def test_python_stacks_are_sampled_and_what_has_no_effect_is_said(tmp_path: Path) -> None:
    choices = '{"with_stack": true, "record_shapes": true, "with_flops": true}'
    run_command(tmp_path, tensorflow_python(), "-m", "stepscope", "run", "--profiling-options", choices, str(LOOP), "eager")
    trace = opened(tmp_path / "data")
    frames = trace.spans.filter(pl.col("kind") == "python").select(pl.col("name").cast(pl.String)).collect()["name"]
    assert any("update" in name for name in frames)
    problems = trace.problems.collect()["what"].to_list()
    assert [what for what in problems if "TensorFlow" in what] == [
        "record_shapes: TensorFlow does not record this",
        "with_flops: TensorFlow does not record this",
    ]


def test_options_of_ascends_adapter_record_a_tensorflow_job(tmp_path: Path) -> None:
    """The options of CANN's own guide for TensorFlow: it names metrics that only the chip counts."""
    words = {"output": "prof", "training_trace": "on", "task_trace": "on", "fp_point": "", "bp_point": "", "aic_metrics": "PipeUtilization"}
    done = run_command(
        tmp_path, tensorflow_python(), "-m", "stepscope", "run", "--profiling-options", json.dumps(words), str(LOOP), "function"
    )
    assert done.returncode == 7, done.stderr
    trace = opened(tmp_path / "prof")
    assert trace.steps.collect()["step"].to_list() == list(range(BATCHES))
    assert trace.meta.options["aic_metrics"] == "PipeUtilization"
    assert trace.problems.collect()["what"].to_list() == ["aic_metrics=PipeUtilization: only Ascend chips count these"]
