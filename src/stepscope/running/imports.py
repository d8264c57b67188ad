"""Which of our modules knows a module of the program. Its functions `before`, `after` and `failed` are called when that is imported."""

import importlib
from functools import partial
from types import ModuleType

from stepscope.import_hooks import on_import

_KNOWN = {
    "torch": "torch",
    "torch._dynamo": "dynamo",
    "mindspore": "mindspore",
    "mindspore.profiler": "stock",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "stepscope.collect.plain": "plain",
}


def watch() -> None:
    for name, ours in _KNOWN.items():
        on_import(name, partial(_call, ours))
    _watched.append(True)


def watched() -> bool:
    return bool(_watched)


def _call(ours: str, moment: str, module: ModuleType) -> None:
    action = getattr(importlib.import_module(f"stepscope.running.{ours}"), moment, None)
    if action is not None:
        action(module)


_watched: list[bool] = []
