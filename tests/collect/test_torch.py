"""The PyTorch collector, held against what PyTorch itself says of the same session."""

import functools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import preloaded
import stepscope
from key_averages import nothing_but_itself
from programs import needs
from stepscope.model import captures
from stepscope.model.trace import Trace

needs("torch")
JOB = Path(__file__).parent / "torch_job.py"
FULL = '{"record_shapes": true, "profile_memory": true, "with_flops": true}'
WAYS = ["plain", "older"]


MADE: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    for folder in MADE:
        shutil.rmtree(folder)


@functools.cache
def recorded(scenario: str, options: str = "{}") -> Path:
    folder = Path(tempfile.mkdtemp(prefix="stepscope-test-"))
    MADE.append(folder)
    done = preloaded.run("torch", folder, str(JOB), scenario, str(folder), options)
    assert done.returncode == 0, done.stderr
    return folder


@functools.cache
def opened(scenario: str, options: str = "{}") -> Trace:
    return stepscope.open(recorded(scenario, options) / "job.capture", cache=False)


@functools.cache
def exported(scenario: str, options: str = "{}") -> Trace:
    return stepscope.open(recorded(scenario, options) / "kineto.json", cache=False)


def header(scenario: str, options: str = "{}") -> dict[str, Any]:
    return captures.header(recorded(scenario, options) / "job.capture")


