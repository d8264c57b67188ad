"""MindSpore on the CPU, recorded for real: what its own summaries say is what the trace says."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from programs import free_port, needs
from stepscope.errors import DataError
from stepscope.model import captures
from stepscope.model.trace import Trace

SCRIPTS = Path(__file__).parent
SOURCE = Path(stepscope.__file__).parent.parent
STOCK = SCRIPTS.parent.parent.parent / "shared" / "data" / "mindspore_cpu"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(SOURCE),
    "GLOG_v": "3",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def train(out: Path, **arguments: Any) -> Path:
    needs("mindspore")
    done = subprocess.run(
        [sys.executable, SCRIPTS / "mindspore_train.py", out, json.dumps(arguments)],
        env=ENVIRONMENT,
        cwd=out.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if arguments.get("killed") else 0), done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model.train and Model.eval in graph mode, with everything on."""
    out = tmp_path_factory.mktemp("graph") / "out"
    return train(out, mode="graph", evaluate=True, profile_memory=True, data_process=True, with_stack=True, l2_cache=True, pcie=True)


@pytest.fixture(scope="module")
def pynative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A functional loop in PyNative mode, recorded in two windows, kernels one by one."""
    out = tmp_path_factory.mktemp("pynative") / "out"
    return train(out, mode="pynative", loop="functional", blocking=True, twice=True, profile_memory=True, data_process=True)


def opened(path: Path) -> Trace:
    return stepscope.open(path, cache=False)


def said(trace: Trace) -> str:
    return "\n".join(trace.problems.collect()["what"])


def own_summary(capture: Path) -> pl.DataFrame:
    """Calls and nanoseconds of each operator, as MindSpore itself adds them up."""
    file = next(capture.glob("mindspore/000000/cpu_op_detail_info_*.csv"))
    return pl.read_csv(file).select(
        name="full_op_name", type="op_type", calls="op_occurrences", total_ns=pl.col("op_total_time(ms)") * 1e6
    ).sort("name")  # fmt: skip


@pytest.mark.parametrize("recorded", ["graph", "pynative"])
def test_operators_are_those_of_mindspores_own_summary(recorded: str, request: pytest.FixtureRequest) -> None:
    capture = request.getfixturevalue(recorded) / "0_rank0.capture"
    spans = opened(capture).spans.filter(pl.col("op_type").is_not_null()).cast({"name": pl.String, "op_type": pl.String})
    ours = spans.group_by("name", type="op_type").agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum()).sort("name").collect()
    theirs = own_summary(capture)
    assert ours.select("name", "type", "calls").rows() == theirs.select("name", "type", "calls").rows()
    # It writes six digits of each call and of each sum.
    for mine, its in zip(ours["total_ns"], theirs["total_ns"], strict=True):
        assert mine == pytest.approx(its, rel=1e-4)


def test_a_graph_has_the_operators_that_the_stock_profiler_saw(graph: Path) -> None:
    stock = next(STOCK.glob("lenet_graph/*/FRAMEWORK/cpu_op_detail_info_0.csv"), None)
    if stock is None:
        pytest.skip("no recording of the stock profiler here")
    training = set(own_summary(graph / "0_rank0.capture").filter(pl.col("calls") == 4)["name"])
    assert set(pl.read_csv(stock)["full_op_name"]) <= training


def test_steps_of_model_train_have_mindspores_numbers_and_hold_their_operators(graph: Path) -> None:
    trace = opened(graph / "0_rank0.capture")
    steps = trace.step_trace()
    assert steps["step"].to_list() == [1, 2, 3, 4]
    assert set(steps["how"]) == {"marker"}
    counts = trace.spans.filter(pl.col("kind") == "op", pl.col("step").is_not_null()).group_by("step").len().collect()
    assert counts["len"].n_unique() == 1
    assert counts.height == 4
    evaluations = trace.spans.filter(pl.col("name").cast(pl.String).str.starts_with("eval#")).collect()
    assert evaluations.height == 4


def test_forward_starts_with_the_first_layer_and_backward_ends_with_its_gradient(graph: Path) -> None:
    trace = opened(graph / "0_rank0.capture")
    ops = trace.spans.filter(pl.col("kind") == "op").cast({"name": pl.String}).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    first = ops.filter(pl.col("name").str.ends_with("conv1-Conv2d/Conv2D-op0")).collect()
    last = ops.filter(pl.col("name").str.contains("Gradients/.*conv1-Conv2d.*Filter")).collect()
    steps = trace.step_trace()
    assert set(steps["found"]) == {"source, source"}
    assert steps["fp_start_ns"].to_list() == first["start_ns"].to_list()[:4]
    assert steps["bp_end_ns"].to_list() == last["end_ns"].to_list()
    assert (steps["interval_ns"] + steps["fp_bp_ns"] + steps["tail_ns"] == steps["total_ns"]).all()


def test_gradients_belong_to_the_layer_they_are_of_and_follow_it(graph: Path) -> None:
    trace = opened(graph / "0_rank0.capture")
    spans = trace.spans.filter(pl.col("kind") == "op", pl.col("step") == 2).cast(
        {"name": pl.String, "scope": pl.String, "shapes": pl.String}
    )
    ops = spans.collect()
    # The sizes say which layer it is: fc1 takes 400 and gives 120, fc2 gives 84, fc3 gives 10.
    for layer, given in (("fc1", 120), ("fc2", 84), ("fc3", 10)):
        bias = ops.filter(pl.col("op_type") == "BiasAddGrad", pl.col("shapes") == f"[[8,{given}],[]]")
        assert bias["scope"].to_list() == [f"Gradients/Default/network-WithLossCell/_backbone-LeNet/{layer}-Dense/Grad_BiasAdd"]
        forward = ops.filter(pl.col("span") == bias["flow_in"][0])
        assert forward["name"].to_list() == [f"Default/network-WithLossCell/_backbone-LeNet/{layer}-Dense/BiasAdd-op0"]


def test_flops_of_layers_and_gradients_are_those_of_pencil_and_paper(graph: Path) -> None:
    flops = opened(graph / "0_rank0.capture").spans.filter(pl.col("flops").is_not_null(), pl.col("step") == 1)
    got = flops.select(pl.col("op_type").cast(pl.String), "flops").sort("op_type", "flops").collect().rows()
    conv1, conv2 = 2 * 8 * 6 * 28 * 28 * 25, 2 * 8 * 16 * 10 * 10 * 6 * 25
    fc1, fc2, fc3 = 2 * 8 * 400 * 120, 2 * 8 * 120 * 84, 2 * 8 * 84 * 10
    assert got == [
        ("Conv2D", conv1), ("Conv2D", conv2),
        ("Conv2DBackpropFilter", conv1), ("Conv2DBackpropFilter", conv2), ("Conv2DBackpropInput", conv2),
        *[("MatMul", layer) for layer in (fc3, fc2, fc1) for _ in range(3)],
    ]  # fmt: skip


def test_shapes_types_and_python_lines_are_the_scripts(graph: Path) -> None:
    ops = opened(graph / "0_rank0.capture").operators()
    conv = ops.filter(pl.col("name").str.ends_with("conv2-Conv2d/Conv2D-op0"), pl.col("calls") == 4)
    assert conv.select("scope", "shapes", "dtypes").rows() == [
        ("Default/network-WithLossCell/_backbone-LeNet/conv2-Conv2d", "[[8,6,14,14],[16,6,5,5]]", '["float32","float32"]')
    ]
    spans = opened(graph / "0_rank0.capture").spans.filter(pl.col("name").cast(pl.String) == conv["name"][0]).collect()
    source = json.loads(spans["args"][0])["source"]
    assert any("mindspore_train.py" in line and "self.conv2(x)" in line for line in source)


def test_the_memory_curve_lies_within_its_window(pynative: Path) -> None:
    for number in (0, 1):
        capture = pynative / f"{number}_rank0.capture"
        header, memory = captures.header(capture), opened(capture).memory()
        assert memory["at_ns"].min() >= header["start_ns"]
        assert memory["at_ns"].max() <= header["end_ns"]
        assert 0 < memory["allocated_bytes"].max() <= memory["reserved_bytes"].max()


@pytest.mark.parametrize(("recorded", "window"), [("graph", 0), ("pynative", 0), ("pynative", 1)])
def test_the_input_pipeline_has_its_operators_queues_and_waits(recorded: str, window: int, request: pytest.FixtureRequest) -> None:
    capture = request.getfixturevalue(recorded) / f"{window}_rank0.capture"
    trace, header = opened(capture), captures.header(capture)
    rows = trace.table("pipeline").select("op_id", pl.col("op_type").cast(pl.String), "workers", "parent", "queue_capacity").collect()
    got = [row for row in rows.rows() if row[1] != "EpochCtrlOp"]
    shift = got[0][0]
    above = shift - 1 if shift else None
    assert got == [
        (shift, "BatchOp", 1, above, 16),
        (shift + 1, "MapOp", 2, shift, 16),
        (shift + 2, "GeneratorOp", 1, shift + 1, 16),
    ]
    counters = (
        trace.counters.filter(pl.col("name").cast(pl.String).str.contains("queue|time|cpu")).filter(pl.col("unit") != "bytes").collect()
    )
    names = set(counters["name"].cast(pl.String))
    assert {f"queue {shift} BatchOp", f"cpu user {shift + 1} MapOp", "queue iterator", "pipeline time iterator"} <= names
    assert counters["at_ns"].is_between(header["start_ns"] - 2_000_000, header["end_ns"] + 2_000_000).all()
    batches = counters.filter(pl.col("name").cast(pl.String) == "pipeline time iterator")
    assert batches.height == (8 if recorded == "graph" else 4)  # read once more by the evaluation
    # MindData's own, in whole milliseconds, of the same batches: it sees a part of the wait.
    lines = [line.split() for line in next(capture.glob("minddata/dataset_iterator_profiling_*.txt")).read_text().splitlines()]
    theirs = [int(value) for kind, extra, _, value, _ in lines if (kind, extra) == ("0", "0")]
    assert batches["value"].min() > 0 and len(theirs) >= 4
    assert all(own + 1 >= its for own, its in zip(batches["value"].to_list()[1:4], theirs[1:4], strict=True))
    waits = trace.spans.filter(pl.col("kind") == "data", pl.col("step").is_not_null()).collect()
    assert set(waits["step"]) == set(trace.steps.collect()["step"])


def test_the_loop_itself_tells_its_input_pipeline_where_minddata_was_not_asked(tmp_path: Path) -> None:
    """As MindData's own monitor names the operators of this pipeline, in the test before this."""
    trace = opened(train(tmp_path / "out", mode="graph", late=True))
    rows = trace.table("pipeline").select("op_id", pl.col("op_type").cast(pl.String), "workers", "parent", "queue_capacity").collect()
    assert rows.rows() == [(0, "BatchOp", 1, None, 16), (1, "MapOp", 2, 0, 16), (2, "GeneratorOp", 1, 1, 16)]
    queue = trace.data_queues()
    assert queue["batches"].sum() == 4 and queue["wait_ns"].min() > 0 and set(queue["depth"]) == {None}
    waits = trace.spans.filter(pl.col("name").cast(pl.String) == "next batch").collect()
    assert queue["wait_ns"].sum() <= waits["dur_ns"].sum()


