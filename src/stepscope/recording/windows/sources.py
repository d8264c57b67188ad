"""Which collectors record a program: those of its framework, of user annotations and of the host; and which rank it is."""

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stepscope.model.captures import Capture
from stepscope.process.notices import error_line, say
from stepscope.recording.collectors import Collector, annotations
from stepscope.recording.collectors.options import FRAMEWORKS, Options, ProfilerActivity, ProfilerLevel


def collectors(options: Options) -> list[Collector]:
    """The collectors of the framework in use, of user annotations, the host and Python stacks."""
    chosen_collectors: list[Collector] = [annotations.Collector(options)]
    if name := chosen(options):
        chosen_collectors.append(collector(name, options))
        if name != "mindspore" and "torch_npu" not in sys.modules and (unsupported := _changed(options, _MINDSPORE_OPTIONS)):
            chosen_collectors.append(_Absent(f"no effect with {name}: {', '.join(unsupported)}"))
        if not options.framework and (others := [other for other in FRAMEWORKS if _imported(other) and other != name]):
            chosen_collectors.append(
                _Absent(f"{name} is recorded; {others[0]} is imported, too: framework='{others[0]}' records that one instead")
            )
    if ProfilerActivity.CPU in options.activities:
        chosen_collectors.append(collector("garbage", options))
    if options.host_interval_ms:
        chosen_collectors.append(collector("host", options))
    if options.with_stack:
        chosen_collectors.append(collector("stacks", options))
    return chosen_collectors


def chosen(options: Options) -> str | None:
    """The framework to record: the requested one, else the one in use."""
    if options.framework == "python" or (options.profiler_level is ProfilerLevel.LevelNone and not options.mstx):
        return None
    return options.framework or framework()


def present(options: Options) -> str | None:
    """The framework to record, if it has been imported."""
    name = chosen(options)
    return name if name and _imported(name) else None


def framework() -> str | None:
    """The framework that the program has imported; with several, the one that computes."""
    imported = [name for name in FRAMEWORKS if _imported(name)]
    if "jax" in imported and "torch" in imported and getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):
        return "jax"  # has devices open, so PyTorch most likely only loads data
    return imported[0] if imported else None


def _imported(name: str) -> bool:
    return not getattr(getattr(sys.modules.get(name, None), "__spec__", None), "_initializing", name not in sys.modules)


def framework_options(options: Options) -> list[str]:
    """The requested options that only a framework's collector supports."""
    return _changed(options, (*_FRAMEWORK_OPTIONS, *_MINDSPORE_OPTIONS))


def _changed(options: Options, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(options, name) != getattr(Options, name)]


_FRAMEWORK_OPTIONS = (
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
# Supported by MindSpore and torch_npu only. Other frameworks time kernels on the device itself and need no sync_enable.
_MINDSPORE_OPTIONS = ("parallel_strategy", "sync_enable", "sys_io", "sys_interconnection")


class _Absent:
    """Replaces a collector that is not available: adds a notice with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self, capture: Capture) -> None:
        capture.notice(self._reason)

    def step(self, number: int) -> None:
        pass

    def stop(self) -> None:
        pass


def collector(name: str, options: Options) -> Collector:
    """The collector of a framework or of another source."""
    if name in FRAMEWORKS and not _imported(name):  # requested by name
        return _Absent(f"{name} had not been imported when recording began")
    if name == "torch" and (reason := obstacle()):
        return _Absent(f"torch is not recorded: {reason}")
    try:
        instance: Collector = _module(name).Collector(options)
    except Exception as error:  # noqa: BLE001 - training continues without this collector
        return _Absent(f"{name} is not recorded: {error_line(error)}")
    return instance


def _module(name: str) -> ModuleType:
    module = f"{name}.collector" if name in ("torch", "mindspore") else name
    return importlib.import_module(f"stepscope.recording.collectors.{module}")


def obstacle() -> str | None:
    """Why PyTorch cannot be recorded now: it has one profiler at a time, and a second would silently replace the first."""
    torch = sys.modules.get("torch")
    return "the program's torch.profiler is running" if torch and _imported("torch") and torch.autograd._profiler_enabled() else None


def prepare(options: Options) -> None:
    """Let the framework's collector request what must be requested before the framework compiles or reads data."""
    name = present(options)
    try:
        prepare_framework = getattr(_module(name), "prepare", None) if name else None
        if prepare_framework:
            prepare_framework(options)
    except Exception as error:  # noqa: BLE001 - as for collectors
        say(f"{name}: prepare failed: {error_line(error)}")


def after_backward(action: Callable[[], None]) -> bool:
    """Run the action after PyTorch's backward pass. False outside of a backward pass: the caller runs it now."""
    ranges = sys.modules.get("stepscope.recording.collectors.torch.ranges")
    return ranges is not None and bool(ranges.defer_in_backward(action))


def rank() -> int:
    """The rank of this process, from torch.distributed or from the environment variables of launchers."""
    if distributed := _distributed():
        return int(distributed.get_rank())
    return _first_number(("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"), 0)


def world_size() -> int:
    if distributed := _distributed():
        return int(distributed.get_world_size())
    return _first_number(("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"), 1)


def _distributed() -> Any:
    """torch.distributed, once it is initialized: processes that the program spawns have no variable with their rank."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and _imported("torch") and module.is_available() and module.is_initialized() else None


def _first_number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)
