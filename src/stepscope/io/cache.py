"""The cache: recordings that were converted, and timelines, in the user's cache directory. It is bounded and safe to delete at any time.

KEY/                 an entry, with `files.json`, which shows damage to it
.reading.*/          an entry that is being built
in_use/PID.HOST.*    the entries that a process uses (`cache_usage`)
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from stepscope.errors import NoRoomError, StepscopeError, UsageError
from stepscope.io import cache_usage
from stepscope.io.cache_folder import folder, is_trusted, private_folder, trusted_folder
from stepscope.model import units
from stepscope.process import notices

DEFAULT_LIMIT = 20 << 30
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16
_CHECKED_BYTES = 1 << 20  # at a time
_FEWEST_SAMPLES = 4  # of each file in a folder of many
_DAY = 86_400
# Only folders with these names are ever removed: STEPSCOPE_CACHE may point at a folder that holds other things.
_ENTRY = re.compile(r"[0-9a-f]{32}")
_DRAFT = re.compile(r"\.reading\..+")
# The file of an entry that names its source: of a run, a timeline, an inventory, an answer.
_HEADERS = ("run.json", "timeline.json", "inventory.json", "answer.json")
_FILES = "files.json"
_T = TypeVar("_T")


class Entry(NamedTuple):
    path: Path
    source: str
    size: int
    used: float  # seconds since the epoch


class UnusableError(StepscopeError):
    """The cache cannot be read or written here."""


# How large, under which key


def limit() -> int:
    """The size limit of the cache in bytes: STEPSCOPE_CACHE_LIMIT, or 20 GiB."""
    text = os.environ.get("STEPSCOPE_CACHE_LIMIT")
    if not text:
        return DEFAULT_LIMIT
    try:
        return units.parse_size(text)
    except ValueError:
        raise UsageError(f"STEPSCOPE_CACHE_LIMIT is '{text}'; expected a size such as 500MB, 1GB, 1GiB or a number of bytes") from None


def key(path: Path, *options: object, beside: Iterable[Path] = ()) -> str:
    """The key of a file or folder that is read with these options: names, sizes, modification times, and samples of the content.

    `beside` are files elsewhere that are read with it. Hashing every byte would cost half as much as reading; no accident changes a file
    and keeps its size, its time and all samples.
    """
    digest = hashlib.sha256(repr((code_version("model", "io", "readers"), options)).encode())
    if path.is_dir():
        digest.update(str(path.resolve()).encode(errors="surrogateescape"))
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        samples = max(_SAMPLES // max(len(files), 1), _FEWEST_SAMPLES)
        for file in files:
            with contextlib.suppress(OSError):  # the reader reports a file that cannot be read
                _add_file(digest, file, str(file.relative_to(path)), samples)
    else:
        _add_file(digest, path, "", _SAMPLES)
    for file in beside:
        _add_file(digest, file, file.name, _SAMPLES)
    return digest.hexdigest()[:32]


def _add_file(digest: "hashlib._Hash", path: Path, name: str, samples: int) -> None:
    status = path.stat()
    digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    with path.open("rb") as file:
        last = max(status.st_size - _SAMPLE_BYTES, 0)
        for sample in range(samples):
            file.seek(last * sample // (samples - 1))
            digest.update(file.read(_SAMPLE_BYTES))
            if last == 0:
                break


@functools.cache
def code_version(*packages: str) -> tuple[tuple[str, int, int], ...]:
    """The identity of the code of some packages: another release, or an edit, makes other keys."""
    root = os.fspath(Path(__file__).parents[1])
    return tuple(sorted(state for package in packages for state in _code_files(os.path.join(root, package), package)))  # noqa: PTH118


def _code_files(folder: str, name: str) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each file of code in a folder. Paths are texts: every command looks at hundreds of files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            inside = f"{name}/{entry.name}"
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield inside, status.st_size, status.st_mtime_ns
            elif entry.is_dir(follow_symlinks=False):
                yield from _code_files(entry.path, inside)


# The life of an entry


def get_or_build(
    key: str,
    build: Callable[[Path], Path],
    load: Callable[[Path], _T],
    *,
    pins: "Pins | None" = None,
    on_built: Callable[[Path], None] | None = None,
) -> _T:
    """The entry of this key as `load` reads it. An entry that is missing or damaged is built first.

    `build` gets an empty folder and returns the folder inside it that becomes the entry. `load` raises an error for a damaged entry. With
    `pins`, no process removes the entry before they are released. `on_built` gets a new entry; by default the cache is trimmed then.
    """
    try:
        entry = trusted_folder() / key
        loaded = _load_entry(entry, load, pins)
        if loaded is not None:
            return loaded
        room = draft()
    except (OSError, UsageError) as error:
        raise UnusableError(reason(error)) from error
    try:
        settled = (settle if pins is None else pins.settle)(build(room), entry)
    except (OSError, NoRoomError) as error:
        raise UnusableError(reason(error)) from error
    finally:
        drop(room)
    if not settled:
        raise UnusableError(f"{key} in it cannot be replaced")
    (on_built or trim)(entry)
    return load(entry)


def load(key: str, load: Callable[[Path], _T], pins: "Pins | None" = None) -> _T | None:
    """The entry of this key as `load` reads it; None where there is none, or a damaged one."""
    try:
        entry = trusted_folder() / key
    except OSError:
        return None
    return _load_entry(entry, load, pins)


def _load_entry(entry: Path, load: Callable[[Path], _T], pins: "Pins | None") -> _T | None:
    """The entry; None where there is none. A damaged entry is removed."""
    if not is_trusted(entry) or not (_header(entry).exists() if pins is None else pins.hold(entry)):
        return None
    with contextlib.suppress(OSError, StepscopeError, ValueError, KeyError):
        if intact(entry) and (_used_today(entry) or _matches_checksums(entry)):
            loaded = load(entry)
            touch(entry)
            return loaded
    if pins is not None:
        pins.let_go(entry)
    discard(entry)
    return None


def _used_today(entry: Path) -> bool:
    """Whether the entry was used within a day: it is not read again as a whole each time."""
    return time.time() - _header(entry).stat().st_mtime < _DAY


def _matches_checksums(entry: Path) -> bool:
    """Whether every file has the content it was sealed with. A disk can lose bits without a change of size or time."""
    checksums = json.loads((entry / _FILES).read_bytes())
    return all(_checksum(entry / name) == checksum for name, (*_, checksum) in checksums.items())


def _checksum(file: Path) -> int:
    """CRC-32 of the content. A header has its time changed, not its content."""
    checksum = 0
    with file.open("rb") as content:
        while part := content.read(_CHECKED_BYTES):
            checksum = zlib.crc32(part, checksum)
    return checksum


def reason(error: OSError | StepscopeError) -> str:
    return error.what if isinstance(error, NoRoomError) else getattr(error, "strerror", None) or str(error)


def draft() -> Path:
    """A new folder inside the cache to build an entry in. `settle` moves the complete entry out of it, `drop` removes the rest."""
    place = private_folder()
    for name in cache_usage.abandoned_names(place):
        if _DRAFT.fullmatch(name):
            shutil.rmtree(place / name, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=".reading.", dir=place))
    with contextlib.suppress(OSError):  # then `stepscope cache clear` does not see that it is in use
        cache_usage.mark_used(path)
    return path


def drop(path: Path) -> None:
    """Remove a draft and everything left in it."""
    shutil.rmtree(path, ignore_errors=True)
    cache_usage.unmark_used(path.parent, [path.name])


def settle(path: Path, entry: Path) -> bool:
    """Move a complete folder to its place in the cache. Where another process was faster, its entry is used."""
    path.chmod(0o700)  # traces name code and data: they are private, even where the folder of the cache is not
    for file in path.iterdir():
        file.chmod(0o600)
    seal(path)
    for _ in range(2):
        try:
            path.rename(entry)
        except OSError:
            if is_trusted(entry) and intact(entry):
                return True
            discard(entry)  # damaged, or left by a removal that was killed
        else:
            return True
    return False


def seal(entry: Path) -> None:
    """Record the files of a folder, so that later changes are noticed."""
    states = {file.name: [*_state(file), _checksum(file)] for file in sorted(entry.iterdir())}
    (entry / _FILES).write_text(json.dumps(states))
    (entry / _FILES).chmod(0o600)


def intact(entry: Path) -> bool:
    """Whether every file of the folder has the size and time with which the folder was sealed."""
    try:
        states = json.loads((entry / _FILES).read_bytes())
        return all([*_state(entry / name), *state[2:]] == state for name, state in states.items())
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def _state(file: Path) -> list[int]:
    """Size and modification time. The time of a header is when the entry was last used, so it does not count."""
    status = file.stat()
    return [status.st_size, 0 if file.name in _HEADERS else status.st_mtime_ns]


class Pins:
    """Entries that are in use: no process removes them before `release`, or before this process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Path, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hold(self, entry: Path) -> bool:
        """Use an entry from now on; False where there is none."""
        with cache_usage.exclusive(entry.parent):
            if not _header(entry).exists():
                return False
            with contextlib.suppress(OSError):  # a read-only cache still serves
                cache_usage.mark_used(entry, locked=True)
        self.watch(entry)
        return True

    def settle(self, path: Path, entry: Path) -> bool:
        """Move a complete folder to its place in the cache, and use it from now on."""
        with contextlib.suppress(OSError):
            cache_usage.mark_used(entry)  # before it is there: no process sees it unused
        self.watch(entry)
        try:
            if settle(path, entry):
                return True
        except OSError:
            pass
        self.let_go(entry)
        return False

    def watch(self, folder: Path) -> None:
        """Include a sealed folder outside of the cache in `intact`."""
        with self._lock:
            self._entries[folder] = self._entries.get(folder, 0) + 1

    def let_go(self, *entries: Path) -> None:
        """Stop using these entries."""
        names: dict[Path, list[str]] = {}
        with self._lock:
            for entry in entries:
                names.setdefault(entry.parent, []).extend([entry.name] * self._entries.pop(entry, 0))
        for parent, used in names.items():
            if used:
                cache_usage.unmark_used(parent, used)

    def release(self) -> None:
        self.let_go(*self._entries)

    def intact(self) -> bool:
        """Whether everything in use is still there and unchanged."""
        return all(intact(entry) for entry in list(self._entries))


