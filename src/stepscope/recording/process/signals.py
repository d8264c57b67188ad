"""Signals that end the program while it is recorded: the recording is completed first. Only kill -9 leaves no time for that."""

import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from stepscope.process.notices import say

# Signals with which schedulers and terminals end a job: Slurm's --signal is often USR1. Windows has two of them.
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name)]
_GRACE = 5  # seconds for the main thread to return to Python
_FINISH_S = 10.0


class _CriticalSection:
    """One thread at a time. A signal that ends the program waits until the section is left, so that the capture is complete."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self.pending_signal: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner, self._depth = threading.get_ident(), self._depth + 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        number = None
        if not self._depth:
            self._owner, number = None, self.pending_signal
        self._lock.release()
        if number is not None:
            os.kill(os.getpid(), number)

    @property
    def is_mine(self) -> bool:
        """Whether the current thread is inside."""
        return self._owner == threading.get_ident()


critical_section = _CriticalSection()


class Signals:
    """Signal handlers from catch() to release(). `finish` completes the recording."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._ending = False  # a signal ends the program
        self._watchdog = _Watchdog(self)

    def catch(self) -> None:
        """Complete the recording before a signal kills the program. Signals that the program handles or ignores are left alone."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL and not _c_handler(number):
                    signal.signal(number, self.on_signal)
            self._watchdog.start()

    def hold_interrupt(self) -> None:
        """The capture is being written, which may take a while: the first Ctrl-C waits for it, the second does not."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)

    def release(self) -> None:
        """Restore the handlers. While a signal ends the program they stay: a second signal must not kill it before the end is reported."""
        if threading.current_thread() is threading.main_thread() and not self._ending:
            for number in _SIGNALS:
                if signal.getsignal(number) == self.on_signal:
                    signal.signal(number, signal.SIG_DFL)
            if signal.getsignal(signal.SIGINT) == self._on_interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self._watchdog.stop()

    def forked(self) -> None:
        """A signal kills a forked child at once."""
        self._ending = False
        self._watchdog.forked()
        critical_section.__init__()  # type: ignore[misc]
        self.release()

    def finish(self) -> None:
        with critical_section:
            self._finish()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self._watchdog.handled.set()
        if critical_section.is_mine:
            critical_section.pending_signal = number  # it is sent again when the section is left
            return
        with critical_section:
            self._ending = True
            try:
                self._finish()
            finally:
                self._ending = False
                self.release()
            signal.signal(number, signal.SIG_DFL)
            critical_section.pending_signal = number  # it is sent again, and kills

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if critical_section.is_mine and critical_section.pending_signal is None:
            critical_section.pending_signal = number
            say("the recording is being written; interrupt again to end without it")
        else:
            critical_section.pending_signal = None
            signal.default_int_handler(number, frame)


# faulthandler and frameworks install handlers in C, which Python does not list.
_c_handler = ctypes.pythonapi.PyOS_getsig
_c_handler.restype, _c_handler.argtypes = ctypes.c_void_p, [ctypes.c_int]
_set_c_handler = ctypes.pythonapi.PyOS_setsig
_set_c_handler.restype, _set_c_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]


def run_on_main_thread(action: Callable[[], None]) -> None:
    """Run the action on the main thread, between two instructions: a framework's profiler belongs to the thread that started it."""

    def run(_: Any) -> int:
        del _pending_calls[id(call)]
        if not any(defer(action) for defer in main_thread_deferrals):
            action()
        return 0

    call = _PENDING_CALL(run)
    _pending_calls[id(call)] = call
    ctypes.pythonapi.Py_AddPendingCall(call, None)


# Each returns True, and runs the action later, where no recording may start or stop at the current place of the main thread.
main_thread_deferrals: list[Callable[[Callable[[], None]], bool]] = []
_PENDING_CALL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending_calls: dict[int, Any] = {}  # referenced here until they run


class _Watchdog:
    """Ends the program some seconds after a signal that arrives while the main thread is inside one long C call, where Python runs no
    handler. Before that, another thread completes what it can of the recording."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.handled = threading.Event()  # Python's handler has run and does the rest
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        if self._sockets is not None:
            return
        wakeup_fd = signal.set_wakeup_fd(-1)
        if wakeup_fd != -1:  # the program has one, such as asyncio's
            signal.set_wakeup_fd(wakeup_fd)
            return
        self.handled.clear()
        read, write = self._sockets = socket.socketpair()
        write.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._wait, args=(read,), name="stepscope signals", daemon=True).start()

    def stop(self) -> None:
        if self._sockets is None:
            return
        _, write = self._sockets
        self._sockets = None
        wakeup_fd = signal.set_wakeup_fd(-1)
        if wakeup_fd not in (-1, write.fileno()):
            signal.set_wakeup_fd(wakeup_fd)
        write.close()  # which ends the thread

    def forked(self) -> None:
        """The thread belongs to the parent, and so does its end of the socket pair."""
        read = self._sockets[0] if self._sockets else None
        with contextlib.suppress(ValueError):  # forked by a thread that Python does not consider the main one
            self.stop()
        if read is not None:
            read.close()

    def _wait(self, read: socket.socket) -> None:
        with read:
            while numbers := read.recv(64):
                for number in numbers:
                    if signal.getsignal(number) == self._signals.on_signal:
                        self._guard(number)

    def _guard(self, number: int) -> None:
        for _ in range(_GRACE):
            if self.handled.wait(1):
                return
        finisher = threading.Thread(target=self._signals.finish, name="stepscope end", daemon=True)
        finisher.start()
        finisher.join(_FINISH_S)
        if not self.handled.is_set():
            _set_c_handler(number, None)
            os.kill(os.getpid(), number)
