"""The names of `mindspore.profiler`, by stepscope: `import stepscope.mindspore as profiler` in place of the stock module."""

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.errors import UsageError
from stepscope.process.notices import say
from stepscope.recording.callbacks import MarkSteps, StopAtEpoch, StopAtStep
from stepscope.recording.collectors.annotations import mstx
from stepscope.recording.collectors.options import (
    AicoreMetrics,
    ExperimentalConfig,
    ExportType,
    HostSystem,
    ProfilerActivity,
    ProfilerLevel,
)
from stepscope.recording.collectors.schedules import ProfilerAction, schedule
from stepscope.recording.conversion.offline import analyse_offline
from stepscope.recording.conversion.trace_handler import tensorboard_trace_handler
from stepscope.recording.environment import from_environment
from stepscope.recording.profiler import Profiler, profile

if TYPE_CHECKING:
    from stepscope.recording.monitor import DynamicProfilerMonitor

_ExperimentalConfig = ExperimentalConfig

__all__ = [
    "AicoreMetrics",
    "DynamicProfilerMonitor",
    "EnvProfiler",
    "ExportType",
    "HostSystem",
    "MarkSteps",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "StopAtEpoch",
    "StopAtStep",
    "_ExperimentalConfig",
    "analyse",
    "mstx",
    "profile",
    "schedule",
    "tensorboard_trace_handler",
]


class EnvProfiler:
    """Records as MS_PROFILER_OPTIONS says, when this module is imported; at the end of the program the recording is analysed."""

    profiler: Profiler | None = None

    @classmethod
    def init_profiler(cls) -> None:
        if not os.environ.get("MS_PROFILER_OPTIONS") or cls.profiler:
            return
        if "mindspore" not in sys.modules:
            # MindSpore starts its own profiler for this variable when it is imported; one of the two can record.
            options = os.environ.pop("MS_PROFILER_OPTIONS")
            try:
                importlib.import_module("mindspore")
            finally:
                os.environ["MS_PROFILER_OPTIONS"] = options
        elif getattr(getattr(sys.modules.get("mindspore.profiler.envprofiler"), "EnvProfiler", None), "profiler", None):
            say("MindSpore's own profiler has taken MS_PROFILER_OPTIONS: to record with stepscope, import stepscope.mindspore first")
            return
        cls.profiler = from_environment()

    def analyse(self) -> None:
        if self.profiler:
            self.profiler.analyse()


def analyse(
    profiler_path: str,
    max_process_number: int | None = None,
    pretty: bool = False,
    step_list: list[int] | None = None,
    data_simplification: bool = True,
) -> None:
    """As `Profiler.offline_analyse`, in at most `max_process_number` processes."""
    if max_process_number is not None and (not isinstance(max_process_number, int) or max_process_number < 1):
        raise UsageError(f"max_process_number is {max_process_number!r}; expected a whole number from 1 on")
    analyse_offline(
        Path(profiler_path),
        pretty=pretty,
        step_list=step_list,
        data_simplification=data_simplification,
        processes=max_process_number,
    )


def __getattr__(name: str) -> Any:
    if name != "DynamicProfilerMonitor":
        raise AttributeError(f"module 'stepscope.mindspore' has no attribute '{name}'")
    return importlib.import_module("stepscope.recording.monitor").DynamicProfilerMonitor


EnvProfiler.init_profiler()
