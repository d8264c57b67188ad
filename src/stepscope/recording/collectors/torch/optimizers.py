"""Calls of PyTorch's optimizers: listeners are called after the outermost `step` has returned, outside of PyTorch's own record_function.

PyTorch's step hooks run inside `record_function("Optimizer.step#…")`. A recording that ends there frees the memory to which that range is
written when it is left, so a step must not end in a hook.
"""

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from stepscope.recording.process.runtime import runtime

# Called with the optimizer that stepped, and the optimizers that it wraps: a wrapper such as Lookahead is the step.
Listener = Callable[[Any, list[Any]], None]
_KEY = "optimizers"  # of the patches


def listen(listener: Listener, created: Callable[[Any], None] | None = None) -> None:
    """Call `listener` for every step, and `created` for every optimizer that is created from now on."""
    _install()
    exclude_from_dynamo()
    _listeners.append(listener)
    if created is not None:
        _created.append(created)


def alive() -> list[Any]:
    """The optimizers of the program, in no order."""
    import torch

    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), torch.optim.Optimizer)]


def train_apart(first: Any, second: Any) -> bool:
    """Whether the second optimizer trains parameters, and none of the first one's."""
    ids = {id(parameter) for parameter in _parameters(first)}
    parameters = _parameters(second)
    return any(parameter.requires_grad for parameter in parameters) and not any(id(parameter) in ids for parameter in parameters)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]


def _install() -> None:
    import torch

    kind: Any = torch.optim.Optimizer
    wrap = runtime.patches.wrap
    if not wrap(kind, "__init__", _KEY, _report_created):
        return
    if hasattr(kind, "_patch_step_function"):
        wrap(kind, "_patch_step_function", _KEY, _report_patched)
        for subclass in _subclasses(kind):  # whose optimizers were created before
            _wrap_step(subclass)
        for optimizer in alive():
            if "step" in vars(optimizer):  # set by a learning rate scheduler
                wrap(optimizer, "step", _KEY, partial(_report_step, find=_find_always(optimizer)))
    elif not _hooked:  # another release: better a step inside of PyTorch's range than none
        torch.optim.optimizer.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: _notify(optimizer, []))
        _hooked.append(True)
    scaler = getattr(getattr(torch.amp, "grad_scaler", None), "GradScaler", None)
    if scaler is not None:  # it does not call the optimizer where gradients are infinite; the iteration is a step all the same
        wrap(scaler, "step", _KEY, partial(_report_step, find=lambda scaler, optimizer, *args, **kwargs: optimizer))


def _report_created(init: Any) -> Any:
    @wraps(init)
    def init_optimizer(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for created in _created:
            created(self)

    return init_optimizer


def _report_patched(patch_step_function: Any) -> Any:
    """PyTorch puts its record_function around `step` of a class when the first optimizer of it is created: ours goes around that."""

    @wraps(patch_step_function)
    def patch_step(self: Any) -> None:
        patch_step_function(self)
        for kind in type(self).__mro__:
            _wrap_step(kind)

    return patch_step


def _wrap_step(kind: Any) -> None:
    if getattr(vars(kind).get("step"), "hooked", False):
        runtime.patches.wrap(kind, "step", _KEY, _report_step)


def _find_always(optimizer: Any) -> Callable[..., Any]:
    reference = weakref.ref(optimizer)
    return lambda *args, **kwargs: reference()


def _subclasses(kind: type) -> list[Any]:
    direct: list[Any] = kind.__subclasses__()
    return [*direct, *(indirect for subclass in direct for indirect in _subclasses(subclass))]


def _report_step(step: Callable[..., Any], find: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The same function, which reports its return. `find` returns the optimizer, where that is not the first argument."""
    import torch

    compiling = torch.compiler.is_compiling

    @wraps(step)
    def reported_step(*args: Any, **kwargs: Any) -> Any:
        if compiling():  # the call becomes part of a graph, without ours
            return step(*args, **kwargs)
        optimizer = find(*args, **kwargs) if find is not None else args[0]
        nested: list[Any] | None = getattr(_calls, "nested", None)
        if nested is not None:
            nested.append(optimizer)
            return step(*args, **kwargs)
        _calls.nested = nested = []
        try:
            result = step(*args, **kwargs)
        finally:
            _calls.nested = None
        _notify_uncompiled(optimizer, nested)
        return result

    return reported_step


def _notify_uncompiled(optimizer: Any, nested: list[Any]) -> None:
    """Inside a compiled function, none of our code may be compiled."""
    dynamo = sys.modules.get("torch._dynamo")
    if not _disabled_notify and dynamo is not None and hasattr(dynamo, "disable"):
        _disabled_notify.append(dynamo.disable(_notify))
    (_disabled_notify[0] if _disabled_notify else _notify)(optimizer, nested)


def exclude_from_dynamo() -> None:
    """Where a compiled function calls ours, PyTorch's compiler runs ours as it is and compiles only the step that ours calls."""
    skip: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip is not None and not _excluded:
        for code in (_report_step(len).__code__, _notify_uncompiled.__code__):  # all results of _report_step share one code object
            skip(code)
        _excluded.append(True)


def _notify(optimizer: Any, nested: list[Any]) -> None:
    for listener in list(_listeners):
        listener(optimizer, nested)


_hooked: list[bool] = []
_excluded: list[bool] = []
_listeners: list[Listener] = []
_created: list[Callable[[Any], None]] = []
_disabled_notify: list[Listener] = []  # _notify, excluded from compilation with all that it calls
_calls = threading.local()
runtime.on_uninstall(_listeners.clear)
runtime.on_uninstall(_created.clear)
