"""How a running job is reached: each process listens on a Unix socket that only its owner can open, and answers one JSON line per line."""

import contextlib
import json
import os
import re
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError

Answer = Callable[[dict[str, Any]], dict[str, Any]]

PATIENCE_S = 5.0  # a process that computes without a break answers late, or not at all
_RETRY_S = 0.02  # until a process whose queue of callers is full is asked again
_LONGEST_LINE = 1 << 20
_LONGEST_PATH = 100  # what a socket's address holds on every system, less a little


class Agent:
    """The listening side: a thread that sleeps until somebody asks. `answer` runs on a thread of its own for each caller."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.path = folder() / f"{_host()}.{os.getpid()}.sock"
        self._pid = os.getpid()
        self.path.unlink(missing_ok=True)  # left by a process of that number that was killed
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)
        self._socket.listen(8)
        threading.Thread(target=self._serve, name="stepscope agent", daemon=True).start()

    def close(self) -> None:
        """In a forked child only the child's copy is closed: the socket is still the parent's."""
        if os.getpid() == self._pid:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:  # closed
                return
            if _may_ask(caller):
                threading.Thread(target=self._talk, args=(caller,), name="stepscope caller", daemon=True).start()
            else:
                caller.close()

    def _talk(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError), caller, caller.makefile("rwb") as lines:
            while line := lines.readline(_LONGEST_LINE):
                try:
                    asked = json.loads(line)
                    if not isinstance(asked, dict):
                        raise ValueError("expected an object")
                    said = self._answer(asked)
                except (ValueError, TypeError, KeyError, RecursionError, StepscopeError) as error:
                    said = {"error": f"{error}"}
                lines.write(json.dumps(said, default=str).encode() + b"\n")
                lines.flush()


def ask(path: Path, question: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
    """One question to one process. OSError when nobody answers: TimeoutError where it is there, and busy."""
    with _connection(path, PATIENCE_S if timeout is None else timeout) as one, one.makefile("rwb") as lines:
        lines.write(json.dumps(question).encode() + b"\n")
        lines.flush()
        line = lines.readline(_LONGEST_LINE)
    if not line:
        raise ConnectionResetError("the process ended")
    try:
        said = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(said, dict):
        raise ValueError("expected an object")
    return said


def listening() -> Iterator[Path]:
    """The sockets of every process of this user that answers; those that dead processes left are removed."""
    for place in _places():
        with contextlib.suppress(OSError, StepscopeError):
            for path in sorted(_private(place, make=False).glob(f"{_host()}.*.sock")):
                try:
                    _connection(path, PATIENCE_S).close()
                except ConnectionRefusedError:
                    # Nobody listens: the process was killed, or has not begun to. The socket of one that lives stays.
                    if not _is_running(owner(path), path):
                        path.unlink(missing_ok=True)
                    continue
                except FileNotFoundError:  # ended meanwhile
                    continue
                except OSError:
                    pass  # busy, or we lack a descriptor: no reason to take it for dead
                yield path


def _connection(path: Path, patience_s: float) -> socket.socket:
    """A connection to a process; TimeoutError where it lives and takes no caller for so long."""
    end = time.monotonic() + patience_s
    while True:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            one.settimeout(patience_s)
            one.connect(str(path))
        except BlockingIOError:  # EAGAIN: as many wait as its queue holds
            one.close()
            if time.monotonic() >= end:
                raise TimeoutError("the process takes no more callers") from None
            time.sleep(_RETRY_S)
        except BaseException:
            one.close()
            raise
        else:
            return one


def _is_running(pid: int, path: Path) -> bool:
    """Does the process that made this socket live? One of the same number that began after the socket was made is another."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK") <= path.lstat().st_mtime + 2  # btime is in whole seconds
    except (OSError, ValueError, IndexError, StopIteration):  # no /proc: not known
        return True


def owner(path: Path) -> int:
    """The process that listens on a socket."""
    return int(path.name.split(".")[-2])


def folder() -> Path:
    """Where this user's sockets are: a folder that nobody else can enter."""
    problems = []
    for place in _places():
        if len(os.fsencode(place / _host())) + len(".4194304.sock") > _LONGEST_PATH:
            continue
        try:
            return _private(place)
        except (OSError, StepscopeError) as error:
            problems.append(str(error))
    raise StepscopeError("no private folder for the socket of `stepscope attach`: " + "; ".join(problems))


def _places() -> list[Path]:
    """By preference. A job may have been started where fewer of these are known than here: all are looked at."""
    if given := os.environ.get("STEPSCOPE_JOBS"):
        return [Path(given)]
    places = [Path(os.environ["XDG_RUNTIME_DIR"]) / "stepscope"] if os.environ.get("XDG_RUNTIME_DIR") else []
    with contextlib.suppress(RuntimeError):  # no home
        places.append(Path.home() / ".cache" / "stepscope" / "jobs")
    return [*places, Path(tempfile.gettempdir()) / f"stepscope-{os.geteuid()}"]


def _private(place: Path, *, make: bool = True) -> Path:
    if make and place.parent.name == "stepscope":  # the folder of the cache: as a parent it would be made open to others
        with contextlib.suppress(OSError, StepscopeError):
            _private(place.parent)
    if make:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = place.lstat()
    if status.st_uid != os.geteuid():
        raise StepscopeError(f"{place} belongs to another user")
    if status.st_mode & 0o077:
        place.chmod(0o700)
    return place


def _host() -> str:
    """Homes are shared between machines, and containers share process numbers: a name says whose it is."""
    return re.sub(r"[^\w-]", "_", socket.gethostname(), flags=re.ASCII)[:32] or "host"


def _may_ask(caller: socket.socket) -> bool:
    """The folder keeps others out; this does too where somebody opened it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return user in (os.geteuid(), 0)
