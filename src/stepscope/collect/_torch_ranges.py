"""The named ranges that are open on each thread, and whether a session of torch.profiler may begin here.

A session gives every range and operator that begins in it a place in its memory, which is freed when the session ends. If a second session
is under way when such a range ends, PyTorch writes into the freed memory. So a session ends with all ranges closed; they are opened again
after it. And no session begins where an operator of an earlier one may still be open.
"""

import ctypes
import importlib
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from stepscope.endings import put_off_main


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[Any, Any]] = []  # the module whose call it is, or None, and the range; outermost first


here = _Thread()


class _Process:
    sessions = 0  # that ended in this process: before the first there is nothing to be careful of
    open_elsewhere: list[tuple[int, str]] = []  # operators of the last session that were open on other threads at its end
    detached = False  # a range was left to a future, which ends it at an unknown moment
    enter: Any = None  # PyTorch's own record_function.__enter__ and __exit__
    leave: Any = None
    follows = False  # the end of backward passes is seen
    waiting: list[Callable[[], None]] = []  # what is to be done when the backward pass is over


def track() -> None:
    """Know of every `record_function` that is entered from now on. Stays: what is open must be known whenever a session ends."""
    import torch

    kind: Any = torch.autograd.profiler.record_function
    if _Process.enter is not None:
        return
    enter, leave = _Process.enter, _Process.leave = kind.__enter__, kind.__exit__

    @wraps(enter)  # TorchScript compiles what is wrapped
    def tracked_enter(self: Any) -> Any:
        result = enter(self)
        here.open.append((None, self))
        return result

    @wraps(leave)
    def tracked_exit(self: Any, *args: Any) -> Any:
        opened = here.open
        if opened and opened[-1][1] is self:
            opened.pop()
        else:  # left out of turn, or entered by another thread
            opened[:] = [entry for entry in opened if entry[1] is not self]
        if not self.run_callbacks_on_exit:
            _Process.detached = True
        return leave(self, *args)

    for function in (tracked_enter, tracked_exit):
        not_compiled(function)
    not_compiled(_Thread.__init__, deep=True)
    kind.__enter__, kind.__exit__ = tracked_enter, tracked_exit
    _follow_backward()


def _follow_backward() -> None:
    """What begins or ends a session in a hook of the backward pass must wait: after the pass its thread has the state from before it."""
    import torch

    autograd: Any = torch.autograd
    run = getattr(autograd, "_engine_run_backward", None)
    if run is None:  # another release: hooks must do without
        return

    @wraps(run)
    def followed(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        finally:
            if _Process.waiting:
                _backward_over()

    not_compiled(followed)
    not_compiled(_backward_over, deep=True)
    autograd._engine_run_backward = followed
    _Process.follows = True
    put_off_main.append(after_backward)


def _backward_over() -> None:
    if not in_backward():
        actions, _Process.waiting = _Process.waiting, []
        for action in actions:
            action()


def in_backward() -> bool:
    """Whether this thread runs the backward pass, so in a hook."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch._C._current_graph_task_id() != -1)


def after_backward(action: Callable[[], None]) -> bool:
    """Do this when the backward pass that this thread runs is over. False where none runs, or its end is not seen: do it now."""
    if not _Process.follows or not in_backward():
        return False
    _Process.waiting.append(action)
    return True


def not_compiled(function: Any, *, deep: bool = False) -> None:
    """torch.compile is to make no graph of this function when it runs by itself, as it makes none of PyTorch's own that this replaces.

    `deep`: nor of what it calls.
    """
    try:
        frames: Any = importlib.import_module("torch._C._dynamo.eval_frame")
        action = frames._FrameAction
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, action.SKIP if deep else action.DEFAULT))
    except (ImportError, AttributeError):  # another release
        pass


def close() -> None:
    """End every open range of this thread for the session that is about to end."""
    for _, range_ in reversed(here.open):
        if hasattr(range_, "record"):
            _Process.leave(range_, None, None, None)
        else:
            range_.__exit__(None, None, None)


def reopen() -> None:
    """Begin them again, in the session that has begun, if any."""
    for _, range_ in here.open:
        if hasattr(range_, "record"):
            _Process.enter(range_)
        else:
            range_.__enter__()


def open_names() -> list[str]:
    """The program's own ranges that are open on this thread."""
    return [range_.name for module, range_ in here.open if module is None and hasattr(range_, "name")]


def session_ended(open_elsewhere: list[tuple[int, str]]) -> None:
    """A session is over; these operators were open on other threads: the system's number of the thread and the operator's name."""
    _Process.sessions += 1
    _Process.open_elsewhere = open_elsewhere


def obstacle() -> str | None:
    """Why no session may begin at this place of the program, or None."""
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
    """A library of PyTorch in the native calls that led here: an operator that calls Python back, autograd, a compiled function.

    None where no such call is under way. On systems that cannot tell, every place but the first counts as inside.
    """
    maps = Path("/proc/self/maps")
    try:
        trace = ctypes.CDLL(None).backtrace
        mapped = [line.split() for line in maps.read_text().splitlines()]
    except (OSError, AttributeError):
        return None if _called_by_python_alone() else "not known"
    libraries = [
        (int(line[0].partition("-")[0], 16), int(line[0].partition("-")[2], 16), Path(line[5]).name)
        for line in mapped
        if len(line) > 5 and "x" in line[1] and ("libtorch" in line[5] or "libc10" in line[5])
    ]
    addresses = (ctypes.c_void_p * _DEEPEST)()
    count = trace(addresses, _DEEPEST)
    if count == _DEEPEST:
        return "the stack is too deep to tell"
    return next((name for address in addresses[:count] if address for start, end, name in libraries if start <= address < end), None)


_DEEPEST = 16384


def _called_by_python_alone() -> bool:
    """Without a native stack to look at: whether autograd runs here is all that can be known."""
    import torch

    return bool(torch._C._current_graph_task_id() == -1)
