"""Sessions of torch.profiler that follow each other in one process: no range of one may reach into the next, and nothing is kept alive."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import preloaded
import stepscope
from programs import needs
from stepscope.model.trace import Trace

needs("torch")
SOURCE = Path(stepscope.__file__).parents[1]
HEAD = """
import gc, json, sys, threading, weakref
import torch
from torch import nn
from torch.profiler import record_function
import stepscope
from stepscope import Profiler, schedule
torch.manual_seed(0)
torch.set_num_threads(1)
out = sys.argv[1]
QUIET = dict(output_path=out, host_interval_ms=0)
"""


def run(program: str, folder: Path, *, teardown: bool = False) -> str:
    """What the program prints, run with freed memory overwritten."""
    script = folder / "program.py"
    script.write_text(HEAD + program)
    done = preloaded.run("torch", folder, str(script), str(folder), teardown=teardown, MALLOC_PERTURB_="165")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def windows(folder: Path) -> list[Trace]:
    return [stepscope.open(path, cache=False) for path in sorted(folder.glob("rank*"))]


def problem_texts(trace: Trace) -> list[str]:
    return trace.problems.select("what").collect().to_series().to_list()


def calls(trace: Trace, name: str) -> int:
    return trace.spans.filter(pl.col("name").cast(pl.String) == name).collect().height


def test_a_range_around_all_windows_is_in_each_of_them(tmp_path: Path) -> None:
    run(
        """
x = torch.ones(4)
with Profiler(schedule=schedule(wait=1, active=1, repeat=3), **QUIET) as profiler:
    with record_function("everything"), record_function("inner"), torch._C._profiler._RecordFunctionFast("fast"):
        for _ in range(7):
            x.add(1)
            profiler.step()
""",
        tmp_path,
    )
    found = windows(tmp_path)
    assert len(found) == 3
    # The first window begins inside of the ranges, too, and they were entered after the profiler was made.
    names = ("everything", "inner", "fast", "aten::add")
    assert [tuple(calls(trace, name) for name in names) for trace in found] == [(1, 1, 1, 1)] * 3
    assert [problem_texts(trace) for trace in found] == [[], [], []]


def test_a_fast_range_that_was_imported_before_may_be_open_where_recording_begins_and_ends(tmp_path: Path) -> None:
    run(
        """
from torch._C._profiler import _RecordFunctionFast
x = torch.ones(4)
profiler = Profiler(start_profile=False, **QUIET)
for _ in range(3):
    with _RecordFunctionFast("outer"), _RecordFunctionFast("inner"):
        profiler.start()
        x.add(1)
        profiler.stop()
""",
        tmp_path,
    )
    found = windows(tmp_path)
    assert [(calls(trace, "outer"), calls(trace, "inner"), calls(trace, "aten::add")) for trace in found] == [(1, 1, 1)] * 3


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a with statement no longer refers to the bound __exit__")
def test_no_session_begins_inside_a_fast_range_that_is_older_than_stepscope(tmp_path: Path) -> None:
    run(
        """
x = torch.ones(4)
with torch._C._profiler._RecordFunctionFast("older"):
    profiler = Profiler(**QUIET)
    x.add(1)
profiler.step()
x.add(1)
profiler.step()
profiler.stop()
""",
        tmp_path,
    )
    (trace,) = windows(tmp_path)
    reason = "a range of torch's _RecordFunctionFast is open that began before stepscope"
    assert problem_texts(trace) == [f"PyTorch is recorded from step 1 on: before, {reason}"]
    assert calls(trace, "aten::add") == 1


PLACES = {
    "backward hook": "weight.register_hook(lambda grad: act())",
    "forward hook": "model.register_forward_hook(lambda *_: act())",
    "optimizer hook": "optimizer.register_step_post_hook(lambda *_: act())",
    "autograd function": """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        act()
        return x.clone()
    @staticmethod
    def backward(context, grad):
        return grad.clone()
model.register_forward_hook(lambda module, inputs, output: Function.apply(output))
""",
}


@pytest.mark.parametrize("place", PLACES)
def test_windows_that_begin_and_end_inside_pytorch_crash_nothing_and_say_what_is_missing(place: str, tmp_path: Path) -> None:
    run(
        f"""
