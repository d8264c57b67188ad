"""What a capture of PyTorch contains besides events: versions, devices, threads, rank; and the activities that can be recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.recording.collectors.options import Options, ProfilerActivity, ascend_only
from stepscope.recording.collectors.torch import npu
from stepscope.recording.collectors.torch.sessions import collectives


def activities(requested: tuple[ProfilerActivity, ...]) -> list[Any]:
    """The requested activities that PyTorch supports here; without any device of them, the host."""
    import torch

    profiler: Any = torch.profiler
    supported = profiler.supported_activities()
    names = {ProfilerActivity.CPU: ("CPU",), ProfilerActivity.GPU: ("CUDA", "XPU"), ProfilerActivity.NPU: ("PrivateUse1", "MTIA", "HPU")}
    members = (getattr(profiler.ProfilerActivity, name, None) for activity in requested for name in names[activity])
    return [member for member in members if member in supported] or [profiler.ProfilerActivity.CPU]


def has_activity_records() -> bool:
    """Whether PyTorch returns its records as they are; before 2.12 it creates a Python object of each event."""
    import torch

    result = getattr(torch._C._autograd, "_ProfilerResult", None)
    return hasattr(result, "trace_activities")


def versions() -> dict[str, str]:
    import torch

    return {"torch": str(torch.__version__)} | ({"cuda": str(torch.version.cuda)} if torch.version.cuda else {})


def options_without_effect(options: Options) -> Iterator[str]:
    """A notice for each requested option that is not supported here."""
    import torch

    if npu.present():
        return
    yield from ascend_only(options)
    for name in ("hbm_ddr", "pcie"):
        if getattr(options, name) and not torch.cuda.is_available():
            yield f"{name}: there is no GPU"


def kineto_header(options: Options) -> dict[str, Any]:
    """The header of Kineto's file, and the names of the threads."""
    import torch

    cuda: Any = torch.cuda
    chips = [cuda.get_device_properties(number) for number in range(cuda.device_count())] if cuda.is_initialized() else []
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    threads = {task.name: _text(task / "comm") for task in Path("/proc/self/task").glob("*")}
    return {
        "header": {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": number,
                    "name": chip.name,
                    "totalGlobalMem": chip.total_memory,
                    "computeMajor": chip.major,
                    "computeMinor": chip.minor,
                    "numSms": chip.multi_processor_count,
                }
                for number, chip in enumerate(chips)
            ],
            **{flag: int(getattr(options, flag)) for flag in flags},
        },
        "threads": threads,
    }


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the thread has ended
        return ""


def job() -> dict[str, Any] | None:
    """Rank and world size of the process group, which launchers may not set, and the groups that the rank is in."""
    import torch

    if not collectives.is_initialized():
        return None
    # The function that torch.profiler calls for its header; early versions of PyTorch lack it.
    configuration = getattr(torch.distributed.distributed_c10d, "_get_all_pg_configs", None)
    return {
        "rank": torch.distributed.get_rank(),
        "world_size": torch.distributed.get_world_size(),
        "backend": torch.distributed.get_backend(),
        "pg_config": configuration() if configuration is not None else [],
    }
