"""The state machine of windows: idle, warm or recording. A Profiler and a Recorder are policies that decide when it moves on."""

from typing import TYPE_CHECKING

from stepscope.recording.steps.step_clock import StepClock

if TYPE_CHECKING:  # a process of `stepscope run` imports this before its program starts: numpy is loaded with the first window
    from stepscope.recording.collectors.options import Options
    from stepscope.recording.windows.slow_steps import SlowSteps
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
        self.slow_steps: SlowSteps | None = None  # with keep_slow: decides which windows are kept
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
        if options.keep_slow is not None and self.slow_steps is None:
            from stepscope.recording.windows.slow_steps import SlowSteps

            self.slow_steps = SlowSteps(options)
        self.current = Window(options, step=step, step_clock=self.step_clock, hidden=self.slow_steps is not None)
        self._before = None
        if self.slow_steps is not None:
            self.slow_steps.opened()
        return self.current

    def step(self, number: int) -> bool:
        """Step `number` of the current window begins. False when the window has to end."""
        assert self.current is not None
        if self.slow_steps is None:
            return self.current.step(number)
        self.slow_steps.end_step(number - 1)
        continues = self.current.step(number) and not self.slow_steps.window_is_over()
        self.slow_steps.begin_step()
        return continues

    def close(self) -> "Window | None":
        """Stop the current window, if any. With keep_slow, a window without a slow step is deleted: None."""
        window, self.current = self.current, None
        if window is not None and self.slow_steps is not None:
            return window if self._close_if_slow(self.slow_steps, window) else None
        if window is not None:
            self.last = self._before = window
            window.stop()
        return window

    def _close_if_slow(self, slow_steps: "SlowSteps", window: "Window") -> bool:
        is_kept = slow_steps.close(window)
        if is_kept:
            self.last = self._before = window
        return is_kept

    def slow_summary(self) -> str | None:
        """With keep_slow: how many windows were kept and deleted. The next window begins a new recording."""
        slow_steps, self.slow_steps = self.slow_steps, None
        return slow_steps.summary() if slow_steps is not None else None

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
