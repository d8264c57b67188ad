"""Signals that end a command: it cleans up first, as after Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

# By `kill`, a container or a batch system; by a terminal that was closed.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def exit_code(number: int) -> int:
    """The exit code that a shell reports for a signal."""
    return 128 + number


@contextlib.contextmanager
def interrupting() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt. The list then contains the number. A second signal ends the process at once.

    Signals that are ignored, as by nohup, or that the program handles itself, are left alone.
    """
    arrived: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        restore()
        raise KeyboardInterrupt

    def restore() -> None:
        for number in taken:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, signal.SIG_DFL)

    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield arrived
    finally:
        restore()
