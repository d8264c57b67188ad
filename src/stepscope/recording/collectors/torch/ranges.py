"""The named ranges that are open on each thread, and whether a session of torch.profiler may start here.

A session stores every range and operator that begins in it in its own memory, which is freed when the session ends. If a second session
runs when such a range ends, PyTorch writes into the freed memory. So a session ends with all ranges closed; they are opened again
after it. And no session starts where an operator of an earlier one may still be open.
"""

import ctypes
import importlib
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from stepscope.recording.collectors.torch import fast_ranges
from stepscope.recording.process.runtime import runtime
from stepscope.recording.process.signals import main_thread_deferrals


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[Any, Any]] = []  # the module that is called, or None, and the range; outermost first


this_thread = _Thread()


class _Process:
    sessions = 0  # that ended in this process: before the first, there is no freed memory
    open_elsewhere: list[tuple[int, str]] = []  # operators of the last session that were open on other threads at its end
    detached = False  # a range was left to a future, which ends it at an unknown time
    abandoned = False  # a session was never ended
    follows_backward = False  # the end of backward passes is known
    deferred: list[Callable[[], None]] = []  # actions for the end of the backward pass


def track() -> None:
    """Track every `record_function` from now on, also between windows: the open ranges must be known when a session ends."""
    import torch

    kind: Any = torch.autograd.profiler.record_function
    if runtime.patches.wrap(kind, "__enter__", "ranges", _tracked_enter):
        runtime.patches.wrap(kind, "__exit__", "ranges", _tracked_exit)
        not_compiled(_Thread.__init__, deep=True)
        fast_ranges.track(this_thread)
        _follow_backward()


def _tracked_enter(enter: Any) -> Any:
    @wraps(enter)  # TorchScript compiles the wrapped function
    def tracked_enter(self: Any) -> Any:
        result = enter(self)
        this_thread.open.append((None, self))
        return result

    not_compiled(tracked_enter)
    return tracked_enter


def _tracked_exit(leave: Any) -> Any:
    @wraps(leave)
    def tracked_exit(self: Any, *args: Any) -> Any:
        opened = this_thread.open
        if opened and opened[-1][1] is self:
            opened.pop()
        else:  # left out of order, or entered by another thread
            opened[:] = [entry for entry in opened if entry[1] is not self]
        if not self.run_callbacks_on_exit:
            _Process.detached = True
        return leave(self, *args)

    not_compiled(tracked_exit)
    return tracked_exit


def _follow_backward() -> None:
    """A session that a hook of the backward pass starts or stops must wait: after the pass, its thread has the state from before it."""
    import torch

    autograd: Any = torch.autograd
    if not hasattr(autograd, "_engine_run_backward"):  # another release: hooks cannot wait
        return
    not_compiled(_run_deferred, deep=True)
    runtime.patches.wrap(autograd, "_engine_run_backward", "ranges", _followed)
    _Process.follows_backward = True
    if defer_in_backward not in main_thread_deferrals:
        main_thread_deferrals.append(defer_in_backward)


def _followed(run: Any) -> Any:
    @wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        finally:
            if _Process.deferred:
                _run_deferred()

    not_compiled(run_backward)
    return run_backward


def _run_deferred() -> None:
    if not in_backward():
        actions, _Process.deferred = _Process.deferred, []
        for action in actions:
            action()


def _stop_following() -> None:
    _Process.follows_backward = False


runtime.on_uninstall(_stop_following)


def in_backward() -> bool:
    """Whether this thread runs the backward pass, and so a hook of it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch._C._current_graph_task_id() != -1)


def defer_in_backward(action: Callable[[], None]) -> bool:
    """Run the action after the backward pass that this thread runs. False where none runs, or its end is not known: run it now."""
    if not _Process.follows_backward or not in_backward():
        return False
    _Process.deferred.append(action)
    return True


def not_compiled(function: Any, *, deep: bool = False) -> None:
    """Exclude a function from torch.compile where it runs by itself, as PyTorch's own function that it replaces is.

    `deep`: also the functions that it calls.
    """
    try:
        frames: Any = importlib.import_module("torch._C._dynamo.eval_frame")
        action = frames._FrameAction
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, action.SKIP if deep else action.DEFAULT))
    except (ImportError, AttributeError):  # another release
        pass


def close() -> None:
    """End every open range of this thread for the session that is about to end."""
    leave = _original("__exit__")
    for _, range_ in reversed(this_thread.open):
        if hasattr(range_, "record"):
            leave(range_, None, None, None)
        else:
            getattr(range_, "range", range_).__exit__(None, None, None)


def reopen() -> None:
    """Begin them again, in the session that has started, if any."""
    enter = _original("__enter__")
    for _, range_ in this_thread.open:
        if hasattr(range_, "record"):
            enter(range_)
        else:
            getattr(range_, "range", range_).__enter__()


def _original(name: str) -> Any:
    """PyTorch's own method of record_function."""
    import torch

    return runtime.patches.original(torch.autograd.profiler.record_function, name)


def open_names() -> list[str]:
    """The program's own ranges that are open on this thread."""
    return [range_.name for module, range_ in this_thread.open if module is None and hasattr(range_, "name")]


def session_ended(open_elsewhere: list[tuple[int, str]]) -> None:
    """A session is over; these operators were open on other threads: number of the thread in the system, and name of the operator."""
    _Process.sessions += 1
    _Process.open_elsewhere = open_elsewhere


def abandon_session() -> None:
    """A session stays open for good, and no other may start."""
    _Process.abandoned = True


def obstacle() -> str | None:
    """Why no session may start at this place of the program, or None."""
    if _Process.abandoned:
        return "an earlier recording ended while a collective was running"
    if fast_ranges.is_earlier_open():
        return "a range of torch's _RecordFunctionFast is open that began before stepscope"
    if not _Process.sessions:
        return None
    if _Process.detached:
        return "a range of an earlier recording was left to a future"
    tasks = Path("/proc/self/task")
    for thread, name in _Process.open_elsewhere:
        if (tasks / str(thread)).exists():
            return f"thread {thread} was inside {name} when the last recording ended"
    if library := on_stack():
        return f"this is inside an operator of PyTorch ({library})"
    return None


def on_stack() -> str | None:
    """A library of PyTorch in the native call stack: an operator that calls Python, autograd, a compiled function.

    None where there is no such call. On systems without a native stack, only autograd is known.
    """
    maps = Path("/proc/self/maps")
    try:
        backtrace = ctypes.CDLL(None).backtrace
        mapped = [line.split() for line in maps.read_text().splitlines()]
    except (OSError, AttributeError):
        return "autograd" if in_backward() else None
    libraries = [
        (int(line[0].partition("-")[0], 16), int(line[0].partition("-")[2], 16), Path(line[5]).name)
        for line in mapped
        if len(line) > 5 and "x" in line[1] and ("libtorch" in line[5] or "libc10" in line[5])
    ]
    addresses = (ctypes.c_void_p * _MOST_FRAMES)()
    count = backtrace(addresses, _MOST_FRAMES)
    if count == _MOST_FRAMES:
        return "the stack is too deep to check"
    return next((name for address in addresses[:count] if address for start, end, name in libraries if start <= address < end), None)


_MOST_FRAMES = 16384
