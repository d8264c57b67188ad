"""DynamicProfilerMonitor: records the steps that a JSON file requests, while the job runs.

    CFG_PATH/profiler_config.json            the steps and options to record: the user edits it at any time
    CFG_PATH/profiler_status/JOB.rankN.json  the status of rank N: accepted and rejected requests, and the recordings
    CFG_PATH/profiler_status/JOB.agreed.json written by rank 0 for the others, so that all ranks record the same steps

There is no separate process and no shared memory: a step reads the clock, and once per poll_interval the date of the file.
"""

import difflib
import hashlib
import json
import math
import os
import re
import socket
import stat
import time
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError, UsageError
from stepscope.model.captures import SUFFIX
from stepscope.process.notices import error_line, say
from stepscope.recording.attach.jobs import listen
from stepscope.recording.callbacks import TrainCallback
from stepscope.recording.collectors.options import Options, from_json, parse, refuse_keep_slow
from stepscope.recording.process.runtime import runtime
from stepscope.recording.recorder import Recorder, Request
from stepscope.recording.windows import sources

CONFIG = "profiler_config.json"
STATUS = "profiler_status"
# A new profiler_config.json: nothing is recorded until start_step and stop_step are set.
DEFAULTS: dict[str, Any] = {
    "start_step": -1,
    "stop_step": -1,
    "aic_metrics": "AiCoreNone",
    "profiler_level": "Level0",
    "activities": ["CPU", "NPU", "GPU"],
    "export_type": ["text"],
    "profile_memory": False,
    "mstx": False,
    "parallel_strategy": False,
    "with_stack": False,
    "data_simplification": True,
    "l2_cache": False,
    "analyse": False,
    "analyse_mode": -1,
    "record_shapes": False,
    "prof_path": "./",
    "mstx_domain_include": [],
    "mstx_domain_exclude": [],
    "host_sys": [],
    "sys_io": False,
    "sys_interconnection": False,
}
_NO_OPTIONS = ("start_step", "stop_step", "analyse", "analyse_mode", "prof_path", "is_valid")
_FORMER_NAMES = {"record_shape": "record_shapes", "profile_communication": "", "profile_framework": "", "aicore_metrics": "aic_metrics"}


