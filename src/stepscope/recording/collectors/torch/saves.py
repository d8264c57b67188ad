"""Checkpoints of PyTorch: a range around each `torch.save`, which stops the program while it writes."""

from functools import wraps
from typing import Any

from stepscope.recording.collectors.torch import ranges
from stepscope.recording.process.runtime import runtime


class Saves:
    """Marks `torch.save` from start to stop."""

    WHAT = "checkpoints are"

    def start(self) -> None:
        import torch

        runtime.patches.wrap(torch, "save", self, _marked)

    def stop(self) -> None:
        import torch

        runtime.patches.unwrap(torch, "save", self)


def _marked(original: Any) -> Any:
    import torch

    @wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        with torch.profiler.record_function("torch.save"):
            return original(*args, **kwargs)

    ranges.not_compiled(save)
    return save
