"""Programs of their own, started as a user would: what they said, and what they left."""

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
    """Skips where it is not installed, and does not import it here."""
    import importlib.util

    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"no {framework} here")


def tensorflow_python() -> str:
    """The Python of TensorFlow's own environment. Skips where there is none."""
    own = Path(__file__).parent.parent / ".venv-tensorflow" / "bin" / "python"
    if not (own.parent.parent / ".made").exists():
        pytest.skip("TensorFlow's environment is missing: make tensorflow")
    return str(own)


def environment(folder: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", "STEPSCOPE_JOBS": str(folder / "sockets"), "PATH": path}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "MS_"))}
    return inherited | own | {"STEPSCOPE_CACHE": str(folder / "cache")} | more


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def said(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """The command, run to its end in the folder."""
    return subprocess.run(words, cwd=folder, env=environment(folder, **more), capture_output=True, text=True, timeout=900, check=False)


def run(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """stepscope run."""
    return said(folder, *STEPSCOPE, "run", *words, **more)


def started(folder: Path, *words: str, stdin: int | None = None, **more: str) -> "subprocess.Popen[str]":
    pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=folder, env=environment(folder, **more), text=True, **pipes)


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
