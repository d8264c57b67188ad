"""Open anything: a run folder, a file that a reader knows, or a folder of them that are the ranks of one run."""

import atexit
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from stepscope import cache as kept
from stepscope import readers, reading, run_groups, step_choice, store
from stepscope.errors import DataError, UnknownFormatError, UsageError
from stepscope.readers._unknown import folder_hint, hint
from stepscope.run_groups import DEPTH, Group, Recording, Source, rank_in_name
from stepscope.trace import Trace, combine, unread_problem
from stepscope.trace_windows import join_windows

_T = TypeVar("_T")


def open(
    path: str | os.PathLike[str],
    *,
    partial: bool = False,
    step_name: str | None = None,
    rank: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] = readers.silent,
    read: reading.Read = reading.read_here,
    pins: kept.Pins | None = None,
) -> Trace:
    """The trace at `path`: any file or folder a reader knows, or a folder of ranks.

    `partial` reads what is whole of a truncated file. `step_name` chooses the steps (`Trace.with_steps`). `rank` opens only that rank of
    a folder. What took long to read is kept in the user's cache (`stepscope cache`). `read` chooses the process that reads,
    `pins` how long what is used stays in the cache: until the process ends, where nobody releases them.
    """
    where, unread = Path(path), list[DataError]()
    found = list(sources(where, unread.append))
    if not found:
        why = next((error for error in unread if not isinstance(error, UnknownFormatError)), None)
        raise why or UnknownFormatError(where, f"no trace in this folder{_reasons(unread) or f': {folder_hint(where)}'}. {_known()}")
    how: dict[str, Any] = {"partial": partial, "step_name": step_name, "rank": rank, "cache": cache, "progress": progress}
    return together(found, where, unread=unread, **how, read=read, pins=pins)


def together(
    found: list[Source],
    where: Path,
    *,
    partial: bool = False,
    step_name: str | None = None,
    rank: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] = readers.silent,
    room: Path | None = None,
    unread: Iterable[DataError] = (),
    read: reading.Read = reading.read_here,
    pins: kept.Pins | None = None,
) -> Trace:
    """The ranks of one run, found at or below `where`, as one trace. Ranks that cannot be read, and `unread`, are rows of `problems`.

    What is not kept in the cache is read into a folder in `room`, and is the caller's to remove; without one, into the system's temporary
    folder, until the process ends. What is used of the cache stays there until `pins` are released, or until the process ends.
    """
    if cache:
        kept.limit()  # a wrong one is refused before anything is read
    errors = list(unread)
    found_groups = list(run_groups.groups(found, errors))
    failed = [(error, run_groups.rank_of(Path(error.path))) for group in found_groups for error in group.unread]
    failed += [(error, run_groups.rank_of(Path(error.path))) for error in run_groups.unread_alone(found_groups, errors)]
    fresh: list[Path] = []  # entries of the cache that were made now
    how = {
        "partial": partial,
        "cache": cache,
        "progress": progress,
        "place": room,
        "read": read,
        "pins": _PINS if pins is None else pins,
        "fresh": fresh,
    }
    traces: list[Trace] = []
    by_rank: dict[int, Group] = {}
    for group in found_groups:
        for recording in _likely_first(group, rank):
            if rank is not None and _is_of_another(recording, rank, rank in by_rank):
                continue
            try:
                trace, lost = _open_recording(recording, **how)
            except DataError as error:
                if not run_groups.has_others(recording, group, found_groups):
                    raise
                failed.append((error, _rank_of(recording)))
                continue
            failed += [(error, trace.meta.ranks[0]) for error in lost]
            if rank is not None and rank not in trace.meta.ranks:
                continue
            for one in trace.meta.ranks if rank is None else [rank]:
                if one in by_rank:
                    raise DataError(where, _several(one, [by_rank[one], group], found_groups, where))
                by_rank[one] = group
            traces.append(trace)
    if fresh:
        kept.trim()
    if not traces:
        first = [error for error, of in failed if of == rank or rank is None] or [error for error, of in failed if of is None]
        raise first[0] if first else UsageError(f"{where}: no rank {rank} here")
    trace = combine(traces)
    if len(traces) > 1 or (failed and rank is None):
        trace.meta.source = str(where)
    trace = trace if rank is None else trace.of_rank(rank)
    remarks = [group.remark for group in found_groups if group.remark and group in by_rank.values()]
    trace = trace.with_problems([{"rank": trace.meta.ranks[0], "what": what, "lost": 0} for what in remarks])
    trace = trace.with_problems([unread_problem(error, of) for error, of in failed if rank is None or of in (rank, None)])
    return trace if step_name is None else step_choice.with_steps(trace, step_name)


