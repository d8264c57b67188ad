"""How a framework is met: a function of ours runs when the program has imported it."""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from stepscope.telling import say, told

# Modules of the program, and which of ours knows them. Its functions are called with the module, `before` it is executed, `after`, or
# when that `failed`; each may be missing.
_KNOWN = {
    "torch": "torch",
    "torch._dynamo": "dynamo",
    "mindspore": "mindspore",
    "mindspore.profiler": "stock",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "stepscope.collect.plain": "plain",
}


def watch() -> None:
    sys.meta_path.insert(0, _Finder())


def watched() -> bool:
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: what others find is surrounded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _KNOWN:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None and spec.loader is not None:
                _surround(name, spec.loader)
                return spec
        return None


def _surround(name: str, loader: Any) -> None:
    """The loader stays what it is, for whoever looks at it: only this one object's exec_module is another."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with contextlib.suppress(AttributeError):
            del loader.exec_module
        _call(name, "before", module)
        try:
            execute(module)
        except BaseException:
            _call(name, "failed", module)
            raise
        _call(name, "after", module)

    with contextlib.suppress(AttributeError):  # a loader that takes no attributes: the module loads as ever
        loader.exec_module = exec_module


def _call(name: str, moment: str, module: ModuleType) -> None:
    try:
        action = getattr(importlib.import_module(f"stepscope.running.{_KNOWN[name]}"), moment, None)
        if action is not None:
            action(module)
    except Exception as error:  # noqa: BLE001  another version than those we know: the import goes on
        say(f"steps of {name} cannot be seen: {told(error)}")
