"""Foreign files, once read, and timelines, kept in the user's cache directory: bounded, clearable, safe to delete at any time."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import UsageError

DEFAULT_LIMIT = 20 << 30
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16
_DAY = 86_400
# Only what bears these names is ever removed: STEPSCOPE_CACHE may point at a folder that holds other things.
_ENTRY = re.compile(r"[0-9a-f]{32}")
_DRAFT = re.compile(r"\.reading\..+")
# What says what an entry was made of: a trace that was read, the timeline of one, or what is known of one.
_HEADERS = ("run.json", "timeline.json", "facts.json")


class Entry(NamedTuple):
    path: Path
    source: str
    size: int
    used: float  # seconds since the epoch


def folder() -> Path:
    """Where the cache is: STEPSCOPE_CACHE, or the platform's cache directory."""
    if given := os.environ.get("STEPSCOPE_CACHE"):
        return Path(given)
    try:
        home = Path.home()
    except RuntimeError:  # a container's user without a name
        raise UsageError("there is no home folder to keep a cache in; set STEPSCOPE_CACHE to a folder") from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "stepscope"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "stepscope"


def limit() -> int:
    """The most bytes the cache keeps: STEPSCOPE_CACHE_LIMIT, or 20 GiB."""
    given = os.environ.get("STEPSCOPE_CACHE_LIMIT")
    if not given:
        return DEFAULT_LIMIT
    try:
        return int(given)
    except ValueError:
        raise UsageError(f"STEPSCOPE_CACHE_LIMIT is {given!r}; expected a number of bytes") from None


def key(path: Path, *how: object) -> str:
    """The identity of a file's content and of how it is read: size, time of change, and samples spread over the whole file.

    Hashing every byte would cost half as much as reading; no accident changes a file and keeps size, time and all samples.
    """
    status = path.stat()
    digest = hashlib.sha256(repr((status.st_size, status.st_mtime_ns, _code(), how)).encode())
    with path.open("rb") as file:
        last = max(status.st_size - _SAMPLE_BYTES, 0)
        for sample in range(_SAMPLES):
            file.seek(last * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
            if last == 0:
                break
    return digest.hexdigest()[:32]


def draft() -> Path:
    """A new folder inside the cache to read into; what is whole is renamed out of it."""
    import tempfile

    folder().mkdir(parents=True, exist_ok=True, mode=0o700)  # traces name code and data: not for others' eyes
    return Path(tempfile.mkdtemp(prefix=".reading.", dir=folder()))


def entries() -> list[Entry]:
    """What is kept, the longest unused first."""
    found = []
    for path in _inside(_ENTRY):
        with contextlib.suppress(OSError):  # another process removed it meanwhile
            size = sum(file.stat().st_size for file in path.iterdir())
            found.append(Entry(path, _source(_header(path)), size, _header(path).stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def touch(path: Path) -> None:
    """Note that an entry was used now."""
    with contextlib.suppress(OSError):  # a cache that others own still serves; only its order of eviction does not learn of us
        os.utime(_header(path))


def trim(keep: Path) -> None:
    """Remove the longest unused entries until the cache is within its limit, and drafts that a killed process left."""
    known = entries()
    excess = sum(entry.size for entry in known) - limit()
    for entry in known:
        if excess > 0 and entry.path != keep:
            discard(entry.path)
            excess -= entry.size
    for left in [*_inside(_DRAFT), *(path for path in _inside(_ENTRY) if not _header(path).exists())]:
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _DAY:
                discard(left)


def clear() -> tuple[int, int]:
    """Remove everything; how many entries and bytes that were."""
    known = entries()
    for path in [*_inside(_ENTRY), *_inside(_DRAFT)]:
        discard(path)
    gone = [entry for entry in known if not entry.path.exists()]
    return len(gone), sum(entry.size for entry in gone)


def discard(path: Path) -> None:
    """Remove an entry. The header goes first: what is left of a removal that was killed is not taken for an entry."""
    with contextlib.suppress(OSError):
        _header(path).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _inside(name: re.Pattern[str]) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from [path for path in folder().iterdir() if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def _header(path: Path) -> Path:
    return next((path / name for name in _HEADERS if (path / name).exists()), path / _HEADERS[0])


def _source(header: Path) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(header.read_bytes()).get("source", ""))
    except (OSError, msgspec.DecodeError, AttributeError):
        return ""


@functools.cache
def _code() -> tuple[tuple[str, int, int], ...]:
    """The identity of the code that reads: another release, or an edit, reads anew."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(here / "readers").glob("*.py")]
    return tuple(sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files))
