"""Traces at or below a path, found by content and without reading them."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stepscope import readers
from stepscope.errors import DataError, UnknownFormatError
from stepscope.io import discover, store
from stepscope.io.discover import DEPTH, Source
from stepscope.readers.common import unknown_files

_T = TypeVar("_T")
# The format of each path, with the modification time, size and inode that it had then.
Formats = dict[Path, tuple[tuple[int, int, int], str | None]]
_LEVELS = 4  # PROF_*/device_0/data/FILE in a result folder
_ADDRESS = re.compile(r"(?:https?|s3|gs|hdfs|abfs|ftp|ssh):/")  # a path has one slash where the address had two
OnError = Callable[[DataError], None]


def find_sources(path: Path, on_error: OnError | None = None, formats: Formats | None = None) -> Iterator[Source]:
    """Every trace at or below a path.

    `on_error` gets an error for each file or folder that cannot be examined, and an UnknownFormatError for each that is named like a
    recording and is none: an empty file, a folder without data. Without it, the first error of the former kind is raised. A caller that
    searches repeatedly passes the same `formats`, so that unchanged files are not examined again.
    """
    if not check_access(path.exists, path):
        raise missing(path)
    if not path.is_file() and not path.is_dir():
        raise DataError(path, "neither a file nor a folder; write it to a file first")
    format = _sniff(path, formats)
    if format is None and path.is_file():
        if path.stat().st_size == 0:
            raise DataError(path, "the file is empty")
        if (recording := _recording_around(path)) is not None:
            raise UnknownFormatError(path, f"one file of a recording; open the folder of the recording: {recording}")
        raise UnknownFormatError(path, f"not a trace that stepscope knows{_content_hint(path)}. {known_formats()}")
    if format is not None:
        yield Source(path, format)
    else:
        yield from _sources_below(path, DEPTH, on_error or _raise, formats)


def missing(path: Path) -> DataError:
    """The error for a path where there is nothing."""
    download = "; download it: only `stepscope cluster summarize` reads addresses" if _ADDRESS.match(str(path)) else ""
    return DataError(path, f"no such file or folder{download}")


def check_access(action: Callable[[], _T], path: Path) -> _T:
    """The result of an action on the file system. An OSError becomes a DataError that names the path."""
    try:
        return action()
    except OSError as error:
        raise DataError(error.filename if isinstance(error.filename, str) else path, error.strerror or str(error)) from error


def files_beside(source: Source) -> list[Path]:
    """The files outside of a recording that are read with it."""
    return [] if source.format == "run" else readers.beside(source.path, source.format)


def file_states(source: Source) -> list[tuple[str, int, int, int]]:
    """Name, size, modification time and inode of every file that is read."""
    inside = [source.path] if source.path.is_file() else [file for file in sorted(source.path.rglob("*")) if file.is_file()]
    statuses = ((file, file.stat()) for file in [*inside, *files_beside(source)])
    return [(str(file), status.st_size, status.st_mtime_ns, status.st_ino) for file, status in statuses]


def known_formats() -> str:
    return f"Known: {', '.join([*readers.formats(), 'stepscope run folder'])}"


def _sources_below(folder: Path, depth: int, on_error: OnError, formats: Formats | None) -> Iterator[Source]:
    try:
        entries = check_access(lambda: sorted(os.scandir(folder), key=lambda entry: entry.name), folder)
    except DataError as error:
        on_error(error)
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith("."):
            continue
        named = discover.is_recording_name(entry.name)
        if not _is_file_or_folder(entry):  # a pipe would block when it is opened
            if named:
                on_error(UnknownFormatError(path, "a broken link" if entry.is_symlink() else "neither a file nor a folder"))
            continue
        try:
            format = _sniff(path, formats)
        except DataError as error:
            on_error(DataError(path, error.what, error.where) if Path(error.path).is_relative_to(path) else error)
            continue
        if format is not None:
            yield Source(path, format)
            continue
        empty = True
        if depth > 1 and entry.is_dir(follow_symlinks=False):  # a link to a folder may form a circle
            for source in _sources_below(path, depth - 1, on_error, formats):
                empty = False
                yield source
        if empty and named:
            on_error(UnknownFormatError(path, _why_no_recording(path)))


def _recording_around(path: Path) -> Path | None:
    """The nearest folder around a file that is a recording."""
    for folder in path.resolve().parents[:_LEVELS]:
        try:
            format = _sniff(folder)
            if format is not None:
                return folder if format != "run" else None  # the hint for its tables names the folder
        except DataError:
            return None
    return None


def _why_no_recording(path: Path) -> str:
    """The fault of a file or folder that is named like a recording."""
    if path.is_file():
        return "the file is empty" if path.stat().st_size == 0 else f"not a trace that stepscope knows{_content_hint(path)}"
    files = [file for file in path.rglob("*") if file.is_file()]
    if not files:
        return "the folder has no files"
    empty = [file for file in files if file.stat().st_size == 0]
    return f"no recording in the folder; {_file_list(empty)} empty" if empty else "no recording that stepscope knows in the folder"


def _file_list(files: list[Path]) -> str:
    return f"{files[0].name} is" if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more files are"


def _is_file_or_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file() or entry.is_dir()
    except OSError:  # a link to itself
        return False


def _sniff(path: Path, formats: Formats | None = None) -> str | None:
    if not str(path).isprintable() and (odd := str(path).encode(errors="backslashreplace").decode()) != str(path):
        raise DataError(odd, "the name is not UTF-8, so no table can hold it; rename it")
    status = check_access(path.stat, path)
    state = (status.st_mtime_ns, status.st_size, status.st_ino)
    if formats is not None and path in formats and formats[path][0] == state:
        return formats[path][1]
    format = check_access(lambda: "run" if store.sniff(path) else readers.sniff(path), path)
    if formats is not None:
        formats[path] = state, format
    return format


def _raise(error: DataError) -> None:
    if not isinstance(error, UnknownFormatError):  # a name alone makes no recording
        raise error


def _content_hint(path: Path) -> str:
    hint = unknown_files.hint(path)
    return f": this is {hint}" if hint else ""
