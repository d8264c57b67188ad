"""Connections to running jobs: each process listens on a Unix socket that only its owner can open, and answers one JSON line per line."""

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
_RETRY_S = 0.02  # before the next attempt to reach a process whose queue of callers is full
_LONGEST_LINE = 1 << 20
_LONGEST_PATH = 100  # slightly less than the address of a socket holds on every system


class Agent:
    """The listening side: a thread that sleeps until a caller connects. `answer` runs on a separate thread for each caller."""

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
        """In a forked child only the child's copy is closed: the socket belongs to the parent."""
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
            if _is_allowed(caller):
                threading.Thread(target=self._talk, args=(caller,), name="stepscope caller", daemon=True).start()
            else:
                caller.close()

    def _talk(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError), caller, caller.makefile("rwb") as lines:
            while line := lines.readline(_LONGEST_LINE):
                try:
                    message = json.loads(line)
                    if not isinstance(message, dict):
                        raise ValueError("expected an object")
                    answer = self._answer(message)
                except (ValueError, TypeError, KeyError, RecursionError, StepscopeError) as error:
                    answer = {"error": f"{error}"}
                lines.write(json.dumps(answer, default=str).encode() + b"\n")
                lines.flush()


def ask(path: Path, message: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
    """The answer of a process. OSError where there is none: TimeoutError where the process runs and is busy."""
    with _connection(path, PATIENCE_S if timeout is None else timeout) as connection, connection.makefile("rwb") as lines:
        lines.write(json.dumps(message).encode() + b"\n")
        lines.flush()
        line = lines.readline(_LONGEST_LINE)
    if not line:
        raise ConnectionResetError("the process ended")
    try:
        answer = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(answer, dict):
        raise ValueError("expected an object")
    return answer


def listening() -> Iterator[Path]:
    """The sockets of every process of this user that answers; sockets of ended processes are removed."""
    for directory in _directories():
        with contextlib.suppress(OSError, StepscopeError):
            for path in sorted(_private(directory, make=False).glob(f"{_host()}.*.sock")):
                try:
                    _connection(path, PATIENCE_S).close()
                except ConnectionRefusedError:
                    # The process was killed, or does not listen yet. The socket of a running one stays.
                    if not _is_running(owner(path), path):
                        path.unlink(missing_ok=True)
                    continue
                except FileNotFoundError:  # it has just ended
                    continue
                except OSError:
                    pass  # busy, or no descriptor is left: the process may run
                yield path


def _connection(path: Path, patience_s: float) -> socket.socket:
    """A connection to a process; TimeoutError where it runs and accepts none in this time."""
    end = time.monotonic() + patience_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(patience_s)
            connection.connect(str(path))
        except BlockingIOError:  # EAGAIN: its queue of callers is full
            connection.close()
            if time.monotonic() >= end:
                raise TimeoutError("the process accepts no more callers") from None
            time.sleep(_RETRY_S)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _is_running(pid: int, path: Path) -> bool:
    """Whether the process that created this socket runs. A process with its number that started later is another one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK") <= path.lstat().st_mtime + 2  # btime is in whole seconds
    except (OSError, ValueError, IndexError, StopIteration):  # without /proc
        return True


def owner(path: Path) -> int:
    """The process that listens on a socket."""
    return int(path.name.split(".")[-2])


def folder() -> Path:
    """The folder of this user's sockets, which no other user can enter."""
    problems = []
    for directory in _directories():
        if len(os.fsencode(directory / _host())) + len(".4194304.sock") > _LONGEST_PATH:
            continue
        try:
            return _private(directory)
        except (OSError, StepscopeError) as error:
            problems.append(str(error))
    raise StepscopeError("no private folder for the socket of `stepscope attach`: " + "; ".join(problems))


def _directories() -> list[Path]:
    """By preference. The environment of a job may lack some of the variables, so all directories are searched."""
    if directory := os.environ.get("STEPSCOPE_JOBS"):
        return [Path(directory)]
    directories = [Path(os.environ["XDG_RUNTIME_DIR"]) / "stepscope"] if os.environ.get("XDG_RUNTIME_DIR") else []
    with contextlib.suppress(RuntimeError):  # no home
        directories.append(Path.home() / ".cache" / "stepscope" / "jobs")
    return [*directories, Path(tempfile.gettempdir()) / f"stepscope-{os.geteuid()}"]


def _private(directory: Path, *, make: bool = True) -> Path:
    if make and directory.parent.name == "stepscope":  # the folder of the cache: mkdir would create this parent open to others
        with contextlib.suppress(OSError, StepscopeError):
            _private(directory.parent)
    if make:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = directory.lstat()
    if status.st_uid != os.geteuid():
        raise StepscopeError(f"{directory} belongs to another user")
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def _host() -> str:
    """Part of the name: machines may share a home, and containers may share process numbers."""
    return re.sub(r"[^\w-]", "_", socket.gethostname(), flags=re.ASCII)[:32] or "host"


def _is_allowed(caller: socket.socket) -> bool:
    """The folder excludes other users; this check does so where its permissions were changed."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return user in (os.geteuid(), 0)
