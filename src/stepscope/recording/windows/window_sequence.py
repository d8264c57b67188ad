"""The state machine of windows: idle, warm or recording. A Profiler and a Recorder are policies that decide when it moves on."""

from typing import TYPE_CHECKING

from stepscope.recording.steps.step_clock import StepClock

if TYPE_CHECKING:  # a process of `stepscope run` imports this before its program starts: numpy is loaded with the first window
    from stepscope.recording.collectors.options import Options
    from stepscope.recording.windows.window import Window


class WindowSequence:
    """The windows of one policy, one after the other.

        idle ──warm_up──▶ warm ──open──▶ recording ──close or discard──▶ idle
         └────────────────open─────────────▲

    The step clock measures the steps between windows; they are written into the capture of the window before them.
    """

    def __init__(self) -> None:
        self.step_clock = StepClock()
        self.current: Window | None = None  # recording
        self.last: Window | None = None  # closed
        self._warm: Window | None = None
        self._before: Window | None = None  # the last one, until the next is opened

    def warm_up(self, options: "Options", step: int) -> None:
        """Start the framework's collector for a window that is deleted: the work of a first start is done now."""
        from stepscope.recording.windows import sources
        from stepscope.recording.windows.window import Window

        self.write_unprofiled_steps()
        framework = sources.chosen(options)
        if self._warm is None and framework:
            self._warm = Window(options, [sources.collector(framework, options)], step=step, hidden=True)

    def cool_down(self) -> None:
        window, self._warm = self._warm, None
        if window is not None:
            window.discard()

    def open(self, options: "Options", step: int) -> "Window":
        from stepscope.recording.windows.window import Window

        self.cool_down()
        self.write_unprofiled_steps()
        self.current = Window(options, step=step, step_clock=self.step_clock)
        self._before = None
        return self.current

    def close(self) -> "Window | None":
        """Stop the current window, if any."""
        window, self.current = self.current, None
        if window is not None:
            self.last = self._before = window
            window.stop()
        return window

    def discard(self) -> None:
        """Stop the current window, if any, and delete it."""
        window, self.current = self.current, None
        if window is not None:
            window.discard()

    def write_unprofiled_steps(self) -> None:
        """Write the durations of the steps since the last window."""
        if self._before is not None:
            self._before.write_unprofiled_steps()

    def forked(self) -> None:
        """The windows belong to the parent."""
        self.__init__()  # type: ignore[misc]
