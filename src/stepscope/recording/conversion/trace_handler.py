"""`tensorboard_trace_handler`: what a Profiler does with each finished window."""

import os
from collections.abc import Callable
from typing import Any

from stepscope.errors import UsageError


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Any], None]:
    """For `on_trace_ready`: each window becomes a run folder in `dir_name`, with `worker_name` in its name."""
    for name, value in (("dir_name", dir_name), ("worker_name", worker_name)):
        if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
            raise UsageError(f"{name} is {value!r}; expected text")
    for name, flag in (("analyse_flag", analyse_flag), ("async_mode", async_mode)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} is {flag!r}; expected True or False")
    options = {"output_path": dir_name, "worker_name": worker_name}
    return TraceHandler({name: value for name, value in options.items() if value is not None}, analyse_flag, async_mode)


class TraceHandler:
    """Analyses each window of a profiler; `options` are arguments of that profiler."""

    def __init__(self, options: dict[str, Any], analyse: bool, in_background: bool) -> None:
        self.options, self._analyse, self._in_background = options, analyse, in_background

    def __call__(self, profiler: Any) -> None:
        if self._analyse:
            profiler.analyse(mode="async" if self._in_background else "sync")
