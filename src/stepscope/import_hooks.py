"""Functions that run when the program imports a module: before it is executed, after that, or when it failed."""

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from stepscope.telling import say, told

# Called with "before", "after" or "failed", and the module.
Hook = Callable[[str, ModuleType], None]


def on_import(name: str, hook: Hook) -> None:
    """Call the hook when the module is imported. What it raises becomes one line on stderr, and the import goes on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _hooks.setdefault(name, []).append(hook)


def after_import(name: str, action: Callable[[ModuleType], Any]) -> None:
    """Call the action with the module: now if it is there, else once it has been imported."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        action(module)
    else:
        on_import(name, lambda moment, module: action(module) if moment == "after" else None)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: what others find is surrounded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _hooks:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None and spec.loader is not None:
                _surround(name, spec.loader)
                return spec
        return None


def _surround(name: str, loader: Any) -> None:
    """The loader stays what it is, for whoever looks at it: only this one object's exec_module is another."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type):  # of modules that are built in, one class loads all
        return

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
    for hook in list(_hooks[name]):
        try:
            hook(moment, module)
        except Exception as error:  # noqa: BLE001  another version than those we know: the import goes on
            say(f"steps of {name} cannot be seen: {told(error)}")


_hooks: dict[str, list[Hook]] = {}
