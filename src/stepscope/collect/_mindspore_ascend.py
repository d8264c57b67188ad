"""On Ascend MindSpore's own low-level collection records; its PROF_* and FRAMEWORK folders stay in the capture as they are."""

from pathlib import Path
from typing import Any

from stepscope.captures import Capture
from stepscope.collect.options import Options


class Recording:
    """Drives what stands below mindspore.Profiler, whose class may have been replaced by ours. Nothing is analysed here."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def start(self, capture: Capture) -> bool:
        # Its names of enums are the stock ones, also where `stepscope run` has put ours in their place.
        from mindspore.profiler.common import profiler_context as stock
        from mindspore.profiler.profiler_interface import ProfilerInterface

        options = self._options
        stock.ProfilerContext().set_params(
            output_path=str(capture.folder.resolve()),
            profiler_level=stock.ProfilerLevel[options.profiler_level.name],
            activities=[stock.ProfilerActivity[one.name] for one in options.activities if one.name in ("CPU", "NPU")],
            aic_metrics=stock.AicoreMetrics[options.aic_metrics.name],
            start_profile=False,
            **{name: getattr(options, name) for name in _ALIKE},
            data_process=False,  # the input pipeline is watched by us, on every device alike
            data_simplification=False,  # keep what it recorded
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
        found = sorted(capture.folder.glob("*_ascend_ms"))
        if not found:
            capture.notice("MindSpore's collection on Ascend left nothing")
        return found


_ALIKE = ("profile_memory", "with_stack", "parallel_strategy", "l2_cache", "hbm_ddr", "pcie", "sync_enable", "record_shapes", "mstx")
