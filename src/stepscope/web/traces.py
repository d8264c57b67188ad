"""Traces that are open: each run is read once, in a process of its own that can be stopped; what changed on disk is read anew."""

import asyncio
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stepscope import opening, reading
from stepscope.cache import Pins
from stepscope.errors import StepscopeError
from stepscope.timelines import keeping
from stepscope.trace import Trace
from stepscope.web.runs import Run, confine, describe

_OPEN = 32  # traces kept open: their tables are files that are read when asked, so this bounds file names rather than memory
_THREADS = 32  # runs that are opened at the same time; most of them are read already, or wait for their turn to be
_FORGOTTEN_S = 120.0  # longer than an answer takes
_FEW = 16  # ranks whose files are looked at before every answer
_CHECKED_S = 1.0  # for how long a run is taken to be unchanged

Signature = tuple[tuple[str, int, int], ...]


class CancelledError(StepscopeError):
    """Reading was stopped by the user."""


class Opening:
    """One run that is being read, or was."""

    def __init__(self, run: Run, signature: Signature, room: Path) -> None:
        self.run, self.signature, self.room = run, signature, room
        self.done = self.total = self.file = 0
        self.checked = time.monotonic()
        self.stop = threading.Event()
        self.pins = Pins()
        self.future: asyncio.Future[tuple[Trace, dict[str, Any]]] | None = None

    @property
    def over(self) -> bool:
        return self.future is not None and self.future.done()

    def is_whole(self) -> bool:
        """Is what was read still there, and as it was written? Of many ranks this takes long, and is looked at now and then."""
        recent = time.monotonic() - self.checked < _CHECKED_S
        return (recent and len(self.pins) > _FEW) or self.pins.intact()

    def error(self) -> BaseException | None:
        return self.future.exception() if self.over and self.future is not None and not self.future.cancelled() else None

    def heard(self, done: int, total: int) -> None:
        """Called by the thread that waits for the reading; the exception ends it, and what is written so far is removed."""
        if self.stop.is_set():
            raise CancelledError("stopped")
        self.file += done < self.done  # the next file began
        self.done, self.total = done, total

    def progress(self) -> dict[str, Any]:
        return {"done": self.done, "total": self.total, "file": self.file, "files": len(self.run.sources)}


class Traces:
    """The open traces, the longest unused closed first."""

    def __init__(self, room: Path, *, partial: bool = False, step_name: str | None = None, cache: bool = True) -> None:
        """`room` is for what is read and not kept in the cache, such as captures: they change while they are looked at."""
        self._room = room
        self._workers = reading.Workers()
        self._how: dict[str, Any] = {"partial": partial, "step_name": step_name, "cache": cache}
        self._open: OrderedDict[str, Opening] = OrderedDict()
        self._pool = ThreadPoolExecutor(_THREADS, "stepscope-read")
        self.failed: dict[str, tuple[int, str]] = {}  # by run: when its files had changed last, and why it could not be read

    async def open(self, run: Run) -> Opening:
        """The run's opening, begun now if need be. Await `trace` for its end."""
        known = self._open.get(run.id)
        whole = known is None or not known.over or await asyncio.to_thread(known.is_whole)
        if known is not None and whole and (not known.over or time.monotonic() - known.checked < _CHECKED_S):
            if self._open.get(run.id) is known:
                self._open.move_to_end(run.id)
            return known
        signature = await asyncio.to_thread(run.signature)
        if self._open.get(run.id) is not known:  # another request was faster
            return await self.open(run)
        if known is not None and whole and known.signature == signature and known.error() is None:
            known.checked = time.monotonic()
            self._open.move_to_end(run.id)
            return known
        if known is not None:
            self._forget(known)
        fresh = Opening(run, signature, Path(tempfile.mkdtemp(dir=self._room)))
        fresh.future = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._pool, self._read, fresh))
        fresh.future.add_done_callback(lambda future: self._ended(fresh, future))
        self._open[run.id] = fresh
        while len(self._open) > _OPEN:
            oldest = next((key for key, one in self._open.items() if one.over), None)
            if oldest is None:
                break
            self._forget(self._open.pop(oldest))
        return fresh

    async def trace(self, run: Run) -> tuple[Trace, dict[str, Any], Signature]:
        """The trace, what describes it, and the state of the files it was read from."""
        found = await self.open(run)
        assert found.future is not None
        trace, info = await asyncio.shield(found.future)  # who asked may leave: others wait as well
        return trace, info, found.signature

    def cancel(self, run: Run) -> bool:
        found = self._open.get(run.id)
        if found is None or found.over:
            return False
        found.stop.set()
        return True

    def stop(self) -> None:
        """Whatever is being read is not wanted any more."""
        for one in self._open.values():
            one.stop.set()

    def close(self) -> None:
        self.stop()
        self._workers.close()
        for one in self._open.values():
            one.pins.release()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, old: Opening) -> None:
        """Its files go when who still reads them is done."""

        def forgotten() -> None:
            old.pins.release()
            shutil.rmtree(old.room, ignore_errors=True)

        asyncio.get_running_loop().call_later(_FORGOTTEN_S, forgotten)

    def _read(self, found: Opening) -> tuple[Trace, dict[str, Any]]:
        run = found.run
        for source in run.sources:
            confine(source, run.root)
        found.heard(0, 0)
        how = self._how if run.step_name is None else self._how | {"step_name": run.step_name}
        where: dict[str, Any] = {"room": found.room, "pins": found.pins, "read": self._workers.read}
        trace = opening.together(list(run.sources), run.path, progress=found.heard, unread=run.unread, **where, **how)
        known = keeping.named("facts", run.id, found.signature, how) if self._how["cache"] and run.state != "live" else None
        return trace, describe(trace, run.id, run.name, path=str(run.path), state=run.state, known=known)

    def _ended(self, found: Opening, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, StepscopeError) and not isinstance(error, CancelledError):
            self.failed[found.run.id] = found.run.modified_ns, str(error)
        else:
            self.failed.pop(found.run.id, None)
        if error is not None:
            found.pins.release()
        if isinstance(error, CancelledError) and self._open.get(found.run.id) is found:
            del self._open[found.run.id]
