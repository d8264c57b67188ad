"""Foreign files, once read, and timelines, kept in the user's cache directory: bounded, clearable, safe to delete at any time.

KEY/                 an entry: what a file became, with `files.json`, by which damage to it is noticed
.reading.*/          an entry that is being made
in_use/PID.*         what a process uses, by name; the lock on it ends with the process, however that ends
"""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from stepscope import telling, units
from stepscope.errors import UsageError

DEFAULT_LIMIT = 20 << 30
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16
_DAY = 86_400
# Only what bears these names is ever removed: STEPSCOPE_CACHE may point at a folder that holds other things.
_ENTRY = re.compile(r"[0-9a-f]{32}")
_DRAFT = re.compile(r"\.reading\..+")
# What says what an entry was made of: a trace that was read, the timeline of one, or what is known of one.
_HEADERS = ("run.json", "timeline.json", "facts.json")
_FILES = "files.json"
_IN_USE = "in_use"
_ATTEMPTS, _ATTEMPT_S = 200, 0.01


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
        return units.parse_size(given)
    except ValueError:
        raise UsageError(f"STEPSCOPE_CACHE_LIMIT is '{given}'; expected a size such as 500MB, 1GB, 1GiB or a number of bytes") from None


def key(path: Path, *how: object, beside: Iterable[Path] = ()) -> str:
    """The identity of a file's content and of how it is read: size, time of change, and samples spread over the whole file.

    `beside` are the files that are read with it. Hashing every byte would cost half as much as reading; no accident changes a file and
    keeps size, time and all samples.
    """
    digest = hashlib.sha256(repr((_code(), how)).encode())
    for file in (path, *beside):
        _add(digest, file, "" if file == path else file.name)
    return digest.hexdigest()[:32]