def test_what_a_cpu_has_not_is_said(graph: Path) -> None:
    assert "no effect with MindSpore on the CPU: l2_cache, pcie" in said(opened(graph / "0_rank0.capture"))


def test_a_loop_without_markers_has_steps_that_end_with_the_optimizer(pynative: Path) -> None:
    trace = opened(pynative / "0_rank0.capture")
    steps = trace.steps.collect()
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert set(steps["how"].cast(pl.String)) == {"inferred"}
    momentum = trace.spans.filter(pl.col("op_type").cast(pl.String) == "ApplyMomentum").group_by("step").len().sort("step").collect()
    assert momentum.rows() == [(0, 8), (1, 8), (2, 8), (3, 8)]
    assert "call of the optimizer" in said(trace)


def test_launched_one_by_one_operators_belong_to_the_cell_that_was_called(pynative: Path) -> None:
    ops = opened(pynative / "0_rank0.capture").operators().filter(pl.col("type").is_in(["Conv2D", "MaxPool", "BiasAdd"]))
    calls = ops.group_by("scope", "type").agg(pl.col("calls").sum()).sort("scope").rows()
    assert calls == [
        ("LeNet/conv1-Conv2d", "Conv2D", 4),
        ("LeNet/conv2-Conv2d", "Conv2D", 4),
        ("LeNet/fc1-Dense", "BiasAdd", 4),
        ("LeNet/fc2-Dense", "BiasAdd", 4),
        ("LeNet/fc3-Dense", "BiasAdd", 4),
        ("LeNet/pool-MaxPool2d", "MaxPool", 8),
    ]


