"""PyTorch: a step ends when the optimizer has stepped."""

from functools import wraps
from typing import Any

from stepscope.recording.collectors.torch import optimizers, ranges
from stepscope.recording.collectors.torch.sessions import sessions
from stepscope.recording.hooks import stock_profilers
from stepscope.recording.hooks.calls import Leader
from stepscope.recording.hooks.process import this_process
from stepscope.recording.process.runtime import runtime


def after(torch: Any) -> None:
    this_process().frameworks.add("torch")
    ranges.track()
    leader = Leader(optimizers.train_apart)
    optimizers.listen(lambda optimizer, nested: leader.stepped(optimizer), leader.created)
    first_call.wait(torch.nn.Module)
    sessions.listen(this_process().own_profiler)
    runtime.before_exit(this_process().finish)  # before the exit handlers of the framework, which end the recording
    stock_profilers.start_by_variable(torch)


class FirstCall:
    """Starts the recording before the outermost module is entered, so that its first call is recorded as a whole.

    Until then, Module.__call__ is wrapped. Dynamo compares it during its import and when it compiles: the wrapper is removed before both.
    """

    def __init__(self) -> None:
        self._module: Any = None  # torch.nn.Module, until the first call

    def wait(self, module: Any) -> None:
        self._module = module
        self.wrap()

    def wrap(self) -> None:
        if self._module is not None:
            runtime.patches.wrap(self._module, "__call__", self, self._wrapper)

    def unwrap(self) -> None:
        if self._module is not None:
            runtime.patches.unwrap(self._module, "__call__", self)

    def begin(self, *_: Any) -> Any:
        """The program's work begins. The first call gets Module.__call__ as it is from now on."""
        module = self._module
        if module is None:
            return None
        is_removed = runtime.patches.unwrap(module, "__call__", self)
        self._module = None
        this_process().begin_work()
        return module.__call__ if is_removed else None

    def _wrapper(self, call: Any) -> Any:
        begin = self.begin

        @wraps(call)
        def first_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (begin() or call)(self, *args, **kwargs)

        return first_call


first_call = FirstCall()
