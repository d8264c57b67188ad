"""Profiler: records a training job, window by window, into run folders. Its API is that of mindspore.Profiler."""

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from stepscope import __version__, captures
from stepscope.captures import Capture
from stepscope.collect import Collector, schedules
from stepscope.collect import options as choices_of
from stepscope.collect import plain as plain_ranges
from stepscope.collect.options import FRAMEWORKS, ExperimentalConfig, Options, ProfilerActivity, ProfilerLevel
from stepscope.collect.schedules import ProfilerAction, Schedule
from stepscope.errors import StepscopeError, UsageError


class Profiler:
    """Records from start to stop, or the windows of a schedule; each window becomes a run folder.

    Keyword arguments, all optional: start_profile, output_path, profiler_level, activities, schedule, on_trace_ready, profile_memory,
    aic_metrics (or aicore_metrics), with_stack, stack_hz, record_shapes, with_flops, with_modules, data_process, data_simplification,
    l2_cache, hbm_ddr, pcie, parallel_strategy, sync_enable, mstx, mstx_domain_include, mstx_domain_exclude, sys_io, sys_interconnection,
    host_sys, export_type, experimental_config, host_interval_ms, max_events, max_bytes, framework, worker_name, fp_start, bp_end, metadata.
    docs/recording.md says what each does on each platform.
    """

    def __init__(self, **choices: Any) -> None:
        plan = choices.pop("schedule", None)
        ready = choices.pop("on_trace_ready", None)
        begin = choices.pop("start_profile", None)
        for name, value in (("schedule", plan), ("on_trace_ready", ready)):
            if value is not None and not callable(value):
                raise UsageError(f"{name} is {value!r}; expected a function, such as stepscope.{_EXAMPLES[name]}")
        if begin is not None and not isinstance(begin, bool):
            raise UsageError(f"start_profile is {begin!r}; expected True or False")
        if isinstance(ready, _TraceHandler):
            choices |= {name: value for name, value in (("output_path", ready.folder), ("worker_name", ready.worker)) if value is not None}
        self.options = choices_of.parse(choices)
        self.step_num = 0
        self._plan: Schedule | None = plan
        self._on_trace_ready: Callable[[Profiler], Any] | None = ready
        self._metadata: dict[str, Any] = dict(self.options.metadata)
        self._started = ""  # the place in the user's program that started it
        self._action = ProfilerAction.NONE
        self._window: Window | None = None
        self._warm: Window | None = None
        self._finished: list[Window] = []
        self._ready = False  # on_trace_ready runs
        self._gives_way = False  # nobody's own: started by an environment variable
        self._pid = os.getpid()
        _check_writable(self.options.output_path)
        _prepare(self.options)
        if begin is not False:
            self.start()

    def start(self) -> None:
        """Begin: record, or follow the schedule from the present step on."""
        with _state.lock:
            if self._started and not self._forked():
                raise UsageError(f"start() of a profiler that is running: it was started at {self._started}; stop() it first")
            if self._forked():  # what was under way is the parent's
                self._window = self._warm = self._last = None
                self._finished, self._action, self._pid = [], ProfilerAction.NONE, os.getpid()
            action = self._planned()
            _state.claim(self)
            self._started = choices_of.place()
            _prepare(self.options)
            self._enter(action)

    def stop(self) -> None:
        """End the window that is being recorded, if any, and the schedule."""
        with _state.lock:
            if self._forked():
                return
            if not self._started:
                raise UsageError("stop() of a profiler that is not running; start() it first")
            if self._window and self._plan and self._action is ProfilerAction.RECORD:
                self._window.capture.notice("stopped before the active steps of the schedule were over")
            self._enter(None)
            self._started = ""
            _state.release(self)

    def step(self) -> None:
        """A step is over and the next begins. With a schedule, this moves it on."""
        with _state.lock:
            if self._forked() or (self._plan and not self._started):
                return
            self.step_num += 1
            if not self._started:
                return
            if self._window and not self._window.step(self.step_num):
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
        if offline_path is not None:
            choices_of.warn("offline_path is deprecated: use Profiler.offline_analyse", DeprecationWarning)
            return self.offline_analyse(offline_path, step_list=step_list)
        with _state.lock:
            if self._forked():
                return []
            if self._started and not self._ready:
                self.stop()
            windows, self._finished = self._finished, []
        return [window.convert(steps=steps, wait=mode == "sync") for window in windows]

    @classmethod
    def offline_analyse(
        cls,
        path: str | os.PathLike[str],
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        data_simplification: bool = True,
    ) -> list[Path]:
        """Turn the captures at or below a path into run folders, where they are. Needs polars."""
        steps, where = _checked_steps(step_list), Path(path)
        if not where.exists():
            raise UsageError(f"{where}: no such folder")
        found = [file.parent for file in sorted([where / captures.HEADER, *where.rglob(f"*{captures.SUFFIX}/{captures.HEADER}")])]
        folders = [folder for folder in dict.fromkeys(found) if (folder / captures.HEADER).is_file() and not folder.name.startswith(".")]
        if not folders:
            raise UsageError(f"{where}: no capture here; a trace of another kind is opened as it is, with stepscope.open")
        from stepscope import conversion

        return [conversion.convert(folder, steps=steps, keep=not data_simplification) for folder in folders]

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

    def _forked(self) -> bool:
        """In a forked child a recording is still the parent's."""
        return self._pid != os.getpid()

    def _describe(self, key: str, value: Any) -> None:
        self._metadata[key] = value
        for window in [*self._finished, *([self._window] if self._window else [])]:
            window.describe(self._metadata)

    def _planned(self) -> ProfilerAction:
        return schedules.action(self._plan or schedules.always, self.step_num)

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
        if action is ProfilerAction.WARM_UP and not self._warm:
            # What is slow the first time happens now, and is thrown away.
            self._warm = _opened(self.options, self.step_num, warm=True)
        if action in recording and not goes_on:
            self._window = _opened(self.options, self.step_num, self._metadata)

    def _end_window(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        window.stop()
        self._finished.append(window)
        self._last = window
        if self._on_trace_ready:
            self._ready = True
            try:
                self._on_trace_ready(self)
            except Exception as error:  # noqa: BLE001 - training goes on, whatever is done with the recording
                say(f"on_trace_ready failed: {_told(error)}")
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
        say(f"MS_PROFILER_OPTIONS: {error}; the program goes on without being recorded")
        return None
    return profiler


class Window:
    """One recording: from start to stop, one capture folder, then one run folder. What fails in it is told, never raised."""

    def __init__(self, options: Options, given: list[Collector] | None = None, *, step: int, hidden: bool = False) -> None:
        _state.check_free()
        self.options = options
        self.run: Path | None = None
        self._steps: list[tuple[int, int]] = []
        self._running: list[Collector] = []
        self._stumbled: list[Collector] = []
        header = {
            "rank": rank(),
            "world_size": world_size(),
            "pid": os.getpid(),
            "program": Path(sys.argv[0]).name if sys.argv else "",
            "framework": chosen(options) or "",
            "versions": {"stepscope": __version__, "python": platform.python_version()},
            "options": choices_of.plain(options),
            "metadata": options.metadata,
        }
        folder = options.output_path.absolute() / f"{_name(options)}{captures.SUFFIX}"
        folder = folder.with_name(f".{folder.name}") if hidden else folder
        try:
            self.capture = Capture(folder, header)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)  # not even what it is could be written
            raise
        _state.window = self
        for collector in collectors(options) if given is None else given:
            self._begin(collector)
        self.step(step)

    @property
    def place(self) -> Path:
        return self.run or self.capture.folder

    def step(self, number: int) -> bool:
        """Step `number` begins. False when the bound on what may be recorded has been reached."""
        self._steps.append((number, time.time_ns()))
        if not any(isinstance(one, _OfFramework) for one in self._running) and (late := _late(self.options)):
            self.capture.notice(f"{late} was imported after recording began: recorded from step {number} on")
            self.capture.header["framework"] = late
            self._begin(_of(late, self.options))
        for collector in self._running:
            if collector not in self._stumbled and not self._tried(collector, "step", lambda one=collector: one.step(number)):  # type: ignore[misc]
                self._stumbled.append(collector)
        if self.capture.bytes > self.options.max_bytes:
            self.capture.notice(f"recording ended early, at step {number}: max_bytes={self.options.max_bytes:,} was reached")
            return False
        # A collector that counts its events ends its own recording, says so, and is full.
        return not any(getattr(one, "full", False) for one in self._running)

    def stop(self) -> None:
        """End, and leave a whole capture."""
        if _state.window is not self:
            return
        for collector in reversed(self._running):
            self._tried(collector, "stop", collector.stop)
        _state.window = None
        if not any(isinstance(one, _OfFramework) for one in self._running):
            if late := _late(self.options):
                self.capture.notice(f"{late} was imported after recording began, and no step was marked since: it is not recorded")
            elif names := _differing(self.options, (*_OF_FRAMEWORKS, *_OF_MINDSPORE)):
                self.capture.notice(f"no effect without a framework: {', '.join(names)}")
        try:
            if len(self._steps) > 1:
                # The step that the last call of step() began is not over: it is no step.
                numbers, starts = zip(*self._steps[:-1], strict=True)
                ends = [start for _, start in self._steps[1:]]
                self.capture.append(
                    "steps",
                    {"step": np.array(numbers, np.int32), "start_ns": np.array(starts, np.int64), "end_ns": np.array(ends, np.int64)},
                )
            self.capture.finish()
        except Exception as error:  # noqa: BLE001 - a full disk does not end training
            say(f"{self.capture.folder} could not be finished: {_told(error)}")

    def describe(self, metadata: dict[str, Any]) -> None:
        """The metadata as it is now."""
        self.capture.header["metadata"] = dict(metadata)
        if self.capture.header["whole"] and self.run is None:
            try:
                self.capture.finish(end_ns=self.capture.header["end_ns"])
            except OSError as error:
                say(f"{self.capture.folder}: the metadata could not be written: {_told(error)}")

    def discard(self) -> None:
        """Stop, and forget."""
        self.stop()
        shutil.rmtree(self.capture.folder, ignore_errors=True)

    def convert(self, *, steps: list[int] | None = None, wait: bool = True) -> Path:
        """The run folder: made here where polars is installed, else the capture itself, which becomes one when it is first opened."""
        if self.run is None and importlib.util.find_spec("polars") and importlib.util.find_spec("msgspec"):
            try:
                # Once the interpreter goes down, neither polars nor anything else with threads can be imported into it.
                if wait and threading.main_thread().is_alive():
                    from stepscope import conversion

                    self.run = conversion.convert(self.capture.folder, steps=steps, keep=not self.options.data_simplification)
                else:
                    process = _in_background(self.capture.folder, steps, not self.options.data_simplification)
                    self.run = self.capture.folder.with_suffix("")
                    if not wait:
                        _state.converting.append(process)
                    elif not _converted(process):
                        self.run = None
            except Exception as error:  # noqa: BLE001 - training goes on; the capture is there to be opened
                self.run = None
                say(f"{self.capture.folder} stays a capture: {_told(error)}")
        return self.place

    def _begin(self, collector: Collector) -> None:
        if self._tried(collector, "start", lambda: collector.start(self.capture)):
            self._running.append(collector)

    def _tried(self, collector: Collector, verb: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a collector does, training and the other collectors go on
            what = f"{_source(collector)}: {verb} failed: {_told(error)}"
            self.capture.notice(what)
            say(what)
            return False
        return True


# What only a framework's collector can do.
_OF_FRAMEWORKS = (
    "profiler_level",
    "aic_metrics",
    "profile_memory",
    "record_shapes",
    "with_flops",
    "data_process",
    "l2_cache",
    "hbm_ddr",
    "pcie",
)
# What only MindSpore's and torch_npu's can. Others time kernels on the device itself, so nothing waits for them.
_OF_MINDSPORE = ("parallel_strategy", "sync_enable", "sys_io", "sys_interconnection")


def _differing(options: Options, names: tuple[str, ...]) -> list[str]:
    """Those that were asked for."""
    return [name for name in names if getattr(options, name) != getattr(Options, name)]


def collectors(options: Options) -> list[Collector]:
    """What will record: the framework in use, the ranges users name, the host."""
    found: list[Collector] = [plain_ranges.Collector(options)]
    if name := chosen(options):
        found.append(_of(name, options))
        if name != "mindspore" and "torch_npu" not in sys.modules and (without := _differing(options, _OF_MINDSPORE)):
            found.append(_Absent(f"no effect with {name}: {', '.join(without)}"))
        if not options.framework and (others := [other for other in FRAMEWORKS if _imported(other) and other != name]):
            found.append(_Absent(f"{name} is recorded; {others[0]} is imported, too, and framework='{others[0]}' would record that"))
    if options.host_interval_ms:
        found.append(_named("host", options))
    if options.with_stack:
        found.append(_named("stacks", options))
    return found


def chosen(options: Options) -> str | None:
    """The framework to record: the one asked for, else the one in use."""
    if options.framework == "python" or (options.profiler_level is ProfilerLevel.LevelNone and not options.mstx):
        return None
    return options.framework or framework()


def framework() -> str | None:
    """The framework that the program has imported. Of two, the one that computes."""
    present = [name for name in FRAMEWORKS if _imported(name)]
    if "jax" in present and "torch" in present and getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):
        return "jax"  # has devices open, so PyTorch most likely only loads data
    return present[0] if present else None


