"""Recordings at addresses such as s3://bucket/job: listed here, fetched by the worker that reads them."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from stepscope.cluster.tasks import Part
from stepscope.errors import DataError, UsageError, first_line
from stepscope.io.discover import groups, rank_in_name
from stepscope.io.open_run import open_recording
from stepscope.io.open_source import SourceOpener
from stepscope.io.sources import find_sources
from stepscope.model.trace import Trace

_INSTALL = "pip install 'stepscope[cluster]'"
_RUN_FILES = ("run.json", "capture.json")
_FOLDER_SUFFIXES, _FOLDER_PREFIXES = ("_ascend_pt", "_ascend_ms", ".capture"), ("PROF_",)
_ROOM_FACTOR = 3  # of the size of a recording: what the disk needs to fetch and convert it


def is_address(path: str) -> bool:
    """Whether a path is an address of another file system."""
    return "://" in path


def parts_at(url: str) -> list[Part]:
    """The recordings below an address: run folders, folders of Ascend's tools, folders named after a rank, and all other files."""
    system, root = _file_system(url)
    try:
        files: dict[str, Any] = system.find(root, detail=True)
    except (OSError, ValueError) as error:
        raise DataError(url, f"could not be listed ({first_line(error)})") from error
    if not files:
        raise DataError(url, "no files at this address")
    base = root.rstrip("/")
    relative = {name[len(base) :].strip("/"): int(entry.get("size") or 0) for name, entry in files.items()}
    runs = {str(PurePosixPath(name).parent) for name in relative if PurePosixPath(name).name in _RUN_FILES}
    sizes: dict[str, int] = {}
    for name, size in sorted(relative.items()):
        unit = _unit(name, runs)
        sizes[unit] = sizes.get(unit, 0) + size
    address = url.rstrip("/")
    units = {unit: f"{address}/{unit}" if unit not in ("", ".") else address for unit in sizes}
    return sorted(
        (Part(url=units[unit], expected_rank=rank_in_name(Path(unit)), size=size) for unit, size in sizes.items()), key=_rank_then_name
    )


def _rank_then_name(part: Part) -> tuple[bool, int, str]:
    return part.expected_rank is None, part.expected_rank or 0, part.url


def _unit(name: str, runs: set[str]) -> str:
    """The recording that a file belongs to: the outermost folder that is one, else the file."""
    path = PurePosixPath(name)
    for folder in [*reversed(path.parents[:-1])]:
        named = folder.name.endswith(_FOLDER_SUFFIXES) or folder.name.startswith(_FOLDER_PREFIXES)
        if named or str(folder) in runs or rank_in_name(Path(folder.name)) is not None:
            return str(folder)
    return "." if "." in runs else name


@contextlib.contextmanager
def fetched(url: str, room: Path) -> Iterator[Path]:
    """A local copy of a file or folder, under its name; it is removed afterwards."""
    system, root = _file_system(url)
    folder = Path(tempfile.mkdtemp(prefix="fetched.", dir=room))
    try:
        size = int(system.du(root))
        free = shutil.disk_usage(folder).free
        if _ROOM_FACTOR * size > free:
            raise DataError(url, f"has {size:,} bytes; {_ROOM_FACTOR} times as much must be free in {room}, which has {free:,}")
        # A key of an object store may be any text.
        if leaving := next((name for name in system.find(root) if ".." in name.split("/")), None):
            raise DataError(url, f"{leaving} leads out of its folder: rename it")
        target = folder / PurePosixPath(root).name
        system.get(root, str(target), recursive=system.isdir(root))
        yield target
    except OSError as error:
        raise DataError(url, f"could not be fetched ({first_line(error)})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def traces(path: Path, url: str) -> list[Trace]:
    """The traces of a fetched recording, with its address in place of the local path."""
    opener = SourceOpener(use_cache=False, room=path.parent)
    unread: list[DataError] = []
    recordings = [recording for group in groups(list(find_sources(path, unread.append)), unread) for recording in group.recordings]
    if not recordings:
        raise DataError(url, unread[0].what if unread else "not a recording that stepscope knows")
    opened: list[Trace] = []
    for recording in recordings:
        try:
            trace, errors = open_recording(recording, opener)
        except DataError as error:
            raise DataError(_address(error.path, path, url), error.what, error.where) from error
        rows = [{"rank": trace.meta.ranks[0], "file": _address(error.path, path, url), "what": error.what, "lost": 1} for error in errors]
        text = pl.col("file")
        local = pl.when(text.str.starts_with(str(path))).then(pl.lit(url) + text.str.slice(len(str(path)))).otherwise(text)
        moved = trace.with_tables(problems=trace.problems.with_columns(file=local))
        opened.append(moved.with_meta(source=_address(trace.meta.source, path, url)).with_problems(rows))
    return opened


def upload(folder: Path, url: str) -> None:
    """Write a run folder to an address."""
    system, root = _file_system(url)
    try:
        system.makedirs(root, exist_ok=True)
        for file in sorted(folder.iterdir(), key=lambda file: file.name == "run.json"):  # the header last: a folder with it is complete
            system.put(str(file), f"{root.rstrip('/')}/{file.name}")
    except OSError as error:
        raise DataError(url, f"could not be written ({first_line(error)})") from error


def exists(url: str) -> bool:
    """Whether there is something at an address."""
    system, root = _file_system(url)
    return bool(system.exists(root))


def _address(text: str, path: Path, url: str) -> str:
    return url + text[len(str(path)) :] if text.startswith(str(path)) else text


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{url}: addresses need fsspec: {_INSTALL}") from None
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {first_line(error)}: {_INSTALL}") from error
    except (ValueError, OSError) as error:
        raise UsageError(f"{url}: {first_line(error)}") from error
    return system, str(root)
