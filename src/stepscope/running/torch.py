"""PyTorch: a step ends when the optimizer has stepped."""

import sys
from functools import wraps
from typing import Any

from stepscope.collect import _torch_optimizers, _torch_ranges
from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import Leader, wrap
from stepscope.running.process import here


def after(torch: Any) -> None:
    here().seen.add("torch")
    _torch_ranges.track()
    leader = Leader(_torch_optimizers.apart)
    _torch_optimizers.listen(lambda optimizer, within: leader.stepped(optimizer), leader.created)

    first_call.wait(torch.nn.Module)
    wrap(sys.modules["torch.autograd.profiler"].profile, "_prepare_trace", before=lambda profile: here().own_profiler())
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(torch)


class FirstCall:
    """Recording begins before the outermost module is entered, so that its first call is as whole as every other.

    Until then, Module.__call__ is ours. Dynamo compares it while it is imported and when it compiles: it never meets ours.
    """

    def __init__(self) -> None:
        self._module: Any = None

    def wait(self, module: Any) -> None:
        self._module, self._call = module, module.__call__
        call, begin = self._call, self.begin

        @wraps(call)
        def first_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (begin() or call)(self, *args, **kwargs)

        self._ours = module.__call__ = first_call

    def begin(self, *_: Any) -> Any:
        """The way to call a module from now on, where it is not ours any more."""
        module = self._module
        if not self.step_back():
            return None
        self._module = None
        here().active()
        return module.__call__ if module.__call__ is not self._ours else None

    def step_back(self) -> bool:
        waits = self._module is not None
        if waits and self._module.__call__ is self._ours:
            self._module.__call__ = self._call
        return waits

    def step_in(self) -> None:
        if self._module is not None and self._module.__call__ is self._call:
            self._module.__call__ = self._ours


first_call = FirstCall()
