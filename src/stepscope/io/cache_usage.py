"""Which entries of a cache folder living processes use.

`in_use/PID.HOST.*` lists the names that a process uses. The process holds a lock on the file until it ends, even when it is killed.
"""

import atexit
import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

_FOLDER = "in_use"
_HOST = os.uname().nodename
_ATTEMPTS, _ATTEMPT_S = 200, 0.01


def mark_used(path: Path, *, locked: bool = False) -> None:
    """This process uses an entry. Marks are counted."""
    _session(path.parent).add(path.name, locked=locked)


def unmark_used(folder: Path, names: list[str]) -> None:
    """This process no longer uses these entries of a cache folder: all at once, since the list is written again each time."""
    if folder in _sessions:
        with contextlib.suppress(OSError):
            _session(folder).remove(names)


def used_names(folder: Path) -> set[str]:
    """Names that living processes use, for a caller that holds the `exclusive` lock."""
    return _names(folder)[0]


def abandoned_names(folder: Path) -> set[str]:
    """Names that processes of this machine used when they were killed. Each is returned once, as their lists are removed."""
    if not (folder / _FOLDER).is_dir():
        return set()
    with exclusive(folder):
        used, abandoned = _names(folder, remove=True)
    return abandoned - used


def _names(folder: Path, *, remove: bool = False) -> tuple[set[str], set[str]]:
    """Names in the lists of living processes, and in those of ended ones."""
    used, ended = set[str](), set[str]()
    with contextlib.suppress(OSError):
        for path in (folder / _FOLDER).iterdir():
            with contextlib.suppress(OSError), path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    used |= set(file.read().split())
                else:
                    if f".{_HOST}." in path.name:  # not every file system shows the locks of other machines
                        ended |= set(file.read().split())
                    if remove:
                        path.unlink()
    return used, ended


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """No other process starts to use an entry, or removes one, inside this block.

    On a file system without locks an entry may vanish: then the file is read again.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            for _ in range(_ATTEMPTS):  # a process that holds the lock longer than this has been stopped
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_ATTEMPT_S)
        yield


class _Session:
    """The list of this process in one cache folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._names: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._file: IO[str] | None = None
        self._path = folder / _FOLDER
        atexit.register(self.close)

    @property
    def is_ours(self) -> bool:
        return self._pid == os.getpid()  # False in a fork

    def add(self, name: str, *, locked: bool) -> None:
        with contextlib.nullcontext() if locked else exclusive(self._folder), self._lock:
            self._names[name] += 1
            if self._file is not None and not self._path.exists():  # the cache folder was emptied
                self.close()
            if self._file is None:
                (self._folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)
                handle, path = tempfile.mkstemp(prefix=f"{self._pid}.{_HOST}.", dir=self._folder / _FOLDER)
                self._file = os.fdopen(handle, "w")
                self._path = Path(path)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write(self._names)
            elif self._names[name] == 1:
                self._write([name])

    def remove(self, names: list[str]) -> None:
        with exclusive(self._folder), self._lock:
            self._names.subtract(names)
            self._names = +self._names
            if not self._names:
                self.close()
            elif self._file is not None:
                self._file.seek(0)
                self._file.truncate()
                self._write(self._names)

    def _write(self, names: Iterable[str]) -> None:
        if self._file is not None:
            self._file.write("".join(f"{name}\n" for name in names))
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            if self._file is not None and self.is_ours:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    self._path.parent.rmdir()  # fails while other processes have lists in it
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None


_sessions: dict[Path, _Session] = {}
_sessions_lock = threading.Lock()


def _session(folder: Path) -> _Session:
    with _sessions_lock:
        session = _sessions.get(folder)
        if session is None or not session.is_ours:
            session = _sessions[folder] = _Session(folder)
        return session
