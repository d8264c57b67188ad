"""The ways in which MindSpore's documentation turns profiling on: each works with another import line, and as it is under `run`."""

import json
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

import preloaded
import stepscope
from key_averages import nothing_but_itself
from programs import free_port, needs, only, recordings, run, run_command
from stepscope.model.trace import Trace
from volume import mostly_deep

SCRIPTS = Path(__file__).parent / "seed_scripts"
# The script, and the steps that it records: MindSpore counts from 1, six steps an epoch; a loop of one's own that marks none from 0.
WAYS = {
    "by_step": [2, 3, 4],
    "by_epoch": [7, 8, 9, 10, 11, 12],
    "custom_loop": [0, 1, 2],
    "callback": [2, 3, 4],
    "unprofiled": [1, 2, 3, 4, 5, 6],
    "dynamic_config": [3, 4, 5],
}
# As the documentation of 2.3 shows them.
VARIABLE = {
    "start": True,
    "output_path": "OUT",
    "profile_memory": True,
    "data_process": True,
    "data_simplification": False,
    "profile_communication": False,
    "aicore_metrics": -1,
    "l2_cache": False,
}
CONFIG = {
    "start_step": 3,
    "stop_step": 5,
    "aicore_metrics": -1,
    "profiler_level": -1,
    "profile_framework": -1,
    "analyse_mode": 0,
    "profile_memory": True,
    "data_simplification": False,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "dyn_cfg").mkdir()
    (tmp_path / "dyn_cfg" / "profiler_config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def variables(way: str, folder: Path) -> dict[str, str]:
    options = json.dumps(VARIABLE | {"output_path": str(folder / "profiler_data")})
    return {"MS_PROFILER_OPTIONS": options} if way == "unprofiled" else {}


def finished(folder: Path) -> Path:
    """The one run folder below. The scripts ask that what MindSpore itself wrote is kept inside, in `raw`."""
    recording: Path = only([path for path in recordings(folder) if path.name != "raw"])
    assert recording.suffix != ".capture", "analyse() was called"
    return recording


def check_mindspore(way: str, folder: Path, under_run: bool = False) -> None:
    """The run folder holds what the script did, in every table: the steps that it chose, and operators as MindSpore adds them up."""
    recording = finished(folder)
    assert not list(folder.rglob("*ascend_ms*")), "MindSpore's own profiler has recorded"
    trace = stepscope.open(recording, cache=False)
    assert trace.meta.framework == "mindspore"
    check_operators(trace, recording)
    check_steps(trace, way, under_run)
    check_input(trace, ["BatchOp", "GeneratorOp"] if way == "custom_loop" else ["GeneratorOp"])
    check_host(trace)
    check_memory(trace)


def check_operators(trace: Trace, recording: Path) -> None:
    ours = trace.spans.filter(pl.col("op_type").is_not_null()).group_by(pl.col("name").cast(pl.String))
    found = {name: (calls, total) for name, calls, total in ours.agg(pl.len(), pl.col("dur_ns").sum()).collect().iter_rows()}
    expected_calls = pl.concat([pl.read_csv(file) for file in recording.glob("raw/mindspore/*/cpu_op_detail_info_*.csv")])
    sums = expected_calls.group_by("full_op_name").agg(pl.col("op_occurrences").sum(), pl.col("op_total_time(ms)").sum())
    assert {name: calls for name, (calls, _) in found.items()} == {name: calls for name, calls, _ in sums.iter_rows()}
    for name, _, total_ms in sums.iter_rows():
        assert found[name][1] == pytest.approx(total_ms * 1e6, rel=0.01)
    operators = trace.analyse("operators")
    assert operators["total_ns"].sum() == pytest.approx(expected_calls["op_total_time(ms)"].sum() * 1e6, rel=0.01)
    matmul = operators.filter(operators["type"].cast(str).str.contains("MatMul"))
    assert matmul["calls"].sum() >= 3 and matmul["total_ns"].min() > 0


def check_steps(trace: Trace, way: str, under_run: bool) -> None:
    found = trace.analyse("step_trace")
    # `stepscope run` has counted the two steps before the script starts its profiler.
    expected = [2, 3, 4] if way == "custom_loop" and under_run else WAYS[way]
    assert found.height and found["total_ns"].min() > 0 and found["step"].to_list() == expected
    assert (found["interval_ns"] + found["fp_bp_ns"] + found["tail_ns"] == found["total_ns"]).all()
    assert (found["fp_bp_ns"] > 0).all()


def check_input(trace: Trace, operators: list[str]) -> None:
    rows = trace.analyse("data_pipeline").filter(pl.col("op_type") != "EpochCtrlOp")  # which MindSpore may put in front
    assert rows["op_type"].to_list() == operators
    assert rows["workers"].min() >= 1 and set(rows["queue_capacity"]) == {16}
    assert rows["parent"].to_list()[1:] == rows["op_id"].to_list()[:-1]
    assert rows["batch_ns"].max() > 0
    waits = trace.analyse("data_queues").filter(pl.col("step").is_not_null()).join(trace.analyse("step_trace"), on="step")
    assert waits.height and (waits["wait_ns"] < waits["total_ns"]).all()


def check_host(trace: Trace) -> None:
    rows = trace.analyse("cpu")
    machine, process = (rows.filter(pl.col("of") == of, pl.col("interval_ns").is_not_null()) for of in ("machine", "process"))
    # A machine counts in ticks of 10 ms: of a shorter window it may not be able to tell.
    shares = machine.select("user_share", "system_share", "io_share", "idle_share", "steal_share").drop_nulls()
    assert shares.sum_horizontal().to_list() == pytest.approx([1.0] * shares.height, abs=0.02)
    assert process["user_share"].is_between(0, 1.05).all() and process["busy_cores"].max() > 0
    assert process["memory_bytes"].min() > 100e6 and (machine["memory_bytes"].max() >= process["memory_bytes"].max() / 4)


def check_memory(trace: Trace) -> None:
    rows = trace.analyse("memory")
    window = trace.meta.extra
    assert set(rows["device"]) == {"cpu"} and rows["at_ns"].is_between(window["start_ns"], window["end_ns"]).all()
    assert 0 < rows["allocated_bytes"].max() <= rows["reserved_bytes"].max()
    # Two layers of two by two numbers of four bytes, and little else.
    assert rows["allocated_bytes"].max() < 1e6


# Each example in one mode here and in the other one below; MindSpore takes seconds to start.
IN_MODES = [(way, mode) for way in WAYS for mode in ("graph", "pynative")]
ONE_MODE_EACH = [(way, ("graph", "pynative")[number % 2]) for number, way in enumerate(WAYS)]


@pytest.mark.parametrize(("way", "mode"), mostly_deep(IN_MODES, ONE_MODE_EACH))
def test_under_run_mindspores_examples_are_recorded_unchanged(way: str, mode: str, folder: Path) -> None:
    needs("mindspore")
    done = run(folder, f"{way}.py", MODE=mode, **variables(way, folder))
    assert done.returncode == 0, done.stderr
    check_mindspore(way, folder, under_run=True)
    assert f"recorded {finished(folder).relative_to(folder)}; open it with: " in done.stderr


@pytest.mark.parametrize(("way", "mode"), mostly_deep(IN_MODES, set(IN_MODES) - set(ONE_MODE_EACH)))
def test_mindspores_examples_are_recorded_with_another_import_line(way: str, mode: str, folder: Path) -> None:
    needs("mindspore")
    text = (folder / f"{way}.py").read_text()
    changed = (
        text.replace("from mindspore import Profiler, nn", "from mindspore import nn\nfrom stepscope import Profiler")
        .replace("from mindspore import Profiler", "from stepscope import Profiler")
        .replace("from mindspore.profiler import", "from stepscope import")
    )
    if way == "unprofiled":
        changed = "import stepscope.mindspore\n" + text
    assert changed != text
    (folder / f"{way}.py").write_text(changed)
    done = run_command(folder, sys.executable, f"{way}.py", MODE=mode, **variables(way, folder))
    assert done.returncode == 0, done.stderr
    check_mindspore(way, folder)


@pytest.mark.parametrize("name", ["mindspore.Profiler", "mindspore.profiler.Profiler", "mindspore.profiler.profiler.Profiler"])
def test_whatever_name_a_script_knows_it_by_the_profiler_is_ours(name: str, folder: Path) -> None:
    needs("mindspore")
    module, _, attribute = name.rpartition(".")
    (folder / "who.py").write_text(
        f"""
import mindspore
from {module} import {attribute}
from mindspore.profiler import DynamicProfilerMonitor, ProfilerActivity, ProfilerLevel, mstx, profile, schedule, tensorboard_trace_handler
from mindspore.profiler.dynamic_profiler import DynamicProfilerMonitor as other
print({{thing.__module__.split(".")[0] for thing in
       ({attribute}, DynamicProfilerMonitor, ProfilerActivity, ProfilerLevel, mstx, profile, schedule, tensorboard_trace_handler, other)}})
"""
    )
    assert run(folder, "--idle", "who.py").stdout == "{'stepscope'}\n"


UNDER = [(way, under) for way in WAYS for under in ("plain", "run")]


@pytest.mark.parametrize(
    ("way", "under"), mostly_deep(UNDER, {*UNDER} - {("by_epoch", "run"), ("callback", "run"), ("custom_loop", "run")})
)
def test_the_same_ways_record_pytorch(way: str, under: str, folder: Path) -> None:
    needs("torch")
    if way == "unprofiled" and under == "plain":
        text = (folder / "torch_ways.py").read_text()
        start = "from stepscope.recording.environment import from_environment\nfrom_environment()\n"
        (folder / "torch_ways.py").write_text(text.replace("import torch\n", f"import torch\n{start}"))
    words = ["torch_ways.py", way]
    given = variables(way, folder)
    done = run(folder, *words, **given) if under == "run" else preloaded.run("torch", folder, *words, variables=given)
    assert done.returncode == 0, done.stderr
    trace = stepscope.open(finished(folder), cache=False)
    assert trace.spans.select("name").collect()["name"].to_list().count("aten::addmm") == 3 * 2  # two linear layers forward in each step
    steps = trace.steps.select("step").collect()["step"].to_list()
    assert steps == {"custom_loop": [0, 1, 2], "dynamic_config": [3, 4, 5]}.get(way, steps)
    # Exactly what torch.profiler's own summary of the session says.
    summary_rows = json.loads((folder / "summary.json").read_text())
    ours = trace.analyse("operators").group_by("name").agg(pl.col("calls", "total_ns", "self_ns").sum())
    twice = nothing_but_itself(trace)
    found = {
        name: [calls - len(twice.get(name, [])), total - sum(twice.get(name, [])), own] for name, calls, total, own in ours.iter_rows()
    }
    assert found == {name: row for name, row in summary_rows.items() if not name.startswith(("ProfilerStep", "Optimizer.", "nn.Module"))}
    assert len(summary_rows) > 10
    check_host(trace)


LOOPS = [("jit", "graph"), ("jit", "pynative"), ("eager", "pynative"), ("cell", "graph")]


@pytest.mark.parametrize(("kind", "mode"), mostly_deep(LOOPS, keep=[("jit", "pynative"), ("eager", "pynative"), ("cell", "graph")]))
def test_a_mindspore_loop_of_ones_own_has_steps_where_its_optimizer_is_called(kind: str, mode: str, folder: Path) -> None:
    needs("mindspore")
    done = run(folder, "--steps", "2:4", "functional.py", kind, MODE=mode)
    assert done.returncode == 0, done.stderr
    trace = stepscope.open(only(recordings(folder / "data")), cache=False)
    assert trace.steps.select("step").collect()["step"].to_list() == [2, 3, 4]
    assert trace.analyse("operators").height


def test_every_rank_that_msrun_starts_is_recorded(folder: Path) -> None:
    needs("mindspore")
    (folder / "ranks.py").write_text(
        """
import mindspore as ms
from mindspore.communication import init
from network import Net, train
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=2)
train(Net())
"""
    )
    words = ["msrun", "--worker_num=2", "--local_worker_num=2", f"--master_port={free_port()}", "--log_dir=logs", "--join=True", "ranks.py"]
    done = run(folder, "--steps", "2:3", *words)
    assert done.returncode == 0, done.stderr
    trace = stepscope.open(only(list((folder / "data").iterdir())), cache=False)
    assert trace.steps.sort("rank", "step").select("rank", "step").collect().rows() == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert trace.analyse("communication")["rank"].unique().to_list() == [0, 1]
