"""The arguments of a Profiler, checked."""

import difflib
import enum
import math
import os
import sys
import typing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stepscope.errors import UsageError


class ProfilerLevel(enum.Enum):
    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(enum.Enum):
    CPU = "CPU"
    NPU = "NPU"
    GPU = "GPU"


class AicoreMetrics(enum.Enum):
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "None"


class ExportType(enum.Enum):
    Db = "db"
    Text = "text"


class HostSystem(enum.Enum):
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


@dataclass(frozen=True)
class Options:
    """The choices of one recording, the same for every collector."""

    output_path: Path = Path("./data")
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.NPU, ProfilerActivity.GPU)
    profiler_level: ProfilerLevel = ProfilerLevel.Level0
    aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone
    profile_memory: bool = False
    record_shapes: bool = False
    with_stack: bool = False
    stack_hz: int = 100  # samples of Python's stack in a second; 0 records every call. PyTorch and JAX always record every call
    with_modules: bool = True  # module scopes
    with_flops: bool = False
    data_process: bool = False
    parallel_strategy: bool = False
    data_simplification: bool = True
    l2_cache: bool = False
    hbm_ddr: bool = False
    pcie: bool = False
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[HostSystem, ...] = ()
    sync_enable: bool = True
    mstx: bool = False
    mstx_domain_include: tuple[str, ...] = ()
    mstx_domain_exclude: tuple[str, ...] = ()
    export_type: tuple[ExportType, ...] = (ExportType.Text,)
    host_interval_ms: int = 1000  # between two samples of the machine and the process; 0 for none
    max_events: int = 20_000_000  # a window that reaches one of these limits ends early, with a notice
    max_bytes: int = 8 << 30
    max_held_events: int = 500_000  # in memory, before they are written; PyTorch only
    max_pause_percent: int = 1  # of the time since the last pause: training may pause this long for writing; PyTorch only
    keep_slow: float | None = None  # keep only the windows with a step that took this many times the median of those before it
    framework: str | None = None  # torch, mindspore, jax, tensorflow; python for none of them; None: the one in use
    worker_name: str | None = None  # in the run folder's name; None: the host's name and the process id
    fp_start: str | None = None  # the operator that starts the forward pass, and the one that ends the backward pass
    bp_end: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class ExperimentalConfig:
    """The second half of the arguments, as in `mindspore.profiler.profile`."""

    profiler_level: ProfilerLevel | None = ProfilerLevel.Level0
    aic_metrics: AicoreMetrics | None = AicoreMetrics.AiCoreNone
    l2_cache: bool | None = False
    mstx: bool | None = False
    data_simplification: bool | None = True
    export_type: list[ExportType] | None = None
    mstx_domain_include: list[str] | None = None
    mstx_domain_exclude: list[str] | None = None
    sys_io: bool | None = False
    sys_interconnection: bool | None = False
    host_sys: list[HostSystem] | None = None


FRAMEWORKS = ("mindspore", "torch", "jax", "tensorflow")
# Arguments of MindSpore 1 and 2.0 to 2.3, and the warning for each.
_DEPRECATED = {
    "op_time": "operators are always recorded; activities=[ProfilerActivity.CPU] excludes the device",
    "profile_communication": "communication is always recorded",
    "profile_framework": "the host is recorded with ProfilerActivity.CPU",
    "host_stack": "use with_stack",
    "timeline_limit": "the timeline has no limit; max_bytes and max_events bound a recording",
}