def test_the_backward_pass_of_pynative_mode_is_a_range_within_each_step(pynative: Path) -> None:
    steps = opened(pynative / "1_rank0.capture").step_trace()
    assert set(steps["found"]) == {"module, range"}
    assert (steps["interval_ns"] + steps["fp_bp_ns"] + steps["tail_ns"] == steps["total_ns"]).all()
    assert (steps["tail_ns"] > 0).all()


def test_kernels_behind_the_python_code_get_no_module_and_no_pretence(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="pynative", sync_enable=False))
    assert "operators have no module" in said(trace)
    assert "sync_enable is off" in said(trace)
    scopes = trace.spans.filter(pl.col("kind") == "op").collect()["scope"]
    assert set(scopes.cast(pl.String)) <= {None, "Default"}
    assert trace.spans.filter(pl.col("kind") == "scope").collect().height > 0


def test_a_callback_records_the_steps_it_names_with_graphs_compiled_before(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="graph", only=[2, 3]))
    assert trace.steps.collect()["step"].to_list() == [2, 3]
    ops = trace.operators()
    assert set(ops["calls"]) == {2}
    assert ops["dtypes"].null_count() == 0
    assert said(trace).startswith("the first step starts where recording began") and "\n" not in said(trace)


def test_a_profiler_that_comes_late_says_what_it_missed(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="graph", loop="cell", late=True, marks=7))
    assert "operators are in no graph that was compiled during the recording" in said(trace)
    assert trace.steps.collect()["step"].to_list() == [7, 8, 9, 10]
    assert trace.operators()["dtypes"].null_count() == trace.operators().height


