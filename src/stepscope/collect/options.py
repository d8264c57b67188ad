"""What to record: the arguments of a Profiler, checked."""

import enum
from dataclasses import dataclass, field
from pathlib import Path


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
    with_modules: bool = True  # module scopes
    with_flops: bool = False
    data_process: bool = False
    parallel_strategy: bool = False
    data_simplification: bool = True
    l2_cache: bool = False
    hbm_ddr: bool = False
    pcie: bool = False
    sync_enable: bool = True
    mstx: bool = False
    host_interval_ms: int = 1000  # how often the machine's and the process's use is sampled; 0 for never
    max_events: int = 20_000_000  # a window that reaches one of these ends early, and says so
    max_bytes: int = 8 << 30
    framework: str | None = None  # torch, mindspore, jax; None: whichever the program has imported
    metadata: dict[str, str] = field(default_factory=dict)
