"""How the calls that end a step are seen: functions of a framework with ours around them, and which of several calls is the step."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope.rounds import Rounds
from stepscope.running.process import here


def wrap(
    owner: type,
    name: str,
    *,
    before: Callable[[Any], None] | None = None,
    after: Callable[[Any], None] | None = None,
    around: Callable[[Callable[[], Any]], Any] | None = None,
    around_self: Callable[[Any, Callable[[], Any]], Any] | None = None,
    when: Callable[[Any], bool] | None = None,
) -> None:
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if when is not None and not when(self):
            return method(self, *args, **kwargs)
        if before is not None:
            before(self)
        if around_self is not None:
            result = around_self(self, lambda: method(self, *args, **kwargs))
        else:
            result = around(lambda: method(self, *args, **kwargs)) if around is not None else method(self, *args, **kwargs)
        if after is not None:
            after(self)
        return result

    setattr(owner, name, wrapped)


def wrap_exit(annotation: type, when: Callable[[Any], bool] = lambda one: True) -> None:
    leave = annotation.__exit__  # type: ignore[attr-defined]

    def exit_(self: Any, *args: Any) -> Any:
        result = leave(self, *args)
        if when(self):
            here().border()
        return result

    annotation.__exit__ = exit_  # type: ignore[attr-defined]


class Outermost:
    """Calls that train, within one another: the outermost is the step."""

    def __init__(self) -> None:
        self.depth = 0

    def called(self, call: Callable[[], Any], counts: bool = True) -> Any:
        here().active()
        self.depth += 1
        try:
            result = call()
        finally:
            self.depth -= 1
        if counts and not self.depth:
            here().border()
        return result


outermost = Outermost()


class Leader:
    """Of several optimizers (two networks, one per layer, one after the other) one ends a step."""

    def __init__(self, apart: Callable[[Any, Any], bool] = lambda one, other: True) -> None:
        self._rounds = Rounds(lambda: here().recorder.step, apart)
        self.created = self._rounds.created

    def stepped(self, optimizer: Any) -> None:
        if not here().recorder.busy and self.counts(optimizer):
            here().border()

    def counts(self, optimizer: Any) -> bool:
        """Whether its call ends a step."""
        ends = self._rounds.stepped(optimizer)
        while self._rounds.notices:  # before the step ends: that may be the end of what is recorded
            here().recorder.note(self._rounds.notices.pop(0))
        return ends
