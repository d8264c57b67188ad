"""The engine on one machine: worker processes, each with one task at a time. A task whose process ends is repeated once."""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from stepscope.cluster.tasks import Status, Task, perform
from stepscope.cluster.tree import LostTaskError
from stepscope.errors import StepscopeError
from stepscope.model import units
from stepscope.process.worker import Parent, Worker, WorkerEndedError

_ATTEMPTS = 2
_KEEP = 0.5  # of the memory of a worker: one that holds more after a task is replaced
_Result = tuple[Path, Status]


class _TooMuchMemoryError(StepscopeError):
    """A worker holds more memory than it may."""


class Pool:
    """An engine of `workers` processes with at most `memory` bytes each. Its handles are futures."""

    def __init__(self, workers: int, memory: int, room: Path) -> None:
        self._memory, self._room = memory, room
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="summarize")
        self._of_thread, self._lock = threading.local(), threading.Lock()
        self._workers: set[Worker] = set()
        self._count, self._closed = 0, False
        self.restarts = 0  # processes that ended in the middle of a task

    def submit(self, task: Task, inputs: list["Future[_Result]"]) -> "Future[_Result]":
        self._count += 1
        out = self._room / f"{self._count:06d}"
        return self._executor.submit(self._run, task, [handle.result()[0] for handle in inputs], out)

    def completed(self, handles: list["Future[_Result]"], timeout_s: float) -> list["Future[_Result]"]:
        return [handle for handle in handles if handle in wait(handles, timeout_s, FIRST_COMPLETED).done]

    def status(self, handle: "Future[_Result]") -> Status:
        return handle.result()[1]

    def fetch(self, handle: "Future[_Result]", folder: Path) -> None:
        """Move the run folder of a task to `folder`."""
        handle.result()[0].rename(folder)

    def close(self) -> None:
        """End all processes, also those in the middle of a task."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.kill()
        self._executor.shutdown()

    def _run(self, task: Task, inputs: list[Path], out: Path) -> _Result:
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                status = self._ask(task, inputs, out)
            except (WorkerEndedError, _TooMuchMemoryError) as error:
                with self._lock:
                    self.restarts += 1
                    if self._closed:
                        raise
                reason = str(error)
                continue
            for folder in inputs:
                shutil.rmtree(folder, ignore_errors=True)
            return out, status
        raise LostTaskError(f"the process that read it ended, twice ({reason})")

    def _ask(self, task: Task, inputs: list[Path], out: Path) -> Status:
        worker = self._worker()

        def check(_done: int, _total: int) -> None:
            if worker.resident > self._memory:
                raise _TooMuchMemoryError(f"more than {units.size(self._memory)} of memory")

        with tempfile.TemporaryDirectory(prefix="task.", dir=self._room, ignore_cleanup_errors=True) as room:
            message = (msgspec.to_builtins(task), [str(folder) for folder in inputs], str(out), room)
            answer, _ = worker.ask(message, on_progress=check)
        if worker.resident > _KEEP * self._memory:
            worker.kill()
        return msgspec.convert(answer, Status)

    def _worker(self) -> Worker:
        worker: Worker | None = getattr(self._of_thread, "worker", None)
        if worker is None or not worker.is_alive:
            # One thread for each worker: there are as many workers as cores.
            environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
            with self._lock:
                if self._closed:
                    raise LostTaskError("the engine is closed")
                if worker is not None:
                    worker.kill()
                    self._workers.discard(worker)
                worker = Worker(f"{__name__}:serve", env=environment)
                self._workers.add(worker)
            self._of_thread.worker = worker
        return worker


@contextlib.contextmanager
def pool(workers: int, memory: int, room: Path) -> Iterator[Pool]:
    """A pool; all of its processes end with the block."""
    engine = Pool(workers, memory, room)
    try:
        yield engine
    finally:
        engine.close()


def serve() -> None:
    """In the worker: one task after the other."""
    parent = Parent()
    for message, _ in parent.requests():
        task, inputs, out, room = message
        try:
            chosen: Task = msgspec.convert(task, Task)
            status = perform(chosen, [Path(folder) for folder in inputs], Path(out), Path(room))
        except Exception as error:  # noqa: BLE001 - raised again in the parent
            parent.fail(error)
        else:
            parent.reply(msgspec.to_builtins(status))