# What each path was known to be when it was last changed: time of change, size, inode.
Formats = dict[Path, tuple[tuple[int, int, int], str | None]]


def sources(path: Path, unreadable: Callable[[DataError], None] | None = None, formats: Formats | None = None) -> Iterator[Source]:
    """Every trace at or below a path, without reading it. `unreadable` hears of what could not be looked at; without it, that is raised.

    It also hears, with an UnknownFormatError, of what has the name of a recording and is none: an empty file, a folder without data.
    Who looks again and again hands over `formats`, in which is kept what need not be looked into twice.
    """
    if not _asked(path.exists, path):
        raise DataError(path, "no such file or folder")
    if not path.is_file() and not path.is_dir():
        raise DataError(path, "neither a file nor a folder; write it to a file first")
    name = _sniff(path, formats)
    if name is None and path.is_file():
        if path.stat().st_size == 0:
            raise DataError(path, "the file is empty")
        raise UnknownFormatError(path, f"not a trace that stepscope knows{_what_it_is(path)}. {_known()}")
    if name is not None:
        yield Source(path, name)
    else:
        yield from _below(path, DEPTH, unreadable or _raise, formats)


def kept_run(source: Source, *, partial: bool = False) -> Path | None:
    """Where a foreign file is kept, or would be, as a run folder; None where nothing can be."""
    if source.format == "run" or not source.path.is_file():
        return None
    try:
        return kept.folder() / kept.key(source.path, source.format, partial, rank_in_name(source.path), beside=beside(source))
    except UsageError as error:  # no cache to be had here: read anew each time
        kept.unusable(error)
        return None


def beside(source: Source) -> list[Path]:
    """The files outside of a recording that are read with it."""
    return [] if source.format == "run" else readers.beside(source.path, source.format)


def _likely_first(group: Group, rank: int | None) -> list[Recording]:
    """Names only hint at ranks: a wrong hint costs time, not truth."""
    recordings = list(group.recordings)
    return recordings if rank is None else sorted(recordings, key=lambda one: rank_in_name(one.sources[0].path) not in (rank, None))


def _is_of_another(recording: Recording, rank: int, is_open: bool) -> bool:
    """Whether a recording is not asked for: it has another rank here, or the rank is open and the name says that this is another's."""
    if recording.rank is not None:
        return recording.rank != rank
    return is_open and rank_in_name(recording.sources[0].path) not in (rank, None)


def _open_recording(recording: Recording, **how: Any) -> tuple[Trace, list[DataError]]:
    """The windows of one process as one trace, with the rank that it has here, and why windows of it cannot be read."""
    windows, lost = list[Trace](), list[DataError]()
    for source in recording.sources:
        try:
            windows.append(_open_one(source, **how))
        except DataError as error:
            lost.append(error)
    if not windows:
        raise lost[0]
    trace = join_windows(windows)
    if len(recording.sources) > 1:
        trace.meta.source = str(recording.sources[0].path.parent)
    return (trace if recording.rank is None else trace.as_rank(recording.rank)), lost


def _rank_of(recording: Recording) -> int | None:
    source = recording.sources[0]
    return run_groups.rank_of(source.path, source.format) if recording.rank is None else recording.rank