# The cache as a whole


_notices: list[str] = []


def report_unusable(reason: object) -> None:
    """Tell the user, once, that files are read without the cache."""
    if _notices:
        return
    _notices.append(str(reason))
    try:
        notices.say(f"the cache in {folder()} cannot be used ({reason}): results are not cached; STEPSCOPE_CACHE names another folder")
    except UsageError as error:
        notices.say(f"{error}; results are not cached")


def entries() -> list[Entry]:
    """The entries of the cache, the least recently used first."""
    result = []
    for path in _folders(_ENTRY):
        with contextlib.suppress(OSError):  # another process removed it
            size = sum(file.stat().st_size for file in path.iterdir())
            result.append(Entry(path, _source(_header(path)), size, _header(path).stat().st_mtime))
    return sorted(result, key=lambda entry: entry.used)


def touch(path: Path) -> None:
    """Record that an entry is used now."""
    with contextlib.suppress(OSError):  # a cache of another user still serves; only its order of removal does not change
        os.utime(_header(path))


def trim(keep: Path | None = None) -> None:
    """Remove the least recently used entries until the cache is within its limit, and drafts of killed processes.

    An entry that a process uses stays, whatever the limit.
    """
    present = entries()
    excess = sum(entry.size for entry in present) - limit()
    with cache_usage.exclusive(folder()):
        used = cache_usage.used_names(folder()) if excess > 0 else set()  # `_remove` checks once more
    for entry in present:
        if excess > 0 and entry.path != keep and entry.path.name not in used and _remove(entry.path):
            excess -= entry.size
    for path in [*_folders(_DRAFT), *(path for path in _folders(_ENTRY) if not _header(path).exists())]:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _DAY:
                _remove(path)


