"""Schedules: which steps are recorded."""

import enum
from collections.abc import Callable
from typing import Any

from stepscope.errors import UsageError


class ProfilerAction(enum.Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3  # the last step of a window


class schedule:  # noqa: N801 - the name that users know
    """Skip `skip_first` steps; then, `repeat` times or without end: wait, warm up, record `active` steps as one window."""

    def __init__(self, *, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0) -> None:
        self.wait, self.active, self.warmup, self.repeat, self.skip_first = wait, active, warmup, repeat, skip_first
        for name, value in self.to_dict().items():
            least = 1 if name == "active" else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"schedule: {name} is {value!r}; expected a whole number, {least} or more")

    def __call__(self, step: int) -> ProfilerAction:
        if step < 0:
            raise UsageError(f"schedule: step is {step}; expected 0 or more")
        cycle, position = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if cycle < 0 or (self.repeat and cycle >= self.repeat) or position < self.wait:
            return ProfilerAction.NONE
        if position < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        return ProfilerAction.RECORD if position < self.wait + self.warmup + self.active - 1 else ProfilerAction.RECORD_AND_SAVE

    def __repr__(self) -> str:
        return f"schedule({', '.join(f'{name}={value}' for name, value in self.to_dict().items())})"

    def to_dict(self) -> dict[str, int]:
        return {
            "wait": self.wait,
            "active": self.active,
            "warmup": self.warmup,
            "repeat": self.repeat,
            "skip_first": self.skip_first,
        }


Schedule = Callable[[int], Any]


def always(step: int) -> ProfilerAction:
    """No schedule: record from start to stop."""
    return ProfilerAction.RECORD


def action(schedule: Schedule, step: int) -> ProfilerAction:
    """The action of a step; schedules of MindSpore and PyTorch are accepted, too."""
    result = schedule(step)
    try:
        return ProfilerAction(getattr(result, "value", result))
    except ValueError:
        raise UsageError(f"the schedule returned {result!r} for step {step}; expected a ProfilerAction") from None
