"""Functions under `mindspore.jit`: which of them train, and numbers for functions and for their compiled graphs."""

import contextlib
import itertools
import sys
import weakref
from typing import Any


def trains(function: Any, owner: Any = None) -> bool:
    """Whether a compiled function uses an optimizer, itself or through functions that it calls: such a call is a training step."""
    try:
        is_training = _training.get(function)
        if is_training is None:
            is_training = _training[function] = _uses_optimizer(function, owner, depth=2)
    except Exception:  # noqa: BLE001 - whatever the user's function contains, the call continues
        return False
    return is_training


def number(caller: Any) -> int:
    """A number for an optimizer, cell or function, the same as long as it exists."""
    try:
        known_number = _numbers.get(caller)
        if known_number is None:
            known_number = _numbers[caller] = next(_next)
    except TypeError:  # not hashable
        return id(caller)
    return known_number


def graph_number(phase: str) -> int:
    """A number for a compiled graph, which MindSpore names by a text of several hundred characters."""
    return _graphs.setdefault(phase, len(_graphs))


_training: "weakref.WeakKeyDictionary[Any, bool]" = weakref.WeakKeyDictionary()
_numbers: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_next = itertools.count()
_graphs: dict[str, int] = {}


def _uses_optimizer(function: Any, owner: Any, depth: int) -> bool:
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    optimizers = tuple(
        getattr(sys.modules[module], "Optimizer")  # noqa: B009
        for module in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer")
        if module in sys.modules
    )
    values = [function.__globals__.get(name) for name in code.co_names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            values.append(cell.cell_contents)
    owner = owner if owner is not None else getattr(function, "__self__", None)
    if owner is not None:
        # Objects that a method uses as `self.name`. A Cell keeps other Cells, such as an optimizer, in a separate dictionary.
        attributes = {**getattr(owner, "__dict__", {}), **(getattr(owner, "_cells", None) or {})}
        values += [owner, *(attributes.get(name) for name in code.co_names)]
    return any(isinstance(value, optimizers) for value in values) or (
        depth > 0 and any(_uses_optimizer(value, None, depth - 1) for value in values if callable(value) and hasattr(value, "__code__"))
    )
