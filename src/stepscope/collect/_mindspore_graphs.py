"""The graphs that MindSpore compiles, as text: data types, shapes, Python lines, and which forward operator a gradient belongs to.

MindSpore writes them when it compiles, and only if asked before: `expect` asks, `copy_to` takes what is there.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# The last pass before kernels are chosen is enough, and a twentieth of what all passes write.
_WANTED = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_DUMP_IR_PASSES": "graph_build"}
_WHERE = "MS_DEV_SAVE_GRAPHS_PATH"
_folder: Path | None = None
_asking = False


def expect() -> None:
    """From now on graphs are written. A user who has them written already is left alone: they are found there."""
    global _folder, _asking  # noqa: PLW0603 - the environment, too, is one in a process
    if _asking or any(name in os.environ for name in (*_WANTED, _WHERE)):
        return
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="stepscope.graphs."))
        atexit.register(_remove, _folder, os.getpid())
    os.environ |= {**_WANTED, _WHERE: str(_folder)}
    _asking = True


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not a forked child's to remove
        shutil.rmtree(folder, ignore_errors=True)


def enough() -> None:
    """The environment is again as it was."""
    global _asking  # noqa: PLW0603
    if _asking:
        _asking = False
        for name in (*_WANTED, _WHERE):
            os.environ.pop(name, None)


def copy_to(target: Path) -> None:
    """The graphs compiled so far."""
    users = os.environ.get(_WHERE)
    where = Path(users) if users else _folder
    for number, file in enumerate(sorted(where.rglob("graph_build_*.ir")) if where and where.is_dir() else []):
        target.mkdir(exist_ok=True)
        shutil.copyfile(file, target / f"graph_build_{number:06d}.ir")  # not its mode: MindSpore's files are read-only