def _imported(name: str) -> bool:
    return not getattr(getattr(sys.modules.get(name, None), "__spec__", None), "_initializing", name not in sys.modules)


def _late(options: Options) -> str | None:
    """The framework to record, if it is there by now."""
    name = chosen(options)
    return name if name and _imported(name) else None


class _OfFramework:
    """A framework's collector: one of these records at a time."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.start, self.step, self.stop = collector.start, collector.step, collector.stop

    @property
    def full(self) -> bool:
        return getattr(self.collector, "full", False)


class _Absent:
    """In place of a collector that cannot be had: says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def start(self, capture: Capture) -> None:
        capture.notice(self._why)

    def step(self, number: int) -> None:
        pass

    def stop(self) -> None:
        pass


def _of(name: str, options: Options) -> Collector:
    if not _imported(name):  # asked for by name, and not there yet
        return _Absent(f"{name} had not been imported when recording began")
    return _OfFramework(_named(name, options))


def _named(name: str, options: Options) -> Collector:
    try:
        collector: Collector = importlib.import_module(f"stepscope.collect.{name}").Collector(options)
    except Exception as error:  # noqa: BLE001 - a collector that cannot even be made does not end training
        return _Absent(f"{name} is not recorded: {_told(error)}")
    return collector


def _prepare(options: Options) -> None:
    """Let the framework's collector ask for what must be asked for before the framework compiles or reads data."""
    name = chosen(options)
    try:
        prepare = getattr(importlib.import_module(f"stepscope.collect.{name}"), "prepare", None) if name and _imported(name) else None
        if prepare:
            prepare(options)
    except Exception as error:  # noqa: BLE001 - as for collectors
        say(f"{name}: prepare failed: {_told(error)}")


