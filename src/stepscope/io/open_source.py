"""One source as a trace: from the cache, or converted into a run folder now."""

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

from stepscope import readers
from stepscope.errors import DataError, NoRoomError, UsageError
from stepscope.io import cache, cache_folder, conversion, store
from stepscope.io.discover import Source, rank_in_name
from stepscope.io.sources import check_access, file_states, files_beside
from stepscope.io.unwritten import Unwritten
from stepscope.model import captures
from stepscope.model.trace import Trace
from stepscope.process.worker import Progress

_ATTEMPTS = 2
_CHANGED = "changed while it was being read, twice"
_PINS = cache.Pins()  # for callers without pins of their own: until the process ends


class SourceOpener:
    """Opens sources, all with the same options. The caller trims the cache when there are `built` entries."""

    def __init__(
        self,
        *,
        partial: bool = False,
        use_cache: bool = True,
        progress: Progress = readers.no_progress,
        read: conversion.Read = conversion.read_here,
        room: Path | None = None,
        pins: cache.Pins | None = None,
        unwritten: Unwritten | None = None,
    ) -> None:
        self._partial, self._use_cache, self._progress, self._read = partial, use_cache, progress, read
        self._room, self._pins, self._unwritten = room, _PINS if pins is None else pins, unwritten
        if use_cache:
            cache.limit()  # a wrong limit is refused before anything is read
        self.built: list[Path] = []

    def open(self, source: Source) -> Trace:
        """The trace. A source that changes while it is read is read once more."""
        if source.format == "run":
            return store.read(source.path)
        if source.format == "capture":
            return self._open_capture(source)
        for attempt in range(_ATTEMPTS):
            last = attempt + 1 == _ATTEMPTS
            tolerant = last and source.path.is_dir()  # log files may grow in a folder for as long as its job runs
            before = check_access(lambda: file_states(source), source.path)

            def changed(before: object = before) -> bool:
                return check_access(lambda: file_states(source), source.path) != before

            def check(changed: Callable[[], bool] = changed, tolerant: bool = tolerant) -> None:
                if not tolerant and changed():
                    raise DataError(source.path, f"{_CHANGED}; open it again when no process writes to it")

            try:
                trace = self._convert_uncached(source, check) if tolerant else self._from_cache(source, check)
            except DataError:
                if last or not changed():
                    raise
                continue
            problem = {"rank": trace.meta.ranks[0], "file": str(source.path), "what": _CHANGED, "lost": 0}
            return trace.with_problems([problem] if tolerant and changed() else [])
        raise AssertionError

    def _open_capture(self, source: Source) -> Trace:
        """A capture grows, which its reader expects. When its job ends, it may become a run folder while it is read: then that is read."""
        run = captures.run_folder(source.path)

        def check() -> None:
            if not (source.path / captures.HEADER).is_file():  # its tables would seem to be empty
                raise DataError(source.path, "was moved or removed while it was being read; open it again")

        try:
            return self._convert_uncached(source, check)
        except DataError:
            if source.path.is_dir() or not store.sniff(run):
                raise
            return store.read(run)

    def _from_cache(self, source: Source, check: Callable[[], None]) -> Trace:
        if not self._use_cache:
            return self._convert_uncached(source, check)
        key = check_access(lambda: _cache_key(source, self._partial), source.path)

        def load(entry: Path) -> Trace:
            return _renamed(store.read(entry), source.path)

        try:
            if self._unwritten is not None:
                with contextlib.suppress(OSError, NoRoomError, UsageError):  # of the cache: the next lines try again, and report it
                    trace = cache.load(key, load, self._pins)
                    trace = trace or self._unwritten.convert(key, functools.partial(self._task, source), self._progress, check)
                    if trace is not None:
                        return trace
            return cache.get_or_build(
                key, lambda room: self._convert(source, room, check), load, pins=self._pins, on_built=self.built.append
            )
        except cache.UnusableError as error:
            trace = self._convert_uncached(source, check)
            cache.report_unusable(error)
            return trace

    def _task(self, source: Source, room: Path) -> conversion.Task:
        return conversion.Task(str(source.path), source.format, str(room), self._partial, rank_in_name(source.path))

    def _convert(self, source: Source, room: Path, check: Callable[[], None]) -> Path:
        """The run folder of a source, in `room`. `check` raises an error if the source has changed."""
        task = self._task(source, room)
        self._read(task, self._progress)
        check()
        return task.run

    def _convert_uncached(self, source: Source, check: Callable[[], None]) -> Trace:
        """Convert into a folder in `room`, which the caller removes, or into a temporary folder until the process ends."""
        folder = Path(tempfile.mkdtemp(prefix="stepscope.", dir=self._room))
        try:
            run = self._convert(source, folder, check)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if self._room is None:
            # Tables are read lazily, perhaps from a trace derived from this one: the files stay as long as the process.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            cache.seal(run)
            self._pins.watch(run)
        return store.read(run)


def cached_run(source: Source, *, partial: bool = False) -> Path | None:
    """The run folder in the cache that a source has, or would have; None for sources that are not cached."""
    if source.format in ("run", "capture"):
        return None
    try:
        return cache_folder.trusted_folder() / _cache_key(source, partial)
    except (UsageError, PermissionError) as error:
        cache.report_unusable(error)
        return None


def _cache_key(source: Source, partial: bool) -> str:
    return cache.key(source.path, source.format, partial, rank_in_name(source.path), beside=files_beside(source))


def _renamed(trace: Trace, path: Path) -> Trace:
    """The trace of an entry that was converted when its source had another name."""
    old, new = trace.meta.source, str(path)
    if old == new:
        return trace
    file = pl.col("file")
    moved = pl.when((file == old) | file.str.starts_with(f"{old}/")).then(pl.lit(new) + file.str.slice(len(old))).otherwise(file)
    return trace.with_tables(problems=trace.problems.with_columns(file=moved)).with_meta(source=new)
