"""Recordings that are in memory before they are in the cache: the answer comes first, then the entry is written."""

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import polars as pl

from stepscope.errors import StepscopeError
from stepscope.io import cache, cache_folder, conversion, store
from stepscope.io.conversion import Task
from stepscope.model.trace import Trace
from stepscope.process import heap
from stepscope.process.worker import Progress

_LIMIT = 256 << 20  # bytes of recordings in memory at the same time


class Unwritten:
    """The recordings that one command has in memory. It calls `write` after its answer, and in any case `drop`."""

    def __init__(self, pins: cache.Pins) -> None:
        self._pins, self._bytes = pins, 0
        self._pending: list[tuple[str, Path, Trace]] = []  # the key of the entry, the draft that it is built in, the tables
        self._open = contextlib.ExitStack()  # removes the drafts, with the scratch files in which the tables may be

    def convert(self, key: str, task_in: Callable[[Path], Task], progress: Progress, check: Callable[[], None]) -> Trace | None:
        """The trace of a recording; None for one that has to be written before it is used: because of its size, or of invalid rows.

        `task_in` is the task in a folder. `check` raises an error if the recording has changed.
        """
        draft = cache.draft()
        with contextlib.ExitStack() as stack:
            stack.callback(cache.drop, draft)
            task = task_in(draft)
            size = conversion.size(Path(task.path))
            if conversion.is_large(task) or self._bytes + size > _LIMIT:
                return None
            with conversion.errors_of(task):
                trace = store.in_memory(stack.enter_context(conversion.decode_task(task, progress)))
            check()
            if trace is None:
                return None
            self._bytes += size
            self._pending.append((key, task.run, trace.with_tables()))  # results of analyses stay with the other one
            self._open.push(stack.pop_all())
            return trace

    def write(self) -> None:
        """Write the entries. An interrupt ends this without an error: the answer is there."""
        try:
            if self._pending:
                gc.collect()  # the tables of the answer, which writing would add to
                heap.give_back(sum(trace.spans.select(pl.len()).collect().item() for _, _, trace in self._pending))
            while self._pending:
                key, run, trace = self._pending.pop()
                store.write(trace, run)
                if not self._pins.settle(run, cache_folder.folder() / key):
                    raise cache.UnusableError(f"{key} in it cannot be replaced")
                cache.trim()
        except (OSError, StepscopeError) as error:
            cache.report_unusable(cache.reason(error))
        except KeyboardInterrupt:
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        """Free the memory and remove the drafts."""
        self._pending.clear()
        self._open.close()