class DynamicProfilerMonitor(TrainCallback):
    """A callback for `Model.train`, or for a loop that calls `step()` at the end of each iteration.

    Iterations are counted from 1, and start_step and stop_step are both recorded. Further arguments are those of `Profiler`: defaults for
    options that the file does not contain.
    """

    def __init__(
        self, cfg_path: str | os.PathLike[str], output_path: str | os.PathLike[str] | None = None, poll_interval: float = 2, **choices: Any
    ) -> None:
        for listener in runtime.listeners:
            listener.own_profiler()
        for name, value in (("cfg_path", cfg_path), ("output_path", output_path or "dyn_profile_data")):
            if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
                raise UsageError(f"{name} is {value!r}; expected a folder")
        if not isinstance(poll_interval, (int, float)) or isinstance(poll_interval, bool) or not 0 < poll_interval < math.inf:
            raise UsageError(f"poll_interval is {poll_interval!r}; expected seconds, more than 0")
        parse(choices)
        self._choices = choices
        self._output = Path(output_path or "dyn_profile_data").absolute()
        self._config = Path(cfg_path).absolute() / CONFIG
        self._interval = poll_interval
        self._rank, self._world = sources.rank(), sources.world_size()
        self._job = _job(self._world)
        self._recorder = Recorder(first_step=1, on_end=self._report, options=choices)
        self._requests: dict[int, dict[str, Any]] = {}  # the status of each
        self._last_read: tuple[int, int, int] | None = None  # date, size and inode of the file
        self._pending: dict[str, Any] | None = None  # the request that rank 0 publishes for the others
        self._status: dict[str, Any] = {
            "job": self._job,
            "rank": self._rank,
            "world_size": self._world,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "taken": [],
            "rejected": [],
        }
        self._folder = self._config.parent / STATUS
        self._start_ns = 0
        self._try(self._recorder.prepare)
        self._try(self._prepare)
        runtime.before_exit(self._recorder.finish)
        if not os.environ.get("STEPSCOPE_RUN"):  # which listens for the whole process
            self._try(self._listen)
        self._next = 0.0
        self._poll(first=True)

    def step(self) -> None:
        """An iteration is over."""
        if time.monotonic() >= self._next:
            self._poll()
        self._recorder.end_step()

    def on_train_step_begin(self, run_context: Any) -> None:
        number = int(run_context.original_args().cur_step_num)
        if time.monotonic() >= self._next:
            self._poll(at_border=number)
        self._recorder.begin_step(number)

    def on_train_step_end(self, run_context: Any) -> None:
        self._recorder.end_step()

    def on_train_end(self, run_context: Any) -> None:
        self._recorder.stop(f"training ended in step {self._recorder.step - 1}")

    # The names of MindSpore 1.
    step_begin, step_end, end = on_train_step_begin, on_train_step_end, on_train_end

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._rank == 0:
            self._agreed.unlink(missing_ok=True)  # of an earlier job on the same port
            if not self._config.exists():
                _write(self._config, DEFAULTS)
        self._write_status()
        self._start_ns = self._status_file.stat().st_mtime_ns  # by the clock that also dates the file of rank 0

    def _listen(self) -> None:
        agent = listen(self._recorder, {"job": f"{Path(self._config.parent).name}-{self._job}", "out": self._output / "attached"})
        runtime.before_exit(agent.close)

    def _poll(self, *, first: bool = False, at_border: int | None = None) -> None:
        """Read the file if it has changed. A failure is reported, and the job continues."""
        self._next = time.monotonic() + self._interval
        if at_border is not None:
            self._recorder.step = at_border
        self._try(lambda: self._read_changes(first, at_border is not None))

    def _read_changes(self, first: bool, at_border: bool) -> None:
        # A file from before the job is the same for all ranks; a later one reaches them at different times.
        source = self._config if self._rank == 0 or first else self._agreed
        try:
            status = source.stat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(status.st_mode):  # a pipe would block the job
            return
        key = (status.st_mtime_ns, status.st_size, status.st_ino)
        if key == self._last_read or (source == self._agreed and status.st_mtime_ns < self._start_ns):
            if self._pending and self._recorder.step < self._pending["start_step"]:
                _write(self._agreed, self._pending)  # for ranks that started after it was written
            return
        if source == (self._config if self._rank == 0 else self._agreed):
            self._last_read = key
        try:
            settings = _read(source)
            if settings.get("start_step") == -1:
                return
            settings.setdefault("id", f"{settings.get('start_step')}-{settings.get('stop_step')}-{status.st_mtime_ns}")
            if self._rank == 0 and self._world > 1:
                settings = self._agree(settings, first)
            if settings["id"] not in [taken["id"] for taken in self._status["taken"]]:  # rank 0 writes it again while it is pending
                self._accept(settings, at_border)
        except StepscopeError as error:
            self._reject(str(error))

    def _agree(self, settings: dict[str, Any], first: bool) -> dict[str, Any]:
        """Move the start to a step that no rank has reached when the last one reads the request."""
        start, stop = _steps(settings)
        step_s = self._recorder.step_seconds or 0.0
        earliest = self._recorder.step + 2 + (math.ceil(2 * self._interval / step_s) if step_s else 0)
        if not first and self._recorder.step < start < earliest:
            settings = settings | {"start_step": earliest, "stop_step": earliest + stop - start, "moved_from": start}
        if start > self._recorder.step or first:
            self._pending = settings
            _write(self._agreed, settings)
        return settings

    def _accept(self, settings: dict[str, Any], at_border: bool) -> None:
        start, stop = _steps(settings)
        options, ignored = _options(settings)
        folder = settings.get("prof_path", "./")
        if not isinstance(folder, str) or not folder:
            raise UsageError(f"prof_path is {folder!r}; expected a folder")
        base = self._output if folder == "./" else Path(folder).absolute()
        choices = self._choices | options | {"output_path": base / f"rank{self._rank}_start{start}_stop{stop}"}
        refuse_keep_slow(choices)
        parse(choices)
        convert = _analysis(settings)
        if convert is None and settings.get("analyse_mode", -1) != -1:  # as in MindSpore, `analyse` decides where it is set
            ignored.append("analyse_mode (analyse is false: set it to true)")
        request = Request(first=start, count=stop - start + 1, options=choices, convert=convert)
        status = {"id": settings["id"], "start_step": start, "stop_step": stop, "options": options, "state": "waiting"}
        if "moved_from" in settings:
            status["moved_from"] = settings["moved_from"]  # so that every rank reads the request in time
        if ignored:
            status["ignored"] = ignored
            say(f"{self._config}: ignored: {', '.join(ignored)}")
        self._requests[id(request)] = status
        self._recorder.request(request, at_border=at_border)
        self._status["taken"].append(status)
        self._write_status()

    def _reject(self, reason: str) -> None:
        self._status["rejected"].append({"at": time.strftime("%Y-%m-%d %H:%M:%S"), "step": self._recorder.step, "why": reason})
        self._write_status()
        say(f"rank {self._rank}, step {self._recorder.step}: {self._config} is rejected: {reason}")

    def _report(self, request: Request) -> None:
        """A recording is over."""
        if request.capture is not None:
            capture = request.capture.with_name(request.capture.name.removesuffix(SUFFIX) + SUFFIX)  # also where it is a run folder by now
            for listener in runtime.listeners:
                listener.own_window(capture, request.steps, request.incomplete)
        status = self._requests.get(id(request))
        if status is None:  # requested by `stepscope attach`
            return
        status |= {
            "state": "failed" if request.capture is None else "recorded",
            "steps": request.steps,
            "recording": str(request.capture or ""),
        }
        if request.problem:
            status["problem"] = request.problem
        if request.incomplete:
            status["incomplete"] = request.incomplete
        self._try(self._write_status)

    @property
    def _status_file(self) -> Path:
        return self._folder / f"{self._job}.rank{self._rank}.json"

    @property
    def _agreed(self) -> Path:
        return self._folder / f"{self._job}.agreed.json"

    def _write_status(self) -> None:
        _write(self._status_file, self._status | {"step": self._recorder.step, "state": self._recorder.state})

    def _try(self, action: Any) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the job must not end
            say(f"dynamic profiling: {error_line(error)}")


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"invalid JSON ({error})") from error
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error
    if not isinstance(settings, dict):
        raise UsageError("expected a JSON object")
    return settings


