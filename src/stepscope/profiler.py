"""Profiler: records a training job, window by window, into run folders. Its API is that of mindspore.Profiler."""

import contextlib
import difflib
import json
import os
import shlex
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from stepscope import captures, endings, sources, step_on, telling
from stepscope.collect import options as choices_of
from stepscope.collect import schedules
from stepscope.collect.options import ExperimentalConfig, Options, ProfilerActivity
from stepscope.collect.schedules import ProfilerAction, Schedule
from stepscope.endings import undisturbed
from stepscope.errors import StepscopeError, UsageError
from stepscope.step_clock import StepClock
from stepscope.telling import say, told
from stepscope.windows import Window, wait_for_conversions


class Profiler:
    """Records from start to stop, or the windows of a schedule; each window becomes a run folder.

    Keyword arguments, all optional: start_profile, output_path, profiler_level, activities, schedule, on_trace_ready, profile_memory,
    aic_metrics (or aicore_metrics), with_stack, stack_hz, record_shapes, with_flops, with_modules, data_process, data_simplification,
    l2_cache, hbm_ddr, pcie, parallel_strategy, sync_enable, mstx, mstx_domain_include, mstx_domain_exclude, sys_io, sys_interconnection,
    host_sys, export_type, experimental_config, host_interval_ms, max_events, max_bytes, framework, worker_name, fp_start, bp_end, metadata,
    step_on.
    docs/recording.md says what each does on each platform.
    """

    def __init__(self, **choices: Any) -> None:
        _announce()
        plan = choices.pop("schedule", None)
        ready = choices.pop("on_trace_ready", None)
        begin = choices.pop("start_profile", None)
        named = choices.pop("step_on", None)
        on = None if named is None else step_on.parse(named, "step_on")
        for name, value in (("schedule", plan), ("on_trace_ready", ready)):
            if value is not None and not callable(value):
                raise UsageError(f"{name} is {value!r}; expected a function, such as stepscope.{_EXAMPLES[name]}")
        if begin is not None and not isinstance(begin, bool):
            raise UsageError(f"start_profile is {begin!r}; expected True or False")
        if isinstance(ready, _TraceHandler):
            choices |= {name: value for name, value in (("output_path", ready.folder), ("worker_name", ready.worker)) if value is not None}
        options = choices_of.parse(choices)
        self.options = replace(options, output_path=options.output_path.absolute())  # the program may change its folder later
        self.step_num = 0
        self._before = 0  # steps before start(), or between stop() and start(): a schedule does not count them
        self._job_steps = 0  # that `stepscope run` had counted when the first step of ours began: recorded steps are numbered from there
        self._plan: Schedule | None = plan
        self._on_trace_ready: Callable[[Profiler], Any] | None = ready
        self._metadata: dict[str, Any] = dict(self.options.metadata)
        self._started = ""  # the place in the user's program that started it
        self._action = ProfilerAction.NONE
        self._window: Window | None = None
        self._warm: Window | None = None
        self._finished: list[Window] = []
        self._clock = StepClock()
        self._ready = False  # on_trace_ready runs
        self._shown: Path | None = None  # the recording that the user was told how to open
        self._silent = False  # a recording that ends now is announced later
        self._windows = 0  # of this recording, from start to stop
        self._recorded = False  # or tried to, and said why not
        self._obstacle = ""  # why the last window could not be opened
        self._gives_way = False  # nobody's own: started by an environment variable
        self._pid = os.getpid()
        captures.check_writable(self.options.output_path, "output_path")
        sources.prepare(self.options)
        self._watch = step_on.Watch(on, _weakly(self)) if on else None
        if begin is not False:
            self.start()

    def start(self) -> None:
        """Begin: record, or follow the schedule from the present step on."""
        with undisturbed:
            if self._started and not self._forked():
                raise UsageError(f"start() of a profiler that is running: it was started at {self._started}; stop() it first")
            if self._forked():  # what was under way is the parent's
                self._window = self._warm = self._last = None
                self._clock = StepClock()
                self._finished, self._action, self._pid = [], ProfilerAction.NONE, os.getpid()
            if sources.after_backward(self.start):
                return
            action = self._planned()
            _state.claim(self)
            self._clock.skip()
            if not self._before:  # whoever called step() has counted
                counted = max((listener.steps_so_far() for listener in telling.listeners), default=0)
                self._job_steps = max(self._job_steps, counted - self.step_num)
            self._started, self._windows, self._shown = choices_of.place(), 0, None
            sources.prepare(self.options)
            self._enter(action)

    def stop(self) -> None:
        """End the window that is being recorded, if any, and the schedule."""
        with undisturbed:
            if self._forked() or (self._started and sources.after_backward(self.stop)):
                return
            if not self._started:
                raise UsageError("stop() of a profiler that is not running; start() it first")
            if self._window and self._plan:
                self._window.capture.notice("stopped before the active steps of the schedule were over")
            if not self._recorded:
                named = f"no step was seen: {self._watch.why_nothing()}" if self._watch else _UNMOVED
                came = f"stopped in step {self.step_num}, before those of the schedule" if self.step_num else named
                say(f"nothing was recorded: {came}")
            self._enter(None)
            self._started = ""
            _state.release(self)
            if self._windows and not self._silent:
                self._tell_recording()

    def step(self) -> None:
        """A step is over and the next begins. With a schedule, this moves it on."""
        if self._watch:
            raise UsageError(f"step() of a profiler with step_on='{self._watch.choice}', which marks the steps: leave out one of the two")
        self._step()

    def _step(self) -> None:
        with undisturbed:
            if self._forked() or sources.after_backward(self._step):
                return
            self._clock.border(self._number)
            self.step_num += 1
            if not self._started:
                self._before += 1
                return
            if self._window and not self._window.step(self._number):
                self._end_window()
            self._enter(self._planned())

    def analyse(
        self,
        offline_path: str | os.PathLike[str] | None = None,
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        mode: str = "sync",
    ) -> list[Path]:
        """Turn what was recorded into run folders, and say where they are. Stops the profiler first.

        `step_list` keeps these steps only. With mode "async" a process of its own does it, and the program waits for it at its end.
        `pretty` has no effect: a run folder holds no JSON to lay out.
        """
        if mode not in ("sync", "async"):
            raise UsageError(f"mode is {mode!r}; expected sync or async")
        steps = _checked_steps(step_list)
        if steps is not None:
            steps = [step + self._job_steps for step in steps]
        if offline_path is not None:
            choices_of.warn("offline_path is deprecated: use Profiler.offline_analyse", DeprecationWarning)
            return self.offline_analyse(offline_path, pretty, step_list)
        with undisturbed:
            if self._forked():
                return []
            if self._started and not self._ready:
                self._stop_silently()
            if self._last and self._last in self._finished:
                self._last.write_unprofiled_steps()
            windows, self._finished = self._finished, []
            if not self._recorded and not self._plan:
                say("nothing was recorded: analyse() of a profiler that was never started")
        found = [window.convert(steps=steps, wait=mode == "sync") for window in windows]
        if self._windows and not self._ready:
            self._tell_recording()
        return found

    @classmethod
    def offline_analyse(
        cls,
        path: str | os.PathLike[str],
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        data_simplification: bool = True,
    ) -> list[Path]:
        """Turn what lies at or below a path into results, where it is, and say where they are. Needs polars.

        Captures become run folders; without `data_simplification`, the capture is kept inside. Of Ascend's PROF directories, several at
        a time, `mindstudio_profiler_output` is written, as `stepscope msprof --export=on` does; with `data_simplification`, the databases
        that Ascend's own parser left are removed. `step_list` keeps these steps only, `pretty` lays out JSON. What cannot be analysed is
        told, and the others are done.
        """
        return analyse_offline(Path(path), pretty=pretty, step_list=step_list, data_simplification=data_simplification)

    def op_analyse(self, op_name: str | list[str], device_id: int | None = None) -> str:
        """What the named operators took, as JSON: per input shape, calls and times in microseconds."""
        names = [op_name] if isinstance(op_name, str) else op_name
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"op_name is {op_name!r}; expected an operator's name or a list of them")
        if device_id is not None and (not isinstance(device_id, int) or isinstance(device_id, bool)):
            raise UsageError(f"device_id is {device_id!r}; expected a whole number")
        self.analyse()
        run = self.run
        if run is None:
            raise UsageError("op_analyse() before anything was recorded")
        from stepscope import conversion

        return conversion.operators_as_json(run, names, device_id)

    def export_chrome_trace(self, path: str | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write the last window that is over as a Chrome trace, packed where the name ends in .gz. Needs polars.

        `torch.profiler` has it: scripts and handlers written for that go on as they are. `use_python_export`, how PyTorch is to write,
        has no effect.
        """
        if not self.run:
            raise UsageError("export_chrome_trace() before a window was over; stop() first")
        from stepscope import opening
        from stepscope.exporters import chrome

        wait_for_conversions()
        chrome.export(opening.open(self.run, cache=False), Path(path), overwrite=True)

    def add_metadata(self, key: str, value: str) -> None:
        """Keep a text with the recording: it is in `trace.meta.extra["metadata"]`."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"metadata {key!r}: {value!r}; expected a text for both")
        self._describe(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Keep a JSON text with the recording."""
        try:
            content = json.loads(value)
        except (ValueError, TypeError) as error:
            raise UsageError(f"metadata {key!r} is {value!r}; expected JSON text ({error})") from error
        self._describe(key, content)

    @property
    def run(self) -> Path | None:
        """Where the last window that is over lies: a run folder, or a capture as long as it has not been analysed."""
        return self._last.place if self._last else None

    def __enter__(self) -> "Profiler":
        if not self._started:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._started:
            self.stop()

    _last: "Window | None" = None

    def _stop_silently(self) -> None:
        self._silent = True
        try:
            self.stop()
        finally:
            self._silent = False

    def _tell_recording(self) -> None:
        """Say where the recording is and how to open it, in one line for all ranks. Under `stepscope run`, that says it."""
        if not self._last or self._forked() or telling.listeners or self._last.capture.header["rank"] != 0:
            return
        several = self._windows > 1 or self._last.capture.header["world_size"] > 1
        place = self.options.output_path if several else self._last.place
        if place != self._shown:
            self._shown = place
            say(f"recorded {_relative(place)}; open it with: stepscope view {shlex.quote(_relative(place))}")

    def _forked(self) -> bool:
        """In a forked child a recording is still the parent's."""
        return self._pid != os.getpid()

    def _describe(self, key: str, value: Any) -> None:
        self._metadata[key] = value
        for window in [*self._finished, *([self._window] if self._window else [])]:
            window.describe(self._metadata)

    @property
    def _number(self) -> int:
        """Of the step that runs now, as it is recorded."""
        return self._job_steps + self.step_num

    def _planned(self) -> ProfilerAction:
        return schedules.action(self._plan or schedules.always, self.step_num - self._before)

    def _enter(self, action: ProfilerAction | None) -> None:
        """Go from what the last step did to what this one does; None is the end."""
        before, self._action = self._action, action or ProfilerAction.NONE
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        goes_on = before is ProfilerAction.RECORD and action in recording
        if before in recording and not goes_on:
            self._end_window()
        if self._warm and action is not ProfilerAction.WARM_UP:
            self._warm.discard()
            self._warm = None
        if self._last and (action is None or action is ProfilerAction.WARM_UP or (action in recording and not goes_on)):
            self._last.write_unprofiled_steps()
        if action is ProfilerAction.WARM_UP and not self._warm:
            # What is slow the first time happens now, and is thrown away.
            self._warm = self._open(warm=True)
        if action in recording and not goes_on:
            self._recorded = True
            self._window = self._open()

    def _open(self, *, warm: bool = False) -> Window | None:
        """A window, or none where it cannot be: the disk is full, the folder went away, another recording runs."""
        try:
            window = _warming(self.options, self._number) if warm else Window(self.options, step=self._number, clock=self._clock)
        except Exception as error:  # noqa: BLE001 - training goes on
            reason = f"{self.options.output_path}: {error.strerror}" if isinstance(error, OSError) and error.strerror else told(error)
            if reason != self._obstacle:  # once, however many windows there would have been
                self._obstacle = reason
                say(f"nothing is recorded from step {self._number} on: {self._obstacle}")
            return None
        if self._obstacle and not warm:
            self._obstacle = ""
            say(f"recording goes on from step {self._number} on")
        if window and not warm:
            window.describe(self._metadata)
        return window

    def _end_window(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        window.stop()
        for listener in telling.listeners:
            listener.own_window(window.capture.folder, window.steps, window.incomplete)
        if window.incomplete:
            say(f"{window.place} is incomplete: {window.incomplete}")
        self._finished.append(window)
        self._last = window
        self._windows += 1
        if self._on_trace_ready:
            self._ready = True
            try:
                self._on_trace_ready(self)
            except Exception as error:  # noqa: BLE001 - training goes on, whatever is done with the recording
                say(f"on_trace_ready failed: {told(error)}")
            finally:
                self._ready = False


class profile(Profiler):  # noqa: N801 - the name that users know
    """The same with the arguments of `mindspore.profiler.profile`, in their order; what else a Profiler takes comes by name."""

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


def analyse_offline(
    where: Path, *, pretty: bool, step_list: Sequence[int] | None, data_simplification: bool, processes: int | None = None
) -> list[Path]:
    """`Profiler.offline_analyse`, in at most so many processes."""
    steps = _checked_steps(step_list)
    for name, flag in (("pretty", pretty), ("data_simplification", data_simplification)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} is {flag!r}; expected True or False")
    if not where.exists():
        raise UsageError(f"{where}: no such folder")
    from stepscope import conversion, prof_folders, store

    wait_for_conversions()  # that this program began
    found = [file.parent for file in sorted([where / captures.HEADER, *where.rglob(f"*{captures.SUFFIX}/{captures.HEADER}")])]
    folders = [folder for folder in dict.fromkeys(found) if (folder / captures.HEADER).is_file() and not folder.name.startswith(".")]
    raw = [] if where in folders else prof_folders.below(where)
    if not folders and not raw:
        if done := sorted(file.parent for file in where.rglob(store.RUN_JSON)):
            say(f"{where}: analysed already")
            return done
        raise UsageError(
            f"{where}: neither a capture nor a PROF directory here; what other tools wrote is opened as it is, with stepscope.open"
        )
    runs, failed = [], []
    for folder in folders:
        try:
            if pid := captures.recorder(folder):
                raise StepscopeError(f"{folder}: process {pid} is still recording it; it can be opened as it is")
            runs.append(conversion.convert(folder, steps=steps, keep=not data_simplification))
        except (OSError, ValueError, StepscopeError) as error:
            failed.append(say(f"{folder}: {error}" if str(folder) not in str(error) else str(error)))
    requests = [
        prof_folders.Request(folder=str(folder), text=True, pretty=pretty, steps=steps, clear=data_simplification) for folder in raw
    ]
    for result in prof_folders.each(requests, processes):
        if result.failed:
            failed.append(f"{result.folder}: {result.failed}")
            say(failed[-1])
        else:
            runs.append(Path(result.folder) / prof_folders.OUTPUT)
    if failed and not runs:
        raise StepscopeError(failed[0])
    return sorted(runs)


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Profiler], None]:
    """For `on_trace_ready`: each window becomes a run folder in `dir_name`, whose name holds `worker_name`."""
    for name, value in (("dir_name", dir_name), ("worker_name", worker_name)):
        if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
            raise UsageError(f"{name} is {value!r}; expected text")
    for name, flag in (("analyse_flag", analyse_flag), ("async_mode", async_mode)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} is {flag!r}; expected True or False")
    return _TraceHandler(dir_name, worker_name, analyse_flag, async_mode)


class _TraceHandler:
    def __init__(self, folder: str | None, worker: str | None, analyse: bool, in_background: bool) -> None:
        self.folder, self.worker, self._analyse, self._in_background = folder, worker, analyse, in_background

    def __call__(self, profiler: Profiler) -> None:
        if self._analyse:
            profiler.analyse(mode="async" if self._in_background else "sync")


_UNMOVED = "step() was never called, and a schedule moves on with each call of it"
_EXAMPLES = {"schedule": "schedule(wait=1, active=3)", "on_trace_ready": 'tensorboard_trace_handler("./data")'}


def from_environment(environ: Mapping[str, str] = os.environ) -> Profiler | None:
    """Record as MS_PROFILER_OPTIONS says: from now to the end of the program. A mistake in it is told, and the program goes on."""
    text = environ.get("MS_PROFILER_OPTIONS")
    if not text:
        return None
    try:
        settings = json.loads(text)
        if not isinstance(settings, dict):
            raise UsageError("expected a JSON object")
        if "start" not in settings and (near := difflib.get_close_matches("start", settings, 1)):
            raise UsageError(f"there is no option '{near[0]}'; did you mean 'start'?")
        begin = settings.pop("start", False)
        if not isinstance(begin, bool):
            raise UsageError(f"start is {begin!r}; expected true or false")
        if not begin:
            return None
        for name in ("schedule", "on_trace_ready"):
            if settings.pop(name, None) is not None:
                raise UsageError(f"{name} cannot be given here")
        starts = settings.pop("start_profile", True)
        profiler = Profiler(**choices_of.from_json(settings), start_profile=False)
        profiler._gives_way = True
        if starts:
            profiler.start()
    except (ValueError, StepscopeError) as error:
        end = " The" if str(error).endswith("?") else "; the"
        say(f"MS_PROFILER_OPTIONS: {error}{end} program goes on without being recorded")
        for listener in telling.listeners:
            listener.refused()
        return None
    return profiler


def _warming(options: Options, step: int) -> Window | None:
    """A window of the framework's collector alone, which nobody will see."""
    name = sources.chosen(options)
    return Window(options, [sources.collector(name, options)], step=step, hidden=True) if name else None


class _State:
    """Which one is running: one at a time in a process."""

    def __init__(self) -> None:
        self.profiler: Profiler | None = None

    def claim(self, profiler: Profiler) -> None:
        _announce()
        other = self.profiler
        if other is not None and other is not profiler:
            if not other._gives_way:
                raise UsageError(f"another profiler is running: the one started at {other._started}; stop() it first")
            say("the program's own profiler takes over from the one that MS_PROFILER_OPTIONS started")
            other.stop()
        self.profiler = profiler
        endings.before_end(self.finish)

    def release(self, profiler: Profiler) -> None:
        if self.profiler is profiler:
            self.profiler = None

    def finish(self) -> None:
        """The program ends: what is being recorded is kept."""
        profiler = self.profiler
        if profiler is not None:
            recorded = profiler._window
            profiler._stop_silently()
            if profiler._gives_way:
                profiler.analyse()
            elif recorded:
                place = _relative(recorded.place)
                command = f"stepscope view {shlex.quote(place)}"
                say(f"the profiler was still recording at the end of the program: recorded {place}; open it with: {command}")

    def forked(self) -> None:
        self.profiler = None


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.forked)


def running() -> Profiler | None:
    """The one of this process."""
    return _state.profiler


def _announce() -> None:
    for listener in telling.listeners:
        listener.own_profiler()


def _weakly(profiler: Profiler) -> Callable[[], None]:
    """A step of this profiler, as long as somebody holds it."""
    method = weakref.WeakMethod(profiler._step)

    def step() -> None:
        if (mark := method()) is not None:
            mark()

    return step


def _relative(path: Path) -> str:
    """As seen from the present folder, where it is below."""
    with contextlib.suppress(OSError, ValueError):  # it may lie elsewhere, or the present folder may be gone
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _checked_steps(steps: Sequence[int] | None) -> list[int] | None:
    if steps is None:
        return None
    listed = list(steps) if isinstance(steps, (list, tuple, range, set)) else []
    if not listed or not all(isinstance(step, int) and not isinstance(step, bool) for step in listed):
        raise UsageError(f"step_list is {steps!r}; expected a list of step numbers")
    return listed
