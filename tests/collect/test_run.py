"""`stepscope run`: a job that nobody edited runs exactly as it would, and is recorded."""

import contextlib
import json
import os
import pty
import signal
import sys
import venv
from pathlib import Path

import pytest

import stepscope
from programs import STEPSCOPE, TORCH, environment, names, needs, only, recordings, run, run_command, script, started, steps
from stepscope.recording import launch

RANGES = """
    import sys, time
    from stepscope import record_function
    for number in range(3):
        with record_function(f"work{number}"):
            time.sleep(0.001)
"""


# The job is what it would have been without us.


WHO = """
    import os, sys, json
    print(json.dumps({"argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path, "cwd": os.getcwd(), "spec": __spec__ is None,
                      "main": sys.modules["__main__"].__dict__ is globals(), "flags": list(sys.flags), "in": sys.stdin.read()}))
"""


@pytest.mark.parametrize("words", [["train.py", "--lr", "0.1", "--steps", "3", "--debug"], ["-m", "train", "-m", "--help"]])
def test_a_script_cannot_tell_that_it_is_recorded(tmp_path: Path, words: list[str]) -> None:
    script(tmp_path, WHO)
    bare, under = run_command(tmp_path, sys.executable, *words), run(tmp_path, *words)
    assert bare.returncode == under.returncode == 0, under.stderr
    assert json.loads(under.stdout) == json.loads(bare.stdout)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('bad')", 1),
        ("raise ValueError('oh')", 1),
        ("import os; os._exit(5)", 5),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)", -signal.SIGINT),
    ],
)
def test_however_a_job_ends_its_exit_code_is_its_own_and_what_it_recorded_is_whole(tmp_path: Path, ending: str, code: int) -> None:
    script(tmp_path, RANGES + f"    {ending}\n")
    bare, under = run_command(tmp_path, sys.executable, "train.py"), run(tmp_path, "train.py")
    assert (bare.returncode, under.returncode) == (code, code)
    recording = only(recordings(tmp_path / "data"))
    assert {"work0", "work1", "work2"} <= names(recording)
    assert f"recorded {recording.relative_to(tmp_path)}; open it with: stepscope view" in under.stderr
    assert under.stdout == bare.stdout == ""


