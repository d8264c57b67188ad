"""Open a run: a run folder, a file that a reader knows, or a folder of ranks."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stepscope import readers
from stepscope.errors import DataError, UnknownFormatError, UsageError
from stepscope.io import cache as run_cache
from stepscope.io import conversion, discover
from stepscope.io.discover import Group, Recording, Source, rank_in_name
from stepscope.io.host_names import with_host
from stepscope.io.open_source import SourceOpener
from stepscope.io.sources import find_sources, known_formats
from stepscope.io.unwritten import Unwritten
from stepscope.model import units
from stepscope.model.steps import step_choice
from stepscope.model.steps.windows import join_windows
from stepscope.model.trace import Trace, combine, unread_problem
from stepscope.process.worker import Progress
from stepscope.readers.common.unknown_files import folder_hint


def open(
    path: str | os.PathLike[str],
    *,
    partial: bool = False,
    step_name: str | None = None,
    rank: int | None = None,
    cache: bool = True,
    progress: Progress = readers.no_progress,
    read: conversion.Read = conversion.read_here,
    pins: run_cache.Pins | None = None,
    unwritten: Unwritten | None = None,
) -> Trace:
    """The trace at `path`: any file or folder a reader knows, or a folder of ranks.

    `partial` reads the intact part of a truncated file. `step_name` chooses the steps (`Trace.with_steps`). `rank` opens only that rank of
    a folder. Converted recordings are kept in the user's cache (`stepscope cache`). `read` chooses the process that converts,
    `pins` protects cache entries from removal until they are released; without it, until the process ends. With `unwritten`, entries of
    smaller recordings are written later, by the caller.
    """
    root, unread = Path(path), list[DataError]()
    sources = list(find_sources(root, unread.append))
    if not sources:
        reason = next((error for error in unread if not isinstance(error, UnknownFormatError)), None)
        hint = f"; {_first_error(unread)}" if unread else f": {folder_hint(root)}"
        raise reason or UnknownFormatError(root, f"no trace in this folder{hint}. {known_formats()}")
    opener = SourceOpener(partial=partial, use_cache=cache, progress=progress, read=read, pins=pins, unwritten=unwritten)
    return open_ranks(sources, root, opener, rank=rank, step_name=step_name, unread=unread)


def open_ranks(
    sources: list[Source],
    root: Path,
    opener: SourceOpener,
    *,
    step_name: str | None = None,
    rank: int | None = None,
    unread: Iterable[DataError] = (),
) -> Trace:
    """The ranks of one run, found at or below `root`, as one trace. Ranks that cannot be read, and `unread`, are rows of `problems`."""
    errors = list(unread)
    ranks = _Ranks(root, list(discover.groups(sources, errors)), errors)
    ranks.open(opener, rank)
    if opener.built:
        run_cache.trim()
    trace = ranks.combine(rank)
    return trace if step_name is None else step_choice.with_steps(trace, step_name)


class _Ranks:
    """The traces of the ranks in a folder, and why others cannot be read."""

    def __init__(self, root: Path, groups: list[Group], unread: list[DataError]) -> None:
        self._root, self._groups = root, groups
        self._traces: list[Trace] = []
        self._group_of_rank: dict[int, Group] = {}
        self._path_of_rank: dict[int, str] = {}
        errors = [error for group in groups for error in group.unread] + discover.unread_alone(groups, unread)
        self._failed = [(error, discover.rank_of(Path(error.path))) for error in errors]

    def open(self, opener: SourceOpener, rank: int | None) -> None:
        """Open every rank, or only `rank`. Ranks in names are hints: a wrong one costs time and changes no result."""
        for group in self._groups:
            for recording in sorted(group.recordings, key=lambda recording: rank is not None and not _may_have(recording, rank)):
                if rank is not None and _is_other_rank(recording, rank, is_open=rank in self._group_of_rank):
                    continue
                try:
                    trace, errors = open_recording(recording, opener)
                except DataError as error:
                    if not discover.has_others(recording, group, self._groups):
                        raise
                    self._failed.append((error, expected_rank(recording)))
                    continue
                self._failed += [(error, trace.meta.ranks[0]) for error in errors]
                if rank is None or rank in trace.meta.ranks:
                    self._add(trace, group, str(recording.sources[0].path), rank)

    def _add(self, trace: Trace, group: Group, path: str, rank: int | None) -> None:
        for opened in trace.meta.ranks if rank is None else [rank]:
            if opened in self._group_of_rank:
                paths = f"{self._path_of_rank[opened]} and {path}"
                hint = f"`stepscope list {self._root}` shows the {len(self._groups)} runs here"
                raise DataError(self._root, f"two recordings of rank {opened}: {paths}; open one of them ({hint})")
            self._group_of_rank[opened], self._path_of_rank[opened] = group, path
        self._traces.append(trace)

    def combine(self, rank: int | None) -> Trace:
        """One trace of all ranks, or of `rank`."""
        failed = [(error, failed_rank) for error, failed_rank in self._failed if rank is None or failed_rank in (rank, None)]
        if not self._traces:
            first = sorted(failed, key=lambda failure: rank is not None and failure[1] is None)
            raise first[0][0] if first else UsageError(f"{self._root}: no rank {rank} here")
        trace = combine(self._traces)
        if len(self._traces) > 1 or (self._failed and rank is None):
            trace = trace.with_meta(source=str(self._root))
        problems = _beyond_world(self._traces) if rank is None else []
        trace = trace if rank is None else trace.of_rank(rank)
        remarks = [group.remark for group in self._groups if group.remark and group in self._group_of_rank.values()]
        rows = [{"rank": trace.meta.ranks[0], "what": remark, "lost": 0} for remark in remarks]
        return trace.with_problems(problems + rows + [unread_problem(error, failed_rank) for error, failed_rank in failed])


def _beyond_world(traces: list[Trace]) -> list[dict[str, Any]]:
    """A row of `problems` where a recording of a rank contradicts the size of the job."""
    size = max((trace.meta.world_size or 0 for trace in traces), default=0)
    beyond = [trace for trace in traces if size and max(trace.meta.ranks, default=-1) >= size]
    fault = f"the recordings say that the job has {units.count(size, 'rank')}, but there is a recording of rank "
    return [{"rank": max(t.meta.ranks), "file": t.meta.source, "what": f"{fault}{max(t.meta.ranks)}", "lost": 0} for t in beyond]


def open_recording(recording: Recording, opener: SourceOpener) -> tuple[Trace, list[DataError]]:
    """The windows of one process as one trace, with the rank that it has in the run, and the errors of windows that cannot be read."""
    windows, errors = list[Trace](), list[DataError]()
    for source in recording.sources:
        try:
            windows.append(opener.open(source))
        except DataError as error:
            errors.append(error)
    if not windows:
        raise errors[0]
    trace = with_host(join_windows(windows), recording.sources[0].path)
    if len(recording.sources) > 1:
        trace = trace.with_meta(source=str(recording.sources[0].path.parent))
    return (trace if recording.rank is None else trace.as_rank(recording.rank)), errors


def _may_have(recording: Recording, rank: int) -> bool:
    return rank_in_name(recording.sources[0].path) in (rank, None)


def _is_other_rank(recording: Recording, rank: int, *, is_open: bool) -> bool:
    """Whether a recording need not be opened: it has another rank, or the rank is open and the name has another one."""
    return recording.rank != rank if recording.rank is not None else is_open and not _may_have(recording, rank)


def expected_rank(recording: Recording) -> int | None:
    """The rank of a recording that is not open yet; None where its name does not contain it."""
    source = recording.sources[0]
    return discover.rank_of(source.path, source.format) if recording.rank is None else recording.rank


def _first_error(errors: list[DataError]) -> str:
    return f"{errors[0]}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
