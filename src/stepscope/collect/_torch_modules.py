"""The modules of the model on the timeline: a range around every call, named by the module's path, without touching user code."""

import sys
import threading
import weakref
from functools import wraps
from typing import Any

from stepscope.collect import _torch_ranges as ranges

PREFIX = "nn.Module: "
# What these wrap keeps its path: GPT/blocks/0, whether or not it is compiled, sharded or checkpointed.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_MOST_ROOTS = 100  # models of one class with names of their own; further ones share a name


class Ranges:
    """Around `nn.Module.__call__` from start to stop, about 1 µs a call. Hooks would cost 3 µs, and torch.compile warns of them."""

    WHAT = "modules are"

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}  # by the module's id, until the module is gone
        self._roots: dict[str, weakref.ref[Any]] = {}  # by name
        self.threads: set[int] = set()  # that called a module for the first time
        self._active = False

    def start(self) -> None:
        import torch
        from torch._C._profiler import _RecordFunctionFast

        kind: Any = torch.nn.Module
        self._original = original = kind.__call__
        self._active = True
        names, named, opened_here = self._names, self._named, ranges.here
        compiling, range_ = torch.compiler.is_compiling, _RecordFunctionFast

        @wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or not self._active:  # a call that is compiled becomes part of a graph: it is no call then
                return original(module, *args, **kwargs)
            known = names.get(id(module))
            opened = opened_here.open
            entry = (module, range_(known[1] if known is not None else named(module)))
            opened.append(entry)
            entry[1].__enter__()
            try:
                return original(module, *args, **kwargs)
            finally:
                entry[1].__exit__(None, None, None)
                while opened and opened.pop() is not entry:
                    pass  # a range within it was never left: it is not open for us any more

        ranges.not_compiled(call)
        ranges.not_compiled(Ranges._named, deep=True)
        self._call, kind.__call__ = call, call

    def stop(self) -> None:
        import torch

        self._active = False
        kind: Any = torch.nn.Module
        if kind.__call__ is self._call:  # else another library has wrapped ours, and ours calls the original from now on
            kind.__call__ = self._original
        for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):  # imported meanwhile, they took ours for PyTorch's
            if (dynamo := vars(sys.modules[name]) if name in sys.modules else {}).get("unpatched_nn_module_call") is self._call:
                dynamo["unpatched_nn_module_call"] = self._original

    def _named(self, module: Any) -> str:
        self.threads.add(threading.get_ident())
        try:
            return self._new_name(module)
        except Exception:  # noqa: BLE001 - modules may be made in any way, and a call of one must not fail for a name
            return PREFIX + type(module).__name__

    def _new_name(self, module: Any) -> str:
        """A module that was not seen before: part of the module that calls it, or the root of a model, whose parts all get their paths."""
        caller = next((outer for outer, _ in reversed(ranges.here.open) if outer is not None), None)
        above = self._names.get(id(caller)) if caller is not None else None
        if caller is not None and above is not None and not _wraps_one(caller):  # made while the model runs, such as a loss in its forward
            part = next((name for name, child in caller._modules.items() if child is module), type(module).__name__)
            return self._name_all(module, above[1].removeprefix(PREFIX) + "/" + part)
        inner = module
        wrappers = []
        while _wraps_one(inner):
            wrappers.append(inner)
            inner = next(iter(inner._modules.values()))
        for outer in wrappers:  # a compiled model is called by its wrapper alone: that is its range
            self._keep(outer, type(inner if "_orig_mod" in outer._modules else outer).__name__)
        name = self._name_all(inner, self._root_name(inner))
        return self._names[id(module)][1] if wrappers else name

    def _root_name(self, root: Any) -> str:
        """The class's name, with a number where another root of it is alive. What holds nothing, such as a loss, needs no telling apart."""
        name = first = type(root).__name__
        if not root._modules and not root._parameters:
            return name
        number = 0
        while number < _MOST_ROOTS and (other := self._roots.get(name)) is not None and other() not in (None, root):
            number += 1
            name = f"{first}_{number}"
        self._roots[name] = weakref.ref(root)
        return name

    def _name_all(self, root: Any, base: str) -> str:
        for path, module in root.named_modules():
            parts = [part for part in path.split(".") if part and part not in _WRAPPERS]
            self._keep(module, "/".join([base, *parts]))
        return PREFIX + base

    def _keep(self, module: Any, path: str) -> None:
        key, names = id(module), self._names
        names[key] = (weakref.ref(module, lambda _: names.pop(key, None)), PREFIX + path)


def _wraps_one(module: Any) -> bool:
    """Whether it is nothing but a shell around one other. DistributedDataParallel has a `module`."""
    return list(module._modules.keys()) in (["module"], *([name] for name in _WRAPPERS))