def test_a_compiled_loop_without_markers_has_steps_that_end_with_the_compiled_function(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="graph", loop="jit"))
    steps = trace.step_trace()
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert set(steps["how"]) == {"inferred"}
    assert "each step ends with a call of jit step, which uses an optimizer" in said(trace)
    counts = trace.spans.filter(pl.col("op_type").is_not_null(), pl.col("step").is_not_null()).group_by("step").len().collect()
    assert counts["len"].n_unique() == 1
    assert trace.operators()["calls"].unique().to_list() == [4]


def test_a_long_recording_goes_to_disk_in_pieces_that_read_as_one(tmp_path: Path) -> None:
    out = train(tmp_path / "out", mode="pynative", profile_memory=True, piece_ns=0)
    pieces = sorted(out.glob("*/mindspore/*"))
    assert len(pieces) > 4
    trace = opened(out)
    summaries = [pl.read_csv(file)["op_occurrences"].sum() for file in out.glob("*/mindspore/*/cpu_op_detail_info_*.csv")]
    assert trace.operators()["calls"].sum() == sum(summaries)
    assert trace.steps.collect()["step"].to_list() == [1, 2, 3, 4]
    memory = trace.counters.filter(pl.col("name").cast(pl.String) == "allocated cpu").collect()
    assert memory.height > 0
    assert memory.height == memory["at_ns"].n_unique()
    assert trace.spans.filter(pl.col("name").cast(pl.String) == "conv1-Conv2d").collect().height == 4


