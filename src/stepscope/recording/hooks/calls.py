"""The calls that end a step: wrapped functions of a framework, and which of several calls is the step."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope.recording.hooks.process import this_process
from stepscope.recording.process.runtime import runtime
from stepscope.recording.steps.rounds import Rounds

KEY = "stepscope run"  # of the patches


def wrap(
    owner: Any,
    name: str,
    *,
    before: Callable[[Any], None] | None = None,
    after: Callable[[Any], None] | None = None,
    around: Callable[[Any, Callable[[], Any]], Any] | None = None,
    when: Callable[[Any], bool] = lambda instance: True,
) -> None:
    """Call these around a method, where `when` is true for its object."""

    def wrapper(method: Any) -> Any:
        @wraps(method)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not when(self):
                return method(self, *args, **kwargs)
            if before is not None:
                before(self)
            result = around(self, lambda: method(self, *args, **kwargs)) if around is not None else method(self, *args, **kwargs)
            if after is not None:
                after(self)
            return result

        return wrapped

    runtime.patches.wrap(owner, name, KEY, wrapper)


def wrap_start(owner: Any, name: str) -> None:
    """Stop recording when this function starts the program's own profiler."""

    def wrapper(start: Any) -> Any:
        @wraps(start)
        def start_profiler(*args: Any, **kwargs: Any) -> Any:
            this_process().own_profiler()
            return start(*args, **kwargs)

        return start_profiler

    runtime.patches.wrap(owner, name, KEY, wrapper)


class Outermost:
    """Nested calls that train: the outermost is the step."""

    def __init__(self) -> None:
        self.depth = 0

    def call(self, function: Callable[[], Any], ends_step: bool = True) -> Any:
        this_process().begin_work()
        self.depth += 1
        try:
            result = function()
        finally:
            self.depth -= 1
        if ends_step and not self.depth:
            this_process().end_step()
        return result


outermost = Outermost()


class Leader:
    """With several optimizers (two networks, one per layer, one after the other), the one that ends a step."""

    def __init__(self, train_apart: Callable[[Any, Any], bool] = lambda first, other: True) -> None:
        self._rounds = Rounds(lambda: this_process().recorder.step, train_apart)
        self.created = self._rounds.created

    def stepped(self, optimizer: Any) -> None:
        if not this_process().recorder.busy and self.ends_step(optimizer):
            this_process().end_step()

    def ends_step(self, optimizer: Any) -> bool:
        """Whether this call of the optimizer ends a step."""
        ends = self._rounds.stepped(optimizer)
        while self._rounds.notices:  # before the step ends, which may be the end of the recording
            this_process().recorder.add_notice(self._rounds.notices.pop(0))
        return ends
