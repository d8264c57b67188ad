"""Ascend chips under PyTorch: torch_npu has a profiler of its own, whose output is kept in the capture."""

import sys
from typing import Any

from stepscope.captures import Capture
from stepscope.collect.options import AicoreMetrics, Options, ProfilerActivity, ProfilerLevel


def present() -> bool:
    return "torch_npu" in sys.modules


def start(options: Options, capture: Capture) -> Any:
    """torch_npu's profiler, started; it has the methods `step` and `stop`."""
    torch_npu: Any = sys.modules["torch_npu"]
    own = torch_npu.profiler
    wanted = {ProfilerActivity.CPU: own.ProfilerActivity.CPU, ProfilerActivity.NPU: own.ProfilerActivity.NPU}
    levels = {
        ProfilerLevel.LevelNone: own.ProfilerLevel.Level_none,
        ProfilerLevel.Level0: own.ProfilerLevel.Level0,
        ProfilerLevel.Level1: own.ProfilerLevel.Level1,
        ProfilerLevel.Level2: own.ProfilerLevel.Level2,
    }
    metrics = {} if options.aic_metrics is AicoreMetrics.AiCoreNone else {"aic_metrics": getattr(own.AiCMetrics, options.aic_metrics.name)}
    profiler = own.profile(
        activities=[wanted[one] for one in options.activities if one in wanted],
        record_shapes=options.record_shapes,
        profile_memory=options.profile_memory,
        with_stack=options.with_stack,
        with_flops=options.with_flops,
        with_modules=options.with_modules,
        on_trace_ready=own.tensorboard_trace_handler(str(capture.folder)),
        experimental_config=own._ExperimentalConfig(
            profiler_level=levels[options.profiler_level],
            l2_cache=options.l2_cache,
            data_simplification=options.data_simplification,
            **metrics,
        ),
    )
    profiler.start()
    capture.notice("recorded by torch_npu's own profiler: its output is the folder *_ascend_pt inside the capture")
    return profiler
