"""Readers: one folder per file format. Its module `reader` has `FORMAT` (its name for users), `sniff(path)` and `read(path, options)`.

The folder is the registry: a folder with a `reader.py` is a format, named after the folder. Code for several formats is in `common`.
"""

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from stepscope.model.trace import Trace
from stepscope.readers.common.name_parts import with_group_suffixes


def no_progress(done: int, total: int) -> None:
    """A progress function that does nothing."""


class Options(msgspec.Struct, kw_only=True):
    """How to read."""

    scratch: Path  # an empty folder of the caller, for large intermediate files; the Trace may read from it
    partial: bool = False  # read the intact part of a damaged file
    rank: int | None = None  # for files that do not contain their rank
    progress: Callable[[int, int], None] = no_progress  # bytes done, bytes in all


@functools.cache  # called once per file of a folder, which may have thousands
def _modules() -> dict[str, str]:
    """Module of each reader by the name of its format: the folders here, or one level down, that have a `reader.py`."""
    root = Path(__file__).parent
    folders = sorted(file.parent for pattern in ("*/reader.py", "*/*/reader.py") for file in root.glob(pattern))
    return {folder.name: ".".join((__name__, *folder.relative_to(root).parts, "reader")) for folder in folders}


def names() -> list[str]:
    return sorted(_modules())


def module(name: str) -> ModuleType:
    return importlib.import_module(_modules()[name])


def formats() -> list[str]:
    """The names of all formats for users, the most common first."""
    common = ("chrome", "xplane", "prof", "ascend_result")
    return [module(name).FORMAT for name in sorted(names(), key=lambda name: common.index(name) if name in common else len(common))]


def sniff(path: Path) -> str | None:
    """The name of the reader for this path, by its content; None if there is none."""
    return next((name for name in names() if module(name).sniff(path)), None)


def read(path: Path, name: str, options: Options) -> Trace:
    trace: Trace = with_group_suffixes(module(name).read(path, options))
    return trace.with_problems(list(_lost_files(path, trace))) if path.is_dir() else trace


_MARKS = (".done", ".complete")  # endings of empty files that mark a file of the same name as written
_DEPTH = 4


def _lost_files(folder: Path, trace: Trace) -> Iterator[dict[str, Any]]:
    """Rows of `problems` for files of a recording that are empty, and for missing files that a mark lists."""
    reported = set[str]()
    for where, path in trace.problems.select("where", "file").collect().iter_rows():
        reported |= {Path(word).name for text in (where, path) for word in (text or "").split()}
    rank = trace.meta.ranks[0] if trace.meta.ranks else 0
    for inside, folders, names in os.walk(folder):
        depth = len(Path(inside).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if depth < _DEPTH and not name.startswith(".") and name != "sqlite")
        for name in sorted(names):
            base = next((name.removesuffix(mark) for mark in _MARKS if name.endswith(mark)), None)
            if base is None:
                # The reader of CANN's recordings knows which files may be empty.
                lost = "the file is empty" if "PROF_" not in inside and _is_empty(Path(inside) / name) else None
            else:
                lost = f"missing, though {name} is there" if base != "all_file" and base not in names else None
            file = base or name
            if lost and file not in reported and not file.startswith("."):
                yield {"rank": rank, "file": str(folder), "where": str(Path(inside, file).relative_to(folder)), "what": lost, "lost": 1}


def _is_empty(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size == 0
    except OSError:
        return False


def rank(path: Path, name: str) -> int | None:
    """The rank of a recording, where the format has it beside the data; None where only reading shows it, -1 for a job without ranks."""
    read_rank: Callable[[Path], int | None] | None = getattr(module(name), "rank", None)
    return read_rank(path) if read_rank else None


def first_step(path: Path, name: str) -> int | None:
    """The number of the first step that a recording names; None where the format has none or only reading all of it shows it."""
    read_step: Callable[[Path], int | None] | None = getattr(module(name), "first_step", None)
    return read_step(path) if read_step else None


def beside(path: Path, name: str) -> list[Path]:
    """The files outside of a recording that its reader also reads."""
    find_files: Callable[[Path], list[Path]] | None = getattr(module(name), "beside", None)
    return find_files(path) if find_files else []
