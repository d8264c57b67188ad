"""The engine on many machines: Ray tasks. Run folders travel as bytes in Ray's object store; Ray repeats what a lost node computed."""

import contextlib
import importlib.util
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stepscope.cluster.tasks import Status, Task, perform
from stepscope.cluster.tree import LostTaskError
from stepscope.errors import StepscopeError, UsageError, first_line

_RETRIES = 4  # of a task whose worker or node is lost
_ANSWER_S = 5.0  # for a port to answer; Ray itself tries for minutes
_INSTALL = "the engine ray needs Ray: pip install 'stepscope[cluster]'"
_INSTALL_CLIENT = "an address that begins with ray:// needs Ray's client: pip install 'ray[client]'"
_Files = dict[str, bytes]


class RayEngine:
    """An engine on a Ray cluster. A handle is the reference of a status; the files of its summary have a reference of their own."""

    def __init__(self, ray: Any, memory: int | None) -> None:
        self._ray = ray
        options = {"max_retries": _RETRIES, "num_returns": 2, "num_cpus": 1} | ({"memory": memory} if memory else {})
        self._perform = ray.remote(**options)(perform_on_node)
        self._files: dict[Any, Any] = {}

    def submit(self, task: Task, inputs: list[Any]) -> Any:
        status, files = self._perform.remote(msgspec.json.encode(task), *(self._files.pop(handle) for handle in inputs))
        self._files[status] = files
        return status

    def completed(self, handles: list[Any], timeout_s: float) -> list[Any]:
        done: list[Any] = self._ray.wait(handles, num_returns=1, timeout=timeout_s, fetch_local=False)[0]
        return done

    def status(self, handle: Any) -> Status:
        return msgspec.json.decode(self._get(handle), type=Status)

    def fetch(self, handle: Any, folder: Path) -> None:
        """Write the run folder of a task."""
        write_files(self._get(self._files.pop(handle)), folder)

    def _get(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, StepscopeError) else error) from None
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError) as error:
            raise LostTaskError(f"the process that read it ended, repeatedly ({first_line(error)})") from error


@contextlib.contextmanager
def ray_engine(address: str | None, workers: int | None, memory: int | None) -> Iterator[RayEngine]:
    """A Ray cluster as engine: the one at `address` (auto, HOST:PORT, ray://HOST:PORT), or a new one on this machine (local, or none)."""
    try:
        import ray
    except ImportError:
        raise UsageError(_INSTALL) from None
    started = not ray.is_initialized()
    if started:
        local = address in (None, "local")
        place = {"address": "local", "include_dashboard": False, "num_cpus": workers} if local else {"address": address}
        _check_address(address or "local")
        try:
            ray.init(**place, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster at {address}: {first_line(error)}") from error
    try:
        yield RayEngine(ray, memory)
    finally:
        if started:
            ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address where nothing answers."""
    chosen = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    if chosen in ("auto", "local"):
        return
    if chosen.startswith("ray://") and importlib.util.find_spec("grpc") is None:
        raise UsageError(_INSTALL_CLIENT)
    try:
        place = urlsplit(f"//{chosen.removeprefix('ray://')}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UsageError(f"the address of the Ray cluster is '{chosen}'; expected auto, local, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, port), _ANSWER_S).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster at {chosen}: {error.strerror or error}. Is it running? `ray start --head` prints its address"
        ) from error


def perform_on_node(task: bytes, *inputs: _Files) -> tuple[bytes, _Files]:
    """In a Ray worker: the status of a task, and the files of the run folder that it writes."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when Polars loads: one task is one core
    chosen: Task = msgspec.json.decode(task, type=Task)
    with tempfile.TemporaryDirectory(prefix="stepscope.", ignore_cleanup_errors=True) as room:
        folders = []
        for number, files in enumerate(inputs):
            write_files(files, Path(room, f"input-{number}"))
            folders.append(Path(room, f"input-{number}"))
        out = Path(room, "out")
        status = perform(chosen, folders, out, Path(room))
        files = {file.name: file.read_bytes() for file in sorted(out.iterdir())} if out.is_dir() else {}
    return msgspec.json.encode(status), files


def write_files(files: _Files, folder: Path) -> None:
    """A folder with these files."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
