"""Programs of their own, started as a user would: what they said, and what they left."""

import hashlib
import importlib.util
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import stepscope

SOURCE = str(Path(stepscope.__file__).parent.parent)
TENSORFLOW = Path(__file__).parent.parent / ".venv-tensorflow"
STEPSCOPE = [sys.executable, "-m", "stepscope"]
# A small training of PyTorch, as the beginning of a script.
TORCH = """
    import sys, time
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    def train(count):
        for number in range(count):
            optimizer.zero_grad()
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
"""


def needs(framework: str) -> None:
    """Skip the test, or the module that is being imported, where the framework is left out or not installed. Does not import it."""
    chosen = os.environ.get("STEPSCOPE_TEST_FRAMEWORKS")
    if chosen is not None and framework not in chosen.replace(",", " ").split():
        pytest.skip(f"{framework}: left out by FRAMEWORKS={chosen}", allow_module_level=True)
    own_environment = TENSORFLOW / ".made"
    if not (own_environment.exists() if framework == "tensorflow" else importlib.util.find_spec(framework)):
        pytest.skip(f"{framework}: not installed, which `make test` does", allow_module_level=True)


def tensorflow_python() -> str:
    """The Python of the environment of TensorFlow. Skips where there is none."""
    needs("tensorflow")
    return str(TENSORFLOW / "bin" / "python")


def socket_folder(folder: Path) -> Path:
    """Where jobs of this folder listen for `stepscope attach`: a short path, as the address of a Unix socket has 107 bytes at most."""
    room = os.environ.get("STEPSCOPE_TEST_SOCKETS")
    return Path(room) / hashlib.sha256(os.fsencode(folder)).hexdigest()[:8] if room else folder / "sockets"


def environment(folder: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", "STEPSCOPE_JOBS": str(socket_folder(folder)), "PATH": path}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "MS_"))}
    return inherited | own | {"STEPSCOPE_CACHE": str(folder / "cache")} | more


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def run_command(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the folder, and wait for its end."""
    return subprocess.run(words, cwd=folder, env=environment(folder, **more), capture_output=True, text=True, timeout=900, check=False)


def run(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """stepscope run."""
    return run_command(folder, *STEPSCOPE, "run", *words, **more)


def started(folder: Path, *words: str, stdin: int | None = None, **more: str) -> "subprocess.Popen[str]":
    variables = environment(folder, **more)
    return subprocess.Popen(words, cwd=folder, env=variables, text=True, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def free_port() -> int:
    """One that nobody listens on: several of these tests may run on a machine at a time."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def recordings(folder: Path) -> list[Path]:
    """The run folders below, and captures that have not become one."""
    return sorted({path.parent for name in ("run.json", "capture.json") for path in folder.rglob(name)})


def only(found: list[Any]) -> Any:
    assert len(found) == 1, found
    return found[0]


def steps(recording: Path) -> list[int]:
    return stepscope.open(recording, cache=False).steps.select("step").collect()["step"].to_list()


def names(recording: Path) -> set[str]:
    return set(stepscope.open(recording, cache=False).spans.select("name").collect()["name"].to_list())
