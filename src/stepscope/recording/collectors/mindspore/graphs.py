"""The graphs that MindSpore compiles, as text: data types, shapes, Python lines, and the forward operator of each gradient.

MindSpore writes them when it compiles, and only on request: `request` requests them, `copy_to` copies the files.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# The last pass before kernels are chosen is enough, and a twentieth of the output of all passes.
_VARIABLES = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_DUMP_IR_PASSES": "graph_build"}
_PATH = "MS_DEV_SAVE_GRAPHS_PATH"
_folder: Path | None = None
_requested = False


def request() -> None:
    """From now on graphs are written. Where the user has set the variables, the graphs are copied from the user's folder."""
    global _folder, _requested  # noqa: PLW0603 - a process has one environment
    if _requested or any(name in os.environ for name in (*_VARIABLES, _PATH)):
        return
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="stepscope.graphs."))
        atexit.register(_remove, _folder, os.getpid())
    os.environ |= {**_VARIABLES, _PATH: str(_folder)}
    _requested = True


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child must not remove it
        shutil.rmtree(folder, ignore_errors=True)


def withdraw() -> None:
    """Restore the environment."""
    global _requested  # noqa: PLW0603
    if _requested:
        _requested = False
        for name in (*_VARIABLES, _PATH):
            os.environ.pop(name, None)


def copy_to(target: Path) -> None:
    """Copy the graphs that were compiled so far."""
    users_folder = os.environ.get(_PATH)
    folder = Path(users_folder) if users_folder else _folder
    for number, file in enumerate(sorted(folder.rglob("graph_build_*.ir")) if folder and folder.is_dir() else []):
        target.mkdir(exist_ok=True)
        shutil.copyfile(file, target / f"graph_build_{number:06d}.ir")  # without its mode: MindSpore's files are read-only
