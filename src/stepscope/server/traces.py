"""The open traces: each run is read once, in a process that can be stopped, and again when its files change."""

import asyncio
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError
from stepscope.io import conversion, open_run
from stepscope.io.cache import Pins
from stepscope.io.open_source import SourceOpener
from stepscope.model.trace import Trace
from stepscope.server.jobs import CancelledError, Job, Jobs
from stepscope.server.runs import Run, confine, describe
from stepscope.timeline.cache import entry_key

_OPEN = 32  # traces that stay open: their tables are read from files on access, so this limits open files rather than memory
_THREADS = 32  # runs that are opened at the same time; most come from the cache, or wait for a reader process
_DROP_AFTER_S = 120.0  # longer than any answer takes
_FEW = 16  # ranks whose files are checked before every answer
_CHECK_S = 1.0  # between two checks of a run's files

Signature = tuple[tuple[str, int, int], ...]


class Opening(Job[tuple[Trace, dict[str, Any]]]):
    """A run that is being read, or was."""

    def __init__(self, run: Run, signature: Signature, folder: Path) -> None:
        super().__init__()
        self.run, self.signature, self.folder = run, signature, folder
        self.done = self.total = self.file = 0
        self.checked = time.monotonic()
        self.pins = Pins()

    def is_intact(self) -> bool:
        """Are the files that were written still there and unchanged? For many ranks this takes long and is checked less often."""
        return (self.is_recent() and len(self.pins) > _FEW) or self.pins.intact()

    def is_recent(self) -> bool:
        return time.monotonic() - self.checked < _CHECK_S

    def on_progress(self, done: int, total: int) -> None:
        self.check()
        self.file += done < self.done  # the next file began
        self.done, self.total = done, total

    def progress(self) -> dict[str, Any]:
        return {"done": self.done, "total": self.total, "file": self.file, "files": len(self.run.sources)}


class Traces:
    """The traces of the last runs."""

    def __init__(self, folder: Path, *, partial: bool = False, step_name: str | None = None, cache: bool = True) -> None:
        """`folder` is for traces that do not go to the cache, such as captures: they change while they are shown."""
        self._folder = folder
        self._workers = conversion.Workers()
        self._options: dict[str, Any] = {"partial": partial, "step_name": step_name, "cache": cache}
        self._open = Jobs[Opening](_OPEN, self._release_later)
        self._pool = ThreadPoolExecutor(_THREADS, "stepscope-read")
        self.failed: dict[str, tuple[int, str]] = {}  # by run: when its files last changed, and why it could not be read

    async def open(self, run: Run) -> Opening:
        """The opening of a run; it is started if necessary."""
        opening = self._open.find(run.id)
        # What was read during a recording is incomplete when it has ended, however recent it is.
        ended = opening is not None and opening.run.state == "live" and run.state != "live"
        intact = opening is None or not opening.over or await asyncio.to_thread(opening.is_intact)
        if opening is not None and not ended and intact and (not opening.over or opening.is_recent()):
            return opening
        signature = await asyncio.to_thread(run.signature)
        if self._open.find(run.id) is not opening:  # another request was faster
            return await self.open(run)
        if opening is not None and not ended and intact and opening.signature == signature and opening.error() is None:
            opening.checked = time.monotonic()
            return opening
        opening = Opening(run, signature, Path(tempfile.mkdtemp(dir=self._folder)))
        opening.start(self._pool, lambda: self._read(opening), lambda future: self._end(opening))
        return self._open.add(run.id, opening)

    async def trace(self, run: Run) -> tuple[Trace, dict[str, Any], Signature]:
        """The trace, its description, and the state of its files."""
        opening = await self.open(run)
        trace, info = await opening.result()
        return trace, info, opening.signature

    def cancel(self, run: Run) -> bool:
        opening = self._open.find(run.id)
        if opening is None or opening.over:
            return False
        opening.stop.set()
        return True

    def stop(self) -> None:
        self._open.stop()

    def close(self) -> None:
        self.stop()
        self._workers.close()
        for opening in self._open.values():
            opening.pins.release()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _release_later(self, opening: Opening) -> None:
        """Remove the files of a dropped trace when running answers are done with them."""

        def release() -> None:
            opening.pins.release()
            shutil.rmtree(opening.folder, ignore_errors=True)

        asyncio.get_running_loop().call_later(_DROP_AFTER_S, release)

    def _read(self, opening: Opening) -> tuple[Trace, dict[str, Any]]:
        run = opening.run
        for source in run.sources:
            confine(source, run.root)
        opening.check()
        options = self._options if run.step_name is None else self._options | {"step_name": run.step_name}
        opener = SourceOpener(
            partial=options["partial"],
            use_cache=options["cache"],
            progress=opening.on_progress,
            read=self._workers.read,
            room=opening.folder,
            pins=opening.pins,
        )
        trace = open_run.open_ranks(list(run.sources), run.path, opener, step_name=options["step_name"], unread=run.unread)
        key = entry_key("inventory", run.id, opening.signature, options) if options["cache"] and run.state != "live" else None
        return trace, describe(trace, run.id, run.name, path=str(run.path), state=run.state, inventory_key=key)

    def _end(self, opening: Opening) -> None:
        error = opening.error()
        if isinstance(error, StepscopeError) and not isinstance(error, CancelledError):
            self.failed[opening.run.id] = opening.run.modified_ns, str(error)
        else:
            self.failed.pop(opening.run.id, None)
        if error is not None:
            opening.pins.release()
        if isinstance(error, CancelledError) and self._open.find(opening.run.id) is opening:
            self._open.drop(opening.run.id)
