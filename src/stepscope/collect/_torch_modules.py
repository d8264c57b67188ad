"""The modules of the model on the timeline: a range around every forward call, named by the module's path, without touching user code."""

import threading
import warnings
from collections.abc import Callable
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

        # That our hooks also see the wrapper of a compiled model is well.
        warnings.filterwarnings("ignore", message=_WARNING)
        self._filter = warnings.filters[0]
        enter, leave = self._hooks(torch.compiler.is_compiling, _RecordFunctionFast)
        self._handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),  # also when forward raised
        ]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        for _, opened in reversed(getattr(self._open, "calls", ())):  # stopped inside a forward call
            opened.__exit__(None, None, None)
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]

    def _hooks(self, compiling: Callable[[], bool], range_: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        """Functions of local names, not methods: they run around every call of every module, and that halves what they cost."""
        names, named, local = self._names, self._named, self._open

        def enter(module: Any, inputs: Any) -> None:
            if compiling():  # such a call becomes part of a graph: it is no call then
                return
            opened = range_((names.get(id(module)) or named(module))[1])
            opened.__enter__()
            try:
                local.calls.append((module, opened))  # the calls that are open on this thread
            except AttributeError:  # its first
                local.calls = [(module, opened)]

        def leave(module: Any, inputs: Any, output: Any) -> None:
            if compiling():
                return
            calls: Any = getattr(local, "calls", ())
            if calls and calls[-1][0] is module:
                calls.pop()[1].__exit__(None, None, None)
            elif any(caller is module for caller, _ in calls):  # those within it never came here; else it began before the hooks were there
                while calls[-1][0] is not module:
                    calls.pop()[1].__exit__(None, None, None)
                calls.pop()[1].__exit__(None, None, None)

        return enter, leave

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