def _steps(settings: dict[str, Any]) -> tuple[int, int]:
    numbers = []
    for name in ("start_step", "stop_step"):
        value = settings.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{name} is {value!r}; expected a whole number, 1 or more")
        numbers.append(value)
    if numbers[1] < numbers[0]:
        raise UsageError(f"stop_step is {numbers[1]}, before start_step, {numbers[0]}")
    return numbers[0], numbers[1]


def _options(settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a Profiler in the file, and the names that are none."""
    options: dict[str, Any] = {}
    ignored = []
    for name, value in settings.items():
        option = _FORMER_NAMES.get(name, name)
        if name in (*_NO_OPTIONS, "id", "moved_from") or not option:
            continue
        if option in Options.__dataclass_fields__ and option != "output_path":
            options[option] = value
        else:
            similar = difflib.get_close_matches(name, [*DEFAULTS, *_FORMER_NAMES], 1)
            ignored.append(f"{name} (did you mean {similar[0]}?)" if similar else name)
    return from_json(options), ignored


def _analysis(settings: dict[str, Any]) -> str | None:
    """When to write the run folder, None for later. In the former format, without `analyse`, the mode decides."""
    mode = settings.get("analyse_mode", -1)
    analyse = settings.get("analyse", mode in (0, 1))
    if not isinstance(analyse, bool) or mode not in (-1, 0, 1):
        raise UsageError(f"analyse is {analyse!r} and analyse_mode {mode!r}; expected true or false, and -1, 0 (sync) or 1 (async)")
    return None if not analyse else "async" if mode == 1 else "sync"


def _job(world: int) -> str:
    """A name that all ranks of a job derive, and no other job that runs at the same time."""
    addresses = [os.environ.get(name, "") for name in _RENDEZVOUS]
    if world == 1 or not any(addresses):
        return f"{re.sub('[^A-Za-z0-9-]', '_', socket.gethostname())}-{os.getpid()}"
    return "job-" + hashlib.sha256("\n".join([*addresses, str(world)]).encode()).hexdigest()[:12]


# Variables with the rendezvous address or the id of a job.
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(content, indent=4, default=str) + "\n", "utf-8")
    draft.replace(path)
