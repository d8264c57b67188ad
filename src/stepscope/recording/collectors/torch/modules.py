"""The modules of the model on the timeline: a range around every call, named by the module's path, without changes to user code."""

import sys
import threading
import weakref
from functools import wraps
from typing import Any

from stepscope.recording.collectors.torch import fast_ranges, ranges
from stepscope.recording.process.runtime import runtime

PREFIX = "nn.Module: "
# A module inside one of these keeps its path: GPT/blocks/0, whether or not it is compiled, sharded or checkpointed.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_MOST_ROOTS = 100  # models of one class with separate names; further ones share a name


class Ranges:
    """Around `nn.Module.__call__` from start to stop, about 1 µs a call. Hooks would cost 3 µs, and torch.compile warns about them."""

    WHAT = "modules are"

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}  # by the module's id, until the module is gone
        self._roots: dict[str, weakref.ref[Any]] = {}  # by name
        self.threads: set[int] = set()  # that called a module for the first time
        self._active = False

    def start(self) -> None:
        import torch

        self._active = True
        ranges.not_compiled(Ranges._name, deep=True)
        runtime.patches.wrap(torch.nn.Module, "__call__", self, self._wrapper)

    def _wrapper(self, original: Any) -> Any:
        import torch

        names, new_name, this_thread = self._names, self._name, ranges.this_thread
        compiling, new_range = torch.compiler.is_compiling, fast_ranges.original()

        @wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or not self._active:  # a call that is compiled becomes part of a graph
                return original(module, *args, **kwargs)
            name = names.get(id(module))
            opened = this_thread.open
            entry = (module, new_range(name[1] if name is not None else new_name(module)))
            opened.append(entry)
            entry[1].__enter__()
            try:
                return original(module, *args, **kwargs)
            finally:
                entry[1].__exit__(None, None, None)
                while opened and opened.pop() is not entry:
                    pass  # a range inside was never left: it no longer counts as open

        ranges.not_compiled(call)
        self._call, self._original = call, original
        return call

    def stop(self) -> None:
        import torch

        self._active = False  # where another library has wrapped ours, it calls the original from now on
        runtime.patches.unwrap(torch.nn.Module, "__call__", self)
        for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):  # imported since start(), they stored ours as PyTorch's
            if (dynamo := vars(sys.modules[name]) if name in sys.modules else {}).get("unpatched_nn_module_call") is self._call:
                dynamo["unpatched_nn_module_call"] = self._original

    def _name(self, module: Any) -> str:
        self.threads.add(threading.get_ident())
        try:
            return self._new_name(module)
        except Exception:  # noqa: BLE001 - modules may be built in any way, and a call of one must not fail for a name
            return PREFIX + type(module).__name__

    def _new_name(self, module: Any) -> str:
        """Name of a new module: part of the module that calls it, or the root of a model, whose parts all get their paths."""
        caller = next((outer for outer, _ in reversed(ranges.this_thread.open) if outer is not None), None)
        parent = self._names.get(id(caller)) if caller is not None else None
        if caller is not None and parent is not None and not _wraps_one(caller):  # created while the model runs, such as a loss in forward
            part = next((name for name, child in caller._modules.items() if child is module), type(module).__name__)
            return self._name_all(module, parent[1].removeprefix(PREFIX) + "/" + part)
        inner = module
        wrappers = []
        while _wraps_one(inner):
            wrappers.append(inner)
            inner = next(iter(inner._modules.values()))
        for outer in wrappers:  # only the wrapper of a compiled model is called: that is its range
            self._store(outer, type(inner if "_orig_mod" in outer._modules else outer).__name__)
        name = self._name_all(inner, self._root_name(inner))
        return self._names[id(module)][1] if wrappers else name

    def _root_name(self, root: Any) -> str:
        """The class's name, with a number where another root of it is alive. A module without contents, such as a loss, needs none."""
        name = class_name = type(root).__name__
        if not root._modules and not root._parameters:
            return name
        number = 0
        while number < _MOST_ROOTS and (other := self._roots.get(name)) is not None and other() not in (None, root):
            number += 1
            name = f"{class_name}_{number}"
        self._roots[name] = weakref.ref(root)
        return name

    def _name_all(self, root: Any, base: str) -> str:
        for path, module in root.named_modules():
            parts = [part for part in path.split(".") if part and part not in _WRAPPERS]
            self._store(module, "/".join([base, *parts]))
        return PREFIX + base

    def _store(self, module: Any, path: str) -> None:
        key, names = id(module), self._names
        names[key] = (weakref.ref(module, lambda _: names.pop(key, None)), PREFIX + path)


def _wraps_one(module: Any) -> bool:
    """Whether it only wraps one other module. DistributedDataParallel has a `module`."""
    return list(module._modules.keys()) in (["module"], *([name] for name in _WRAPPERS))
