"""MindSpore's profiler classes are replaced by ours in every module that has them, and so is the profiler of MS_PROFILER_OPTIONS."""

import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from stepscope.recording.process.runtime import runtime

_VARIABLE = "MS_PROFILER_OPTIONS"
_hidden: dict[str, str] = {}


def before(profiler: ModuleType) -> None:
    """MindSpore starts its profiler during its import where this variable is set: ours starts instead, after the import."""
    value = os.environ.pop(_VARIABLE, None)
    if value is not None:
        _hidden[_VARIABLE] = value


def failed(profiler: ModuleType) -> None:
    os.environ |= _hidden


def after(profiler: ModuleType) -> None:
    os.environ |= _hidden  # for child processes
    import stepscope

    for module, names in _STOCK.items():
        stock = sys.modules.get(module)
        for name, replacement in names.items():
            if stock is not None and hasattr(stock, name):
                runtime.patches.wrap(stock, name, "stock profiler", partial(_replacement, getattr(stepscope, replacement)))


def _replacement(replacement: Any, stock: Any) -> Any:
    return replacement


_ENUMS = ("ProfilerLevel", "ProfilerActivity", "AicoreMetrics", "ExportType", "HostSystem")
_STOCK: dict[str, dict[str, str]] = {
    "mindspore.profiler": {
        **{
            name: name
            for name in (*_ENUMS, "Profiler", "profile", "schedule", "tensorboard_trace_handler", "DynamicProfilerMonitor", "mstx")
        },
        "_ExperimentalConfig": "_ExperimentalConfig",
    },
    "mindspore.profiler.profiler": {"Profiler": "Profiler", "Profile": "profile", "tensorboard_trace_handler": "tensorboard_trace_handler"},
    "mindspore.profiler.schedule": {"Schedule": "schedule"},
    "mindspore.profiler.mstx": {"Mstx": "mstx"},
    "mindspore.profiler.dynamic_profiler": {"DynamicProfilerMonitor": "DynamicProfilerMonitor"},
    "mindspore.profiler.experimental_config": {"_ExperimentalConfig": "_ExperimentalConfig"},
    "mindspore.profiler.common.constant": {name: name for name in _ENUMS},
}


def start_by_variable(framework: Any = None) -> None:
    """Start our profiler where MS_PROFILER_OPTIONS is set."""
    if _VARIABLE in os.environ:
        if framework is not None:
            framework.__spec__._initializing = False  # its import is complete: importlib resets this right after
        from stepscope.recording import environment

        if runtime.profiler is None:
            environment.from_environment()
