"""Calls of PyTorch's optimizers: listeners are called after the outermost `step` has returned, outside of PyTorch's own record_function.

PyTorch's step hooks run inside `record_function("Optimizer.step#…")`. A recording that ends there frees what that range is written to
when it is left, so a step must not end in a hook.
"""

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

# Called with the optimizer that stepped, and those that stepped within it: of a wrapper such as Lookahead, the wrapper is the step.
Listener = Callable[[Any, list[Any]], None]


def listen(listener: Listener, created: Callable[[Any], None] | None = None) -> None:
    """Call `listener` for every step, and `created` for every optimizer that is made from now on."""
    if not _watching:
        _watch()
        show_dynamo()
        _watching.append(True)
    _listeners.append(listener)
    if created is not None:
        _created.append(created)


def ignore(listener: Listener) -> None:
    if listener in _listeners:
        _listeners.remove(listener)


def alive() -> list[Any]:
    """The optimizers that the program has created, in no order."""
    import torch

    return [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]


def apart(one: Any, other: Any) -> bool:
    """Whether the second optimizer trains something, and nothing that the first one trains."""
    first = {id(parameter) for parameter in _parameters(one)}
    second = _parameters(other)
    return any(parameter.requires_grad for parameter in second) and not any(id(parameter) in first for parameter in second)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]


def _watch() -> None:
    import torch

    kind: Any = torch.optim.Optimizer
    hook = vars(kind).get("profile_hook_step")
    if isinstance(hook, staticmethod):
        original = hook.__func__

        @wraps(original)
        def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
            return _watched(original(step))

        kind.profile_hook_step = staticmethod(profile_hook_step)
        for known in _subclasses(kind):  # of optimizers that exist already
            if getattr(vars(known).get("step"), "hooked", False):
                known.step = _watched(known.step)
        for optimizer in alive():
            if "step" in vars(optimizer):  # a learning rate scheduler has put a function of its own there
                optimizer.step = _watched(optimizer.step, _only(optimizer))
    else:  # another release: better a step inside of PyTorch's range than none
        torch.optim.optimizer.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: _notify(optimizer, []))
    init = kind.__init__

    @wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for tell in _created:
            tell(self)

    kind.__init__ = made
    scaler = getattr(getattr(torch.amp, "grad_scaler", None), "GradScaler", None)
    if scaler is not None:  # it leaves the optimizer out where gradients are infinite: an iteration all the same
        scaler.step = _watched(scaler.step, lambda scaler, optimizer, *args, **kwargs: optimizer)


def _only(optimizer: Any) -> Callable[..., Any]:
    reference = weakref.ref(optimizer)
    return lambda *args, **kwargs: reference()


def _subclasses(kind: type) -> list[Any]:
    found: list[Any] = kind.__subclasses__()
    return [*found, *(deeper for one in found for deeper in _subclasses(one))]


def _watched(step: Callable[..., Any], find: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The same function, which reports its return. `find` gives the optimizer, where that is not the first argument."""
    import torch

    compiling = torch.compiler.is_compiling

    @wraps(step)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if compiling():  # becomes part of a graph, as if we were not there
            return step(*args, **kwargs)
        optimizer = find(*args, **kwargs) if find is not None else args[0]
        within: list[Any] | None = getattr(_calls, "within", None)
        if within is not None:
            within.append(optimizer)
            return step(*args, **kwargs)
        _calls.within = within = []
        try:
            result = step(*args, **kwargs)
        finally:
            _calls.within = None
        _uncompiled(optimizer, within)
        return result

    return watched


def _uncompiled(optimizer: Any, within: list[Any]) -> None:
    """Called from within a compiled function, nothing of ours is to be compiled."""
    dynamo = sys.modules.get("torch._dynamo")
    if not _report and dynamo is not None and hasattr(dynamo, "disable"):
        _report.append(dynamo.disable(_notify))
    (_report[0] if _report else _notify)(optimizer, within)


def show_dynamo() -> None:
    """PyTorch's compiler is there: a call of ours from a compiled function runs as it is, and only the step that it calls is compiled."""
    skip: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip is not None and not _shown:
        for code in (_watched(len).__code__, _uncompiled.__code__):  # all that _watched returns have one code
            skip(code)
        _shown.append(True)


def _notify(optimizer: Any, within: list[Any]) -> None:
    for listener in list(_listeners):
        listener(optimizer, within)


_watching: list[bool] = []
_shown: list[bool] = []
_listeners: list[Listener] = []
_created: list[Callable[[Any], None]] = []
_report: list[Listener] = []  # _notify, such that nothing in it is compiled
_calls = threading.local()
