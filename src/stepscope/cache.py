"""Foreign files, once read, kept as run folders in the user's cache directory: bounded, clearable, safe to delete at any time."""

import contextlib
import hashlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import UsageError

DEFAULT_LIMIT = 20 << 30
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16


class Entry(NamedTuple):
    path: Path
    source: str
    size: int
    used: float  # seconds since the epoch


def folder() -> Path:
    """Where the cache is: STEPSCOPE_CACHE, or the platform's cache directory."""
    if given := os.environ.get("STEPSCOPE_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "stepscope"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope"


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


def entries() -> list[Entry]:
    """What is kept, the longest unused first."""
    found = []
    for path in folder().glob("*/run.json"):
        files = [file.stat() for file in path.parent.iterdir()]
        found.append(Entry(path.parent, _source(path), sum(file.st_size for file in files), path.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def touch(path: Path) -> None:
    """Note that an entry was used now."""
    with contextlib.suppress(OSError):  # a cache that others own still serves; only its order of eviction does not learn of us
        os.utime(path / "run.json")


def trim(keep: Path | None = None) -> None:
    """Remove the longest unused entries until the cache is within its limit, and drafts that a killed process left."""
    known = entries()
    excess = sum(entry.size for entry in known) - limit()
    for entry in known:
        if excess > 0 and entry.path != keep:
            shutil.rmtree(entry.path, ignore_errors=True)
            excess -= entry.size
    for draft in folder().glob(".*"):
        if time.time() - draft.stat().st_mtime > 86_400:
            shutil.rmtree(draft, ignore_errors=True)


def clear() -> tuple[int, int]:
    """Remove everything; how many entries and bytes that were."""
    known = entries()
    shutil.rmtree(folder(), ignore_errors=True)
    return len(known), sum(entry.size for entry in known)


def _source(run_json: Path) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(run_json.read_bytes()).get("source", ""))
    except (OSError, msgspec.DecodeError, AttributeError):
        return ""


def _code() -> tuple[tuple[str, int, int], ...]:
    """The identity of the code that reads: another release, or an edit, reads anew."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(here / "readers").glob("*.py")]
    return tuple(sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files))
