"""Ascend chips under PyTorch: the output of torch_npu's profiler is kept in the capture."""

import sys
from typing import Any

from stepscope.model.captures import Capture
from stepscope.recording.collectors.options import AicoreMetrics, Options, ProfilerActivity, ProfilerLevel


def present() -> bool:
    return "torch_npu" in sys.modules


def start(options: Options, capture: Capture) -> Any:
    """torch_npu's profiler, started; it has the methods `step` and `stop`."""
    torch_npu: Any = sys.modules["torch_npu"]
    stock = torch_npu.profiler
    activities = {ProfilerActivity.CPU: stock.ProfilerActivity.CPU, ProfilerActivity.NPU: stock.ProfilerActivity.NPU}
    levels = {
        ProfilerLevel.LevelNone: stock.ProfilerLevel.Level_none,
        ProfilerLevel.Level0: stock.ProfilerLevel.Level0,
        ProfilerLevel.Level1: stock.ProfilerLevel.Level1,
        ProfilerLevel.Level2: stock.ProfilerLevel.Level2,
    }
    has_metrics = options.aic_metrics is not AicoreMetrics.AiCoreNone
    metrics = {"aic_metrics": getattr(stock.AiCMetrics, options.aic_metrics.name)} if has_metrics else {}
    profiler = stock.profile(
        activities=[activities[activity] for activity in options.activities if activity in activities],
        record_shapes=options.record_shapes,
        profile_memory=options.profile_memory,
        with_stack=options.with_stack,
        with_flops=options.with_flops,
        with_modules=options.with_modules,
        on_trace_ready=stock.tensorboard_trace_handler(str(capture.folder)),
        experimental_config=stock._ExperimentalConfig(
            profiler_level=levels[options.profiler_level],
            l2_cache=options.l2_cache,
            data_simplification=options.data_simplification,
            **metrics,
        ),
    )
    profiler.start()
    capture.notice("recorded by torch_npu's own profiler: its output is the folder *_ascend_pt inside the capture")
    return profiler
