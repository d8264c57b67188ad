"""MindSpore's own profiler classes become ours, whatever name the script knows them by, and so does MS_PROFILER_OPTIONS."""

import os
import sys
from types import ModuleType
from typing import Any


def before(profiler: ModuleType) -> None:
    """MindSpore starts its profiler while it is imported when this is set: ours starts instead, afterwards."""
    hidden = os.environ.pop(_OPTIONS, None)
    if hidden is not None:
        _hidden[_OPTIONS] = hidden


def failed(profiler: ModuleType) -> None:
    os.environ |= _hidden


def after(profiler: ModuleType) -> None:
    os.environ |= _hidden  # for child processes
    import stepscope

    for module, names in _STOCK.items():
        stock = sys.modules.get(module)
        for name, ours in names.items():
            if stock is not None and hasattr(stock, name):
                setattr(stock, name, getattr(stepscope, ours))


_OPTIONS = "MS_PROFILER_OPTIONS"
_hidden: dict[str, str] = {}
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
    """MS_PROFILER_OPTIONS, with our profiler."""
    if _OPTIONS in os.environ:
        if framework is not None:
            framework.__spec__._initializing = False  # it is whole: importlib says so a moment later
        from stepscope import profiler

        if profiler.running() is None:
            profiler.from_environment()