def _add(digest: "hashlib._Hash", path: Path, name: str) -> None:
    status = path.stat()
    digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    with path.open("rb") as file:
        last = max(status.st_size - _SAMPLE_BYTES, 0)
        for sample in range(_SAMPLES):
            file.seek(last * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
            if last == 0:
                break


def draft() -> Path:
    """A new folder inside the cache to read into; what is whole is renamed out of it (`settle`), and the rest is dropped (`drop`)."""
    made = Path(tempfile.mkdtemp(prefix=".reading.", dir=_private_folder()))
    with contextlib.suppress(OSError):  # then `stepscope cache clear` does not see that it is in use
        _uses(made.parent).add(made.name)
    return made


def drop(made: Path) -> None:
    """Remove a draft with all that is left in it, or another folder that was read into."""
    shutil.rmtree(made, ignore_errors=True)
    if made.parent in _sessions:
        with contextlib.suppress(OSError):
            _uses(made.parent).remove([made.name])


def settle(made: Path, entry: Path) -> bool:
    """Move what was made in a draft to its place in the cache. Another process may have been faster: what it made is as good."""
    made.chmod(0o700)  # traces name code and data: not for others' eyes, whoever may look into the folder around
    for file in made.iterdir():
        file.chmod(0o600)
    seal(made)
    for _ in range(2):
        try:
            made.rename(entry)
        except OSError:
            if intact(entry):
                return True
            discard(entry)  # what a killed removal left, or damaged where it lies
        else:
            return True
    return False


def seal(entry: Path) -> None:
    """Note the files of a folder as they are now, so that `intact` notices when they are not any more."""
    listed = {file.name: _state(file) for file in sorted(entry.iterdir())}
    (entry / _FILES).write_text(json.dumps(listed))
    (entry / _FILES).chmod(0o600)


def intact(entry: Path) -> bool:
    """Is every file of the folder as it was when the folder was sealed?"""
    try:
        listed = json.loads((entry / _FILES).read_bytes())
        return all(_state(entry / name) == state for name, state in listed.items())
    except (OSError, ValueError, AttributeError):
        return False


def _state(file: Path) -> list[int]:
    """Of a header only the size: its time of change says when the entry was used last."""
    status = file.stat()
    return [status.st_size, 0 if file.name in _HEADERS else status.st_mtime_ns]


class Pins:
    """Entries that somebody uses: no process removes them before `release`, or before the end of this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Path, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hold(self, entry: Path) -> bool:
        """Use an entry from now on; False where there is none."""
        with _alone(entry.parent):
            if not _header(entry).exists():
                return False
            with contextlib.suppress(OSError):  # a cache that cannot be written to still serves
                _uses(entry.parent).add(entry.name, locked=True)
        self.watch(entry)
        return True

    def settle(self, made: Path, entry: Path) -> bool:
        """Move what was made in a draft to its place in the cache, and use it from now on."""
        with contextlib.suppress(OSError):
            _uses(entry.parent).add(entry.name)  # before it is there: nobody finds it unused
        self.watch(entry)
        try:
            if settle(made, entry):
                return True
        except OSError:
            pass
        self.let_go(entry)
        return False

    def watch(self, folder: Path) -> None:
        """A sealed folder outside of the cache, which must stay whole as well."""
        with self._lock:
            self._entries[folder] = self._entries.get(folder, 0) + 1

    def let_go(self, *entries: Path) -> None:
        """Use these no longer: at once, since each time the list of what is used is written anew."""
        names: dict[Path, list[str]] = {}
        with self._lock:
            for entry in entries:
                names.setdefault(entry.parent, []).extend([entry.name] * self._entries.pop(entry, 0))
        for folder, used in names.items():
            if used and folder in _sessions:
                with contextlib.suppress(OSError):
                    _uses(folder).remove(used)

    def release(self) -> None:
        self.let_go(*self._entries)

    def intact(self) -> bool:
        """Is all that is used still there, and as it was?"""
        return all(intact(entry) for entry in list(self._entries))


class _Session:
    """What this process uses of a cache folder, in a file whose lock is held until the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._names: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._file: IO[str] | None = None
        self._path = folder / _IN_USE
        atexit.register(self.close)

    @property
    def is_ours(self) -> bool:
        return self._pid == os.getpid()  # not what a fork was born with

    def add(self, name: str, *, locked: bool = False) -> None:
        with contextlib.nullcontext() if locked else _alone(self._folder), self._lock:
            self._names[name] += 1
            if self._file is not None and not self._path.exists():  # somebody emptied the folder
                self.close()
            if self._file is None:
                place = self._folder / _IN_USE
                place.mkdir(mode=0o700, exist_ok=True)
                handle, path = tempfile.mkstemp(prefix=f"{self._pid}.", dir=place)
                self._file = os.fdopen(handle, "w")
                self._path = Path(path)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._list(self._names)
            elif self._names[name] == 1:
                self._list([name])

    def remove(self, names: list[str]) -> None:
        with _alone(self._folder), self._lock:
            self._names.subtract(names)
            self._names = +self._names
            if not self._names:
                self.close()
            elif self._file is not None:
                self._file.seek(0)
                self._file.truncate()
                self._list(self._names)

    def _list(self, names: Iterable[str]) -> None:
        if self._file is not None:
            self._file.write("".join(f"{name}\n" for name in names))
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            if self._file is not None and self.is_ours:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    self._path.parent.rmdir()  # unless others are in it
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None


_sessions: dict[Path, _Session] = {}
_sessions_lock = threading.Lock()


def _uses(folder: Path) -> _Session:
    with _sessions_lock:
        known = _sessions.get(folder)
        if known is None or not known.is_ours:
            known = _sessions[folder] = _Session(folder)
        return known


def _in_use(folder: Path) -> set[str]:
    """The names of what living processes use, for who is `_alone`. Files of those that have ended are removed."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for path in (folder / _IN_USE).iterdir():
            with contextlib.suppress(OSError), path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    found |= set(file.read().split())
                else:
                    path.unlink()
    return found


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else begins to use an entry, or removes one, meanwhile. Where the file system has no locks, an entry may vanish: then the
    file is read anew.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, handle)
            for _ in range(_ATTEMPTS):  # who holds it longer than this has been stopped
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_ATTEMPT_S)
        yield


def _private_folder() -> Path:
    """The cache's folder, made if need be: closed to others, unless the user chose one that is open."""
    place = folder()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = place.stat()
    if not os.environ.get("STEPSCOPE_CACHE") and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        place.chmod(0o700)
    return place


def is_open_to_others() -> bool:
    """Can others look into the folder? They see names there; the entries themselves are closed."""
    try:
        return bool(folder().stat().st_mode & 0o077)
    except OSError:
        return False


_notices: list[str] = []


def unusable(why: object) -> None:
    """Tell the user, once, that files are read without the cache."""
    if _notices:
        return
    _notices.append(str(why))
    said = (why.strerror or str(why)) if isinstance(why, OSError) else str(why)
    try:
        telling.say(f"the cache in {folder()} cannot be used ({said}): what is read is not kept; STEPSCOPE_CACHE names another folder")
    except UsageError as error:
        telling.say(f"{error}; what is read is not kept")


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


def trim(keep: Path | None = None) -> None:
    """Remove the longest unused entries until the cache is within its limit, and drafts that a killed process left.

    What a process uses stays, whatever the limit.
    """
    known = entries()
    excess = sum(entry.size for entry in known) - limit()
    with _alone(folder()):
        used = _in_use(folder()) if excess > 0 else set()  # what is to go is looked at once more
    for entry in known:
        if excess > 0 and entry.path != keep and entry.path.name not in used and _removed(entry.path):
            excess -= entry.size
    for left in [*_inside(_DRAFT), *(path for path in _inside(_ENTRY) if not _header(path).exists())]:
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _DAY:
                _removed(left)


class Cleared(NamedTuple):
    entries: int
    bytes: int
    in_use: int  # entries that stay


def clear() -> Cleared:
    """Remove everything that no process uses."""
    known = entries()
    gone = {path for path in [*_inside(_ENTRY), *_inside(_DRAFT)] if _removed(path)}
    stay = [entry for entry in known if entry.path.exists()]
    removed = [entry for entry in known if entry.path in gone]
    return Cleared(len(removed), sum(entry.size for entry in removed), len(stay))


def discard(path: Path) -> None:
    """Remove an entry that is of no use to anybody: damaged, or what a killed removal left."""
    _removed(path, though_used=True)


def _removed(path: Path, *, though_used: bool = False) -> bool:
    """Take an entry away, unless a process uses it. It is renamed first: what is left of a removal that was killed is no entry."""
    try:
        with _alone(path.parent):
            if not though_used and path.name in _in_use(path.parent):
                return False
            away = path.with_name(f".reading.gone.{secrets.token_hex(8)}")
            path.rename(away)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    shutil.rmtree(away, ignore_errors=True)
    return True


def _inside(name: re.Pattern[str]) -> Iterator[Path]:
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


@functools.cache
def _code() -> tuple[tuple[str, int, int], ...]:
    """The identity of the code that reads: another release, or an edit, reads anew."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(here / "readers").glob("*.py")]
    return tuple(sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files))
