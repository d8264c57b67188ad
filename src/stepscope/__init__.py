"""stepscope: see where the time, memory and communication of neural-network training go."""

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

    from stepscope.comparison.compare import compare
    from stepscope.io.open_run import open
    from stepscope.model.trace import Trace
    from stepscope.recording.callbacks import MarkSteps, StopAtEpoch, StopAtStep
    from stepscope.recording.collectors.annotations import mstx, record_function
    from stepscope.recording.collectors.options import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
    from stepscope.recording.collectors.options import ExperimentalConfig as _ExperimentalConfig
    from stepscope.recording.collectors.schedules import ProfilerAction, schedule
    from stepscope.recording.conversion.trace_handler import tensorboard_trace_handler
    from stepscope.recording.monitor import DynamicProfilerMonitor
    from stepscope.recording.profiler import Profiler, profile

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
    "compare",
    "mstx",
    "open",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]

# Loaded when first used: `import stepscope` inside a training job costs next to nothing.
_LAZY = {
    "AicoreMetrics": "recording.collectors.options",
    "DynamicProfilerMonitor": "recording.monitor",
    "ExportType": "recording.collectors.options",
    "HostSystem": "recording.collectors.options",
    "MarkSteps": "recording.callbacks",
    "Profiler": "recording.profiler",
    "ProfilerAction": "recording.collectors.schedules",
    "ProfilerActivity": "recording.collectors.options",
    "ProfilerLevel": "recording.collectors.options",
    "StopAtEpoch": "recording.callbacks",
    "StopAtStep": "recording.callbacks",
    "Trace": "model.trace",
    "compare": "comparison.compare",
    "mstx": "recording.collectors.annotations",
    "open": "io.open_run",
    "profile": "recording.profiler",
    "record_function": "recording.collectors.annotations",
    "schedule": "recording.collectors.schedules",
    "tensorboard_trace_handler": "recording.conversion.trace_handler",
}

_MODULES = {"cluster": "cluster", "store": "io.store", "reading": "io.conversion"}  # documented under these names


def __getattr__(name: str) -> "Any":
    import importlib

    if name == "_ExperimentalConfig":
        return importlib.import_module("stepscope.recording.collectors.options").ExperimentalConfig
    if name in _MODULES:
        return importlib.import_module(f"stepscope.{_MODULES[name]}")
    if name not in _LAZY:
        raise AttributeError(f"module 'stepscope' has no attribute '{name}'")
    return getattr(importlib.import_module(f"stepscope.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return __all__
