"""TensorFlow: a step ends with a batch of Keras's fit, else with the outermost call that computes gradients (a tf.function) or applies them
(an optimizer), unless the program marks its steps itself."""

import importlib
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import Leader, outermost, wrap, wrap_exit
from stepscope.running.process import here


def after(tf: Any) -> None:
    here().seen.add("tensorflow")
    functions = importlib.import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function")
    wrap(tf.GradientTape, "gradient", before=lambda tape: gradients.computed())
    wrap(functions.Function, "__call__", around_self=gradients.called)
    wrap(tf.data.Dataset, "__iter__", before=lambda dataset: here().active())
    mark = tf.profiler.experimental.Trace
    wrap(mark, "__enter__", before=lambda one: here().active())
    init = mark.__init__

    @wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._stepscope_step = "step_num" in kwargs and not here().recorder.busy
        gradients.marked = gradients.marked or self._stepscope_step

    mark.__init__ = remember
    wrap_exit(mark, when=lambda one: one._stepscope_step)
    profiler: Any = importlib.import_module("tensorflow.python.profiler.profiler_v2")
    start = profiler.start

    @wraps(start)
    def start_profiler(*args: Any, **kwargs: Any) -> Any:
        here().own_profiler()
        return start(*args, **kwargs)

    profiler.start = tf.profiler.experimental.start = start_profiler
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(tf)


class Gradients:
    """Which calls train: those within which gradients are computed or applied."""

    def __init__(self) -> None:
        self._leader = Leader()
        self._training: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen = False
        self.marked = False  # the program says itself where its steps end: it knows best

    def computed(self) -> None:
        """While a function is traced, or by a loop itself."""
        here().active()
        self._seen = True

    def called(self, who: Any, call: Callable[[], Any], *, applies: bool = False) -> Any:
        here().active()
        is_step = not outermost.depth
        if is_step:
            self._seen = applies
        outermost.depth += 1
        try:
            result = call()
        finally:
            outermost.depth -= 1
        if is_step and not self.marked:
            if self._seen:  # a function tells so when it is traced: in its first call
                self._training.add(who)
            if who in self._training:
                self._leader.stepped(who)
        return result


gradients = Gradients()
