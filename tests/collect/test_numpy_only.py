"""Sealed training images: an environment that has numpy and the framework, with what the framework itself needs, and nothing else."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import needs, only, recordings, script, socket_folder

ABSENT = ("polars", "duckdb", "msgspec", "rich", "pyarrow", "pandas", "starlette")
SCRIPTS = Path(__file__).parent / "seed_scripts"
# By framework: six steps of training, its steps by their numbers, and an operator that it has.
JOBS = {
    "torch": (
        """
        import torch

        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


        def train(profiler=None):
            for _ in range(6):
                optimizer.zero_grad()
                net(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
                if profiler:
                    profiler.step()
        """,
        range(6),
        "aten::addmm",
    ),
    "mindspore": (
        """
        import network

        def train(profiler=None):
            network.train(network.Net())
        """,
        range(1, 7),
        "MatMul",
    ),
}
RECORDED = """
from job import train

from stepscope import Profiler

profiler = Profiler(record_shapes=True)
train(profiler)
print(profiler.analyse()[0])
"""


@pytest.fixture(scope="module", params=JOBS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    needs(name)
    return name


@pytest.fixture(scope="module")
def python(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment: no pip, no site-packages of another, only links to what the framework needs, and to us."""
    folder = tmp_path_factory.mktemp(f"only-{framework}")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib*/python*/site-packages"))
    for distribution in needed({framework, "numpy"}):
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            place = Path(str(distribution.locate_file(top)))
            if place.exists() and not (packages / top).exists():
                (packages / top).symlink_to(place)
    (packages / "stepscope").symlink_to(Path(stepscope.__file__).parent)
    return folder / "bin" / "python"


def needed(names: set[str]) -> list[importlib.metadata.Distribution]:
    """These distributions, and all that they say they need and that is installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    while names:
        name = names.pop()
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another platform or Python
            continue
        wanted = [text for text in found[name].requires or [] if "extra ==" not in text]
        names |= {re.split(r"[^\w.-]", text)[0].lower() for text in wanted} - set(found)
    return list(found.values())


@pytest.fixture(scope="module")
def job(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    shutil.copy(SCRIPTS / "network.py", folder)
    script(folder, JOBS[framework][0], "job.py")
    script(folder, "from job import train\n\ntrain()\n")
    script(folder, RECORDED, "recorded.py")
    return folder


def run_python(python: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "MS_", "PYTHON"))}
    own = {"PYTHONDONTWRITEBYTECODE": "1", "STEPSCOPE_JOBS": str(socket_folder(folder)), "STEPSCOPE_CACHE": str(folder / "cache")}
    return subprocess.run([python, *words], cwd=folder, env=keep | own, capture_output=True, text=True, timeout=900, check=False)


def test_nothing_else_is_there(python: Path, framework: str, job: Path) -> None:
    code = f"import importlib.util, numpy, {framework}\nprint([name for name in {ABSENT} if importlib.util.find_spec(name)])"
    done = run_python(python, job, "-c", code)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr
    assert "No module named 'polars'" in run_python(python, job, "-c", "import polars").stderr


@pytest.mark.parametrize("way", ["Profiler", "run"])
def test_a_training_is_recorded_and_opens_elsewhere(way: str, python: Path, framework: str, job: Path) -> None:
    _, numbers, operator = JOBS[framework]
    words = ["recorded.py"] if way == "Profiler" else ["-m", "stepscope", "run", "--out", "run", "--steps", "2:4", "train.py"]
    done = run_python(python, job, *words)
    assert done.returncode == 0, done.stderr
    recording = only(recordings(job / ("data" if way == "Profiler" else "run")))
    assert recording.suffix == ".capture", "there is nothing here to make a run folder with"
    assert recording.name in (done.stdout if way == "Profiler" else done.stderr)
    # On another machine, where the whole of stepscope is.
    trace = stepscope.open(recording, cache=False)
    assert trace.meta.framework == {"torch": "pytorch"}.get(framework, framework)
    assert trace.step_trace()["step"].to_list() == (list(numbers) if way == "Profiler" else [2, 3, 4])
    operators = trace.operators().filter(pl.col("name").str.contains(operator))
    assert operators["calls"].sum() >= trace.step_trace().height and operators["total_ns"].sum() > 0
    assert trace.cpu().height
    assert way == "run" or operators["shapes"].null_count() == 0


@pytest.mark.parametrize("command", [["summary", "data"], ["show", "operators", "data"], ["list", "data"]])
def test_to_look_at_it_there_one_line_says_what_to_install(command: list[str], python: Path, job: Path) -> None:
    done = run_python(python, job, "-m", "stepscope", *command)
    assert done.returncode == 1 and done.stdout == ""
    line = only(done.stderr.splitlines())
    assert line.startswith("stepscope: ") and line.endswith("; pip install polars msgspec rich")
