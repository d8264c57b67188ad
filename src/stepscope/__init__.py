"""stepscope: see where the time, memory and communication of neural-network training go."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.callbacks import MarkSteps, StopAtEpoch, StopAtStep
    from stepscope.collect.options import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
    from stepscope.collect.options import ExperimentalConfig as _ExperimentalConfig
    from stepscope.collect.plain import mstx, record_function
    from stepscope.collect.schedules import ProfilerAction, schedule
    from stepscope.dynamic import DynamicProfilerMonitor
    from stepscope.opening import open
    from stepscope.profiler import Profiler, profile, tensorboard_trace_handler
    from stepscope.trace import Trace

__version__ = "0.1.0"
__all__ = [
    "AicoreMetrics",
    "DynamicProfilerMonitor",
    "ExportType",
    "HostSystem",
    "MarkSteps",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "StopAtEpoch",
    "StopAtStep",
    "Trace",
    "_ExperimentalConfig",
    "__version__",
    "mstx",
    "open",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]

# Loaded when first used: `import stepscope` inside a training job costs next to nothing.
_LAZY = {
    "AicoreMetrics": "collect.options",
    "DynamicProfilerMonitor": "dynamic",
    "ExportType": "collect.options",
    "HostSystem": "collect.options",
    "MarkSteps": "callbacks",
    "Profiler": "profiler",
    "ProfilerAction": "collect.schedules",
    "ProfilerActivity": "collect.options",
    "ProfilerLevel": "collect.options",
    "StopAtEpoch": "callbacks",
    "StopAtStep": "callbacks",
    "Trace": "trace",
    "mstx": "collect.plain",
    "open": "opening",
    "profile": "profiler",
    "record_function": "collect.plain",
    "schedule": "collect.schedules",
    "tensorboard_trace_handler": "profiler",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "_ExperimentalConfig":
        return importlib.import_module("stepscope.collect.options").ExperimentalConfig
    if name not in _LAZY:
        raise AttributeError(f"module 'stepscope' has no attribute '{name}'")
    return getattr(importlib.import_module(f"stepscope.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return __all__
