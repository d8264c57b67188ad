"""The JAX collector, held against what JAX's own reader says of the same file."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import needs
from stepscope.model import captures
from stepscope.model.trace import Trace

needs("jax")
jax = pytest.importorskip("jax")
JOB = Path(__file__).parent / "jax_job.py"
SOURCE = Path(stepscope.__file__).parent.parent
WAYS = [("{}", ""), ("{}", "1")]  # one session; a session per step
IDS = ["one session", "a session per step"]


@functools.cache
def recorded(options: str = "{}", held: str = "") -> Path:
    folder = Path(tempfile.mkdtemp(prefix="stepscope-test-"))
    done = subprocess.run(
        [sys.executable, str(JOB), str(folder), options, *([held] if held else [])],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return folder


@functools.cache
def opened(options: str = "{}", held: str = "") -> Trace:
    return stepscope.open(recorded(options, held) / "job.capture", cache=False)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.xplane.pb"))


@pytest.mark.parametrize(("options", "held"), WAYS, ids=IDS)
def test_operations_are_those_of_jaxs_own_reader(options: str, held: str) -> None:
    calls: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for file in files(recorded(options, held)):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                for event in line.events:
                    if "hlo_op" in dict(event.stats):
                        calls[event.name] += 1
                        totals[event.name] += event.duration_ns
    ours = opened(options, held).operators()
    assert dict(ours.select("name", "calls").iter_rows()) == calls
    assert sum(calls.values()) >= 4 * 3  # steps, operations of a step
    for name, total in ours.select("name", "total_ns").iter_rows():
        assert total == pytest.approx(totals[name], abs=calls[name])  # JAX counts parts of a nanosecond


@pytest.mark.parametrize(("options", "held"), WAYS, ids=IDS)
def test_steps_are_those_that_were_marked_on_the_clock_of_everything_else(options: str, held: str) -> None:
    times = json.loads((recorded(options, held) / "times.json").read_text())
    steps = opened(options, held).steps.select("rank", "step", pl.col("how").cast(pl.String), "start_ns", "end_ns").collect()
    assert steps.drop("start_ns", "end_ns").rows() == [(3, number, "marker") for number in range(10, 14)]
    for start, end, before, after in zip(steps["start_ns"], steps["end_ns"], times[::2], times[1::2], strict=True):
        assert start <= before < after <= end  # the training of a step is within it
    assert all(steps["end_ns"].to_numpy()[:-1] <= steps["start_ns"].to_numpy()[1:])


@pytest.mark.parametrize(("options", "held"), WAYS, ids=IDS)
def test_operations_belong_to_the_step_they_ran_in(options: str, held: str) -> None:
    ops = opened(options, held).spans.filter(pl.col("kind") == "op").select("step", "name").collect()
    assert set(ops["step"]) == {10, 11, 12, 13}
    assert ops.group_by("step").len()["len"].n_unique() == 1  # the same program each time


def test_sessions_are_joined_without_two_spans_of_one_number() -> None:
    trace = opened("{}", "1")
    assert len(files(recorded("{}", "1"))) > 2
    spans = trace.spans.collect()
    assert spans["span"].is_unique().all()
    parents = spans.filter(pl.col("parent").is_not_null()).join(spans, left_on="parent", right_on="span", suffix="_of_parent")
    assert parents.height > 0
    assert (parents["track"] == parents["track_of_parent"]).all()
    assert (parents["start_ns"] >= parents["start_ns_of_parent"]).all()
    assert trace.tracks.select(pl.col("group", "label", "tid").cast(pl.String)).collect().is_unique().all()
    assert set(spans["track"]) <= set(trace.tracks.collect()["track"])


def test_python_frames_are_recorded_only_when_asked_for() -> None:
    def frames(options: str) -> int:
        return opened(options).spans.filter(pl.col("kind") == "python").collect().height

    assert frames("{}") == 0
    assert frames('{"with_stack": true}') > 0


def test_what_jax_cannot_tell_is_said() -> None:
    what = opened('{"profile_memory": true, "l2_cache": true}').problems.collect()["what"].to_list()
    assert any(text.startswith("l2_cache") for text in what)
    assert any(text.startswith("profile_memory") for text in what)


def test_a_job_that_was_killed_before_jax_wrote_its_file_opens_and_says_so(tmp_path: Path) -> None:
    captures.Capture(tmp_path / "job.capture", {"rank": 0, "base": "jax", "framework": "jax"})
    trace = stepscope.open(tmp_path / "job.capture", cache=False)
    assert trace.spans.collect().height == 0
    assert any("left no file" in what for what in trace.problems.collect()["what"])


def test_only_the_file_that_is_read_stays_in_the_capture() -> None:
    inside = [file.name for file in (recorded() / "job.capture").rglob("*") if file.is_file()]
    assert sorted(name.partition(".")[2] for name in inside) == ["json", "xplane.pb"]
