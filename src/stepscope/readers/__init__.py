"""One module per file format: `sniff(path)` says whether it is of this format, `read(path, options)` gives the Trace, `FORMAT` names it.

The folder is the registry: a module here whose name does not start with an underscore is a reader.
"""

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from stepscope.trace import Trace


def silent(done: int, total: int) -> None:
    """The progress report of a caller who wants none."""


class Options(msgspec.Struct, kw_only=True):
    """How to read."""

    scratch: Path  # an empty folder of the caller's, for large intermediate files; the Trace may read from it
    partial: bool = False  # read what is whole of a truncated file
    rank: int | None = None  # where the file itself does not say
    progress: Callable[[int, int], None] = silent  # bytes done, bytes in all


@functools.cache  # asked once per file of a folder that may hold thousands
def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def formats() -> list[str]:
    """Every format in users' words, those that most users have first."""
    most = ("chrome", "xplane", "prof", "ascend_result")
    return [module(name).FORMAT for name in sorted(names(), key=lambda name: most.index(name) if name in most else len(most))]


def sniff(path: Path) -> str | None:
    """The name of the reader that claims this path, judged by its content; None if nobody does."""
    return next((name for name in names() if module(name).sniff(path)), None)


def read(path: Path, name: str, options: Options) -> Trace:
    trace: Trace = module(name).read(path, options)
    return trace.with_problems(list(_lost_files(path, trace))) if path.is_dir() else trace


_MARKS = (".done", ".complete")  # empty files beside the recorded ones: what is before these endings was written
_DEPTH = 4


def _lost_files(folder: Path, trace: Trace) -> Iterator[dict[str, Any]]:
    """Rows of `problems` for files of a recording that are empty, and for those that a mark beside them says were there."""
    named = set[str]()
    for where, file in trace.problems.select("where", "file").collect().iter_rows():
        named |= {Path(word).name for text in (where, file) for word in (text or "").split()}
    rank = trace.meta.ranks[0] if trace.meta.ranks else 0
    for inside, folders, names in os.walk(folder):
        depth = len(Path(inside).relative_to(folder).parts)
        folders[:] = sorted(one for one in folders if depth < _DEPTH and not one.startswith(".") and one != "sqlite")
        for name in sorted(names):
            base = next((name.removesuffix(mark) for mark in _MARKS if name.endswith(mark)), None)
            if base is None:
                # Of what CANN records, its reader knows which files may be empty.
                lost = "the file is empty" if "PROF_" not in inside and _is_empty(Path(inside) / name) else None
            else:
                lost = f"missing, though {name} is there" if base != "all_file" and base not in names else None
            about = base or name
            if lost and about not in named and not about.startswith("."):
                yield {"rank": rank, "file": str(folder), "where": str(Path(inside, about).relative_to(folder)), "what": lost, "lost": 1}


def _is_empty(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size == 0
    except OSError:
        return False


def rank(path: Path, name: str) -> int | None:
    """Whose the recording is, where the format says so beside its data; None where only reading tells, -1 of a job without ranks."""
    ask: Callable[[Path], int | None] | None = getattr(module(name), "rank", None)
    return ask(path) if ask else None


def beside(path: Path, name: str) -> list[Path]:
    """The files outside of a recording that are read with it, where there are any: what they say is part of what it becomes."""
    ask: Callable[[Path], list[Path]] | None = getattr(module(name), "beside", None)
    return ask(path) if ask else []