def test_pieces_of_a_job_that_was_killed_open(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="graph", piece_ns=0, killed=True))
    assert "the job ended while recording" in said(trace)
    assert trace.step_trace()["step"].to_list()[:3] == [1, 2, 3]
    assert trace.operators()["calls"].min() >= 3


def test_a_bound_ends_the_recording_and_says_so(tmp_path: Path) -> None:
    trace = opened(train(tmp_path / "out", mode="graph", piece_ns=0, max_events=60))
    assert "recording ended early: 60 operator calls were reached" in said(trace)
    assert trace.operators()["calls"].sum() == 86  # of 43 in a step: the step in which the bound is reached is whole


def test_two_ranks_open_together_and_wait_for_one_another(tmp_path: Path) -> None:
    needs("mindspore")
    command = ["msrun", "--worker_num=2", "--local_worker_num=2", f"--master_port={free_port()}", f"--log_dir={tmp_path / 'log'}"]
    done = subprocess.run(
        [*command, "--join=True", SCRIPTS / "mindspore_ranks.py", tmp_path / "out", "graph"],
        env=ENVIRONMENT | {"GLOG_v": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    trace = opened(tmp_path / "out")
    assert trace.meta.ranks == [0, 1]
    rows = trace.communication()
    # Gradients of Dense(64, 128) and Dense(128, 10), as 32-bit numbers, in three steps.
    sizes = sorted(3 * 4 * count for count in (64 * 128, 128, 128 * 10, 10))
    for rank in (0, 1):
        mine = rows.filter(pl.col("rank") == rank)
        assert sorted(mine["bytes"]) == sizes
        assert set(mine["collective"]) == {"all_reduce"}
        assert set(mine["calls"]) == set(mine["matched"]) == {3}
    assert rows["wait_ns"].sum() > 0


def test_what_mindspores_own_collection_wrote_is_kept_and_read(tmp_path: Path) -> None:
    needs("mindspore")
    script: list[str | Path] = [sys.executable, SCRIPTS / "mindspore_stock.py", tmp_path]
    done = subprocess.run(script, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for number in (1, 2):
        folder = tmp_path / f"{number}.capture"
        (kept,) = captures.header(folder)["keep"]
        assert kept.endswith("_ascend_ms")
        assert (folder / kept / "FRAMEWORK" / "cpu_op_detail_info_0.csv").is_file()
        assert opened(folder).operators().select("name", "calls").sort("name").rows() == [
            ("Default/BiasAdd-op0", number),
            ("Default/MatMul-op0", number),
        ]


# What no small training does: written by hand.


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., Path]:
    def write(times: str, framework: str = "", header: dict[str, Any] | None = None, **steps: Any) -> Path:
        made = captures.Capture(tmp_path / "made.capture", {"base": "mindspore", "rank": 0, "pid": 1, "mode": "graph"} | (header or {}))
        piece = made.folder / "mindspore" / "000000"
        piece.mkdir(parents=True)
        (piece / "cpu_op_execute_timestamp_0.txt").write_text(times)
        (piece / "cpu_framework_0.txt").write_text(framework)
        for table, columns in steps.items():
            made.append(table, columns)
        made.finish()
        return made.folder

    return write


def test_operators_at_the_same_time_stand_on_lanes_of_their_own(capture: Callable[..., Path]) -> None:
    a, b, c = "1000,0.001,0 3000,0.001,0 ", "1200,0.0005,0 ", "1800,0.0001,0 "
    folder = capture(f"Default/A-op0;HostCpuOps;{a}\nDefault/B-op0;HostCpuOps;{b}\nDefault/C-op0;HostCpuOps;{c}\n")
    spans = opened(folder).spans.filter(pl.col("kind") == "op").sort("start_ns").cast({"name": pl.String}).collect()
    assert spans.select("name", "start_ns", "dur_ns", "self_ns", "depth", "track").rows() == [
        ("Default/A-op0", 1000, 1000, 1000, 0, 0),
        ("Default/B-op0", 1200, 500, 500, 0, 1),
        ("Default/C-op0", 1800, 100, 100, 0, 1),
        ("Default/A-op0", 3000, 1000, 1000, 0, 0),
    ]


def test_collectives_communicate_and_operators_of_like_names_compute(capture: Callable[..., Path]) -> None:
    names = ["AllReduce", "DistCommAllGatherIntoTensor", "Reduce", "ReduceSum", "BroadcastTo", "Gather", "AlltoAllV"]
    folder = capture("".join(f"Default/{name}-op0;HostCpuOps;{at},0.000001,0 \n" for at, name in enumerate(names)))
    spans = opened(folder).spans.sort("start_ns").cast({"op_type": pl.String}).filter(pl.col("kind") == "communication").collect()
    assert spans["op_type"].to_list() == ["AllReduce", "DistCommAllGatherIntoTensor", "Reduce", "AlltoAllV"]


def test_shapes_that_do_not_line_up_with_calls_are_left_out_and_said(capture: Callable[..., Path]) -> None:
    lines = "A;A-op0;1;input_1:[2, 3];\nB;B-op0;1;input_1:[4];input_2:NoShape;\n"
    trace = opened(capture("Default/A-op0;HostCpuOps;1,0.1,0 2,0.1,0 \nDefault/B-op0;HostCpuOps;900000,0.1,0 \n", lines))
    spans = trace.spans.filter(pl.col("kind") == "op").sort("start_ns").collect()
    assert spans["shapes"].cast(pl.String).to_list() == [None, None, "[[4],[]]"]
    assert "such as those of A-op0" in said(trace)


def test_sink_mode_says_that_a_step_is_many_and_repeated_numbers_count_on(capture: Callable[..., Path]) -> None:
    steps = {
        "phase": ["train", "train"],
        "step": np.array([5, 5], np.int32),
        "iterations": np.array([5, 5], np.int32),
        "start_ns": np.array([0, 100], np.int64),
        "end_ns": np.array([100, 200], np.int64),
    }
    trace = opened(capture("Default/A-op0;HostCpuOps;1,0.00001,0 \n", mindspore_steps=steps))
    assert trace.steps.collect()["step"].to_list() == [5, 6]
    assert "2 steps cover several iterations each" in said(trace)
    assert "step numbers repeat" in said(trace)


def test_steps_have_the_numbers_of_whoever_counts_them_and_begin_when_recording_has_begun(capture: Callable[..., Path]) -> None:
    steps = {
        "phase": ["train", "train"],
        "step": np.array([4, 5], np.int32),
        "iterations": np.array([1, 1], np.int32),
        "start_ns": np.array([0, 100], np.int64),
        "end_ns": np.array([100, 200], np.int64),
    }
    marks = {"step": np.array([30, 31, 32], np.int32), "at_ns": np.array([60, 101, 201], np.int64)}
    trace = opened(capture("Default/A-op0;HostCpuOps;70,0.00001,0 \n", mindspore_steps=steps, mindspore_marks=marks))
    assert trace.steps.select("step", "start_ns", "end_ns").collect().rows() == [(30, 60, 100), (31, 100, 200)]


def test_a_step_that_was_begun_is_one_only_if_its_optimizer_was_called(capture: Callable[..., Path]) -> None:
    marks = {"step": np.array([3, 4, 5], np.int32), "at_ns": np.array([0, 100, 200], np.int64)}
    # The call that the last mark was made in belongs to the step before.
    updates = {"start_ns": np.array([90, 190], np.int64), "end_ns": np.array([99, 205], np.int64)}
    trace = opened(capture("Default/A-op0;HostCpuOps;70,0.00001,0 \n", mindspore_marks=marks, mindspore_updates=updates))
    assert trace.steps.select("step", "start_ns", "end_ns").collect().rows() == [(3, 0, 100), (4, 100, 200)]


def test_a_damaged_file_is_named(capture: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"cpu_op_execute_timestamp_0\.txt: expected name;HostCpuOps"):
        opened(capture("Default/A-op0;HostCpuOps;12x,0.1,0 \n"))