def parse(choices: Mapping[str, Any]) -> Options:
    """The arguments as checked options; None is the default. Unknown names and wrong types raise a UsageError."""
    arguments = _flattened(choices)
    types = typing.get_type_hints(Options)
    for name in arguments:
        if name not in types:
            raise UsageError(_unknown(name, [*types, "schedule", "on_trace_ready", "start_profile", "experimental_config", "step_on"]))
    checked = {name: _checked(name, value, types[name]) for name, value in arguments.items() if value is not None}
    if checked.get("mstx_domain_include") and checked.get("mstx_domain_exclude"):
        raise UsageError("mstx_domain_include and mstx_domain_exclude exclude one another; give one")
    if checked.get("activities") == ():
        raise UsageError("activities is empty; expected at least one ProfilerActivity")
    # As in MindSpore: the counters of the chip are part of Level1 and Level2, and PipeUtilization is their default.
    level, metrics = checked.get("profiler_level"), checked.get("aic_metrics", AicoreMetrics.AiCoreNone)
    if metrics is AicoreMetrics.AiCoreNone and level in (ProfilerLevel.Level1, ProfilerLevel.Level2):
        checked["aic_metrics"] = AicoreMetrics.PipeUtilization
    elif metrics is not AicoreMetrics.AiCoreNone and level in (None, ProfilerLevel.LevelNone, ProfilerLevel.Level0):
        checked["profiler_level"] = ProfilerLevel.Level1
        if level is not None:
            warn(f"aic_metrics={metrics.name} needs profiler_level Level1 or Level2, not {level.name}: Level1 is recorded", UserWarning)
    environment = {"fp_start": os.environ.get("PROFILING_FP_START") or None, "bp_end": os.environ.get("PROFILING_BP_END") or None}
    return Options(**environment | checked)


def refuse_keep_slow(choices: Mapping[str, Any]) -> None:
    """Raise where single steps are requested."""
    if choices.get("keep_slow") is not None:
        raise UsageError("keep_slow is an option of Profiler and `stepscope run`: a request for certain steps keeps all of them")


def from_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from JSON files and environment variables: numbers for enums, -1 for the default, former names.

    Numbers are those of MindSpore 2.10: the position in AicoreMetrics, the digit of the level.
    """
    choices: dict[str, Any] = {}
    for name, value in settings.items():
        numbered = isinstance(value, int) and not isinstance(value, bool)
        if name in _DEPRECATED:
            if name == "host_stack" and value is True:
                choices.setdefault("with_stack", True)
        elif numbered and name in _BY_NUMBER:
            if value != -1:
                choices[name] = _numbered(name, value)
        else:
            choices[name] = value
    return choices


_BY_NUMBER: dict[str, list[Any]] = {
    "profiler_level": [ProfilerLevel.Level0, ProfilerLevel.Level1, ProfilerLevel.Level2],
    "aic_metrics": list(AicoreMetrics)[:-1],
    "aicore_metrics": list(AicoreMetrics)[:-1],
    "activities": [[ProfilerActivity.CPU, ProfilerActivity.NPU], [ProfilerActivity.CPU], [ProfilerActivity.NPU]],
    "export_type": [[ExportType.Text], [ExportType.Db], [ExportType.Text, ExportType.Db]],
}


def plain(options: Options) -> dict[str, Any]:
    """The options as values of JSON."""
    return {choice.name: _plain(getattr(options, choice.name)) for choice in fields(options)}


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the line of the user's program."""
    warnings.warn(message, category, stacklevel=_depth() + 1)


def caller_line() -> str:
    """The line of the user's program that called stepscope."""
    frame = sys._getframe(_depth())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _depth() -> int:
    """Number of frames from the caller of this function up to the first one outside this package."""
    depth = 1
    while True:
        try:
            name = sys._getframe(depth + 1).f_globals.get("__name__", "")
        except ValueError:  # called from no program, such as an exit handler
            return depth - 1
        if not name.startswith("stepscope."):
            return depth
        depth += 1


def ascend_only(options: Options) -> list[str]:
    """A notice for each requested option that only Ascend chips support."""
    notices = []
    if options.aic_metrics is not AicoreMetrics.AiCoreNone:
        notices.append(f"aic_metrics={options.aic_metrics.name}: only Ascend chips count these")
    if options.l2_cache:
        notices.append("l2_cache: only Ascend chips count this")
    return notices


