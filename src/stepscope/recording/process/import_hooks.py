"""Functions that run when the program imports a module: before it is executed, after that, or when it failed."""

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from stepscope.process.notices import error_line, say

# Called with "before", "after" or "failed", and the module.
Hook = Callable[[str, ModuleType], None]


class ImportHooks(importlib.abc.MetaPathFinder):
    """The hooks of a process. As a finder it finds nothing itself: it wraps the loaders that other finders return."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {}

    def on_import(self, name: str, hook: Hook) -> None:
        """Call the hook when the module is imported. An error in it becomes one line on stderr, and the import continues."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._hooks.setdefault(name, []).append(hook)

    def after_import(self, name: str, action: Callable[[ModuleType], Any]) -> None:
        """Call the action with the module: now if it is imported, else after its import."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            action(module)
        else:
            self.on_import(name, lambda phase, module: action(module) if phase == "after" else None)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._hooks.clear()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None and spec.loader is not None:
                self._wrap_loader(name, spec.loader)
                return spec
        return None

    def _wrap_loader(self, name: str, loader: Any) -> None:
        """The loader stays the same object, for programs that inspect it: only its exec_module is replaced."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):  # one class loads all built-in modules
            return

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            self._call(name, "before", module)
            try:
                execute(module)
            except BaseException:
                self._call(name, "failed", module)
                raise
            self._call(name, "after", module)

        with contextlib.suppress(AttributeError):  # a loader without settable attributes: the module loads without hooks
            loader.exec_module = exec_module

    def _call(self, name: str, phase: str, module: ModuleType) -> None:
        for hook in list(self._hooks.get(name, ())):
            try:
                hook(phase, module)
            except Exception as error:  # noqa: BLE001  an unknown version of the module: the import continues
                say(f"steps of {name} cannot be recorded: {error_line(error)}")
