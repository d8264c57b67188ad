"""Answers of commands, kept in the cache: the same question about the same files reads no trace.

It imports neither Polars nor the readers, so an answer in the cache is there in the time that Python takes to start.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepscope.errors import UsageError
from stepscope.io import cache

HEADER = "answer.json"
_MOST_FILES = 2000  # below a folder: with more, looking at each takes longer than many an answer
_LIVE = ".capture"  # a recording that may still grow
_Compute = Callable[[], str]


def cached_answer(path: Path, question: str, options: tuple[Any, ...], compute: _Compute) -> str:
    """The answer to a question about a path: from the cache, or computed and kept there if no file changed until then."""
    key = _key(path, question, options)
    if key is None:
        return compute()
    try:
        answer = cache.load(key, _load)
    except (OSError, UsageError):  # no cache here: what opens the trace reports it
        return compute()
    if answer is None:
        answer = compute()
        if key == _key(path, question, options):
            with contextlib.suppress(cache.UnusableError):
                cache.get_or_build(key, lambda room: _write(room, f"{path} ({question})", answer), _load)
    return answer


def _load(entry: Path) -> str:
    return str(json.loads((entry / HEADER).read_bytes())["answer"])


def _write(room: Path, source: str, answer: str) -> Path:
    folder = room / "answer"
    folder.mkdir()
    (folder / HEADER).write_text(json.dumps({"source": source, "answer": answer}))
    return folder


def _key(path: Path, question: str, options: tuple[Any, ...]) -> str | None:
    """The key of an answer: all code and files that it may depend on. None where there are too many files, or files that grow."""
    code = cache.code_version("analyses", "cli")
    try:
        if not path.is_dir():
            # Readers also read files beside a trace, and in the folder above.
            near = tuple(_near(path.resolve().parent)) + tuple(_near(path.resolve().parent.parent))
            return cache.key(path, question, options, code, str(path.resolve()), near)
        return cache.key(path, question, options, code, tuple(_near(path.resolve().parent))) if _is_small(path) else None
    except (OSError, _TooManyError):
        return None


class _TooManyError(Exception):
    """Too many files."""


def _near(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of the files in a folder."""
    with os.scandir(folder) as files:
        for count, entry in enumerate(files):
            if count == _MOST_FILES:
                raise _TooManyError
            if entry.is_file():
                status = entry.stat()
                yield entry.name, status.st_size, status.st_mtime_ns


def _is_small(folder: Path) -> bool:
    """Whether a folder has few files, no recording that may grow, and no link to another folder."""
    count = 0
    for inside, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        grows = inside.endswith(_LIVE) or any(name.endswith(_LIVE) for name in folders)
        if count > _MOST_FILES or grows or any(os.path.islink(os.path.join(inside, name)) for name in folders):  # noqa: PTH114, PTH118
            return False
    return True