model = nn.Linear(4, 4)
weight = model.weight
optimizer = torch.optim.SGD(model.parameters(), 0.1)
profiler = Profiler(schedule=schedule(wait=0, active=1, repeat=20), **QUIET)
def act():
    profiler.step()
{PLACES[place]}
for _ in range(25):
    with record_function("step"):
        loss = model(torch.ones(2, 4)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
profiler.stop()
""",
        tmp_path,
        teardown=True,
    )
    found = windows(tmp_path)
    assert len(found) == 20
    for trace in found[1:]:
        refused = any("PyTorch is not recorded: this is inside an operator of PyTorch" in what for what in problem_texts(trace))
        assert refused == (place == "autograd function")
        assert refused or calls(trace, "aten::linear") == 1


def test_an_iteration_that_was_open_when_recording_began_or_ended_is_no_step(tmp_path: Path) -> None:
    run(
        """
x = torch.ones(4)
profiler = Profiler(start_profile=False, **QUIET)
for number in range(8):
    with record_function(f"iteration {number}"):
        x.add(1)
        if number == 2:
            profiler.start()
        x.add(1)
        if number == 6:
            profiler.stop()
""",
        tmp_path,
    )
    (trace,) = windows(tmp_path)
    assert trace.steps.collect()["step"].to_list() == [3, 4, 5]
    assert [calls(trace, f"iteration {number} (in part)") for number in range(8)] == [0, 0, 1, 0, 0, 0, 1, 0]
    assert [calls(trace, f"iteration {number}") for number in range(8)] == [0, 0, 0, 1, 1, 1, 0, 0]


def test_the_programs_own_profiler_inside_of_a_range_takes_over(tmp_path: Path) -> None:
    printed = run(
        """
x = torch.ones(4)
profiler = Profiler(**QUIET)
with record_function("outer"):
    x.add(1)
    with torch.profiler.profile() as theirs:
        x.mul(2)
        with record_function("inner"):
            x.mul(3)
    x.sub(1)
profiler.stop()
print(sum(event.name == "aten::mul" for event in theirs.events()))
""",
        tmp_path,
    )
    [trace] = windows(tmp_path)
    assert printed.split()[-1] == "2"
    assert (calls(trace, "outer"), calls(trace, "aten::add"), calls(trace, "aten::mul")) == (1, 1, 0)
    assert any("up to where the program's own torch.profiler started" in what for what in problem_texts(trace))


def test_training_in_another_thread_is_recorded_where_it_is_started_there(tmp_path: Path) -> None:
    run(
        """
model = nn.Linear(4, 4)
def train():
    global profiler
    profiler = Profiler(**QUIET)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        profiler.step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
profiler.stop()
""",
        tmp_path,
    )
    [trace] = windows(tmp_path)
    assert calls(trace, "aten::linear") == 3
    assert trace.steps.collect()["step"].to_list() == [0, 1, 2]
    assert problem_texts(trace) == []


@pytest.mark.parametrize("mark", ["profiler.step()", "pass"])
def test_training_in_another_thread_than_the_recorded_one_is_said(mark: str, tmp_path: Path) -> None:
    run(
        f"""
def train():
    for _ in range(3):
        model(torch.ones(4, 4))
        {mark}
model = nn.Linear(4, 4)
with Profiler(**QUIET) as profiler:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
""",
        tmp_path,
    )
    [trace] = windows(tmp_path)
    assert calls(trace, "aten::linear") == 0
    assert any("another thread than the one that started recording trains" in what for what in problem_texts(trace))


def test_modules_are_not_kept_alive_and_those_made_on_the_way_share_a_name(tmp_path: Path) -> None:
    printed = run(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
    def forward(self, x):
        return nn.GELU()(self.first(x))
net, gone = Net(), []
with Profiler(**QUIET) as profiler:
    for _ in range(30):
        model = nn.Sequential(nn.Linear(4, 4))
        gone.append(weakref.ref(model))
        nn.MSELoss()(net(model(torch.ones(2, 4))), torch.ones(2, 4))
        del model
        gc.collect()
        assert gone[-1]() is None
        profiler.step()
""",
        tmp_path,
    )
    assert printed == ""
    [trace] = windows(tmp_path)
    found = {str(name).removeprefix("nn.Module: ") for name in trace.spans.select("name").collect()["name"] if "nn.Module" in str(name)}
    assert found == {"Net", "Net/first", "Net/GELU", "Sequential", "Sequential/0", "MSELoss"}


def test_recording_without_steps_is_bounded_and_says_so(tmp_path: Path) -> None:
    run(
        """
x, steps = torch.ones(4), 0
profiler = Profiler(max_held_events=20_000, **QUIET)
collector = profiler._windows.current._running[1]
while not collector._paused:  # 20,000 events and more, in a loop that marks no step
    for _ in range(100):
        x.add(1)
        steps += 1
for _ in range(1000):
    x.sub(1)
profiler.stop()
""",
        tmp_path,
    )
    [trace] = windows(tmp_path)
    assert calls(trace, "aten::add") > 0
    assert calls(trace, "aten::sub") == 0
    assert any("step 0 is recorded in part: PyTorch holds about 20,000 events" in what for what in problem_texts(trace))
    names = set(trace.spans.select(pl.col("name").cast(pl.String)).collect()["name"])
    assert "not recorded" in names


