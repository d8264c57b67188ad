"""The input pipeline of PyTorch: batches in a DataLoader's queue when one is fetched, and how long training waits for it."""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Pace
from stepscope.process import clock
from stepscope.recording.process.runtime import runtime


class Watch:
    """Observes every DataLoader of the process from start to stop."""

    WHAT = "the DataLoader's queues are"

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._rows: list[tuple[int, int, int, int]] = []  # loader, start, batches ready (-1: unknown), wait in ns
        self._loaders: dict[int, dict[str, Any]] = {}  # by the iterator's id
        self._pid = os.getpid()
        self._stopped = False
        self._pace = Pace()

    def start(self) -> None:
        from torch.utils.data import dataloader

        self._classes = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
        for kind in self._classes:
            runtime.patches.wrap(kind, "_next_data", self, self._wrapper)

    _classes: tuple[type, ...] = ()

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_data(iterator: Any) -> Any:
            if os.getpid() != self._pid or self._stopped:  # a loader inside a worker
                return original(iterator)
            try:
                number, ready = self._number(iterator), _ready(iterator)
            except AttributeError:  # an unknown release
                return original(iterator)
            start = clock.now_ns()
            batch = original(iterator)
            self._rows.append((number, start, ready, clock.now_ns() - start))
            if self._pace.due():
                self._write_early()
            return batch

        return next_data

    def _number(self, iterator: Any) -> int:
        """Number of the loader, from 0. Each epoch has a new iterator, so a loader is identified by its dataset."""
        key = id(iterator._dataset)
        if key not in self._loaders:
            workers = int(iterator._num_workers)
            self._loaders[key] = {
                "number": len(self._loaders),
                "dataset": iterator._dataset,  # referenced, so that its id is not reused
                "workers": workers,
                "capacity": workers * int(iterator._prefetch_factor or 0),
                "pids": set(),
            }
        loader = self._loaders[key]
        loader["pids"].update(worker.pid for worker in getattr(iterator, "_workers", ()))
        number: int = loader["number"]
        return number

    def stop(self) -> None:
        self._stopped = True
        for kind in self._classes:
            runtime.patches.unwrap(kind, "_next_data", self)
        if self._loaders:
            self._write()
            self._write_loaders()

    def _write_early(self) -> None:
        """For readers of the unfinished capture. A full disk does not end training."""
        count = len(self._rows)
        try:
            self._write()
        except OSError as error:
            self._capture.notice(f"the queues of loaders could not be written ({error.strerror})", lost=count)

    def _write(self) -> None:
        capture, (rows, self._rows) = self._capture, (self._rows, [])
        if not rows:
            return
        number, start, ready, wait = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        for loader in self._loaders.values():
            is_loader = number == loader["number"]
            for name, unit, mask, values in (("depth", "batches", is_loader & (ready >= 0), ready), ("wait", "ns", is_loader, wait)):
                if mask.any():
                    count = int(mask.sum())
                    capture.append(
                        "counters",
                        {
                            "name": [f"queue {loader['number']} {name}"] * count,
                            "at_ns": start[mask],
                            "value": values[mask].astype(np.float64),
                            "unit": [unit] * count,
                        },
                    )

    def _write_loaders(self) -> None:
        loaders = list(self._loaders.values())
        self._capture.append(
            "pipeline",
            {
                "op_id": np.array([loader["number"] for loader in loaders], np.int32),
                "op_type": ["DataLoader"] * len(loaders),
                "workers": np.array([loader["workers"] for loader in loaders], np.int32),
                "queue_capacity": np.array([loader["capacity"] for loader in loaders], np.int32),
            },
        )
        self._capture.header["data_workers"] = sorted(pid for loader in loaders for pid in loader["pids"])


def _ready(iterator: Any) -> int:
    """Batches ready for training: in the queue of the workers, in that of the pinning thread, and batches that arrived out of order."""
    if not iterator._num_workers:
        return -1
    queues = {id(queue): queue for queue in (iterator._data_queue, iterator._worker_result_queue)}
    try:
        waiting = [*(int(queue.qsize()) for queue in queues.values()), *(len(task) == 2 for task in iterator._task_info.values())]
    except NotImplementedError:  # macOS does not count the items of a queue between processes
        return -1
    return sum(waiting)
