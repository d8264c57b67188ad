"""TensorFlow: a step ends with a batch of Keras's fit, else with the outermost call that computes gradients (a tf.function) or applies them
(an optimizer), unless the program marks its steps itself."""

import importlib
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope.recording.hooks import stock_profilers
from stepscope.recording.hooks.calls import KEY, Leader, outermost, wrap, wrap_start
from stepscope.recording.hooks.process import this_process
from stepscope.recording.process.runtime import runtime


def after(tf: Any) -> None:
    this_process().frameworks.add("tensorflow")
    functions = importlib.import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function")
    wrap(tf.GradientTape, "gradient", before=lambda tape: gradients.computed())
    wrap(functions.Function, "__call__", around=gradients.call)
    wrap(tf.data.Dataset, "__iter__", before=lambda dataset: this_process().begin_work())
    annotation = tf.profiler.experimental.Trace
    runtime.patches.wrap(annotation, "__init__", KEY, _remember_step)
    wrap(annotation, "__enter__", before=lambda trace: this_process().begin_work())
    wrap(annotation, "__exit__", after=lambda trace: this_process().end_step() if trace._stepscope_step else None)
    for owner in (importlib.import_module("tensorflow.python.profiler.profiler_v2"), tf.profiler.experimental):
        wrap_start(owner, "start")
    runtime.before_exit(this_process().finish)  # before the exit handlers of the framework, which end the recording
    stock_profilers.start_by_variable(tf)


def _remember_step(init: Any) -> Any:
    @wraps(init)
    def init_trace(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._stepscope_step = "step_num" in kwargs and not this_process().recorder.busy
        gradients.program_marks_steps = gradients.program_marks_steps or self._stepscope_step

    return init_trace


class Gradients:
    """The calls that train: gradients are computed or applied inside."""

    def __init__(self) -> None:
        self._leader = Leader()
        self._training: weakref.WeakSet[Any] = weakref.WeakSet()
        self._has_gradients = False
        self.program_marks_steps = False

    def computed(self) -> None:
        """While a function is traced, or by a loop itself."""
        this_process().begin_work()
        self._has_gradients = True

    def call(self, caller: Any, function: Callable[[], Any], *, applies: bool = False) -> Any:
        is_outermost = not outermost.depth
        if is_outermost:
            self._has_gradients = applies
        result = outermost.call(function, ends_step=False)
        if is_outermost and not self.program_marks_steps:
            if self._has_gradients:  # known of a function when it is traced: in its first call
                self._training.add(caller)
            if caller in self._training:
                self._leader.stepped(caller)
        return result


gradients = Gradients()
