"""Attributes of other libraries that recording replaces: each is replaced in one place, and can be restored."""

import inspect
import weakref
from collections.abc import Callable, Hashable
from typing import Any

Wrapper = Callable[[Any], Any]  # takes a function, returns the function that replaces it


class Patches:
    """The replaced attributes. Wrappers of one attribute are nested, the latest outermost; each has a key and is applied once."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []  # in the order in which they were made

    def wrap(self, owner: Any, name: str, key: Hashable, wrapper: Wrapper) -> bool:
        """Replace `owner.name` by wrapper(owner.name). False where the wrapper of this key is in place."""
        patches = self._patches_of(owner, name)
        if any(key in patch.wrappers for patch in patches):
            return False
        if not patches or not patches[-1].is_outermost(owner):  # another library has replaced ours: wrap its function
            patches.append(_Patch(owner, name))
            self._patches.append(patches[-1])
        patch = patches[-1]
        patch.wrappers[key] = wrapper
        patch.set(owner, wrapper(patch.function))
        return True

    def unwrap(self, owner: Any, name: str, key: Hashable) -> bool:
        """Remove the wrapper of this key. False where another library has wrapped it since, and still calls it."""
        for patch in self._patches_of(owner, name):
            if key in patch.wrappers:
                if not patch.is_outermost(owner):
                    return False
                del patch.wrappers[key]
                if patch.wrappers:
                    patch.rebuild(owner)
                else:
                    patch.restore(owner)
                    self._patches.remove(patch)
        return True

    def original(self, owner: Any, name: str) -> Any:
        """The function as it was before the first wrapper."""
        patches = self._patches_of(owner, name)
        return patches[0].original if patches else getattr(owner, name)

    def attributes(self) -> list[tuple[Any, str, list[Hashable]]]:
        """Owner, name and the keys of the wrappers of each replaced attribute."""
        return [(patch.owner(), patch.name, list(patch.wrappers)) for patch in self._patches]

    def restore(self) -> None:
        """Restore every attribute, the latest first. One that another library has wrapped since stays: only that library can restore it."""
        for patch in reversed(self._patches):
            owner = patch.owner()
            if owner is not None and patch.is_outermost(owner):
                patch.restore(owner)
        self._patches.clear()

    def _patches_of(self, owner: Any, name: str) -> "list[_Patch]":
        return [patch for patch in self._patches if patch.name == name and patch.owner() is owner]


class _Patch:
    """One attribute, and the wrappers around it, innermost first."""

    def __init__(self, owner: Any, name: str) -> None:
        try:
            self.owner: Callable[[], Any] = weakref.ref(owner)
        except TypeError:
            self.owner = lambda: owner
        self.name = name
        self.wrappers: dict[Hashable, Wrapper] = {}
        self._is_inherited = name not in vars(owner)
        self._before = self._current = inspect.getattr_static(owner, name, None)
        self.original = self.function = getattr(self._before, "__func__", None) if self._is_descriptor else getattr(owner, name)

    @property
    def _is_descriptor(self) -> bool:
        return isinstance(self._before, (staticmethod, classmethod))

    def is_outermost(self, owner: Any) -> bool:
        return inspect.getattr_static(owner, self.name, None) is self._current

    def set(self, owner: Any, function: Any) -> None:
        self.function = function
        self._current = type(self._before)(function) if self._is_descriptor else function
        setattr(owner, self.name, self._current)

    def rebuild(self, owner: Any) -> None:
        function = self.original
        for wrapper in self.wrappers.values():
            function = wrapper(function)
        self.set(owner, function)

    def restore(self, owner: Any) -> None:
        if self._is_inherited:
            delattr(owner, self.name)
        else:
            setattr(owner, self.name, self._before)
