"""Everything that recording puts into a process, owned by one object that can remove it again."""

import atexit
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from stepscope.process import notices
from stepscope.process.notices import error_line, say
from stepscope.recording.process.import_hooks import ImportHooks
from stepscope.recording.process.patches import Patches
from stepscope.recording.process.signals import Signals, critical_section

if TYPE_CHECKING:
    import subprocess

    from stepscope.recording.profiler import Profiler
    from stepscope.recording.windows.window import Window


class Runtime:
    """The open window of this process (which owns its collectors), the running profiler, patches, import hooks, exit, signal and fork
    handlers, and the listeners of `stepscope run`."""

    def __init__(self) -> None:
        self.window: Window | None = None  # one at a time in a process
        self.window_changes = 0  # how often one was opened or closed
        self.profiler: Profiler | None = None  # the one that was started
        self.conversions: list[subprocess.Popen[bytes]] = []  # processes that write run folders
        self.patches = Patches()
        self.imports = ImportHooks()
        self.signals = Signals(self._finish)
        self.listeners = notices.listeners
        self._finishers: list[Callable[[], None]] = []
        self._fork_handlers: list[Callable[[], None]] = []
        self._uninstall_handlers: list[Callable[[], None]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def opened(self, window: "Window") -> None:
        self.window, self.window_changes = window, self.window_changes + 1
        self.signals.catch()

    def closed(self) -> None:
        self.window, self.window_changes = None, self.window_changes + 1
        self.signals.release()

    def before_exit(self, finish: Callable[[], None]) -> None:
        """Call `finish` before the program ends, ahead of earlier ones: before frameworks free what it reads. os._exit calls it, too.
        Forked children call it as well, so `finish` must check which process it is in."""
        if finish in self._finishers:
            self._finishers.remove(finish)
        self._finishers.append(finish)
        atexit.unregister(finish)
        atexit.register(finish)
        self.patches.wrap(os, "_exit", "finish", self._exit_wrapper)  # many training scripts end with it

    def on_fork(self, handler: Callable[[], None]) -> None:
        """Call the handler in each forked child."""
        self._fork_handlers.append(handler)

    def on_uninstall(self, handler: Callable[[], None]) -> None:
        """Call the handler when everything is removed: for lists of listeners that patches call."""
        self._uninstall_handlers.append(handler)

    def uninstall(self) -> None:
        """Stop the open window and remove every hook and patch. A later recording installs what it needs again."""
        with critical_section:
            if self.window is not None:
                self.window.stop()
            self.profiler = None
            self.imports.remove()
            for finish in self._finishers:
                atexit.unregister(finish)
            self._finishers.clear()
            self.listeners.clear()
            self.patches.restore()
            for handler in self._uninstall_handlers:
                handler()

    def _exit_wrapper(self, leave: Callable[[int], Any]) -> Callable[[int], None]:
        @wraps(leave)
        def finish_and_exit(status: int) -> None:
            try:
                self._finish()
            finally:
                leave(status)

        return finish_and_exit

    def _finish(self) -> None:
        for finish in reversed(self._finishers):
            try:
                finish()
            except Exception as error:  # noqa: BLE001 - the program is ending, and the others have to finish, too
                say(error_line(error))

    def _forked(self) -> None:
        """The recording and its processes belong to the parent."""
        self.signals.forked()
        self.window, self.window_changes = None, self.window_changes + 1
        self.profiler, self.conversions = None, []
        for handler in self._fork_handlers:
            handler()


runtime = Runtime()
