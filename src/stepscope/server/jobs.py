"""Work in threads that several requests share, with its progress and a way to stop it."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from stepscope.errors import StepscopeError

_T = TypeVar("_T")
_J = TypeVar("_J", bound="Job[Any]")


class CancelledError(StepscopeError):
    """The user, or the end of the server, stopped the work."""


class Job(Generic[_T]):
    """Work in a thread that several requests wait for."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._future: asyncio.Future[_T] | None = None

    def start(self, pool: ThreadPoolExecutor, work: Callable[[], _T], on_end: Callable[["asyncio.Future[_T]"], None] | None = None) -> None:
        self._future = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(pool, work))
        if on_end is not None:
            self._future.add_done_callback(on_end)

    @property
    def over(self) -> bool:
        return self._future is not None and self._future.done()

    def error(self) -> BaseException | None:
        if self._future is None or not self._future.done():
            return None
        return CancelledError("stopped") if self._future.cancelled() else self._future.exception()

    def check(self) -> None:
        """End the thread that calls this if the job was stopped."""
        if self.stop.is_set():
            raise CancelledError("stopped")

    async def result(self) -> _T:
        assert self._future is not None
        return await asyncio.shield(self._future)  # the request may be canceled: others wait for the same job


class Jobs(Generic[_J]):
    """Jobs by key. Beyond the limit, the least recently used ones that are over are dropped."""

    def __init__(self, limit: int, on_drop: Callable[[_J], None] = lambda job: None) -> None:
        self._limit, self._on_drop = limit, on_drop
        self._jobs: OrderedDict[str, _J] = OrderedDict()

    def find(self, key: str) -> _J | None:
        if key in self._jobs:
            self._jobs.move_to_end(key)
        return self._jobs.get(key)

    def add(self, key: str, job: _J) -> _J:
        """Replace the job of the key."""
        self.drop(key)
        self._jobs[key] = job
        for old in [old for old, other in self._jobs.items() if other.over][: max(len(self._jobs) - self._limit, 0)]:
            self.drop(old)
        return job

    def drop(self, key: str) -> None:
        if (job := self._jobs.pop(key, None)) is not None:
            self._on_drop(job)

    def stop(self) -> None:
        """Stop all jobs."""
        for job in self._jobs.values():
            job.stop.set()

    def values(self) -> list[_J]:
        return list(self._jobs.values())
