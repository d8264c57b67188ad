"""Calls of Cells in PyNative mode: which module was at work on the Python side, and when."""

import threading
from functools import wraps
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture


class Calls:
    """Wraps Cell.__call__ from start to stop. In graph mode one call is the whole network: nothing is recorded there."""

    def __init__(self, most: int) -> None:
        self._most = most

    def start(self) -> None:
        from mindspore import context, nn

        most = self._most
        original = self._original = nn.Cell.__call__
        rows = self._rows = []
        # What Cell.__call__ itself asks; get_context takes twenty times as long, as long as a small operator.
        mode, graph = context._get_mode, context.GRAPH_MODE
        local = threading.local()

        @wraps(original)
        def call(cell: Any, *args: Any, **kwargs: Any) -> Any:
            if mode() == graph or len(rows) >= most:
                return original(cell, *args, **kwargs)
            above = getattr(local, "row", None)
            row = local.row = [cell, above, threading.get_native_id(), clock.now_ns(), 0]
            rows.append(row)
            try:
                return original(cell, *args, **kwargs)
            finally:
                row[4] = clock.now_ns()
                local.row = above

        nn.Cell.__call__ = call

    _original: Any
    _rows: list[list[Any]]

    def stop(self, capture: Capture) -> None:
        from mindspore import nn

        nn.Cell.__call__ = self._original
        self.flush(capture)

    def flush(self, capture: Capture) -> None:
        """Write the calls that are over. One that is not stays out if the window ends before it does."""
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
    """As the graph compiler names scopes: the attribute by which the enclosing cell knows it, and its class."""
    cell, above = row[0], row[1]
    if above is None:
        return type(cell).__name__
    outer = _path(above, paths)
    found = paths.get((id(cell), outer))
    if found is None:
        attribute = next((name for name, inner in above[0].name_cells().items() if inner is cell), "")
        found = paths[id(cell), outer] = f"{outer}/{attribute}-{type(cell).__name__}" if attribute else f"{outer}/{type(cell).__name__}"
    return found