def _flattened(choices: Mapping[str, Any]) -> dict[str, Any]:
    """One name per option: the contents of experimental_config are added, former names are replaced with a warning."""
    arguments = dict(choices)
    config = arguments.pop("experimental_config", None)
    if config is not None:
        names = [part.name for part in fields(ExperimentalConfig)]
        if not all(hasattr(config, name) for name in names):
            raise UsageError(f"experimental_config is {config!r}; expected an _ExperimentalConfig")
        arguments = {name: getattr(config, name) for name in names} | arguments
    if "aicore_metrics" in arguments:
        if arguments.get("aic_metrics") is not None and config is None:
            raise UsageError("aicore_metrics and aic_metrics are two names of one argument; give one")
        arguments["aic_metrics"] = arguments.pop("aicore_metrics")
    for name, instead in _DEPRECATED.items():
        if name in arguments:
            value = arguments.pop(name)
            if name == "host_stack" and value is True:
                arguments.setdefault("with_stack", True)
            warn(f"{name} is deprecated: {instead}", DeprecationWarning)
    return arguments


def _unknown(name: str, accepted: list[str]) -> str:
    similar = difflib.get_close_matches(name, accepted, 1)
    return f"a Profiler has no argument '{name}'" + (f"; did you mean '{similar[0]}'?" if similar else f"; expected {', '.join(accepted)}")


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value as the option's type, or a UsageError."""
    expected: str
    if kind is Path:
        expected = "a path"
        if isinstance(value, (str, os.PathLike)) and (path := os.fspath(value)) and isinstance(path, str) and "\0" not in path:
            return Path(path)
    elif kind is bool:
        expected = "True or False"
        if isinstance(value, bool):
            return value
    elif kind is int:
        expected = "a whole number, not negative"
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        expected = f"a member of {_members(kind)}"
        if (member := _member(kind, value)) is not None:
            return member
    elif typing.get_origin(kind) is tuple:
        return _several(name, value, typing.get_args(kind)[0])
    elif kind == dict[str, str]:
        expected = "a dict of text"
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    elif name == "keep_slow":
        expected = "a number above 1"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 < value < math.inf:
            return float(value)
    elif name == "framework":
        expected = f"one of {', '.join(FRAMEWORKS)}, python"
        word = {"pytorch": "torch"}.get(value, value) if isinstance(value, str) else value
        if word in (*FRAMEWORKS, "python"):
            return word
    else:
        longest = _LONGEST_NAME if name == "worker_name" else sys.maxsize
        expected = "text" if longest == sys.maxsize else f"text for the name of a folder, of {longest} bytes at most"
        if isinstance(value, str) and "\0" not in value and len(value.encode("utf-8", "surrogatepass")) <= longest:
            return value
    raise UsageError(f"{name} is {value!r}; expected {expected}")


def _several(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    text = kind is str
    expected = "a list of text" if text else f"a list of {_members(kind)}"
    listed = [value] if name == "export_type" and not isinstance(value, (list, tuple)) else value  # as in MindSpore
    if isinstance(listed, (list, tuple, set, frozenset)):
        items = [item if text and isinstance(item, str) and item else None if text else _member(kind, item) for item in listed]
        if None not in items:
            return tuple(dict.fromkeys(items))
    raise UsageError(f"{name} is {value!r}; expected {expected}")


def _members(kind: Any) -> str:
    return f"{kind.__name__}: {', '.join(member.name for member in kind)}"


def _member(kind: Any, value: Any) -> Any:
    """The member of our enum for a member of it, for one of another library, or for its name as text; else None."""
    if isinstance(value, kind):
        return value
    # PyTorch's ProfilerActivity is no Python enum, but has names.
    name = value if isinstance(value, str) else getattr(value, "name", None) if type(value).__name__ in _ENUMS_OF_OTHERS else None
    name = {"CUDA": "GPU", "PrivateUse1": "NPU"}.get(str(name), name)
    return next((member for member in kind if name is not None and name in (member.name, member.value)), None)


_LONGEST_NAME = 150  # every file system accepts it with the rest of the folder's name
_ENUMS_OF_OTHERS = {"ProfilerLevel", "ProfilerActivity", "AicoreMetrics", "AiCoreMetrics", "ExportType", "HostSystem", "_ProfilerActivity"}


def _numbered(name: str, number: int) -> Any:
    members = _BY_NUMBER[name]
    if not 0 <= number < len(members):
        raise UsageError(f"{name} is {number}; expected -1 to {len(members) - 1}")
    return members[number]


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