def test_a_long_recording_pauses_says_so_and_marks_it(tmp_path: Path) -> None:
    trained = int(
        run(
            """
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
profiler = Profiler(max_held_events=2_000, max_pause_percent=50, **QUIET)
notices = profiler._windows.current._running[1]._capture.header["notices"]
steps = 0
while not any("not recorded: writing" in notice["what"] for notice in notices):
    model(torch.ones(2, 4)).sum().backward()
    profiler.step()
    steps += 1
model(torch.ones(2, 4)).sum().backward()
profiler.step()
profiler.stop()
print(steps + 1)
""",
            tmp_path,
        )
    )
    [trace] = windows(tmp_path)
    pauses = [what for what in problem_texts(trace) if what.startswith("training paused for ")]
    left_out = [what for what in problem_texts(trace) if "not recorded: writing may pause training for 50 % of the time" in what]
    assert pauses and left_out
    marks = trace.spans.filter(pl.col("name").cast(pl.String) == "recording paused to write").collect()
    assert marks.height == len(pauses)
    steps = trace.steps.collect()["step"].to_list()
    assert 0 < len(steps) < trained
    per_step = trace.spans.filter(pl.col("name").cast(pl.String) == "aten::linear").group_by("step").len().collect()
    whole = per_step.filter(pl.col("step").is_in(steps))
    assert whole["len"].to_list() == [20] * len(steps)


@pytest.mark.parametrize("what", ["script", "trace", "fx", "export", "compile"])
def test_other_users_of_modules_and_ranges_work_while_recording(what: str, tmp_path: Path) -> None:
    ways: dict[str, Any] = {
        "script": "torch.jit.script(ranged)(x), torch.jit.script(model)(x)",
        "trace": "torch.jit.trace(model, x)(x)",
        "fx": "torch.fx.symbolic_trace(model)(x)",
        "export": "torch.export.export(model, (x,)).module()(x)",
        "compile": "torch.compile(model, backend='eager', fullgraph=True)(x), torch.compile(optimizer.zero_grad, backend='eager')()",
    }
    printed = run(
        f"""
import warnings
def ranged(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.profiler.record_function("scripted"):
        return x + 1
model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def do():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*hook.*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return {ways[what]}
def values():
    results = do()
    return [one.tolist() for one in (results if isinstance(results, tuple) else (results,)) if one is not None]
torch.manual_seed(1)
bare = values()
with Profiler(**QUIET) as profiler:
    same = values()
print(json.dumps(bare == same))
""",
        tmp_path,
    )
    assert json.loads(printed.splitlines()[-1]) is True


_GLOO = """
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
import stepscope
from stepscope import Profiler

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
x = torch.full((4,), rank + 1.0)
if rank == 1:
    while not (folder / "recorded").exists():
        time.sleep(0.01)
    work = dist.all_reduce(x, async_op=True)
else:
    profiler = Profiler(output_path=folder / "data", host_interval_ms=0)
    torch.ones(4).add(1)
    work = dist.all_reduce(x, async_op=True)  # rank 1 joins it only after the recording
    profiler.stop()
    torch.ones(4).mul(2)
    (folder / "recorded").touch()
work.wait()
assert x.tolist() == [3.0] * 4
dist.barrier()
if rank == 0:  # what came of the session is no obstacle for the program's own
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as later:
        torch.ones(4).sub(1)
    assert any(event.key == "aten::sub" for event in later.key_averages())
dist.barrier()
sys.stdout.flush()
os._exit(0)  # a thread of gloo may still hold Python objects
"""


def test_a_collective_that_still_runs_costs_the_events_and_never_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(_GLOO)
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"}
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(tmp_path), str(rank)], stderr=subprocess.PIPE, text=True, env=environment)
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    lost = "PyTorch's events are lost: a collective was still running when the recording ended"
    assert f"stepscope: {lost}" in errors[0]
    (trace,) = windows(tmp_path / "data")
    assert trace.problems.filter(pl.col("what") == lost).collect()["lost"].to_list() == [1]
    assert trace.spans.filter(pl.col("kind") == "op").collect().is_empty()
    verdict = trace.analyse("verdict", topic="overview")["text"].to_list()
    assert not any("idle" in text or "on the CPU" in text for text in verdict), verdict
