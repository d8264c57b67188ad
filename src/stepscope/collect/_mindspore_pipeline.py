"""MindData's own monitor of the input pipeline: queues, CPU use of each operator, and the time of each batch.

There is one in a process, and it watches the pipeline that is created next after its `init`. To start it when that pipeline is gone, or to
call `init` while it is there, ends the process (MindSpore 2.10), so the state of that pipeline is followed here.
"""

from pathlib import Path
from typing import Any

from stepscope import clock
from stepscope.captures import Capture
from stepscope.collect import _mindspore_loop as loop

_INTERVAL_MS = 50  # between samples; MindSpore's own 1,000 tells nothing of a short window
_MINDSPORES_INTERVAL_MS = 1000


class _Watch:
    """The monitor's state."""

    ready = False  # init was called
    used = False  # start was called since
    before = 0  # pipelines that were there when it was made ready: the next one is the one it watches
    earlier = False  # one of them was alive


def expect() -> None:
    """Have the monitor ready for the pipeline that is created next."""
    if not _Watch.ready:
        from mindspore.dataset.engine.iterators import ITERATORS_LIST

        _Watch.earlier = any(_alive(one()) for one in ITERATORS_LIST)
        _init()


def _init() -> None:
    _monitor().init()
    _Watch.ready, _Watch.used, _Watch.before = True, False, len(loop.pipelines)


class Monitor:
    """The monitor from start to stop."""

    def start(self, capture: Capture) -> bool:
        """False where it must not be started."""
        from mindspore import dataset

        if _watches() and not _alive(_watched()):
            if not _Watch.used:
                capture.notice(
                    "the input pipeline is not recorded: MindSpore watches the first one created after the profiler, and that one is gone"
                )
                return False
            _init()
        self._users_interval = dataset.config.get_monitor_sampling_interval()
        if self._users_interval == _MINDSPORES_INTERVAL_MS:
            dataset.config.set_monitor_sampling_interval(_INTERVAL_MS)
        self._offsets = [_offset()]
        _monitor().start()
        _Watch.used = True
        return True

    _users_interval: int
    _offsets: list[int]

    def stop(self, capture: Capture, folder: Path) -> bool:
        """Whether it saw anything."""
        from mindspore import dataset

        folder.mkdir(exist_ok=True)
        _monitor().stop()
        _monitor().save(str(folder))
        dataset.config.set_monitor_sampling_interval(self._users_interval)
        capture.header["monotonic_offset_ns"] = [*self._offsets, _offset()]
        if not _watches():
            why = "it had been created before the profiler was: create the profiler first" if _Watch.earlier else "there was none"
            capture.notice(f"no queues and no CPU use of the input pipeline: {why}")
        elif len(loop.pipelines) > _Watch.before + 1:
            more = len(loop.pipelines) - _Watch.before
            capture.notice(f"{more} input pipelines were created: MindSpore watches one at a time, and the first of them is shown")
        return next(folder.glob("pipeline_profiling_*.json"), None) is not None


def _watches() -> bool:
    return len(loop.pipelines) > _Watch.before


def _watched() -> Any:
    return loop.pipelines[_Watch.before]()


def _alive(pipeline: Any) -> bool:
    """An iterator that was stopped is there, but its pipeline is not."""
    return pipeline is not None and getattr(pipeline, "_runtime_context", None) is not None


def _monitor() -> Any:
    import mindspore._c_dataengine as engine

    return engine.GlobalContext.profiling_manager()


def _offset() -> int:
    """What to add to the monitor's clock, which counts from the machine's start."""
    return clock.offset_ns()
