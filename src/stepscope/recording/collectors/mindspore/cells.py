"""Calls of Cells in PyNative mode: which module ran on the Python side, and when."""

import threading
from functools import wraps
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.process.runtime import runtime


class Calls:
    """Wraps Cell.__call__ from start to stop. In graph mode one call is the whole network: nothing is recorded there."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: list[list[Any]] = []

    def start(self) -> None:
        from mindspore import nn

        runtime.patches.wrap(nn.Cell, "__call__", self, self._wrapper)

    def _wrapper(self, original: Any) -> Any:
        from mindspore import context

        rows, most = self._rows, self._most
        # As Cell.__call__ itself does; get_context takes twenty times as long, as long as a small operator.
        mode, graph = context._get_mode, context.GRAPH_MODE
        local = threading.local()

        @wraps(original)
        def call(cell: Any, *args: Any, **kwargs: Any) -> Any:
            if mode() == graph or len(rows) >= most or self._stopped:
                return original(cell, *args, **kwargs)
            parent = getattr(local, "row", None)
            row = local.row = [cell, parent, threading.get_native_id(), clock.now_ns(), 0]
            rows.append(row)
            try:
                return original(cell, *args, **kwargs)
            finally:
                row[4] = clock.now_ns()
                local.row = parent

        return call

    _stopped = False

    def stop(self, capture: Capture) -> None:
        from mindspore import nn

        self._stopped = True
        runtime.patches.unwrap(nn.Cell, "__call__", self)
        self.flush(capture)

    def flush(self, capture: Capture) -> None:
        """Write the calls that are over. A call that ends after the window is not written."""
        if len(self._rows) >= self._most:
            capture.notice(f"at most {self._most:,} calls of Cells in a minute are recorded: some are missing")
        rows = [row for row in self._rows if row[4]]
        self._rows[:] = [row for row in self._rows if not row[4]]
        if not rows:
            return
        paths: dict[tuple[int, str], str] = {}
        start = np.array([row[3] for row in rows], np.int64)
        capture.append(
            "mindspore_cells",
            {
                "scope": [_path(row, paths) for row in rows],
                "start_ns": start,
                "dur_ns": np.array([row[4] for row in rows], np.int64) - start,
                "tid": np.array([row[2] for row in rows], np.int64),
            },
        )


def _path(row: list[Any], paths: dict[tuple[int, str], str]) -> str:
    """The scope as the graph compiler names it: the attribute of the enclosing cell, and the class."""
    cell, parent = row[0], row[1]
    if parent is None:
        return type(cell).__name__
    outer = _path(parent, paths)
    path = paths.get((id(cell), outer))
    if path is None:
        attribute = next((name for name, inner in parent[0].name_cells().items() if inner is cell), "")
        path = paths[id(cell), outer] = f"{outer}/{attribute}-{type(cell).__name__}" if attribute else f"{outer}/{type(cell).__name__}"
    return path
