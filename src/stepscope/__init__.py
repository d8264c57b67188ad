"""stepscope: see where the time, memory and communication of neural-network training go."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.opening import open
    from stepscope.trace import Trace

__version__ = "0.1.0"
__all__ = ["Trace", "__version__", "open"]

# Loaded when first used: `import stepscope` inside a training job costs next to nothing.
_LAZY = {"open": "stepscope.opening", "Trace": "stepscope.trace"}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'stepscope' has no attribute '{name}'")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
