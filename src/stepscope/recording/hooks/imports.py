"""Which of our modules handles a module of the program. Its functions `before`, `after` and `failed` are called around the import."""

import importlib
import sys
from functools import partial
from types import ModuleType

from stepscope.recording.process.runtime import runtime

_HANDLERS = {
    "torch": "torch",
    "torch._dynamo": "dynamo",
    "mindspore": "mindspore",
    "mindspore.profiler": "stock_profilers",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "stepscope.recording.collectors.annotations": "annotations",
}


def install() -> None:
    for name, handler in _HANDLERS.items():
        if name in sys.modules:
            _call(handler, "after", sys.modules[name])
        else:
            runtime.imports.on_import(name, partial(_call, handler))


def _call(handler: str, phase: str, module: ModuleType) -> None:
    function = getattr(importlib.import_module(f"stepscope.recording.hooks.{handler}"), phase, None)
    if function is not None:
        function(module)
