"""Control of sessions of torch.profiler: pause one, and notice that the program starts another.

PyTorch has one session at a time, and the second silently replaces the first.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from stepscope.process.notices import error_line, say
from stepscope.recording.process.runtime import runtime

_listeners: list[Callable[[], None]] = []


def listen(listener: Callable[[], None]) -> None:
    """Call the listener before any profiler of PyTorch starts, including ours."""
    import torch

    kind: Any = torch.autograd.profiler.profile
    if hasattr(kind, "_prepare_trace"):
        runtime.patches.wrap(kind, "_prepare_trace", "other profilers", _wrapper)
    _listeners.append(listener)


def ignore(listener: Callable[[], None]) -> None:
    if listener in _listeners:
        _listeners.remove(listener)


def _wrapper(prepare: Any) -> Any:
    @wraps(prepare)
    def prepare_trace(profiler: Any) -> Any:
        for listener in list(_listeners):
            try:
                listener()
            except Exception as error:  # noqa: BLE001 - the other profiler starts in any case
                say(error_line(error))
        return prepare(profiler)

    return prepare_trace


runtime.on_uninstall(_listeners.clear)


def pause(profiler: Any) -> None:
    """Record nothing for now, and keep what is open."""
    _toggle(profiler, enable=False)


def resume(profiler: Any) -> None:
    _toggle(profiler, enable=True)


def _toggle(profiler: Any, *, enable: bool) -> None:
    """For the current thread, to which the session belongs."""
    import torch

    autograd: Any = torch.autograd
    autograd._enable_record_function(enable)
    if torch.cuda.is_available() and hasattr(profiler, "toggle_collection_dynamic"):
        with _without_warning():
            profiler.toggle_collection_dynamic(enable, [torch.profiler.ProfilerActivity.CUDA])


@contextmanager
def _without_warning() -> Iterator[None]:
    """PyTorch's C++ warns each time that host and device may be paired wrongly: not where the session ends during the pause."""
    import torch

    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so")), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):  # another build: it warns
        yield
        return
    before, level.value = level.value, 2
    try:
        yield
    finally:
        level.value = before