def _source(collector: Collector) -> str:
    inner = getattr(collector, "collector", collector)
    return type(inner).__module__.rpartition(".")[2]


def _opened(options: Options, step: int, metadata: dict[str, Any] | None = None, *, warm: bool = False) -> Window | None:
    """A window, or none where it cannot be: the disk is full, the folder went away, another recording runs."""
    try:
        if not warm:
            window = Window(options, step=step)
            window.describe(metadata or {})
            return window
        name = chosen(options)
        return Window(options, [_of(name, options)], step=step, hidden=True) if name else None
    except (OSError, StepscopeError) as error:
        say(f"nothing is recorded from step {step} on: {_told(error)}")
        return None


class _State:
    """What there is once per process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.profiler: Profiler | None = None  # that is running
        self.window: Window | None = None  # that is open
        self.converting: list[subprocess.Popen[bytes]] = []

    def claim(self, profiler: Profiler) -> None:
        other = self.profiler
        if other is not None and other is not profiler:
            if not other._gives_way:
                raise UsageError(f"another profiler is running: the one started at {other._started}; stop() it first")
            say("the program's own profiler takes over from the one that MS_PROFILER_OPTIONS started")
            other.stop()
        self.profiler = profiler
        # The latest registered runs first: before the framework's own, which may tear down what is still to be read.
        atexit.unregister(self.finish)
        atexit.register(self.finish)

    def check_free(self) -> None:
        if self.window is not None:
            raise UsageError(f"a recording is under way already: {self.window.capture.folder}")

    def release(self, profiler: Profiler) -> None:
        if self.profiler is profiler:
            self.profiler = None

    def finish(self) -> None:
        """The program ends: what is being recorded is kept."""
        profiler = self.profiler
        if profiler is not None:
            recorded = profiler._window
            profiler.stop()
            if profiler._gives_way:
                profiler.analyse()
            elif recorded:
                say(f"the profiler was still recording at the end of the program; what it recorded is in {recorded.place}")
        for process in self.converting:
            _converted(process)
        self.converting.clear()

    def forked(self) -> None:
        """In a child nothing is being recorded, and nothing is left to finish."""
        self.lock = threading.RLock()
        self.profiler = self.window = None
        self.converting = []
        plain_ranges.forget()


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.forked)


def _in_background(folder: Path, steps: list[int] | None, keep: bool) -> subprocess.Popen[bytes]:
    """A process of its own, so that the job's interpreter is not held up; it inherits nothing that would make it record itself."""
    ours = str(Path(__file__).parent.parent)
    environ = {name: value for name, value in os.environ.items() if name != "MS_PROFILER_OPTIONS" and not name.startswith("STEPSCOPE_")}
    environ["PYTHONPATH"] = os.pathsep.join([ours, *filter(None, [environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "stepscope.conversion", json.dumps({"folder": str(folder), "steps": steps, "keep": keep})],
        cwd=folder.parent,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the job
    )


def _converted(process: subprocess.Popen[bytes]) -> bool:
    """Wait for it; a failure is told."""
    _, said = process.communicate()
    if process.returncode != 0:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        say(f"a capture could not be converted, and stays: {lines[-1] if lines else process.returncode}")
    return process.returncode == 0


def say(what: str) -> None:
    """One line on stderr, once."""
    if what in _said:
        return
    _said.add(what)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all: no reason to disturb the job
        sys.stderr.write(f"stepscope: {what}\n")


_said: set[str] = set()


def _told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (f"{type(error).__name__}: " if not isinstance(error, StepscopeError) else "") + (lines[0] if lines else "")


def _check_writable(folder: Path) -> None:
    """Plainly wrong, so said at once rather than when the recording is over."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"output_path is '{folder}', which cannot be written: {error.strerror or error}") from error


def _checked_steps(steps: Sequence[int] | None) -> list[int] | None:
    if steps is None:
        return None
    listed = list(steps) if isinstance(steps, (list, tuple, range, set)) else []
    if not listed or not all(isinstance(step, int) and not isinstance(step, bool) for step in listed):
        raise UsageError(f"step_list is {steps!r}; expected a list of step numbers")
    return listed


def _name(options: Options) -> str:
    worker = (options.worker_name or f"{socket.gethostname()}_{os.getpid()}").replace(os.sep, "_")
    now = time.time_ns()
    return f"rank{rank()}_{worker}_{time.strftime('%Y%m%d%H%M%S', time.localtime(now // 10**9))}{now // 1000 % 10**6:06d}"


def rank() -> int:
    """This process's rank, as PyTorch knows it or launchers say it."""
    if distributed := _distributed():
        return int(distributed.get_rank())
    return _first_number(("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"), 0)


def world_size() -> int:
    if distributed := _distributed():
        return int(distributed.get_world_size())
    return _first_number(("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"), 1)


def _distributed() -> Any:
    """torch.distributed, once it is initialised: ranks that the program itself spawned are in no environment variable."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and _imported("torch") and module.is_available() and module.is_initialized() else None


def _first_number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)
