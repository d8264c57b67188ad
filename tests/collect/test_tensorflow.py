"""TensorFlow, recorded for real where it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import environment, needs, only
from stepscope.trace import Trace

JOB = Path(__file__).parent / "tensorflow_job.py"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    needs("tensorflow")
    out = tmp_path_factory.mktemp("tensorflow")
    done = subprocess.run(
        [sys.executable, JOB, out / "data"], env=os.environ | environment(out), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return stepscope.open(only(list((out / "data").iterdir())), cache=False)


def test_steps_are_those_that_were_marked(trace: Trace) -> None:
    assert trace.meta.framework == "tensorflow"
    assert trace.problems.collect().rows() == []
    steps = trace.step_trace()
    assert steps.select("step", "how").rows() == [(number, "marker") for number in range(7)]
    assert set(steps["found"]) == {"source, source"}
    assert (steps["interval_ns"] + steps["fp_bp_ns"] + steps["tail_ns"] == steps["total_ns"]).all()


def test_each_step_multiplies_as_often_as_its_two_layers_do(trace: Trace) -> None:
    """Two products forward, two for the gradients of the weights, one for that of the hidden layer."""
    products = trace.spans.filter(pl.col("kind") == "op", pl.col("op_type").cast(pl.String).str.contains("MatMul")).collect()
    assert products.group_by("step").len().sort("step").rows() == [(number, 5) for number in range(7)]
    scopes = products["scope"].cast(pl.String).str.extract(r"^((?:gradient_tape/)?\w+)").unique()
    assert set(scopes) == {"hidden", "loss", "gradient_tape/hidden", "gradient_tape/loss"}


def test_the_users_ranges_and_the_host_are_there_too(trace: Trace) -> None:
    ranges = trace.spans.filter(pl.col("name").cast(pl.String) == "train", pl.col("kind") == "annotation").collect()
    assert ranges.height == 7
    assert trace.cpu().height > 0
