"""JAX knows no optimizer: its steps are those that the program annotates."""

import sys
from functools import wraps
from typing import Any

from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import wrap, wrap_exit
from stepscope.running.process import here


def after(jax: Any) -> None:
    here().seen.add("jax")
    jax.monitoring.register_event_duration_secs_listener(lambda *args, **kwargs: here().active())
    wrap(jax.profiler.StepTraceAnnotation, "__enter__", before=lambda annotation: here().active())
    wrap_exit(jax.profiler.StepTraceAnnotation)
    start = jax.profiler.start_trace

    @wraps(start)
    def start_trace(*args: Any, **kwargs: Any) -> Any:
        here().own_profiler()
        return start(*args, **kwargs)

    jax.profiler.start_trace = start_trace
    setattr(sys.modules[start.__module__], "start_trace", start_trace)  # noqa: B010  jax.profiler.trace looks there
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(jax)
