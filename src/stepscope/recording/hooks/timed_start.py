"""`--seconds` for a program without a sign of training: when its recording may start.

That recording is replaced by another one when the program's work begins.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PERIOD_S = 0.25  # between two checks


def poll(check: Callable[[], bool]) -> None:
    """Call `check` on a separate thread until it returns False."""
    pause = threading.Event()

    def check_regularly() -> None:
        while not pause.wait(PERIOD_S) and check():
            pass

    threading.Thread(target=check_regularly, name="stepscope begin", daemon=True).start()


def importing() -> bool:
    """Whether numpy, which recording needs, or a framework is being imported and thus incomplete."""
    return any(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False) for name in ("numpy", *_IN_USE))


def frameworks_in_use() -> tuple[str, ...]:
    """Frameworks that have opened their device. Before that, a profiler would open it, while the program may still choose the device,
    set up its distributed runtime, or fork."""
    return tuple(name for name in _IN_USE if _in_use(name))


def _in_use(framework: str) -> bool:
    try:
        return _IN_USE[framework](sys.modules[framework])
    except (AttributeError, KeyError):  # another release
        return False


def _torch_in_use(torch: Any) -> bool:
    return bool(torch.cuda.is_initialized()) or not (torch.version.cuda or torch.version.hip) or not _has_gpu()


def _has_gpu() -> bool:
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))


def _mindspore_in_use(mindspore: Any) -> bool:
    return bool(mindspore.get_context("device_target") == "CPU")


_IN_USE: dict[str, Callable[[Any], bool]] = {
    "mindspore": _mindspore_in_use,
    "torch": _torch_in_use,
    "jax": lambda jax: bool(sys.modules["jax._src.xla_bridge"]._backends),
    "tensorflow": lambda tf: bool(sys.modules["tensorflow.python.eager.context"]._context._initialized),
}
