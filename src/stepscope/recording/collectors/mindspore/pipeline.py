"""MindData's own monitor of the input pipeline: queues, CPU use of each operator, and the time of each batch.

There is one in a process, and it watches the first pipeline that is created after its `init`. The process ends where it is started after
that pipeline was removed, or where `init` is called while it exists (MindSpore 2.10), so its state is tracked here.
"""

from pathlib import Path
from typing import Any

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.collectors.mindspore import loop

_INTERVAL_MS = 50  # between samples; MindSpore's 1,000 is too long for a short window
_DEFAULT_INTERVAL_MS = 1000


class _Watch:
    """The monitor's state."""

    ready = False  # init was called
    used = False  # start was called since
    before = 0  # pipelines that existed at init: it watches the next one
    earlier = False  # one of them was running


def prepare() -> None:
    """Prepare the monitor for the pipeline that is created next."""
    if not _Watch.ready:
        from mindspore.dataset.engine.iterators import ITERATORS_LIST

        _Watch.earlier = any(_alive(iterator()) for iterator in ITERATORS_LIST)
        _init()


def _init() -> None:
    _monitor().init()
    _Watch.ready, _Watch.used, _Watch.before = True, False, len(loop.pipelines)


class Monitor:
    """The monitor from start to stop."""

    def start(self, capture: Capture) -> bool:
        """Whether it was started."""
        from mindspore import dataset

        if _watches() and not _alive(_watched()):
            if not _Watch.used:
                capture.notice(
                    "the input pipeline is not recorded: MindSpore watches the first one created after the profiler, which no longer exists"
                )
                return False
            _init()
        self._users_interval = dataset.config.get_monitor_sampling_interval()
        if self._users_interval == _DEFAULT_INTERVAL_MS:
            dataset.config.set_monitor_sampling_interval(_INTERVAL_MS)
        self._offsets = [_offset()]
        _monitor().start()
        _Watch.used = True
        return True

    _users_interval: int
    _offsets: list[int]

    def stop(self, capture: Capture, folder: Path) -> bool:
        """Whether it recorded anything."""
        from mindspore import dataset

        folder.mkdir(exist_ok=True)
        _monitor().stop()
        _monitor().save(str(folder))
        dataset.config.set_monitor_sampling_interval(self._users_interval)
        capture.header["monotonic_offset_ns"] = [*self._offsets, _offset()]
        if not _watches():
            reason = "it was created before the profiler: create the profiler first" if _Watch.earlier else "there was none"
            capture.notice(f"no queues and no CPU use of the input pipeline: {reason}")
        elif len(loop.pipelines) > _Watch.before + 1:
            count = len(loop.pipelines) - _Watch.before
            capture.notice(f"{count} input pipelines were created: MindSpore watches one at a time, and the first of them is shown")
        return next(folder.glob("pipeline_profiling_*.json"), None) is not None


def _watches() -> bool:
    return len(loop.pipelines) > _Watch.before


def _watched() -> Any:
    return loop.pipelines[_Watch.before]()


def _alive(pipeline: Any) -> bool:
    """Whether the pipeline runs; a stopped iterator has none."""
    return pipeline is not None and getattr(pipeline, "_runtime_context", None) is not None


def _monitor() -> Any:
    import mindspore._c_dataengine as engine

    return engine.GlobalContext.profiling_manager()


def _offset() -> int:
    """Offset of the monitor's clock, which counts from the start of the machine."""
    return clock.offset_ns()
