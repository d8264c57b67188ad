"""The order of work: batches of recordings first, then their summaries, some at a time, until one is left."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from stepscope.cluster.tasks import Batch, Merge, Part, Status, Task
from stepscope.errors import DataError, StepscopeError
from stepscope.model.trace import unread_problem

FAN = 16  # summaries that one task merges
Handle = TypeVar("Handle")
OnProgress = Callable[[int, int], None]  # recordings that are done, and all


class LostTaskError(StepscopeError):
    """A task ended without a result, also when it was repeated."""


class Engine(Protocol[Handle]):
    """Where tasks run. A handle stands for the run folder that a task writes."""

    def submit(self, task: Task, inputs: list[Handle]) -> Handle: ...

    def completed(self, handles: list[Handle], timeout_s: float) -> list[Handle]:
        """Those of the handles that are complete; none if the time is over first."""

    def status(self, handle: Handle) -> Status:
        """The status of a complete task; raises the error of the task, or LostTaskError."""


class Tree:
    """Batches and merges of one run, on an engine. The merges are the same whichever task is complete first."""

    def __init__(self, engine: Engine[Any], batches: list[Batch], on_progress: OnProgress) -> None:
        self._engine, self._batches, self._on_progress = engine, batches, on_progress
        self._counts = [len(batches)]
        while self._counts[-1] > FAN:
            self._counts.append(-(-self._counts[-1] // FAN))
        self._nodes: dict[tuple[int, int], Any] = {}  # complete: the handle, or None where no recording could be read
        self._running: dict[Any, Callable[[Any], None]] = {}
        self._done, self._total = 0, sum(len(batch.parts) for batch in batches)
        self.problems: dict[str, list[dict[str, Any]]] = {}  # by the name of the recording
        self.ranks: dict[int, str] = {}
        self.spans = 0

    def run(self, finish: Callable[[list[dict[str, Any]]], Merge]) -> Any:
        """The handle of the final summary; `finish` gets the rows of problems, by recording, and returns the last task."""
        for index, batch in enumerate(self._batches):
            self._submit(batch, [], self._batch_done(batch, (0, index)))
        self._wait()
        top = len(self._counts) - 1
        handles = [handle for index in range(self._counts[top]) if (handle := self._nodes[top, index]) is not None]
        problems = [row for part in self._parts() for row in self.problems.get(part.name, [])]
        if not handles:
            first = problems[0] if problems else {"file": "", "where": "", "what": "no recording could be read"}
            raise DataError(first["file"] or "", str(first["what"]), first.get("where") or "")
        final: list[Any] = []
        self._submit(finish(problems), handles, final.append)
        self._wait()
        return final[0]

    def _parts(self) -> Iterator[Part]:
        for batch in self._batches:
            yield from batch.parts

    def _submit(self, task: Task, inputs: list[Any], done: Callable[[Any], None]) -> None:
        self._running[self._engine.submit(task, inputs)] = done

    def _wait(self) -> None:
        while self._running:
            self._on_progress(self._done, self._total)
            for handle in self._engine.completed(list(self._running), 0.2):
                self._running.pop(handle)(handle)
        self._on_progress(self._done, self._total)

    def _batch_done(self, batch: Batch, node: tuple[int, int]) -> Callable[[Any], None]:
        def done(handle: Any) -> None:
            try:
                self._complete(node, handle if self._add(batch, self._engine.status(handle)) else None)
            except LostTaskError as error:
                self._isolate(batch, node, error)

        return done

    def _isolate(self, batch: Batch, node: tuple[int, int], error: LostTaskError) -> None:
        """A batch that ends its process again and again: its recordings, one by one, until the one that does it is alone."""
        if len(batch.parts) == 1:
            part = batch.parts[0]
            self.problems[part.name] = [unread_problem(DataError(part.name, str(error)), part.expected_rank)]
            self._done += 1
            self._complete(node, None)
            return
        handles: dict[int, Any] = {}

        def complete_one(place: int, handle: Any) -> None:
            single = Batch((batch.parts[place],))
            try:
                handles[place] = handle if self._add(single, self._engine.status(handle)) else None
            except LostTaskError as lost:
                part = batch.parts[place]
                self.problems[part.name] = [unread_problem(DataError(part.name, str(lost)), part.expected_rank)]
                self._done += 1
                handles[place] = None
            if len(handles) == len(batch.parts):
                known = [handles[at] for at in range(len(batch.parts)) if handles[at] is not None]
                self._merge(known, lambda merged: self._complete(node, merged))

        for place, part in enumerate(batch.parts):
            self._submit(Batch((part,)), [], functools.partial(complete_one, place))

    def _add(self, batch: Batch, status: Status) -> bool:
        """Count a batch and its problems; whether it has a summary."""
        for rank in status.ranks:
            if rank in self.ranks:
                raise DataError(self.ranks[rank], f"two recordings of rank {rank} in this run; the other is in {batch.parts[0].name}")
            self.ranks[rank] = batch.parts[0].name
        for row in status.problems:
            self.problems.setdefault(batch.parts[0].name, []).append(row)
        self._done += len(batch.parts)
        self.spans += status.spans
        return bool(status.ranks)

    def _complete(self, node: tuple[int, int], handle: Any) -> None:
        level, index = node
        self._nodes[node] = handle
        if level + 1 == len(self._counts):
            return
        parent = index // FAN
        children = range(parent * FAN, min((parent + 1) * FAN, self._counts[level]))
        if all((level, child) in self._nodes for child in children):
            handles = [self._nodes[level, child] for child in children if self._nodes[level, child] is not None]
            self._merge(handles, lambda merged: self._complete((level + 1, parent), merged))

    def _merge(self, handles: list[Any], done: Callable[[Any], None]) -> None:
        if len(handles) <= 1:
            done(handles[0] if handles else None)
        else:
            self._submit(Merge(), handles, lambda merged: self._merged(merged, done))

    def _merged(self, handle: Any, done: Callable[[Any], None]) -> None:
        self._engine.status(handle)
        done(handle)
