"""Ranges of PyTorch's own `_RecordFunctionFast`, a C class: one that is open where a session starts raises an error when it ends.

Ranges that are made from now on are tracked, ended and begun again with each session, like those of `record_function`. Of the ranges that
were made before, only the ones of `with` statements are known, up to Python 3.13: no session starts inside them.
"""

import gc
import sys
from types import BuiltinMethodType
from typing import Any

from stepscope.recording.process.runtime import runtime

_NAME = "_RecordFunctionFast"
_earlier_exits: list[Any] = []  # the bound __exit__ of each earlier range that is open: its `with` statement refers to it until it ends


def original() -> Any:
    """PyTorch's class."""
    import torch

    return runtime.patches.original(torch._C._profiler, _NAME)


def track(opened: Any) -> None:
    """Keep the open ranges of each thread in `opened.open`, also those of modules that have imported the class already."""
    import torch

    fast = torch._C._profiler._RecordFunctionFast
    if runtime.patches.wrap(torch._C._profiler, _NAME, "ranges", lambda kind: _tracked(kind, opened)):
        for module in [module for name, module in sys.modules.items() if not name.startswith(("torch.", "stepscope."))]:
            if getattr(module, "__dict__", {}).get(_NAME) is fast:
                runtime.patches.wrap(module, _NAME, "ranges", lambda kind: _tracked(kind, opened))
        methods: list[Any] = [entry for entry in gc.get_objects() if type(entry) is BuiltinMethodType and type(entry.__self__) is fast]
        _earlier_exits[:] = [method for method in methods if method.__name__ == "__exit__"]


def is_earlier_open() -> bool:
    """Whether a range from before track() is open, on any thread."""
    _earlier_exits[:] = [entry for entry, count in zip(_earlier_exits, _references(_earlier_exits), strict=True) if count > _UNUSED]
    return bool(_earlier_exits)


def _tracked(kind: Any, opened: Any) -> Any:
    class RecordFunctionFast:
        """PyTorch's range, known as long as it is open."""

        __slots__ = ("name", "range")

        def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
            self.name, self.range = name, kind(name, *args, **kwargs)

        def __enter__(self) -> None:
            self.range.__enter__()
            opened.open.append((None, self))

        def __exit__(self, *args: Any) -> None:
            entries = opened.open
            if entries and entries[-1][1] is self:
                entries.pop()
            else:  # left out of order, or entered by another thread
                entries[:] = [entry for entry in entries if entry[1] is not self]
            self.range.__exit__(*args)

    return RecordFunctionFast


def _references(entries: list[Any]) -> list[int]:
    return [sys.getrefcount(entry) for entry in entries]


_UNUSED = _references([object()])[0]  # of an object that nothing but the list refers to
