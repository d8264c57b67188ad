"""The modules of the model on the timeline: a range around every forward call, named by the module's path, without touching user code."""

import threading
import warnings
from typing import Any

PREFIX = "nn.Module: "
# What these wrap keeps its path: GPT/blocks/0, whether or not it is compiled, sharded or checkpointed.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WARNING = "Using `torch.compile\\(module\\)` when there are global hooks"


class Ranges:
    """Hooks on all modules from start to stop. A call costs about 3 µs."""

    WHAT = "modules are"

    def __init__(self) -> None:
        self._names: dict[int, tuple[Any, str]] = {}  # by id; the module is held so that its id stays its own
        self._roots: set[str] = set()
        self._open = threading.local()
        self._handles: list[Any] = []

    def start(self) -> None:
        import torch
        from torch._C._profiler import _RecordFunctionFast
        from torch.nn.modules import module as hooks

        self._range, self._compiling = _RecordFunctionFast, torch.compiler.is_compiling
        # That our hooks also see the wrapper of a compiled model is well.
        warnings.filterwarnings("ignore", message=_WARNING)
        self._filter = warnings.filters[0]
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._exit, always_call=True),  # also when forward raised
        ]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        for _, opened in reversed(self._stack()):  # stopped inside a forward call
            opened.__exit__(None, None, None)
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]

    def _stack(self) -> list[tuple[Any, Any]]:
        """The calls that are open on this thread."""
        found: list[tuple[Any, Any]] | None = getattr(self._open, "calls", None)
        if found is None:
            found = self._open.calls = []
        return found

    def _enter(self, module: Any, inputs: Any) -> None:
        if self._compiling():  # such a call becomes part of a graph: it is no call then
            return
        known = self._names.get(id(module)) or self._named(module)
        opened = self._range(known[1])
        opened.__enter__()
        self._stack().append((module, opened))

    def _exit(self, module: Any, inputs: Any, output: Any) -> None:
        if self._compiling():
            return
        stack = self._stack()
        if any(caller is module for caller, _ in stack):  # else it began before the hooks were there
            while True:
                caller, opened = stack.pop()
                opened.__exit__(None, None, None)
                if caller is module:
                    return

    def _named(self, root: Any) -> tuple[Any, str]:
        """Whatever is called outside all known modules is the root of a model: it and all in it get their paths."""
        inner = root
        while list(inner._modules) in (["module"], *([name] for name in _WRAPPED)):  # DistributedDataParallel has a `module`
            compiled = "_orig_mod" in inner._modules
            outer, inner = inner, next(iter(inner._modules.values()))
            # A compiled model is called by its wrapper alone: that is its range.
            self._names[id(outer)] = (outer, PREFIX + type(inner if compiled else outer).__name__)
        first = base = type(inner).__name__
        number = 1
        while base in self._roots:
            base, number = f"{first}_{number}", number + 1
        self._roots.add(base)
        for path, module in inner.named_modules():
            parts = [part for part in path.split(".") if part and part not in _WRAPPED]
            self._names[id(module)] = (module, PREFIX + "/".join([base, *parts]))
        return self._names[id(root)]
