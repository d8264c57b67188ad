"""`--seconds` for a program that gives no sign of training: when recording may begin all the same, and what of it then.

Such a recording gives way to one from the first work on, should there be a sign of it later.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PERIOD_S = 0.25  # between two looks


def watch(look: Callable[[], bool]) -> None:
    """Call `look` on a thread of its own until it returns False."""
    pause = threading.Event()

    def go_on() -> None:
        while not pause.wait(PERIOD_S) and look():
            pass

    threading.Thread(target=go_on, name="stepscope begin", daemon=True).start()


def importing() -> bool:
    """Whether numpy, which recording needs, or a framework is being imported: there is only part of it then."""
    return any(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False) for name in ("numpy", *_IN_USE))


def frameworks_in_use() -> tuple[str, ...]:
    """Frameworks that have opened their device. Before that a profiler would do so, and a program may still want to choose the device,
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