def _several(rank: int, two: list[Group], every: list[Group], where: Path) -> str:
    """Why recordings in a folder are not one run, and what to open instead."""
    paths = " and ".join(str(group.sources[0].path) for group in two)
    return f"two recordings of rank {rank}: {paths}; open one of them (`stepscope list {where}` shows the {len(every)} runs here)"


def _below(folder: Path, depth: int, unreadable: Callable[[DataError], None], formats: Formats | None) -> Iterator[Source]:
    try:
        inside = _asked(lambda: sorted(os.scandir(folder), key=lambda entry: entry.name), folder)
    except DataError as error:
        unreadable(error)
        return
    for entry in inside:
        path = Path(entry.path)
        # Not what is hidden, nor what blocks when opened (a pipe), nor what may lead round in a circle (a link to a folder).
        if entry.name.startswith("."):
            continue
        named = run_groups.is_recording_name(entry.name)
        if not _is_there(entry):
            if named:
                unreadable(UnknownFormatError(path, "a link that leads nowhere" if entry.is_symlink() else "neither a file nor a folder"))
            continue
        try:
            name = _sniff(path, formats)
        except DataError as error:
            unreadable(DataError(path, error.what, error.where) if Path(error.path).is_relative_to(path) else error)
            continue
        if name is not None:
            yield Source(path, name)
            continue
        empty = True
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            for source in _below(path, depth - 1, unreadable, formats):
                empty = False
                yield source
        if empty and named:
            unreadable(UnknownFormatError(path, _why_nothing(path)))


def _why_nothing(path: Path) -> str:
    """What is wrong with something that has the name of a recording."""
    if path.is_file():
        return "the file is empty" if path.stat().st_size == 0 else f"not a trace that stepscope knows{_what_it_is(path)}"
    files = [file for file in path.rglob("*") if file.is_file()]
    if not files:
        return "the folder has no files"
    nothing = [file for file in files if file.stat().st_size == 0]
    return f"no recording in the folder; {_file_list(nothing)} empty" if nothing else "no recording that stepscope knows in the folder"


def _file_list(files: list[Path]) -> str:
    return f"{files[0].name} is" if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more files are"


