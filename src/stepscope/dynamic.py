"""DynamicProfilerMonitor: records the steps that a JSON file asks for, while the job runs.

    CFG_PATH/profiler_config.json            what to record: the user edits it at any time
    CFG_PATH/profiler_status/JOB.rankN.json  what rank N made of it: taken, rejected and why, where the recordings are
    CFG_PATH/profiler_status/JOB.agreed.json written by rank 0, for the others: they all record the same steps

There is no watching process and no shared memory: a step looks at the clock, and once per poll_interval at the file's date.
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

from stepscope import sources, telling
from stepscope.callbacks import _Callback
from stepscope.captures import SUFFIX
from stepscope.collect.options import Options, from_json, parse
from stepscope.endings import before_end
from stepscope.errors import StepscopeError, UsageError
from stepscope.jobs import listen
from stepscope.recorder import Recorder, Request
from stepscope.telling import say, told

CONFIG = "profiler_config.json"
STATUS = "profiler_status"
# What a new profiler_config.json says: nothing is recorded until start_step and stop_step are set.
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
_OURS = ("start_step", "stop_step", "analyse", "analyse_mode", "prof_path", "is_valid")
_EARLIER = {"record_shape": "record_shapes", "profile_communication": "", "profile_framework": "", "aicore_metrics": "aic_metrics"}


class DynamicProfilerMonitor(_Callback):
    """A callback for `Model.train`, or for a loop of one's own that calls `step()` at the end of each iteration.

    Iterations are counted from 1, and start_step and stop_step are both recorded. Further arguments are those of `Profiler`: what holds
    where the file says nothing.
    """

    def __init__(
        self, cfg_path: str | os.PathLike[str], output_path: str | os.PathLike[str] | None = None, poll_interval: float = 2, **choices: Any
    ) -> None:
        for listener in telling.listeners:
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
        self._recorder = Recorder(first_step=1, told=self._tell, options=choices)
        self._requests: dict[int, dict[str, Any]] = {}  # what the status says of each
        self._seen: tuple[int, int, int] | None = None  # the date and size of the file as it was last read
        self._pending: dict[str, Any] | None = None  # what rank 0 waits for, so that the others can hear of it
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
        self._born = 0
        self._quietly(self._recorder.prepare)
        self._quietly(self._prepare)
        before_end(self._recorder.finish)
        if not os.environ.get("STEPSCOPE_RUN"):  # there the whole process listens
            self._quietly(self._listen)
        self._next = 0.0
        self._poll(first=True)

    def step(self) -> None:
        """An iteration is over."""
        if time.monotonic() >= self._next:
            self._poll()
        self._recorder.border()

    def on_train_step_begin(self, run_context: Any) -> None:
        number = int(run_context.original_args().cur_step_num)
        if time.monotonic() >= self._next:
            self._poll(at_border=number)
        self._recorder.begin(number)

    def on_train_step_end(self, run_context: Any) -> None:
        self._recorder.border()

    def on_train_end(self, run_context: Any) -> None:
        self._recorder.stop(f"training ended in step {self._recorder.step - 1}")

    # The names of MindSpore 1 and of the seed's own examples.
    step_begin, step_end, end = on_train_step_begin, on_train_step_end, on_train_end

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._rank == 0:
            self._agreed.unlink(missing_ok=True)  # of an earlier job on the same port
            if not self._config.exists():
                _write(self._config, DEFAULTS)
        self._write_status()
        self._born = self._status_file.stat().st_mtime_ns  # by the clock that also dates what rank 0 writes

    def _listen(self) -> None:
        agent = listen(self._recorder, {"job": f"{Path(self._config.parent).name}-{self._job}", "out": self._output / "attached"})
        before_end(agent.close)

    def _poll(self, *, first: bool = False, at_border: int | None = None) -> None:
        """Look whether there is something new. Whatever goes wrong is told, and the job goes on."""
        self._next = time.monotonic() + self._interval
        if at_border is not None:
            self._recorder.step = at_border
        self._quietly(lambda: self._look(first, at_border is not None))

    def _look(self, first: bool, at_border: bool) -> None:
        # A file that was there before the job is the same for all; what comes later reaches them at different moments.
        source = self._config if self._rank == 0 or first else self._agreed
        try:
            status = source.stat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, and the job with it
            return
        key = (status.st_mtime_ns, status.st_size, status.st_ino)
        if key == self._seen or (source == self._agreed and status.st_mtime_ns < self._born):
            if self._pending and self._recorder.step < self._pending["start_step"]:
                _write(self._agreed, self._pending)  # for ranks that began later than it was written
            return
        if source == (self._config if self._rank == 0 else self._agreed):
            self._seen = key
        try:
            settings = _read(source)
            if settings.get("start_step") == -1:
                return
            settings.setdefault("id", f"{settings.get('start_step')}-{settings.get('stop_step')}-{status.st_mtime_ns}")
            if self._rank == 0 and self._world > 1:
                settings = self._agree(settings, first)
            if settings["id"] not in [taken["id"] for taken in self._status["taken"]]:  # rank 0 dates it anew while it waits
                self._take(settings, at_border)
        except StepscopeError as error:
            self._reject(str(error))

    def _agree(self, settings: dict[str, Any], first: bool) -> dict[str, Any]:
        """A step that no rank has reached when the last one hears of it."""
        start, stop = _steps(settings)
        usual = self._recorder.step_seconds or 0.0
        soonest = self._recorder.step + 2 + (math.ceil(2 * self._interval / usual) if usual else 0)
        if not first and self._recorder.step < start < soonest:
            settings = settings | {"start_step": soonest, "stop_step": soonest + stop - start, "moved_from": start}
        if start > self._recorder.step or first:
            self._pending = settings
            _write(self._agreed, settings)
        return settings

    def _take(self, settings: dict[str, Any], at_border: bool) -> None:
        start, stop = _steps(settings)
        options, ignored = _options(settings)
        folder = settings.get("prof_path", "./")
        if not isinstance(folder, str) or not folder:
            raise UsageError(f"prof_path is {folder!r}; expected a folder")
        base = self._output if folder == "./" else Path(folder).absolute()
        choices = self._choices | options | {"output_path": base / f"rank{self._rank}_start{start}_stop{stop}"}
        parse(choices)
        convert = _analysis(settings)
        if convert is None and settings.get("analyse_mode", -1) != -1:  # as MindSpore has it: `analyse` decides where it is given
            ignored.append("analyse_mode (analyse is false: set it to true)")
        request = Request(first=start, count=stop - start + 1, options=choices, convert=convert)
        about = {"id": settings["id"], "start_step": start, "stop_step": stop, "options": options, "state": "waiting"}
        if "moved_from" in settings:
            about["moved_from"] = settings["moved_from"]  # so that every rank hears of it in time
        if ignored:
            about["ignored"] = ignored
            say(f"{self._config}: ignored: {', '.join(ignored)}")
        self._requests[id(request)] = about
        self._recorder.ask(request, at_border=at_border)
        self._status["taken"].append(about)
        self._write_status()

    def _reject(self, why: str) -> None:
        self._status["rejected"].append({"at": time.strftime("%Y-%m-%d %H:%M:%S"), "step": self._recorder.step, "why": why})
        self._write_status()
        say(f"rank {self._rank}, step {self._recorder.step}: {self._config} is not taken: {why}")

    def _tell(self, request: Request) -> None:
        """A recording is over."""
        if request.capture is not None:
            capture = request.capture.with_name(request.capture.name.removesuffix(SUFFIX) + SUFFIX)  # also where it has become a run folder
            for listener in telling.listeners:
                listener.own_window(capture, request.steps, request.incomplete)
        about = self._requests.get(id(request))
        if about is None:  # asked for by `stepscope attach`
            return
        about |= {
            "state": "failed" if request.capture is None else "recorded",
            "steps": request.steps,
            "recording": str(request.capture or ""),
        }
        if request.problem:
            about["problem"] = request.problem
        if request.incomplete:
            about["incomplete"] = request.incomplete
        self._quietly(self._write_status)

    @property
    def _status_file(self) -> Path:
        return self._folder / f"{self._job}.rank{self._rank}.json"

    @property
    def _agreed(self) -> Path:
        return self._folder / f"{self._job}.agreed.json"

    def _write_status(self) -> None:
        _write(self._status_file, self._status | {"step": self._recorder.step, "state": self._recorder.state})

    def _quietly(self, action: Any) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the job is not ours to end
            say(f"dynamic profiling: {told(error)}")


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON ({error})") from error
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
    """The arguments of a Profiler that the file gives, and words of it that mean nothing."""
    options: dict[str, Any] = {}
    ignored = []
    for name, value in settings.items():
        ours = _EARLIER.get(name, name)
        if name in (*_OURS, "id", "moved_from") or not ours:
            continue
        if ours in Options.__dataclass_fields__ and ours != "output_path":
            options[ours] = value
        else:
            near = difflib.get_close_matches(name, [*DEFAULTS, *_EARLIER], 1)
            ignored.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return from_json(options), ignored


def _analysis(settings: dict[str, Any]) -> str | None:
    """Whether to make the run folder at once. Files without `analyse` are of the earlier format, where the mode decides."""
    mode = settings.get("analyse_mode", -1)
    wanted = settings.get("analyse", mode in (0, 1))
    if not isinstance(wanted, bool) or mode not in (-1, 0, 1):
        raise UsageError(f"analyse is {wanted!r} and analyse_mode {mode!r}; expected true or false, and -1, 0 (sync) or 1 (async)")
    return None if not wanted else "async" if mode == 1 else "sync"


def _job(world: int) -> str:
    """A name that all ranks of a job find, and no other job that runs at the same time."""
    words = [os.environ.get(name, "") for name in _MEETING]
    if world == 1 or not any(words):
        return f"{re.sub('[^A-Za-z0-9-]', '_', socket.gethostname())}-{os.getpid()}"
    return "job-" + hashlib.sha256("\n".join([*words, str(world)]).encode()).hexdigest()[:12]


# Where the ranks of a job meet.
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(content, indent=4, default=str) + "\n", "utf-8")
    draft.replace(path)
