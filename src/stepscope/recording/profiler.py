"""Profiler: records a training job, window by window, into run folders. Its API is that of mindspore.Profiler."""

import contextlib
import json
import os
import shlex
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from stepscope.errors import UsageError
from stepscope.model import captures
from stepscope.process.notices import error_line, say
from stepscope.recording.collectors import options as profiler_options
from stepscope.recording.collectors import schedules
from stepscope.recording.collectors.options import ExperimentalConfig, ProfilerActivity
from stepscope.recording.collectors.schedules import ProfilerAction, Schedule
from stepscope.recording.conversion import offline
from stepscope.recording.conversion.trace_handler import TraceHandler
from stepscope.recording.process.runtime import runtime
from stepscope.recording.process.signals import critical_section
from stepscope.recording.steps import user_steps
from stepscope.recording.windows import sources
from stepscope.recording.windows.window import Window, wait_for_conversions
from stepscope.recording.windows.window_sequence import WindowSequence

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class Profiler:
    """Records from start to stop, or the windows of a schedule; each window becomes a run folder.

    Keyword arguments, all optional: start_profile, output_path, profiler_level, activities, schedule, on_trace_ready, profile_memory,
    aic_metrics (or aicore_metrics), with_stack, stack_hz, record_shapes, with_flops, with_modules, data_process, data_simplification,
    l2_cache, hbm_ddr, pcie, parallel_strategy, sync_enable, mstx, mstx_domain_include, mstx_domain_exclude, sys_io, sys_interconnection,
    host_sys, export_type, experimental_config, host_interval_ms, max_events, max_bytes, keep_slow, framework, worker_name, fp_start,
    bp_end, metadata, step_on.
    docs/recording.md describes each of them for each platform.
    """

    def __init__(self, **choices: Any) -> None:
        _announce()
        schedule = choices.pop("schedule", None)
        on_trace_ready = choices.pop("on_trace_ready", None)
        start = choices.pop("start_profile", None)
        step_on = choices.pop("step_on", None)
        step_choice = None if step_on is None else user_steps.parse(step_on, "step_on")
        for name, value in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if value is not None and not callable(value):
                raise UsageError(f"{name} is {value!r}; expected a function, such as stepscope.{_EXAMPLES[name]}")
        if start is not None and not isinstance(start, bool):
            raise UsageError(f"start_profile is {start!r}; expected True or False")
        if isinstance(on_trace_ready, TraceHandler):
            choices |= on_trace_ready.options
        options = profiler_options.parse(choices)
        if options.keep_slow is not None and schedule is not None:
            raise UsageError("keep_slow records all steps, and schedule some of them; use one of the two")
        self.options = replace(options, output_path=options.output_path.absolute())  # the program may change its folder later
        self.step_num = 0
        self.gives_way = False  # to a profiler of the program: started by an environment variable
        self._steps_before = 0  # before start(), or between stop() and start(): a schedule does not count them
        self._job_steps = 0  # counted by `stepscope run` before our first step: recorded steps are numbered from there
        self._schedule: Schedule | None = schedule
        self._on_trace_ready: Callable[[Profiler], Any] | None = on_trace_ready
        self._metadata: dict[str, Any] = dict(self.options.metadata)
        self._started = ""  # the line of the user's program that started it
        self._action = ProfilerAction.NONE
        self._windows = WindowSequence()
        self._finished: list[Window] = []
        self._in_handler = False  # on_trace_ready runs
        self._announced: Path | None = None  # the recording that the last message named
        self._silent = False  # the end of the recording is announced later
        self._window_count = 0  # of this recording, from start to stop
        self._recorded = False  # or failed to, and reported why
        self._obstacle = ""  # why the last window could not be opened
        self._pid = os.getpid()
        captures.check_writable(self.options.output_path, "output_path")
        sources.prepare(self.options)
        self._step_watch = user_steps.Watch(step_choice, _weak_step(self)) if step_choice else None
        if start is not False:
            self.start()

    def start(self) -> None:
        """Begin: record, or follow the schedule from the current step on."""
        with critical_section:
            if self._started and not self._forked():
                raise UsageError(f"start() of a profiler that is running: it was started at {self._started}; stop() it first")
            if self._forked():  # the recording belongs to the parent
                self._windows.forked()
                self._finished, self._action, self._pid = [], ProfilerAction.NONE, os.getpid()
            if sources.after_backward(self.start):
                return
            action = self._scheduled_action()
            _claim(self)
            self._windows.step_clock.skip()
            if not self._steps_before:
                job_steps = max((listener.steps_so_far() for listener in runtime.listeners), default=0)
                self._job_steps = max(self._job_steps, job_steps - self.step_num)
            self._started, self._window_count, self._announced = profiler_options.caller_line(), 0, None
            sources.prepare(self.options)
            self._enter(action)

    def stop(self) -> None:
        """End the current window, if any, and the schedule."""
        with critical_section:
            if self._forked() or (self._started and sources.after_backward(self.stop)):
                return
            if not self._started:
                raise UsageError("stop() of a profiler that is not running; start() it first")
            if self._windows.current and self._schedule:
                self._windows.current.capture.notice("stopped before the active steps of the schedule were over")
            if not self._recorded:
                if self.step_num:
                    reason = f"stopped in step {self.step_num}, before those of the schedule"
                else:
                    reason = f"no step was detected: {self._step_watch.why_nothing()}" if self._step_watch else _NO_STEP_CALL
                say(f"nothing was recorded: {reason}")
            self._enter(None)
            if (summary := self._windows.slow_summary()) is not None:
                say(summary)
            self._started = ""
            if runtime.profiler is self:
                runtime.profiler = None
            if self._window_count and not self._silent:
                self._announce_recording()

    def step(self) -> None:
        """A step is over and the next begins. With a schedule, this moves it on."""
        if self._step_watch:
            raise UsageError(f"step() of a profiler with step_on='{self._step_watch.choice}', which marks the steps: use one of the two")
        self._end_step()

    def _end_step(self) -> None:
        with critical_section:
            if self._forked() or sources.after_backward(self._end_step):
                return
            self._windows.step_clock.end_step(self._step_number)
            self.step_num += 1
            if not self._started:
                self._steps_before += 1
                return
            if self._windows.current and not self._windows.step(self._step_number):
                self._end_window()
                if self._windows.slow_steps:
                    self._open_window()
            self._enter(self._scheduled_action())

    def analyse(
        self,
        offline_path: str | os.PathLike[str] | None = None,
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        mode: str = "sync",
    ) -> list[Path]:
        """Stop the profiler, write run folders, and return them.

        `step_list` keeps these steps only. With mode "async" a separate process writes them, and the program waits for it when it ends.
        `pretty` has no effect: a run folder contains no JSON to format.
        """
        if mode not in ("sync", "async"):
            raise UsageError(f"mode is {mode!r}; expected sync or async")
        steps = offline.checked_steps(step_list)
        if steps is not None:
            steps = [step + self._job_steps for step in steps]
        if offline_path is not None:
            profiler_options.warn("offline_path is deprecated: use Profiler.offline_analyse", DeprecationWarning)
            return self.offline_analyse(offline_path, pretty, step_list)
        with critical_section:
            if self._forked():
                return []
            if self._started and not self._in_handler:
                self.stop_silently()
            self._windows.write_unprofiled_steps()
            windows, self._finished = self._finished, []
            if not self._recorded and not self._schedule:
                say("nothing was recorded: analyse() of a profiler that was never started")
        # With keep_slow, a window with slower steps may have displaced others.
        runs = [window.convert(steps=steps, wait=mode == "sync") for window in windows if not window.is_deleted]
        if self._window_count and not self._in_handler:
            self._announce_recording()
        return runs

    @classmethod
    def offline_analyse(
        cls,
        path: str | os.PathLike[str],
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        data_simplification: bool = True,
    ) -> list[Path]:
        """Write the results of the captures and PROF directories at or below a path, in place, and return them. Needs polars.

        Captures become run folders; without `data_simplification`, the capture is kept inside. For PROF directories of Ascend, several at
        a time, `mindstudio_profiler_output` is written, as `stepscope msprof --export=on` does; with `data_simplification`, the databases
        of Ascend's own parser are removed. `step_list` keeps these steps only, `pretty` formats JSON. A failure is reported, and the
        others are analysed.
        """
        return offline.analyse_offline(Path(path), pretty=pretty, step_list=step_list, data_simplification=data_simplification)

    def op_analyse(self, op_name: str | list[str], device_id: int | None = None) -> str:
        """Calls and times in microseconds of the named operators per input shape, as JSON."""
        names = [op_name] if isinstance(op_name, str) else op_name
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"op_name is {op_name!r}; expected an operator's name or a list of them")
        if device_id is not None and (not isinstance(device_id, int) or isinstance(device_id, bool)):
            raise UsageError(f"device_id is {device_id!r}; expected a whole number")
        self.analyse()
        run = self.run
        if run is None:
            raise UsageError("op_analyse() before anything was recorded")
        from stepscope.recording.conversion import convert

        return convert.operators_as_json(run, names, device_id)

    def export_chrome_trace(self, path: str | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write the last finished window as a Chrome trace, compressed where the name ends in .gz. Needs polars.

        `torch.profiler` has this method: scripts and handlers written for it work unchanged. `use_python_export`, which chooses PyTorch's
        writer, has no effect.
        """
        if not self.run:
            raise UsageError("export_chrome_trace() before a window was over; stop() first")
        from stepscope.exporters import chrome
        from stepscope.io import open_run

        wait_for_conversions()
        chrome.export(open_run.open(self.run, cache=False), Path(path), overwrite=True)

    def add_metadata(self, key: str, value: str) -> None:
        """Store a text with the recording: it is in `trace.meta.extra["metadata"]`."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"metadata {key!r}: {value!r}; expected a text for both")
        self._set_metadata(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Store a JSON text with the recording."""
        try:
            content = json.loads(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"metadata {key!r} is {value!r}; expected JSON text ({error})") from error
        self._set_metadata(key, content)

    @property
    def run(self) -> Path | None:
        """Path of the last finished window: a run folder, or a capture as long as it has not been analysed."""
        return self._windows.last.path if self._windows.last else None

    def __enter__(self) -> "Profiler":
        if not self._started:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._started:
            self.stop()

    @property
    def started_at(self) -> str:
        """The line of the program that started it."""
        return self._started

    def stop_silently(self) -> "Window | None":
        """Stop without announcing the recording. The window that was open is returned."""
        window = self._windows.current
        self._silent = True
        try:
            self.stop()
        finally:
            self._silent = False
        return window

    def _announce_recording(self) -> None:
        """Print where the recording is and how to open it, in one line for all ranks. Under `stepscope run`, the command line does."""
        window = self._windows.last
        if window is None or self._forked() or runtime.listeners or window.capture.header["rank"] != 0:
            return
        is_folder = self._window_count > 1 or window.capture.header["world_size"] > 1
        path = self.options.output_path if is_folder else window.path
        if path != self._announced:
            self._announced = path
            say(f"recorded {_relative(path)}; open it with: stepscope view {shlex.quote(_relative(path))}")

    def _forked(self) -> bool:
        """Whether this is a forked child, where the recording belongs to the parent."""
        return self._pid != os.getpid()

    def _set_metadata(self, key: str, value: Any) -> None:
        self._metadata[key] = value
        for window in [*self._finished, *([self._windows.current] if self._windows.current else [])]:
            window.set_metadata(self._metadata)

    @property
    def _step_number(self) -> int:
        """Number under which the current step is recorded."""
        return self._job_steps + self.step_num

    def _scheduled_action(self) -> ProfilerAction:
        return schedules.action(self._schedule or schedules.always, self.step_num - self._steps_before)

    def _enter(self, action: ProfilerAction | None) -> None:
        """Move from the action of the last step to that of the current one; None is the end."""
        before, self._action = self._action, action or ProfilerAction.NONE
        continues = before is ProfilerAction.RECORD and action in _RECORDING
        if before in _RECORDING and not continues:
            self._end_window()
        if action is not ProfilerAction.WARM_UP:
            self._windows.cool_down()
        if action is None:
            self._windows.write_unprofiled_steps()
        elif action is ProfilerAction.WARM_UP:
            self._try_to_open(lambda: self._windows.warm_up(self.options, self._step_number))
        elif action in _RECORDING and not continues:
            self._recorded = True
            self._open_window()

    def _open_window(self) -> None:
        if self._try_to_open(lambda: self._windows.open(self.options, self._step_number)) and self._windows.current:
            if self._obstacle:
                self._obstacle = ""
                say(f"recording continues from step {self._step_number} on")
            self._windows.current.set_metadata(self._metadata)

    def _try_to_open(self, open_window: Callable[[], Any]) -> bool:
        """False where it fails: the disk is full, the folder is gone, another recording runs."""
        try:
            open_window()
        except Exception as error:  # noqa: BLE001 - training continues
            reason = f"{self.options.output_path}: {error.strerror}" if isinstance(error, OSError) and error.strerror else error_line(error)
            if reason != self._obstacle:  # one message, however many windows fail
                self._obstacle = reason
                say(f"nothing is recorded from step {self._step_number} on: {self._obstacle}")
            return False
        return True

    def _end_window(self) -> None:
        window = self._windows.close()
        if window is None:
            return
        for listener in runtime.listeners:
            listener.own_window(window.capture.folder, window.steps, window.incomplete)
        if window.incomplete:
            say(f"{window.path} is incomplete: {window.incomplete}")
        self._finished.append(window)
        self._window_count += 1
        if self._on_trace_ready:
            self._in_handler = True
            try:
                self._on_trace_ready(self)
            except Exception as error:  # noqa: BLE001 - training continues, whatever the handler does
                say(f"on_trace_ready failed: {error_line(error)}")
            finally:
                self._in_handler = False


class profile(Profiler):  # noqa: N801 - the name that users know
    """A Profiler with the arguments of `mindspore.profiler.profile` in their order; the others are keyword arguments."""

    def __init__(
        self,
        activities: Iterable[ProfilerActivity] | None = None,
        with_stack: bool = False,
        profile_memory: bool = False,
        data_process: bool = False,
        parallel_strategy: bool = False,
        start_profile: bool = True,
        hbm_ddr: bool = False,
        pcie: bool = False,
        sync_enable: bool = True,
        record_shapes: bool = False,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        experimental_config: ExperimentalConfig | None = None,
        **more: Any,
    ) -> None:
        super().__init__(
            activities=activities,
            with_stack=with_stack,
            profile_memory=profile_memory,
            data_process=data_process,
            parallel_strategy=parallel_strategy,
            start_profile=start_profile,
            hbm_ddr=hbm_ddr,
            pcie=pcie,
            sync_enable=sync_enable,
            record_shapes=record_shapes,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            experimental_config=experimental_config,
            **more,
        )


_NO_STEP_CALL = "step() was never called, and a schedule moves on with each call of it"
_EXAMPLES = {"schedule": "schedule(wait=1, active=3)", "on_trace_ready": 'tensorboard_trace_handler("./data")'}


def _announce() -> None:
    """`stepscope run` leaves the recording to the program's own profiler."""
    for listener in runtime.listeners:
        listener.own_profiler()


def _claim(profiler: Profiler) -> None:
    """Make it the running profiler of this process: there is one at a time."""
    _announce()
    other = runtime.profiler
    if other is not None and other is not profiler:
        if not other.gives_way:
            raise UsageError(f"another profiler is running: the one started at {other.started_at}; stop() it first")
        say("the program's own profiler takes over from the one that MS_PROFILER_OPTIONS started")
        other.stop()
    runtime.profiler = profiler
    runtime.before_exit(_finish)


def _finish() -> None:
    """The program ends: the current recording is kept."""
    profiler = runtime.profiler
    if profiler is not None:
        window = profiler.stop_silently()
        if profiler.gives_way:
            profiler.analyse()
        elif window:
            path = _relative(window.path)
            command = f"stepscope view {shlex.quote(path)}"
            say(f"the profiler was still recording at the end of the program: recorded {path}; open it with: {command}")


def _weak_step(profiler: Profiler) -> Callable[[], None]:
    """Ends a step of this profiler, as long as the profiler is referenced elsewhere."""
    method = weakref.WeakMethod(profiler._end_step)

    def end_step() -> None:
        if (call := method()) is not None:
            call()

    return end_step


def _relative(path: Path) -> str:
    """Relative to the current folder, where it is below."""
    with contextlib.suppress(OSError, ValueError):  # it may lie elsewhere, or the current folder may be gone
        return str(path.relative_to(Path.cwd()))
    return str(path)
