"""The ways in which MindSpore's documentation turns profiling on: each works with another import line, and as it is under `run`."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import stepscope
from programs import needs, only, recordings, run, said

SCRIPTS = Path(__file__).parent / "seed_scripts"
# The script, and the steps that it records: MindSpore counts from 1, six steps an epoch; a loop of one's own that marks none from 0.
WAYS = {
    "by_step": [2, 3, 4],
    "by_epoch": [7, 8, 9, 10, 11, 12],
    "custom_loop": None,
    "callback": [2, 3, 4],
    "unprofiled": [1, 2, 3, 4, 5, 6],
    "dynamic_config": [3, 4, 5],
}
# As the documentation of 2.3 shows them.
VARIABLE = {
    "start": True,
    "output_path": "OUT",
    "profile_memory": True,
    "profile_communication": False,
    "aicore_metrics": -1,
    "l2_cache": False,
}
CONFIG = {"start_step": 3, "stop_step": 5, "aicore_metrics": -1, "profiler_level": -1, "profile_framework": -1, "analyse_mode": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "dyn_cfg").mkdir()
    (tmp_path / "dyn_cfg" / "profiler_config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def variables(way: str, folder: Path) -> dict[str, str]:
    options = json.dumps(VARIABLE | {"output_path": str(folder / "profiler_data")})
    return {"MS_PROFILER_OPTIONS": options} if way == "unprofiled" else {}


def check_mindspore(way: str, folder: Path, *, watched: bool) -> None:
    """One run folder, with the operators of the network and the steps that the script chose."""
    recording = only([path for path in recordings(folder) if "profiler_config" not in path.name])
    assert recording.suffix != ".capture", "analyse() was called"
    assert not list(folder.rglob("*ascend_ms*")), "MindSpore's own profiler has recorded"
    trace = stepscope.open(recording, cache=False)
    assert trace.meta.framework == "mindspore"
    operators = trace.analyse("operators")
    matmul = operators.filter(operators["type"].cast(str).str.contains("MatMul"))
    assert matmul["calls"].sum() >= 3 and matmul["total_ns"].min() > 0
    found = trace.analyse("step_trace")
    expected = WAYS[way]
    if way == "callback" and not watched and found["step"].to_list() != expected:
        expected = [3, 4]  # a profiler made in the callback of a step comes too late to see that step begin, unless `run` has been watching
    assert found.height and found["total_ns"].min() > 0 and (expected is None or found["step"].to_list() == expected)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("way", WAYS)
def test_under_run_mindspores_examples_are_recorded_unchanged(way: str, mode: str, folder: Path) -> None:
    needs("mindspore")
    done = run(folder, f"{way}.py", MODE=mode, **variables(way, folder))
    assert done.returncode == 0, done.stderr
    check_mindspore(way, folder, watched=True)
    assert f"recorded {only(recordings(folder)).relative_to(folder)}; look at it" in done.stderr


@pytest.mark.parametrize(("way", "mode"), [(way, ("graph", "pynative")[index % 2]) for index, way in enumerate(WAYS)])
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
    done = said(folder, sys.executable, f"{way}.py", MODE=mode, **variables(way, folder))
    assert done.returncode == 0, done.stderr
    check_mindspore(way, folder, watched=False)


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


@pytest.mark.parametrize("under", [False, True], ids=["plain", "run"])
@pytest.mark.parametrize(
    ("way", "multiplications"),
    # Two linear layers: two multiplications forward for each step recorded.
    [("by_step", 6), ("by_epoch", 6), ("custom_loop", 6), ("callback", 6), ("unprofiled", 6), ("dynamic_config", 6)],
)
def test_the_same_ways_record_pytorch(way: str, multiplications: int, under: bool, folder: Path) -> None:
    needs("torch")
    if way == "unprofiled" and not under:
        text = (folder / "torch_ways.py").read_text()
        start = "from stepscope.profiler import from_environment\nfrom_environment()\n"
        (folder / "torch_ways.py").write_text(text.replace("import torch\n", f"import torch\n{start}"))
    words = ["torch_ways.py", way]
    done = run(folder, *words, **variables(way, folder)) if under else said(folder, sys.executable, *words, **variables(way, folder))
    assert done.returncode == 0, done.stderr
    recording = only(recordings(folder))
    assert recording.suffix != ".capture"
    trace = stepscope.open(recording, cache=False)
    assert trace.spans.select("name").collect()["name"].to_list().count("aten::addmm") == multiplications
    steps = trace.steps.select("step").collect()["step"].to_list()
    assert steps == {"custom_loop": [0, 1, 2], "dynamic_config": [3, 4, 5]}.get(way, steps)


@pytest.mark.parametrize(("kind", "mode"), [("jit", "graph"), ("eager", "pynative"), ("cell", "graph")])
def test_a_mindspore_loop_of_ones_own_has_steps_where_its_optimizer_is_called(kind: str, mode: str, folder: Path) -> None:
    needs("mindspore")
    done = run(folder, "--steps", "2:5", "functional.py", kind, MODE=mode)
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
    words = ["msrun", "--worker_num=2", "--local_worker_num=2", "--master_port=8347", "--log_dir=logs", "--join=True", "ranks.py"]
    done = run(folder, "--steps", "2:4", *words)
    assert done.returncode == 0, done.stderr
    trace = stepscope.open(only(list((folder / "data").iterdir())), cache=False)
    assert trace.steps.sort("rank", "step").select("rank", "step").collect().rows() == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert trace.analyse("communication")["rank"].unique().to_list() == [0, 1]
