"""Which collectors record a program: that of the framework in use, the ranges that users name, the host; and which rank it is."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from stepscope.captures import Capture
from stepscope.collect import Collector
from stepscope.collect import plain as plain_ranges
from stepscope.collect.options import FRAMEWORKS, Options, ProfilerLevel
from stepscope.telling import say, told


def collectors(options: Options) -> list[Collector]:
    """What will record: the framework in use, the ranges users name, the host."""
    found: list[Collector] = [plain_ranges.Collector(options)]
    if name := chosen(options):
        found.append(collector(name, options))
        if name != "mindspore" and "torch_npu" not in sys.modules and (without := _asked_for(options, _OF_MINDSPORE)):
            found.append(_Absent(f"no effect with {name}: {', '.join(without)}"))
        if not options.framework and (others := [other for other in FRAMEWORKS if _imported(other) and other != name]):
            found.append(_Absent(f"{name} is recorded; {others[0]} is imported, too, and framework='{others[0]}' would record that"))
    if options.host_interval_ms:
        found.append(collector("host", options))
    if options.with_stack:
        found.append(collector("stacks", options))
    return found


def chosen(options: Options) -> str | None:
    """The framework to record: the one asked for, else the one in use."""
    if options.framework == "python" or (options.profiler_level is ProfilerLevel.LevelNone and not options.mstx):
        return None
    return options.framework or framework()


def present(options: Options) -> str | None:
    """The framework to record, if it is there by now."""
    name = chosen(options)
    return name if name and _imported(name) else None


def framework() -> str | None:
    """The framework that the program has imported. Of two, the one that computes."""
    there = [name for name in FRAMEWORKS if _imported(name)]
    if "jax" in there and "torch" in there and getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):
        return "jax"  # has devices open, so PyTorch most likely only loads data
    return there[0] if there else None


def _imported(name: str) -> bool:
    return not getattr(getattr(sys.modules.get(name, None), "__spec__", None), "_initializing", name not in sys.modules)


def without_framework(options: Options) -> list[str]:
    """What was asked for and only a framework's collector can do."""
    return _asked_for(options, (*_OF_FRAMEWORKS, *_OF_MINDSPORE))


def _asked_for(options: Options, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(options, name) != getattr(Options, name)]


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


def collector(name: str, options: Options) -> Collector:
    """Of a framework, or of another source."""
    if name in FRAMEWORKS and not _imported(name):  # asked for by name, and not there yet
        return _Absent(f"{name} had not been imported when recording began")
    if name == "torch" and (why := obstacle()):
        return _Absent(f"torch is not recorded: {why}")
    try:
        found: Collector = importlib.import_module(f"stepscope.collect.{name}").Collector(options)
    except Exception as error:  # noqa: BLE001 - a collector that cannot even be made does not end training
        return _Absent(f"{name} is not recorded: {told(error)}")
    return found


def obstacle() -> str | None:
    """PyTorch has one profiler at a time: a second would take the first one's place, and neither would say so."""
    torch = sys.modules.get("torch")
    return "the program's torch.profiler is at work" if torch and _imported("torch") and torch.autograd._profiler_enabled() else None


def prepare(options: Options) -> None:
    """Let the framework's collector ask for what must be asked for before the framework compiles or reads data."""
    name = present(options)
    try:
        ask = getattr(importlib.import_module(f"stepscope.collect.{name}"), "prepare", None) if name else None
        if ask:
            ask(options)
    except Exception as error:  # noqa: BLE001 - as for collectors
        say(f"{name}: prepare failed: {told(error)}")


def after_backward(action: Callable[[], None]) -> bool:
    """Do this when PyTorch's backward pass is over; False where this is no hook of one: do it now."""
    ranges = sys.modules.get("stepscope.collect._torch_ranges")
    return ranges is not None and bool(ranges.after_backward(action))


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
