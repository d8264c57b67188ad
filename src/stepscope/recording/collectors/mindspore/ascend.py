"""On Ascend, MindSpore's low-level collection records; its PROF_* and FRAMEWORK folders stay in the capture unchanged."""

from pathlib import Path
from typing import Any

from stepscope.model.captures import Capture
from stepscope.recording.collectors.options import Options


class Recording:
    """Uses the layer below mindspore.Profiler, whose class may have been replaced by ours. Nothing is analysed here."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def start(self, capture: Capture) -> bool:
        # This module has MindSpore's enums, also where `stepscope run` has replaced them elsewhere.
        from mindspore.profiler.common import profiler_context as stock
        from mindspore.profiler.profiler_interface import ProfilerInterface

        options = self._options
        stock.ProfilerContext().set_params(
            output_path=str(capture.folder.resolve()),
            profiler_level=stock.ProfilerLevel[options.profiler_level.name],
            activities=[stock.ProfilerActivity[item.name] for item in options.activities if item.name in ("CPU", "NPU")],
            aic_metrics=stock.AicoreMetrics[options.aic_metrics.name],
            start_profile=False,
            **{name: getattr(options, name) for name in _SAME_NAMES},
            data_process=False,  # our collector records the input pipeline, on every device
            data_simplification=False,  # keep its data
        )
        ProfilerInterface.init()
        ProfilerInterface.start()
        self._interface = ProfilerInterface
        return True

    _interface: Any

    def stop(self, capture: Capture) -> list[Path]:
        self._interface.stop()
        self._interface.finalize()
        self._interface.clear()
        folders = sorted(capture.folder.glob("*_ascend_ms"))
        if not folders:
            capture.notice("MindSpore's collection on Ascend wrote nothing")
        return folders


_SAME_NAMES = ("profile_memory", "with_stack", "parallel_strategy", "l2_cache", "hbm_ddr", "pcie", "sync_enable", "record_shapes", "mstx")
