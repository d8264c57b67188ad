"""How the calls that end a step are seen: functions of a framework with ours around them, and which of several calls is the step."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

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
    """Of several optimizers (two networks, one per layer) one counts: the first, as long as it is used."""

    def __init__(self) -> None:
        self._leader: Any = None
        self._others = 0

    def stepped(self, optimizer: Any) -> None:
        if self.counts(optimizer):
            here().border()

    def counts(self, optimizer: Any) -> bool:
        if self._leader is None or self._leader() is None or self._others > 64:
            self._leader = weakref.ref(optimizer)
        leads = self._leader() is optimizer
        self._others = 0 if leads else self._others + 1
        return leads
