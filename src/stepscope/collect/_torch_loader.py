"""The input pipeline of PyTorch: how full a DataLoader's queue is when a batch is asked for, and how long the training waits for it."""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture, Pace


class Watch:
    """Looks on at every DataLoader of the process from start to stop."""

    WHAT = "the DataLoader's queues are"

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._rows: list[tuple[int, int, int, int]] = []  # loader, when, batches ready (-1: unknown), wait in ns
        self._loaders: dict[int, dict[str, Any]] = {}  # by the iterator's id
        self._originals: list[tuple[type, Callable[..., Any]]] = []
        self._pid = os.getpid()
        self._pace = Pace()

    def start(self) -> None:
        from torch.utils.data import dataloader

        for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
            original = kind._next_data
            self._originals.append((kind, original))
            kind._next_data = self._watched(original)  # type: ignore[method-assign]

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_data(iterator: Any) -> Any:
            if os.getpid() != self._pid:  # a loader inside a worker
                return original(iterator)
            try:
                number, ready = self._number(iterator), _ready(iterator)
            except AttributeError:  # a release whose loaders are made in another way
                return original(iterator)
            start = clock.now_ns()
            batch = original(iterator)
            self._rows.append((number, start, ready, clock.now_ns() - start))
            if self._pace.due():
                self._write_on_the_way()
            return batch

        return next_data

    def _number(self, iterator: Any) -> int:
        """Loaders count from 0; each epoch has an iterator of its own, and its loader is known by its dataset."""
        key = id(iterator._dataset)
        if key not in self._loaders:
            workers = int(iterator._num_workers)
            self._loaders[key] = {
                "number": len(self._loaders),
                "dataset": iterator._dataset,  # held so that its id stays its own
                "workers": workers,
                "capacity": workers * int(iterator._prefetch_factor or 0),
                "pids": set(),
            }
        found = self._loaders[key]
        found["pids"].update(worker.pid for worker in getattr(iterator, "_workers", ()))
        number: int = found["number"]
        return number

    def stop(self) -> None:
        for kind, original in self._originals:
            if getattr(kind._next_data, "__wrapped__", None) is original:  # type: ignore[attr-defined]
                kind._next_data = original  # type: ignore[attr-defined]
        if self._loaders:
            self._write()
            self._write_loaders()

    def _write_on_the_way(self) -> None:
        """So that one can look on. A full disk does not end training."""
        taken = len(self._rows)
        try:
            self._write()
        except OSError as error:
            self._capture.notice(f"the queues of loaders could not be written ({error.strerror})", lost=taken)

    def _write(self) -> None:
        capture, (taken, self._rows) = self._capture, (self._rows, [])
        if not taken:
            return
        number, at, ready, wait = (np.array(column, np.int64) for column in zip(*taken, strict=True))
        for loader in self._loaders.values():
            own = number == loader["number"]
            for name, unit, rows, values in (("depth", "batches", own & (ready >= 0), ready), ("wait", "ns", own, wait)):
                if rows.any():
                    count = int(rows.sum())
                    capture.append(
                        "counters",
                        {
                            "name": [f"queue {loader['number']} {name}"] * count,
                            "at_ns": at[rows],
                            "value": values[rows].astype(np.float64),
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
    """Batches that wait for the training: in the queue of the workers, in that of the pinning thread, and those that came out of turn."""
    if not iterator._num_workers:
        return -1
    queues = {id(queue): queue for queue in (iterator._data_queue, iterator._worker_result_queue)}
    try:
        waiting = [*(int(queue.qsize()) for queue in queues.values()), *(len(task) == 2 for task in iterator._task_info.values())]
    except NotImplementedError:  # macOS cannot count what a queue between processes holds
        return -1
    return sum(waiting)
