"""A program without a framework: `stepscope.record_function` shows that its work begins."""

from typing import Any

from stepscope.recording.hooks import stock_profilers
from stepscope.recording.hooks.process import this_process


def after(annotations: Any) -> None:
    def on_first_range(name: str, entered: bool) -> None:
        annotations.watchers.remove(on_first_range)
        this_process().frameworks.add("record_function")
        stock_profilers.start_by_variable()
        this_process().begin_work()

    annotations.watchers.append(on_first_range)