def summary(scenario: str, options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((recorded(scenario, options) / "summary.json").read_text())
    return found


def operators(scenario: str, options: str) -> dict[str, dict[str, Any]]:
    return {
        row["name"]: row for row in summary(scenario, options) if not row["name"].startswith(("ProfilerStep", "Optimizer.", "nn.Module"))
    }


@pytest.mark.parametrize("options", ["{}", FULL], ids=["bare", "full"])
@pytest.mark.parametrize("scenario", WAYS)
def test_operators_are_exactly_those_of_torchs_own_summary(scenario: str, options: str) -> None:
    theirs = {
        name: (row["calls"], round(row["total_us"] * 1000), round(row["self_us"] * 1000))
        for name, row in operators(scenario, options).items()
    }
    trace = opened(scenario, options)
    ours = trace.operators().group_by("name").agg(pl.col("calls", "total_ns", "self_ns").sum())
    twice = nothing_but_itself(trace)
    found = {
        name: (calls - len(twice.get(name, [])), total - sum(twice.get(name, [])), own) for name, calls, total, own in ours.iter_rows()
    }
    assert found == {name: row for name, row in theirs.items() if name != "[memory]"}
    assert len(theirs) > 20


@pytest.mark.parametrize("scenario", WAYS)
def test_flops_are_those_that_torch_counts(scenario: str) -> None:
    theirs = {name: row["flops"] for name, row in operators(scenario, FULL).items() if row["flops"]}
    ours = (
        opened(scenario, FULL)
        .spans.filter(pl.col("flops") > 0)
        .group_by(pl.col("name").cast(pl.String))
        .agg(pl.col("flops").sum())
        .collect()
    )
    assert dict(ours.iter_rows()) == theirs
    assert "aten::addmm" in theirs


@pytest.mark.parametrize("analysis", ["operators", "operator_types", "memory", "modules", "allocations_by_op", "annotations"])
@pytest.mark.parametrize("scenario", WAYS)
def test_a_capture_tells_what_kinetos_own_file_of_the_session_tells(scenario: str, analysis: str) -> None:
    ours, theirs = (since_start(opened(scenario, FULL), analysis), since_start(exported(scenario, FULL), analysis))
    assert ours.height > 1
    assert ours.equals(theirs)


def since_start(trace: Trace, analysis: str) -> pl.DataFrame:
    """Times as they are after the first operator, flops left out (Kineto's file has none), and without the step that was not over."""
    first = trace.spans.filter(pl.col("kind") == "op").select(pl.col("start_ns").min()).collect().item()
    table = trace.analyse(analysis)
    moments = [name for name in table.columns if name in ("at_ns", "start_ns", "end_ns", "alloc_ns", "free_ns", "first_ns")]
    table = table.with_columns(pl.col(name) - first for name in moments)
    table = table.filter(pl.col("name") != "ProfilerStep#3") if "name" in table.columns else table
    return table.drop("flops", "how", strict=False)


@pytest.mark.parametrize("scenario", WAYS)
def test_backward_operators_have_the_scope_of_their_forward_as_in_kinetos_file(scenario: str) -> None:
    def links(trace: Trace) -> Counter[tuple[str, str | None, str | None]]:
        spans = trace.spans.filter(pl.col("kind") == "op").select("span", "name", "scope", "flow_in").collect()
        joined = spans.join(spans.select(flow_in="span", cause="name"), on="flow_in", how="left")
        return Counter(joined.select(pl.col("name", "scope", "cause").cast(pl.String)).iter_rows())

    found = links(opened(scenario, FULL))
    assert found == links(exported(scenario, FULL))
    assert found["AddmmBackward0", "Net/head", "aten::addmm"] == 3


@pytest.mark.parametrize("scenario", WAYS)
def test_the_memory_peak_is_what_the_allocator_said(scenario: str) -> None:
    kineto_events = json.loads((recorded(scenario, FULL) / "kineto.json").read_text())["traceEvents"]
    totals = [event["args"]["Total Allocated"] for event in kineto_events if event["name"] == "[memory]"]
    peak = opened(scenario, FULL).counters.filter(pl.col("name") == "allocated cpu").select(pl.col("value").max()).collect().item()
    assert peak == max(totals)


def test_times_are_those_of_the_systems_clock() -> None:
    window_header = header("plain")
    starts = opened("plain").spans.select(pl.col("start_ns").min(), end=(pl.col("start_ns") + pl.col("dur_ns")).max()).collect()
    assert window_header["start_ns"] <= starts["start_ns"].item() <= starts["end"].item() <= window_header["end_ns"]


def test_steps_are_those_that_were_over() -> None:
    steps = opened("plain").steps.collect()
    assert steps["step"].to_list() == [0, 1, 2]
    assert set(steps["how"]) == {"marker"}
    assert opened("plain").step_trace()["found"].unique().to_list() == ["module, autograd"]


def test_events_that_cannot_be_taken_over_come_as_json_and_say_so() -> None:
    ours, plain = opened("strange"), opened("plain")
    assert "written as JSON" in ours.problems.select("what").collect().item()
    assert ours.steps.collect()["step"].to_list() == [0, 1, 2]
    calls = [trace.operators().group_by("name").agg(pl.col("calls").sum()).sort("name") for trace in (ours, plain)]
    assert calls[0].equals(calls[1])
    window_header = header("strange")
    assert window_header["start_ns"] <= ours.spans.select(pl.col("start_ns").max()).collect().item() <= window_header["end_ns"]


@pytest.mark.parametrize("missing", ["torch", "torch_memory"])
def test_what_a_full_disk_kept_from_being_written_is_missing_and_the_rest_is_there(missing: str, tmp_path: Path) -> None:
    shutil.copytree(recorded("plain", FULL) / "job.capture", tmp_path / "job.capture")
    for file in captures.files(tmp_path / "job.capture", missing):
        file.unlink()
    found, whole = stepscope.open(tmp_path / "job.capture", cache=False), opened("plain", FULL)
    allocated, operators = (0 if missing == table else 1 for table in ("torch_memory", "torch"))
    assert found.allocations.collect().height == allocated * whole.allocations.collect().height
    assert found.operators().height == operators * whole.operators().height


def test_a_bound_on_events_ends_the_recording_and_says_so() -> None:
    trace, whole = opened("sessions", '{"max_events": 600}'), opened("sessions")
    count, everything = (one.spans.select(pl.len()).collect().item() for one in (trace, whole))
    problems = trace.problems.select("what", "lost").collect().rows()
    # The marker of the step that was not over is an event, and no span.
    assert problems == [("max_events=600 was reached: later events are not written", everything + 1 - 600)]
    steps = trace.steps.collect()["step"].to_list()
    assert steps == list(range(len(steps))) and 0 < len(steps) < 8
    assert count == 600 - 1
    last = trace.spans.select(pl.col("start_ns").max()).collect().item()
    assert header("sessions", '{"max_events": 600}')["recorded_until_ns"] > last


def test_a_long_recording_is_written_out_between_steps_and_is_one_recording() -> None:
    """Bounded so that each step is a session of its own, and yet all fit."""
    options = '{"max_held_events": 1, "max_pause_percent": 1000000}'
    folder, trace = recorded("short_sessions", options), opened("short_sessions", options)
    assert len(list((folder / "job.capture").glob("torch.*.npz"))) > 1
    assert trace.steps.collect()["step"].to_list() == list(range(8))
    calls = trace.spans.filter((pl.col("kind") == "op") & pl.col("step").is_not_null()).group_by("name", "step").len().collect()
    assert calls.filter(pl.col("name") == "aten::addmm")["len"].to_list() == [3] * 8
    backward = trace.spans.filter(pl.col("name") == "AddmmBackward0").select("step", "flow_in").collect()
    forward = trace.spans.select(flow_in="span", forward="step").collect()
    joined = backward.join(forward, on="flow_in")
    assert joined.height == 24 and (joined["step"] == joined["forward"]).all()


def test_a_loaders_queue_is_seen_without_touching_it() -> None:
    trace = opened("loader")
    pipeline = trace.table("pipeline").select("op_type", "workers", "queue_capacity").collect().rows()
    counters = trace.counters.filter(pl.col("unit").is_in(["batches", "ns"])).collect()
    depth, wait = (counters.filter(pl.col("name") == f"queue 0 {what}")["value"] for what in ("depth", "wait"))
    assert pipeline == [("DataLoader", 2, 6)]
    assert len(depth) == len(wait) == 12
    assert depth.max() <= 6 and depth.tail(5).min() >= 1  # ahead of a slow training, but for the first batch
    assert wait.min() > 0
    request = trace.spans.filter(pl.col("name").cast(pl.String).str.starts_with("enumerate(DataLoader)")).collect()
    assert counters.filter(pl.col("name") == "queue 0 wait")["value"].sum() <= request["dur_ns"].sum()
    assert len(header("loader")["data_workers"]) == 4  # two of each epoch


def test_a_forward_that_raises_closes_its_ranges() -> None:
    modules = opened("raising").modules().filter(pl.col("calls").is_not_null())
    calls = dict(modules.select("scope", "calls").iter_rows())
    assert calls == {"Net": 3, "Net/blocks/0": 2, "Net/blocks/0/0": 2, "Net/blocks/0/1": 2, "Net/blocks/1": 2} | {
        "Net/blocks/1/0": 2,
        "Net/blocks/1/1": 2,
        "Net/head": 2,
    }
    depths = opened("raising").spans.filter(pl.col("name") == "nn.Module: Net").select("depth").collect()
    assert depths["depth"].to_list() == [0, 0, 0]


def test_a_wrapped_model_keeps_its_paths() -> None:
    assert {"DataParallel", "Net", "Net/head"} <= set(opened("wrapped").modules()["scope"])


def test_frames_come_with_stacks_and_modules_are_marked_once() -> None:
    trace = opened("plain", '{"with_stack": true}')
    assert trace.spans.filter((pl.col("kind") == "python") & pl.col("name").cast(pl.String).str.contains("torch_job.py")).collect().height
    assert set(trace.modules()["scope"]) == set(opened("plain").modules()["scope"])


def test_a_compiled_model_is_recorded_and_not_compiled_again() -> None:
    names = set(opened("compiled").operators()["name"])
    assert {"aten::addmm", "aten::relu"} <= names
    assert opened("compiled").modules().select("scope", "calls").rows() == [("Net", 3)]


def test_two_ranks_line_up() -> None:
    trace = stepscope.open(recorded("ranks"), cache=False)
    assert trace.meta.ranks == [0, 1]
    assert trace.steps.group_by("rank").agg(pl.col("step").sort()).sort("rank").collect()["step"].to_list() == [[0, 1, 2], [0, 1, 2]]
    transfers = trace.communication()
    assert set(transfers["rank"]) == {0, 1}
    parameters = 2 * (8 * 8 + 8) + 2 * 8 + 2
    sent = transfers.filter(pl.col("collective") == "all_reduce").select("calls", "bytes")
    assert sent["bytes"].to_list() == [3 * parameters * 4] * 2  # each of three steps, as fp32
    first, second = (trace.steps.filter(pl.col("rank") == rank).sort("step").collect() for rank in (0, 1))
    # A step ends after its gradients were exchanged: no rank's step begins before the other's step before it did.
    assert (first["start_ns"][1:] > second["start_ns"][:-1]).all() and (second["start_ns"][1:] > first["start_ns"][:-1]).all()
    assert "DistributedDataParallel" in set(trace.modules()["scope"])