def test_a_job_that_is_killed_leaves_its_exit_code_and_a_recording_that_opens(tmp_path: Path) -> None:
    script(tmp_path, RANGES + "    import os; os.kill(os.getpid(), 9)\n")
    assert run(tmp_path, "train.py").returncode == -signal.SIGKILL
    for recording in recordings(tmp_path / "data"):
        stepscope.open(recording, cache=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_signals_reach_the_job(tmp_path: Path, number: signal.Signals) -> None:
    script(
        tmp_path,
        f"""
        import signal, sys, time
        signal.signal({int(number)}, lambda number, frame: sys.exit(40))
        print("ready", flush=True)
        time.sleep(600)
        """,
    )
    with started(tmp_path, *STEPSCOPE, "run", "train.py") as job:
        assert job.stdout is not None and job.stdout.readline() == "ready\n"
        job.send_signal(number)
        assert job.wait(300) == 40


def test_ctrl_c_on_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import signal, sys, time
        count = 0
        def heard(number, frame):
            global count
            count += 1
        signal.signal(signal.SIGINT, heard)
        print("ready", flush=True)
        end = time.monotonic() + 1
        while not count or time.monotonic() < end:
            time.sleep(0.1)
        sys.exit(50 + count)
        """,
    )
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [*STEPSCOPE, "run", "train.py"], environment(tmp_path))
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while os.read(terminal, 1000):
            pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 51


def test_the_sitecustomize_of_the_environment_still_runs_and_ours_leaves_no_trace(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    script(other, "import sys; sys.theirs = True", "sitecustomize.py")
    script(tmp_path, "import sys; print(sys.theirs, [path for path in sys.path if 'startup' in path])")
    under = run(tmp_path, "train.py", PYTHONPATH=os.pathsep.join([str(Path(stepscope.__file__).parent.parent), str(other)]))
    assert under.stdout == "True []\n", under.stderr


def test_what_a_shell_script_starts_is_recorded_too(tmp_path: Path) -> None:
    script(tmp_path, RANGES)
    command = tmp_path / "start.sh"
    command.write_text(f"#!/bin/sh\n{sys.executable} train.py\nexit 3\n")
    command.chmod(0o755)
    assert run(tmp_path, "./start.sh").returncode == 3
    assert "work0" in names(only(recordings(tmp_path / "data")))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing SCRIPT"),
        (["absent.py"], "absent.py: no such script"),
        (["no-such-command"], "no-such-command: neither a script nor a command"),
        (["--steps", "five", "train.py"], "steps is 'five'; expected FIRST:LAST"),
        (["--steps", "5:4", "train.py"], "steps is '5:4'; expected FIRST:LAST, such as 2:5 for the steps 2, 3, 4 and 5"),
        (["--seconds", "0", "train.py"], "--seconds is '0'; expected a number greater than 0"),
        (["--idle", "--steps", "1:2", "train.py"], "--steps, --seconds and --idle exclude one another"),
        (["--level", "Level9", "train.py"], "expected a member of ProfilerLevel: LevelNone, Level0, Level1, Level2"),
        (["--out", "/proc/nowhere", "train.py"], "--out is '/proc/nowhere', which cannot be written: "),
        (["--out", "train.py", "train.py"], "train.py', which cannot be written: "),
        (["--profiling-options", "{", "train.py"], "--profiling-options is not valid JSON"),
        (["--profiling-options", "[" * 100_000, "train.py"], "--profiling-options is not valid JSON"),
        (["--profiling-options", '{"aic_metric": "Memory"}', "train.py"], "has no 'aic_metric'; did you mean 'aic_metrics'?"),
    ],
)
def test_wrong_use_is_said_before_the_job_starts(tmp_path: Path, words: list[str], message: str) -> None:
    script(tmp_path, "print('ran')")
    under = run(tmp_path, *words)
    assert under.returncode == 2 and message in under.stderr and not under.stdout and under.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("pass", [], "nothing was recorded: the job imported neither torch, mindspore, jax nor tensorflow"),
        ("pass", ["--idle"], ""),
    ],
)
def test_a_job_with_nothing_to_record_says_so_and_leaves_nothing(tmp_path: Path, text: str, words: list[str], message: str) -> None:
    script(tmp_path, text)
    under = run(tmp_path, *words, "train.py")
    assert under.returncode == 0 and (message in under.stderr if message else not under.stderr)
    assert not (tmp_path / "data").exists()


def test_folders_made_for_a_recording_that_never_was_go_again(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    (tmp_path / "there").mkdir()
    run(tmp_path, "--out", "there/a/b", "--", "train.py")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["there"] and not list((tmp_path / "there").iterdir())


def test_a_python_that_ignores_its_environment_is_told_of(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    assert "python -I, -E and -S leave PYTHONPATH out" in run(tmp_path, sys.executable, "-I", "train.py").stderr


def test_the_options_of_ascends_tensorflow_adapter_are_understood(tmp_path: Path) -> None:
    script(tmp_path, RANGES)
    settings = {
        "output": str(tmp_path / "prof"),
        "training_trace": "on",
        "task_trace": "on",
        "fp_point": "",
        "bp_point": "last",
        "aic_metrics": "Memory",
    }
    under = run(tmp_path, "--profiling-options", json.dumps(settings | {"storage_limit": "200MB"}), "train.py")
    options = stepscope.open(only(recordings(tmp_path / "prof")), cache=False).meta.options
    assert {name: options[name] for name in ("bp_end", "fp_start", "aic_metrics")} == {
        "bp_end": "last",
        "fp_start": None,
        "aic_metrics": "Memory",
    }
    assert "storage_limit has no effect in stepscope" in under.stderr


def test_recording_needs_numpy_alone(tmp_path: Path) -> None:
    """An environment with numpy and nothing else records; this one opens what it left."""
    import numpy

    place = tmp_path / "sealed"
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    for found in Path(numpy.__file__).parent.parent.glob("numpy*"):
        (packages / found.name).symlink_to(found)
    script(tmp_path, RANGES + "    assert not {'polars', 'msgspec', 'rich'} & set(sys.modules)\n")
    python = str(place / "bin" / "python")
    assert run_command(tmp_path, python, "-c", "import polars").returncode == 1
    under = run_command(tmp_path, python, "-m", "stepscope", "run", "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert under.returncode == 0 and recording.suffix == ".capture" and f"recorded {recording.relative_to(tmp_path)}" in under.stderr
    assert {"work0", "work1", "work2"} <= names(recording)


@pytest.mark.parametrize("framework", ["python", "jax", "torch"])
def test_the_environment_variable_starts_a_profiler_whatever_the_job_computes_with(tmp_path: Path, framework: str) -> None:
    if framework != "python":
        needs(framework)
    imports = "" if framework == "python" else f"    import {framework}\n"
    script(tmp_path, imports + RANGES)
    settings = {"start": True, "output_path": "asked", "host_interval_ms": 0, "metadata": {"by": "variable"}}
    under = run(tmp_path, "train.py", MS_PROFILER_OPTIONS=json.dumps(settings))
    recording = only(recordings(tmp_path / "asked"))
    assert f"recorded {recording.relative_to(tmp_path)}; open it with: " in under.stderr and not (tmp_path / "data").exists()
    trace = stepscope.open(recording, cache=False)
    assert trace.meta.extra["metadata"] == {"by": "variable"}
    assert trace.annotations()["name"].sort().to_list() == ["work0", "work1", "work2"]


def test_the_last_line_says_that_a_recording_is_incomplete_and_why(tmp_path: Path) -> None:
    needs("torch")
    job = "    import resource\n    train(50)\n    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    script(tmp_path, TORCH + job)
    under = run(tmp_path, "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert under.stderr.splitlines()[-1].startswith(
        f"stepscope: recorded {recording.relative_to(tmp_path)}, which is incomplete (File too large); open it with: "
    )
    problems = dict(stepscope.open(recording, cache=False).problems.select("what", "lost").collect().rows())
    assert problems["steps 0 to 49: operators were not written: File too large"] == 50
    assert (
        sum(lost for what, lost in problems.items() if what.endswith("rows of the table 'torch' could not be written: File too large")) > 50
    )


# Programs that show no sign of training, such as loops over plain tensors.

UNTIL_RECORDED = """
    import json, pathlib, time
    def headers():
        for file in pathlib.Path("data").glob("*/*.capture/capture.json"):
            try:
                yield json.loads(file.read_text())
            except FileNotFoundError:  # it gave way to another
                pass
    def recorded(base=None):
        return any(header["whole"] and header.get("base") == base for header in headers())
"""


def test_seconds_record_a_loop_over_plain_tensors(tmp_path: Path) -> None:
    needs("torch")
    loop = "    import torch\n    x = torch.ones(8, 8)\n    while not recorded('torch'):\n        x = torch.tanh(x @ x)\n"
    script(tmp_path, UNTIL_RECORDED + loop)
    under = run(tmp_path, "--seconds", "0.3", "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert {"aten::mm", "aten::tanh"} <= names(recording)
    assert under.returncode == 0 and under.stderr.count("recorded") == 1, under.stderr


def test_seconds_record_a_program_without_a_framework(tmp_path: Path) -> None:
    script(tmp_path, UNTIL_RECORDED + "    while not recorded():\n        pass\n")
    under = run(tmp_path, "--seconds", "0.5", "--stack", "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert any(name.endswith(": recorded") for name in names(recording)), names(recording)
    assert under.returncode == 0 and "nothing was recorded" not in under.stderr


def test_seconds_count_from_the_first_call_of_a_module_though_something_was_recorded_before(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, UNTIL_RECORDED + TORCH + "    while not recorded('torch'):\n        torch.ones(8).sin()\n    train(3)\n")
    run(tmp_path, "--seconds", "0.3", "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert "aten::sin" not in names(recording) and "aten::addmm" in names(recording)


def test_seconds_record_no_python_that_the_program_starts(tmp_path: Path) -> None:
    script(tmp_path, UNTIL_RECORDED + "    while not recorded():\n        time.sleep(0.01)\n", "inner.py")
    script(
        tmp_path,
        UNTIL_RECORDED
        + "    import subprocess, sys\n    inner = subprocess.Popen([sys.executable, 'inner.py'])\n"
        + "    while not recorded():\n        time.sleep(0.01)\n    inner.wait()\n",
    )
    under = run(tmp_path, "--seconds", "1", "train.py")
    assert only(recordings(tmp_path / "data")) and under.stderr.count("\n") == 1, under.stderr


def test_what_was_asked_for_is_not_recommended_where_nothing_was_recorded() -> None:
    lines = [{"pid": 1, "steps": 0, "seen": ["torch"]}]
    for seen in (lines, [{"pid": 1, "steps": 0, "seen": []}], [{"pid": 1, "steps": 0, "seen": ["jax"]}]):
        assert "--seconds" not in launch._why_nothing(seen, {"seconds": 30.0})
        assert "--seconds" in launch._why_nothing(seen, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"start": true, "profiler_levle": 1}', "a Profiler has no argument 'profiler_levle'; did you mean 'profiler_level'? The"),
        ('{"strat": true}', "there is no option 'strat'; did you mean 'start'? The"),
        ('{"start": true, "profiler_level": 7}', "profiler_level is 7; expected -1 to 2; the"),
        ('{"start": tru}', "Expecting value: line 1 column 11 (char 10); the"),
    ],
)
def test_a_mistake_in_the_environment_variable_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(3)\n")
    under = run(tmp_path, "train.py", MS_PROFILER_OPTIONS=text)
    assert (under.returncode, under.stderr) == (
        0,
        f"stepscope: MS_PROFILER_OPTIONS: {why} program continues without being recorded\n",
    )
    assert not recordings(tmp_path)


# PyTorch


def test_the_steps_asked_for_are_recorded_counted_from_0_by_the_optimizer(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(8)\n")
    under = run(tmp_path, "--steps", "2:4", "--shapes", "--out", "out", "train.py")
    recording = only(recordings(tmp_path / "out"))
    assert under.returncode == 0 and steps(recording) == [2, 3, 4]
    trace = stepscope.open(recording, cache=False)
    # Three steps of two linear layers: six forward multiplications.
    assert trace.spans.select("name").collect()["name"].to_list().count("aten::addmm") == 6
    assert trace.meta.options["record_shapes"] is True


def test_without_steps_everything_is_recorded_from_the_first_call_of_the_model(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    time.sleep(0.3)\n    train(4)\n")
    run(tmp_path, "train.py")
    trace = stepscope.open(only(recordings(tmp_path / "data")), cache=False)
    assert trace.steps.collect()["step"].to_list() == [0, 1, 2, 3]


def test_steps_that_the_job_never_reached_are_told_of(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(3)\n")
    under = run(tmp_path, "--steps", "10:19", "train.py")
    assert under.returncode == 0 and "the program ended in step 3, before step 10" in under.stderr and not (tmp_path / "data").exists()


def test_a_profiler_of_the_programs_own_comes_first(tmp_path: Path) -> None:
    needs("torch")
    own = """
    with torch.profiler.profile() as profiler:
        train(2)
    print(sum(event.name == "aten::addmm" for event in profiler.events()))
    """
    script(tmp_path, TORCH + "    train(2)\n" + own)
    under = run(tmp_path, "train.py")
    assert under.stdout == "4\n"
    assert "the program's own profiler has precedence" in under.stderr
    request = run(tmp_path, "--steps", "1:3", "train.py")
    assert request.stdout == "4\n" and "recording ended in step 2: the program's own profiler took over" in request.stderr
    assert steps(only(recordings(tmp_path / "data"))) == [1]


def test_of_two_optimizers_one_counts(tmp_path: Path) -> None:
    needs("torch")
    both = """
    other = torch.optim.Adam(net[0].parameters())
    for number in range(4):
        train(1)
        other.step()
    """
    script(tmp_path, TORCH + both)
    run(tmp_path, "--steps", "1:2", "train.py")
    assert steps(only(recordings(tmp_path / "data"))) == [1, 2]


def test_workers_that_load_data_are_not_recorded_whether_forked_or_spawned(tmp_path: Path) -> None:
    needs("torch")
    loading = """
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return torch.randn(8)
    if __name__ == "__main__":
        for method in ("fork", "spawn"):
            for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1, multiprocessing_context=method):
                train(1)
    """
    script(tmp_path, TORCH + loading)
    under = run(tmp_path, "train.py")
    assert under.returncode == 0, under.stderr
    assert steps(only(recordings(tmp_path / "data"))) == [0, 1, 2, 3]


def test_every_rank_that_torchrun_starts_is_recorded_and_they_open_as_one(tmp_path: Path) -> None:
    needs("torch")
    # os._exit: a thread of gloo gives back Python objects of the last backward pass when it comes to it. Where that is after the
    # interpreter has begun to go, PyTorch 2.13 aborts the process, with us or without.
    ranks = """
    import os, torch.distributed as dist
    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(5)
    dist.destroy_process_group()
    os._exit(0)
    """
    script(tmp_path, TORCH + ranks)
    under = run(tmp_path, "--steps", "1:3", "torchrun", "--nproc-per-node", "2", "--standalone", "train.py")
    assert under.returncode == 0, under.stderr
    job = only(list((tmp_path / "data").iterdir()))
    assert f"recorded data/{job.name}; open it with: stepscope view data/{job.name}" in under.stderr
    trace = stepscope.open(job, cache=False)
    assert trace.meta.ranks == [0, 1]
    found = trace.steps.collect().sort("rank", "step")
    assert list(zip(found["rank"], found["step"], strict=True)) == [(rank, step) for rank in (0, 1) for step in (1, 2, 3)]
    # Gradients are summed at the end of each step: no rank is a step ahead of the other.
    for step in (1, 2, 3):
        one, other = found.filter(step=step).select("start_ns", "end_ns").rows()
        assert one[0] < other[1] and other[0] < one[1]


def test_ranks_that_the_program_spawns_itself_are_told_apart(tmp_path: Path) -> None:
    needs("torch")
    spawning = """
    import os, torch.distributed as dist
    def work(rank):
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank, world_size=2)
        train(3)
        dist.destroy_process_group()
    if __name__ == "__main__":
        train(0)
        net(torch.randn(1, 8))
        torch.multiprocessing.spawn(work, nprocs=2)
    """
    script(tmp_path, TORCH + spawning)
    under = run(tmp_path, "train.py")
    assert under.returncode == 0, under.stderr
    trace = stepscope.open(only(list((tmp_path / "data").iterdir())), cache=False)
    assert trace.meta.ranks == [0, 1] and trace.steps.collect().height == 6, "what only started the others is left out"


def test_a_failing_rank_ends_the_job_with_torchruns_exit_code(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, "import sys; sys.exit(9)")
    words = ["torchrun", "--nproc-per-node", "1", "--standalone", "train.py"]
    assert run(tmp_path, *words).returncode == run_command(tmp_path, *words).returncode != 0


# JAX


def test_jax_is_recorded_by_its_step_annotations_or_as_a_whole(tmp_path: Path) -> None:
    needs("jax")
    script(
        tmp_path,
        """
        import sys
        import jax, jax.numpy as jnp
        step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
        w, x = jnp.ones((8, 4)), jnp.ones((2, 8))
        for number in range(6):
            if sys.argv[1] == "marked":
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    w = step(w, x).block_until_ready()
            else:
                w = step(w, x).block_until_ready()
        """,
    )
    run(tmp_path, "--steps", "2:4", "--out", "marked", "train.py", "marked")
    assert steps(only(recordings(tmp_path / "marked"))) == [2, 3, 4]
    unmarked = run(tmp_path, "--steps", "2:4", "--out", "unmarked", "train.py", "unmarked")
    assert "the program ended in step 0, before step 2" in unmarked.stderr
    run(tmp_path, "--out", "whole", "train.py", "unmarked")
    assert any("dot" in name for name in names(only(recordings(tmp_path / "whole"))))


# TensorFlow

# What is hooked, with nothing behind it: test_tensorflow.py has the real one, which is not installed everywhere.
STAND_IN = {
    "tensorflow/__init__.py": """
        from types import SimpleNamespace as Names
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
        from tensorflow.python.profiler import profiler_v2
        class GradientTape:
            def gradient(self): ...
        class Dataset:
            def __iter__(self): return iter(())
        class Trace:
            def __init__(self, name, **kwargs): ...
            def __enter__(self): ...
            def __exit__(self, *args): ...
        data = Names(Dataset=Dataset)
        profiler = Names(experimental=Names(Trace=Trace, start=profiler_v2.start))
        function = Function
    """,
    "tensorflow/python/eager/polymorphic_function/polymorphic_function.py": """
        class Function:
            def __init__(self, body): self.body, self.traced = body, False
            def __call__(self):
                if not self.traced: self.body()
                self.traced = True
    """,
    "tensorflow/python/profiler/profiler_v2.py": "def start(logdir, options=None): ...",
}


@pytest.mark.parametrize(
    ("loop", "count"),
    [
        ("train(); evaluate()", 6),  # computes gradients while it is traced, once; the other never
        ("generator(); discriminator()", 6),  # of two that train, a round counts
        ("outer()", 6),  # calls another that trains
        ("with tf.profiler.experimental.Trace('train', step_num=number): train(); train()", 6),
        ("with tf.profiler.experimental.Trace('a range'): train(); train()", 12),
        ("evaluate()", 0),
    ],
)
def test_a_step_of_tensorflow_is_the_outermost_call_that_computes_gradients_unless_steps_are_marked(
    tmp_path: Path, loop: str, count: int
) -> None:
    for name, content in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        script((tmp_path / name).parent, content, (tmp_path / name).name)
    body = "".join(f"{name} = tf.function(lambda: tf.GradientTape().gradient())\n" for name in ("train", "generator", "discriminator"))
    script(
        tmp_path,
        f"import tensorflow as tf\n{body}evaluate = tf.function(lambda: None)\nouter = tf.function(lambda: train())\n"
        f"for number in range(6):\n    {loop}\n",
    )
    done = run(tmp_path, "--steps", "100:101", "train.py")
    assert done.returncode == 0
    assert f"the program ended in step {count}, before step 100" in done.stderr
