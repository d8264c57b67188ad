"""JAX has no optimizer: its steps are the annotated ones."""

import sys
from typing import Any

from stepscope.recording.hooks import stock_profilers
from stepscope.recording.hooks.calls import wrap, wrap_start
from stepscope.recording.hooks.process import this_process
from stepscope.recording.process.runtime import runtime


def after(jax: Any) -> None:
    this_process().frameworks.add("jax")
    if not _listeners:  # JAX cannot remove one
        _listeners.append(lambda *args, **kwargs: this_process().begin_work())
        jax.monitoring.register_event_duration_secs_listener(_listeners[0])
    wrap(jax.profiler.StepTraceAnnotation, "__enter__", before=lambda annotation: this_process().begin_work())
    wrap(jax.profiler.StepTraceAnnotation, "__exit__", after=lambda annotation: this_process().end_step())
    module = sys.modules[jax.profiler.start_trace.__module__]  # jax.profiler.trace calls the function of this module
    for owner in (jax.profiler, module):
        wrap_start(owner, "start_trace")
    runtime.before_exit(this_process().finish)  # before the exit handlers of the framework, which end the recording
    stock_profilers.start_by_variable(jax)


_listeners: list[Any] = []
