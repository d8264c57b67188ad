"""How a program ends, and that what is being recorded then is kept: at exit, by os._exit, by a signal. Only kill -9 leaves no time."""

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from stepscope.telling import say, told

# What schedulers and terminals end a job with, where the program does not handle it: Slurm's --signal is often USR1.
_SIGNALS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name)
]  # Windows has two of them


def before_end(finish: Callable[[], None]) -> None:
    """Call `finish` before the program ends, as the first of those given so far: before frameworks tear down what is still to be read.
    os._exit, which many training scripts end with, calls it, too; in forked children as well, so `finish` must look where it is."""
    if finish in _finishes:
        _finishes.remove(finish)
    _finishes.append(finish)
    atexit.unregister(finish)
    atexit.register(finish)
    if os._exit is not _leave:
        os._exit = _leave  # type: ignore[assignment]


_finishes: list[Callable[[], None]] = []
_exit_at_once = os._exit


def _leave(status: int) -> None:
    try:
        _finish()
    finally:
        _exit_at_once(status)


def _finish() -> None:
    for finish in reversed(_finishes):
        try:
            finish()
        except Exception as error:  # noqa: BLE001 - the program is on its way out, and the others want to finish, too
            say(told(error))


class _Undisturbed:
    """One thread at a time, and a signal that ends the program waits until that is through: what is being written becomes whole."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self.signal: int | None = None  # that waits

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner, self._depth = threading.get_ident(), self._depth + 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        waiting = None
        if not self._depth:
            self._owner, waiting = None, self.signal
        self._lock.release()
        if waiting is not None:
            os.kill(os.getpid(), waiting)

    @property
    def here(self) -> bool:
        """Whether it is this thread that is not to be disturbed."""
        return self._owner == threading.get_ident()


undisturbed = _Undisturbed()


def catch_signals() -> None:
    """Something is being recorded: a signal that would kill the program ends the recording first, and kills it then.
    What the program handles or ignores itself stays as it is."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL and not _handled_in_c(number):
                signal.signal(number, _on_signal)
        _watchdog.start()


def hold_interrupt() -> None:
    """What was recorded is being written, which may take a while: Ctrl-C waits for it, a second one does not."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)


def release_signals() -> None:
    """Nothing is being recorded any more."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is _on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _watchdog.stop()


def _handled_in_c(number: int) -> bool:
    """By faulthandler or a framework: Python does not know of it."""
    return bool(_handler_of(number))


_handler_of = ctypes.pythonapi.PyOS_getsig
_handler_of.restype, _handler_of.argtypes = ctypes.c_void_p, [ctypes.c_int]


def _on_signal(number: int, frame: FrameType | None) -> None:
    _watchdog.handled.set()
    if undisturbed.here:
        undisturbed.signal = number  # it comes again
        return
    with undisturbed:
        _finish()
        signal.signal(number, signal.SIG_DFL)
        undisturbed.signal = number  # it comes again, and kills


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    if undisturbed.here and undisturbed.signal is None:
        undisturbed.signal = number
        say("what was recorded is being written; interrupt again to do without it")
    else:
        undisturbed.signal = None
        signal.default_int_handler(number, frame)


def on_main_thread(action: Callable[[], None]) -> None:
    """Profilers are bound to the thread that started them: let the main thread act, between two instructions."""

    def act(_: Any) -> int:
        del _kept[id(call)]
        if not any(put_off(action) for put_off in put_off_main):
            action()
        return 0

    call = _PENDING(act)
    _kept[id(call)] = call
    ctypes.pythonapi.Py_AddPendingCall(call, None)


# Each is asked whether the main thread is at a place where nothing may begin or end, and then sees to it that the action comes later.
put_off_main: list[Callable[[Callable[[], None]], bool]] = []
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_kept: dict[int, Any] = {}  # a call that is pending must not be collected


class _Watchdog:
    """Sees a signal while the main thread is within one long call of C, where no handler of Python's runs: without us the program would
    have been killed at once, so it is killed after a while. What another thread can finish of the recording is kept."""

    def __init__(self) -> None:
        self.handled = threading.Event()  # Python's handler has run, and does the rest
        self._ends: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        if self._ends is not None:
            return
        theirs = signal.set_wakeup_fd(-1)
        if theirs != -1:  # the program's own, such as asyncio's
            signal.set_wakeup_fd(theirs)
            return
        self.handled.clear()
        read, write = self._ends = socket.socketpair()
        write.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._wait, args=(read,), name="stepscope signals", daemon=True).start()

    def stop(self) -> None:
        if self._ends is None:
            return
        _, write = self._ends
        self._ends = None
        now = signal.set_wakeup_fd(-1)
        if now not in (-1, write.fileno()):
            signal.set_wakeup_fd(now)
        write.close()  # which ends the thread

    def forked(self) -> None:
        """The thread, and what it reads, are the parent's."""
        read = self._ends[0] if self._ends else None
        with contextlib.suppress(ValueError):  # forked by another thread, where Python does not take it for the main one
            self.stop()
        if read is not None:
            read.close()

    def _wait(self, read: socket.socket) -> None:
        with read:
            while numbers := read.recv(64):
                for number in numbers:
                    if signal.getsignal(number) is _on_signal:
                        self._guard(number)

    def _guard(self, number: int) -> None:
        for _ in range(_GRACE):
            if self.handled.wait(1):
                return
        finishing = threading.Thread(target=_finish_undisturbed, name="stepscope end", daemon=True)
        finishing.start()
        finishing.join(_FINISH_S)
        if not self.handled.is_set():
            _set_handler(number, None)
            os.kill(os.getpid(), number)


_GRACE = 5  # seconds for the main thread to return to Python
_FINISH_S = 10.0
_watchdog = _Watchdog()
_set_handler = ctypes.pythonapi.PyOS_setsig
_set_handler.restype, _set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]


def _finish_undisturbed() -> None:
    with undisturbed:
        _finish()


def _forked() -> None:
    """A child is killed at once, as ever."""
    _watchdog.forked()
    undisturbed.__init__()  # type: ignore[misc]
    release_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
