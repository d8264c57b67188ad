"""Open anything: a run folder, a file that a reader knows, or a folder of them that are the ranks of one run."""

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stepscope import cache as kept
from stepscope import readers, store
from stepscope.errors import DataError, UnknownFormatError, UsageError
from stepscope.trace import Trace, combine

# How deep below a folder traces are looked for: plugins/profile/DATE/host.xplane.pb below a log folder is four.
DEPTH = 6


class Source(msgspec.Struct, frozen=True):
    """Something that can be opened by itself: a path and the reader that claims it ("run" for a run folder)."""

    path: Path
    format: str


def open(
    path: str | os.PathLike[str],
    *,
    partial: bool = False,
    step_name: str | None = None,
    rank: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] = readers.silent,
) -> Trace:
    """The trace at `path`: any file or folder a reader knows, or a folder of ranks.

    `partial` reads what is whole of a truncated file. `step_name` names the annotation that marks a step where the trace has no
    step markers. `rank` opens only that rank of a folder. What took long to read is kept in the user's cache (`stepscope cache`).
    """
    where = Path(path)
    found = list(sources(where))
    if not found:
        raise UnknownFormatError(where, "no trace in this folder; expected " + _expected())
    traces = [_open_one(source, partial, step_name, cache, progress) for source in found]
    if rank is not None:
        traces = [trace for trace in traces if rank in trace.meta.ranks]
        if not traces:
            raise UsageError(f"{where}: no rank {rank} here")
    by_rank: dict[int, str] = {}
    for trace in traces:
        for one in trace.meta.ranks:
            if one in by_rank:
                raise DataError(
                    where,
                    f"two recordings of rank {one}: {by_rank[one]} and {trace.meta.source}; open one of them, or one of their folders",
                )
            by_rank[one] = trace.meta.source
    trace = combine(traces)
    return trace.of_rank(rank) if rank is not None else trace


def sources(path: Path) -> Iterator[Source]:
    """Every trace at or below a path, without reading it."""
    if not path.exists():
        raise DataError(path, "no such file or folder")
    if store.sniff(path):
        yield Source(path, "run")
    elif (name := _sniff(path)) is not None:
        yield Source(path, name)
    elif path.is_file():
        if path.stat().st_size == 0:
            raise DataError(path, "the file is empty")
        raise UnknownFormatError(path, "not a trace that stepscope knows; expected " + _expected())
    else:
        yield from _below(path, DEPTH)


def _below(folder: Path, depth: int) -> Iterator[Source]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(folder, error.strerror or str(error)) from error
    for path in inside:
        if path.name.startswith("."):
            continue
        if store.sniff(path):
            yield Source(path, "run")
        elif (name := _sniff(path)) is not None:
            yield Source(path, name)
        elif path.is_dir() and depth > 1 and not path.is_symlink():
            yield from _below(path, depth - 1)


def _sniff(path: Path) -> str | None:
    try:
        return readers.sniff(path)
    except OSError as error:
        raise DataError(path, error.strerror or str(error)) from error


def _open_one(source: Source, partial: bool, step_name: str | None, cache: bool, progress: Callable[[int, int], None]) -> Trace:
    if source.format == "run":
        return store.read(source.path)
    rank = _rank_in_name(source.path)
    keep = None
    if cache and source.path.is_file():
        keep = kept.folder() / kept.key(source.path, source.format, partial, step_name, rank)
        if store.sniff(keep):
            kept.touch(keep)
            trace = store.read(keep)
            trace.meta.source = str(source.path)
            return trace
        try:
            keep.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            keep = None  # no cache to be had here: read anew each time
    temporary = Path(tempfile.mkdtemp(prefix=".reading.", dir=keep.parent if keep else None))
    try:
        scratch = temporary / "scratch"
        scratch.mkdir()
        options = readers.Options(scratch=scratch, partial=partial, step_name=step_name, rank=rank, progress=progress)
        trace = readers.read(source.path, source.format, options)
        trace.meta.source = str(source.path)
        run = keep or temporary / "run"
        if not store.sniff(run):
            store.write(trace, run)
        trace = store.read(run)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if keep:
        shutil.rmtree(temporary, ignore_errors=True)
        kept.trim(keep)
    else:
        shutil.rmtree(scratch, ignore_errors=True)
        weakref.finalize(trace, shutil.rmtree, str(temporary), ignore_errors=True)
    return trace


def _rank_in_name(path: Path) -> int | None:
    """rank3, rank-3, rank_3 in the file's own name."""
    match = re.search(r"rank[-_]?(\d+)", path.name, re.IGNORECASE)
    return int(match[1]) if match else None


def _expected() -> str:
    return "a run folder or one of: " + ", ".join(readers.names())