def _is_there(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file() or entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _sniff(path: Path, formats: Formats | None = None) -> str | None:
    if not str(path).isprintable() and (odd := str(path).encode(errors="backslashreplace").decode()) != str(path):
        raise DataError(odd, "the name is not UTF-8, so no table can hold it; rename it")
    status = _asked(path.stat, path)
    now = (status.st_mtime_ns, status.st_size, status.st_ino)
    if formats is not None and path in formats and formats[path][0] == now:
        return formats[path][1]
    name = _asked(lambda: "run" if store.sniff(path) else readers.sniff(path), path)
    if formats is not None:
        formats[path] = now, name
    return name


def _asked(question: Callable[[], _T], path: Path) -> _T:
    """The answer of the file system; its refusal names the path."""
    try:
        return question()
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else path
        raise DataError(named, error.strerror or str(error)) from error


def _raise(error: DataError) -> None:
    if not isinstance(error, UnknownFormatError):  # a name alone makes nothing a recording
        raise error


# What this process uses of the cache, unless somebody else keeps count.
_PINS = kept.Pins()
_ATTEMPTS = 2


def _open_one(
    source: Source,
    partial: bool,
    cache: bool,
    progress: reading.Progress,
    place: Path | None,
    read: reading.Read,
    pins: kept.Pins,
    fresh: list[Path],
) -> Trace:
    if source.format == "run":
        return store.read(source.path)
    for attempt in range(_ATTEMPTS):
        before = _asked(lambda: _state(source), source.path)
        keep = _asked(lambda: kept_run(source, partial=partial), source.path) if cache else None
        if keep is not None and (trace := _kept_trace(keep, source, pins)) is not None:
            return trace
        last = attempt + 1 == _ATTEMPTS
        try:
            room = _read(source, partial, progress, place, read, in_cache=keep is not None)
        except DataError:
            if last or _asked(lambda: _state(source), source.path) == before:
                raise
            continue
        changed = _asked(lambda: _state(source), source.path) != before
        if not changed or (last and source.path.is_dir()):
            trace = _settled(room, keep, source, place, pins, fresh)
            # Logs may grow in a folder for as long as its job runs.
            return trace.with_problems(
                [{"rank": trace.meta.ranks[0], "file": str(source.path), "what": _CHANGED, "lost": 0}] if changed else []
            )
        kept.drop(room)
    raise DataError(source.path, f"{_CHANGED}; open it again when nobody writes it any more")


_CHANGED = "changed while it was being read, twice"


def _state(source: Source) -> list[tuple[str, int, int, int]] | None:
    """Changes when any of the files does that are read. A capture grows while it is looked at, which its reader knows."""
    if source.format == "capture":
        return None
    found = []
    inside = [source.path] if source.path.is_file() else [file for file in sorted(source.path.rglob("*")) if file.is_file()]
    for file in [*inside, *beside(source)]:
        status = file.stat()
        found.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return found


def _kept_trace(keep: Path, source: Source, pins: kept.Pins) -> Trace | None:
    """What the cache has of a file; None where it has nothing, or nothing that is whole, which is removed."""
    try:
        if not pins.hold(keep):
            return None
        if kept.intact(keep):
            trace = _at(store.read(keep), source.path)
            kept.touch(keep)
            return trace
    except DataError:
        pass
    except OSError as error:
        kept.unusable(error)
        return None
    pins.let_go(keep)
    kept.discard(keep)  # damaged where it lies
    return None


def _read(source: Source, partial: bool, progress: reading.Progress, place: Path | None, read: reading.Read, *, in_cache: bool) -> Path:
    """A new folder in which `run` is the recording: in the cache, so that it is only renamed; elsewhere when the cache takes nothing."""
    why: object = None
    if in_cache:
        try:
            return _read_into(kept.draft(), source, partial, progress, read)
        except (OSError, reading.NoRoomError) as error:
            why = error if isinstance(error, OSError) else error.what
    room = _read_into(Path(tempfile.mkdtemp(prefix="stepscope.", dir=place)), source, partial, progress, read)
    if why is not None:
        kept.unusable(why)
    return room


def _read_into(room: Path, source: Source, partial: bool, progress: reading.Progress, read: reading.Read) -> Path:
    try:
        read(reading.Task(str(source.path), source.format, str(room), partial, rank_in_name(source.path)), progress)
    except BaseException:
        kept.drop(room)
        raise
    return room


def _settled(room: Path, keep: Path | None, source: Source, place: Path | None, pins: kept.Pins, fresh: list[Path]) -> Trace:
    """The trace of what was read, from the cache where that takes it."""
    if keep is not None and room.parent == keep.parent:
        if pins.settle(room / "run", keep):
            kept.drop(room)
            fresh.append(keep)
            return _at(store.read(keep), source.path)
        kept.unusable(f"{keep.name} in it cannot be replaced")
    if place is None or room.parent != place:
        # Tables are read when asked, perhaps from a trace derived of this one, so the files stay as long as the process.
        atexit.register(kept.drop, room)
    with contextlib.suppress(OSError):
        kept.seal(room / "run")
        pins.watch(room / "run")
    return store.read(room / "run")


def _at(trace: Trace, path: Path) -> Trace:
    """The same content, kept when it was read under another name."""
    old, new = trace.meta.source, str(path)
    if old == new:
        return trace
    trace.meta.source = new
    file = pl.when(pl.col("file") == old).then(pl.lit(new)).otherwise(pl.col("file"))
    return Trace(trace.tables | {"problems": trace.problems.with_columns(file=file)}, trace.meta)


def _reasons(unread: list[DataError]) -> str:
    return f"; {unread[0]}" + (f" (and {len(unread) - 1} more)" if len(unread) > 1 else "") if unread else ""


def _what_it_is(path: Path) -> str:
    text = hint(path)
    return f": this is {text}" if text else ""


def _known() -> str:
    return f"Known: {', '.join([*readers.formats(), 'stepscope run folder'])}"
