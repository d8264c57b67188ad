"""MindData's own monitor of the input pipeline: queues, CPU use of each operator, and the time of each batch."""

import time
from pathlib import Path
from typing import Any

from stepscope.captures import Capture
from stepscope.collect import _mindspore_loop as loop

_INTERVAL_MS = 50  # between samples; MindSpore's own 1,000 tells nothing of a short window
_ready = False  # the monitor is told once in a process
_earlier = 0  # pipelines that were there before


def expect() -> None:
    """Have the monitor ready for the pipeline that is created next."""
    global _ready, _earlier
    if not _ready:
        from mindspore.dataset.engine.iterators import ITERATORS_LIST

        _ready, _earlier = True, sum(there() is not None for there in ITERATORS_LIST)
        _monitor().init()


class Monitor:
    """The monitor from start to stop."""

    def start(self) -> None:
        from mindspore import dataset

        self._users_interval = dataset.config.get_monitor_sampling_interval()
        if self._users_interval == 1000:
            dataset.config.set_monitor_sampling_interval(_INTERVAL_MS)
        self._offsets = [_offset()]
        _monitor().start()

    _users_interval: int
    _offsets: list[int]

    def stop(self, capture: Capture, folder: Path) -> None:
        from mindspore import dataset

        folder.mkdir(exist_ok=True)
        _monitor().stop()
        _monitor().save(str(folder))
        dataset.config.set_monitor_sampling_interval(self._users_interval)
        capture.header["monotonic_offset_ns"] = [*self._offsets, _offset()]
        if not any(folder.glob("pipeline_profiling_*.json")):
            capture.notice(
                "no data of the input pipeline: "
                + ("it had been created before the profiler was; create the profiler first" if _earlier else "none was created")
            )
        elif loop.pipelines > 1:
            capture.notice(f"MindSpore watches one input pipeline in a process: {loop.pipelines} were created, and only the first is shown")


def _monitor() -> Any:
    import mindspore._c_dataengine as engine

    return engine.GlobalContext.profiling_manager()


def _offset() -> int:
    """What to add to the monitor's clock, which counts from the machine's start."""
    return time.time_ns() - time.monotonic_ns()