class Cleared(NamedTuple):
    entries: int
    bytes: int
    in_use: int  # entries that stay


def clear() -> Cleared:
    """Remove everything that no process uses."""
    present = entries()
    gone = {path for path in [*_folders(_ENTRY), *_folders(_DRAFT)] if _remove(path)}
    stay = [entry for entry in present if entry.path.exists()]
    removed = [entry for entry in present if entry.path in gone]
    return Cleared(len(removed), sum(entry.size for entry in removed), len(stay))


def discard(path: Path) -> None:
    """Remove an entry that is damaged, even while a process uses it."""
    _remove(path, though_used=True)


def _remove(path: Path, *, though_used: bool = False) -> bool:
    """Whether an entry is gone now. It is renamed first, so that a removal that is killed leaves no half entry."""
    try:
        with cache_usage.exclusive(path.parent):
            if not though_used and path.name in cache_usage.used_names(path.parent):
                return False
            away = path.with_name(f".reading.gone.{secrets.token_hex(8)}")
            path.rename(away)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if away.is_symlink():
        away.unlink(missing_ok=True)
    else:
        shutil.rmtree(away, ignore_errors=True)
    return True


def _folders(name: re.Pattern[str]) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from [path for path in folder().iterdir() if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def _header(path: Path) -> Path:
    return next((path / name for name in _HEADERS if (path / name).exists()), path / _HEADERS[0])


def _source(header: Path) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(header.read_bytes()).get("source", ""))
    except (OSError, msgspec.DecodeError, AttributeError):
        return ""
